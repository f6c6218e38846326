"""Admission of calls: limits on the calls served at once, in total and per caller.

Three limits apply:

- ``max_concurrent_rpcs``: all calls.
- ``max_streams``: open streams. The remaining slots are for unary calls, so streams cannot take them all.
- ``max_caller_rpcs``: the calls of one token, so that one token cannot take every slot. No effect without
  tokens.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.rpc.server.authentication import Credential, credential
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.settings import Settings

RETRY_AFTER_MS = 1_000


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on the number of calls served at once, and on each request."""

    total: int
    streams: int
    per_caller: int
    request_bytes: int = 4 << 20
    """Maximum size of one request, in bytes."""
    request_seconds: float = 120.0
    """Time in which a call must send its only request, in seconds."""
    pages: int = 4
    """Maximum number of large pages that are encoded at once."""

    @classmethod
    def from_settings(cls, settings: Settings) -> CallLimits:
        """Return the limits that the settings give.

        A limit of 0 means 90 % of all calls for streams, and 50 % for one caller.
        """
        limit = settings.max_concurrent_rpcs
        return cls(
            total=limit,
            streams=min(settings.max_streams or limit - limit // 10, limit),
            per_caller=min(settings.max_caller_rpcs or max(limit // 2, 1), limit),
            request_bytes=settings.max_request_bytes,
            request_seconds=float(settings.request_seconds),
            pages=settings.max_concurrent_pages,
        )


@dataclass(slots=True, eq=False)
class ActiveCall:
    """A call that the server serves."""

    caller_name: str
    credential: Credential | None
    is_stream: bool
    task: asyncio.Task[object] | None
    end_error: WonderError | None = None
    """The reason for which the server ends the call."""

    @property
    def token_name(self) -> str:
        """Name of the call's token or principal; "" on a server without authentication."""
        return self.credential.name if self.credential is not None else ""

    def end(self, problem: WonderError) -> None:
        """Cancel the call's task and store ``problem`` as the reason."""
        if self.end_error is None and self.task is not None:
            self.end_error = problem
            self.task.cancel()


class Admission:
    """The calls that the server serves."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._active: set[ActiveCall] = set()
        self._streams = 0
        self._by_caller: Counter[str] = Counter()
        self._draining = False

    @property
    def active_calls(self) -> int:
        """Number of calls served now, including open streams."""
        return len(self._active)

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return self._streams

    def close(self) -> None:
        """Reject every new call with SERVER_DRAINING from now on."""
        self._draining = True

    def admit(self, *, is_stream: bool) -> ActiveCall:
        """Admit the current task's call. Raises SERVER_DRAINING or LIMIT_EXCEEDED."""
        name = current_principal.get().caller
        if self._draining:
            raise error(
                Reason.SERVER_DRAINING,
                "The server is shutting down. Try again after its restart.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        limits = self._limits
        if len(self._active) >= limits.total:
            raise _limit_error(f"The server already serves {limits.total} calls", limits.total)
        if name and self._by_caller[name] >= limits.per_caller:
            raise _limit_error(
                f"The server already serves {limits.per_caller} calls of '{name}'", limits.per_caller
            )
        if is_stream and self._streams >= limits.streams:
            raise _limit_error(f"The server already serves {limits.streams} streams", limits.streams)
        call = ActiveCall(name, credential.get(), is_stream, asyncio.current_task())
        self._active.add(call)
        self._streams += is_stream
        self._by_caller[name] += 1
        return call

    def release(self, call: ActiveCall) -> None:
        """Release the call's slot."""
        self._active.discard(call)
        self._streams -= call.is_stream
        self._by_caller[call.caller_name] -= 1
        if not self._by_caller[call.caller_name]:
            del self._by_caller[call.caller_name]

    def end_revoked(self, is_valid: Callable[[Credential], bool]) -> int:
        """End the calls of invalid tokens with UNAUTHENTICATED; return their number. The call that made its
        own token invalid answers first."""
        own = credential.get()
        revoked = [
            call
            for call in self._active
            if call.credential is not None and call.credential is not own and not is_valid(call.credential)
        ]
        for call in revoked:
            call.end(
                error(
                    Reason.UNAUTHENTICATED,
                    f"The token of '{call.token_name}' was removed, revoked or expired while the "
                    "call was open, or its permissions changed. Call again with a valid token.",
                )
            )
        return len(revoked)


def _limit_error(reason: str, limit: int) -> WonderError:
    return error(
        Reason.LIMIT_EXCEEDED,
        f"{reason}. Try again later.",
        retry_after_ms=RETRY_AFTER_MS,
        limit=str(limit),
    )
