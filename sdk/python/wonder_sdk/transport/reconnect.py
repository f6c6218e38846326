"""When and how patiently a broken stream is taken up again."""

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
    }
)


SILENT_MS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """How a lost connection is noticed and sought again.

    The first try comes after ``first_ms`` milliseconds, each further one after twice as long, at most
    ``most_ms`` (each shortened at random by up to a half, so that a thousand clients do not come back
    at once). After ``give_up_ms`` without success the last error is raised.

    A server that is silent is asked for its health; it has ``silent_ms`` milliseconds to answer before its
    calls fail and its streams are sought again.
    """

    initial_ms: int = 100
    max_ms: int = 5_000
    timeout_ms: int = 120_000
    silent_ms: int = SILENT_MS


def is_transient(problem: WonderError) -> bool:
    """Whether a stream that ended so may be taken up again where it stopped.

    Without a reason it was not Wonder that spoke, but the network or a proxy on the way.
    """
    if problem.reason in _TRANSIENT_REASONS:
        return True
    lost = isinstance(problem, UnavailableError | InternalError | CallCancelledError)
    return lost and problem.reason is v1.ErrorReason.UNSPECIFIED


class Backoff:
    """Counts the failures of one stream. `failed` waits, or gives up; `worked` forgets them."""

    def __init__(self, policy: ReconnectPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._since = 0.0

    def reset(self) -> None:
        self._failures = 0

    async def wait_after(self, problem: WonderError, *, wait_ms: int = 0) -> None:
        """Wait as long as it is time to wait, ``wait_ms`` at least. Raises ``problem`` to give up."""
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
