"""Admission of calls: how many are served at once, and how many of one caller.

Three limits apply:

- ``max_concurrent_rpcs``: all calls together.
- ``max_streams``: open streams. The rest is for unary calls, which therefore always find a place.
- ``max_caller_rpcs``: the calls of one token, so that none takes every place. No effect without tokens.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.rpc.auth import Credential, credential
from wonder_server.rpc.principal import ANONYMOUS, caller
from wonder_server.settings import Settings

RETRY_AFTER_MS = 1_000


@dataclass(frozen=True, slots=True)
class Places:
    """Limits on calls that are served at once."""

    all: int
    streams: int
    caller: int

    @classmethod
    def of(cls, settings: Settings) -> Places:
        """Read the limits; a share of 0 is nine tenths for streams and half for a caller."""
        most = settings.max_concurrent_rpcs
        return cls(
            all=most,
            streams=min(settings.max_streams or most - most // 10, most),
            caller=min(settings.max_caller_rpcs or max(most // 2, 1), most),
        )


@dataclass(slots=True, eq=False)
class Visit:
    """A call being served."""

    name: str
    credential: Credential | None
    is_stream: bool
    task: asyncio.Task[object] | None
    ended: WonderError | None = None
    """The reason for which the server ends the call."""

    def end(self, problem: WonderError) -> None:
        """End the call with ``problem``: its task is cancelled, and finds the error here."""
        if self.ended is None and self.task is not None:
            self.ended = problem
            self.task.cancel()


class Admission:
    """The calls being served."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._visits: set[Visit] = set()
        self._streams = 0
        self._by_caller: Counter[str] = Counter()
        self._draining = False

    @property
    def inside(self) -> int:
        """Calls being served now, open streams included."""
        return len(self._visits)

    def close(self) -> None:
        """Refuse every new call with SERVER_DRAINING from now on."""
        self._draining = True

    def enter(self, *, is_stream: bool) -> Visit:
        """Admit the current task's call. SERVER_DRAINING, LIMIT_EXCEEDED."""
        name = caller.get()
        if self._draining:
            raise error(
                Reason.SERVER_DRAINING,
                "The server is shutting down; try again.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        places = self._places
        if len(self._visits) >= places.all:
            raise _full(f"The server already serves {places.all} calls", places.all)
        if name != ANONYMOUS and self._by_caller[name] >= places.caller:
            raise _full(f"The server already serves {places.caller} calls of '{name}'", places.caller)
        if is_stream and self._streams >= places.streams:
            raise _full(f"The server already serves {places.streams} streams", places.streams)
        visit = Visit(name, credential.get(), is_stream, asyncio.current_task())
        self._visits.add(visit)
        self._streams += is_stream
        self._by_caller[name] += 1
        return visit

    def leave(self, visit: Visit) -> None:
        """Give up the call's place."""
        self._visits.discard(visit)
        self._streams -= visit.is_stream
        self._by_caller[visit.name] -= 1
        if not self._by_caller[visit.name]:
            del self._by_caller[visit.name]

    def end_unless(self, is_valid: Callable[[Credential], bool]) -> int:
        """End the calls whose token is no longer valid, with UNAUTHENTICATED; return their number."""
        gone = [v for v in self._visits if v.credential is not None and not is_valid(v.credential)]
        for visit in gone:
            visit.end(
                error(
                    Reason.UNAUTHENTICATED,
                    f"The token '{visit.name}' was removed from the server's tokens while the call was open.",
                )
            )
        return len(gone)


def _full(what: str, limit: int) -> WonderError:
    return error(
        Reason.LIMIT_EXCEEDED,
        f"{what}; try again later.",
        retry_after_ms=RETRY_AFTER_MS,
        limit=str(limit),
    )
