"""The rules and delays of reconnects."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from wonder_sdk._proto.wonder import v1
from wonder_sdk.errors import (
    CallCancelledError,
    InternalError,
    UnavailableError,
    WonderError,
)

_TRANSIENT_REASONS = frozenset(
    {
        v1.ErrorReason.SLOW_READER,
        v1.ErrorReason.SERVER_DRAINING,
        v1.ErrorReason.STORAGE_UNAVAILABLE,
        v1.ErrorReason.OWNER_MOVED,
    }
)


SILENT_MS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """Delays and timeouts for detecting and restoring a lost connection.

    The first attempt comes after ``initial_ms`` milliseconds. Each further delay is twice as long, at most
    ``max_ms``. Each delay is shortened at random by up to a half, so that a thousand clients do not return at
    once. After ``timeout_ms`` without success the last error is raised.

    The client checks the health of a silent server. If it does not answer within ``silent_ms`` milliseconds,
    its calls fail and its streams reconnect.
    """

    initial_ms: int = 100
    max_ms: int = 5_000
    timeout_ms: int = 120_000
    silent_ms: int = SILENT_MS


def is_transient(problem: WonderError) -> bool:
    """Return True if a stream that ended with ``problem`` can be resumed.

    An error without a reason is not from Wonder but from the network or a proxy. Damaged data stays damaged.
    """
    if problem.reports_damage:
        return False
    if problem.reason in _TRANSIENT_REASONS:
        return True
    lost = isinstance(problem, UnavailableError | InternalError | CallCancelledError)
    return lost and problem.reason is v1.ErrorReason.UNSPECIFIED


class Backoff:
    """Counts the failures of one stream. `wait_after` waits or raises; `reset` clears the count."""

    def __init__(self, policy: ReconnectPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._since = 0.0

    def reset(self) -> None:
        self._failures = 0

    async def wait_after(self, problem: WonderError, *, wait_ms: int = 0) -> None:
        """Wait before the next attempt, at least ``wait_ms``.

        Raises ``problem`` after the policy's timeout.
        """
        if not is_transient(problem):
            raise problem
        if self._failures == 0:
            self._since = time.monotonic()
        elif (time.monotonic() - self._since) * 1000 > self._policy.timeout_ms:
            raise problem
        backoff = min(self._policy.initial_ms * 2**self._failures, self._policy.max_ms)
        self._failures = min(self._failures + 1, 30)
        least = max(wait_ms, problem.retry_after_ms or 0)
        await asyncio.sleep(max(least, backoff * random.uniform(0.5, 1.0)) / 1000)
