"""The parts through which entry points and handlers reach actors."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from wonder_server.actors.directory import Directory
from wonder_server.actors.keyed_locks import KeyedLocks
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.streaming.attachment import Attachment
from wonder_server.actors.streaming.items import PartKind
from wonder_server.actors.streaming.subscription import Subscription
from wonder_server.core.actor.queries import ActorQuery
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.scoped import ScopedJournals, ScopedRecords


class ActorDirectory(Protocol):
    """The methods of `Directory` that entry points call: of the directory itself, or of a view of it for one
    access scope (`wonder_server.actors.scoped_directory`)."""

    def ask(
        self,
        actor_id: str,
        event: object,
        request: IdempotencyKey | None = None,
        *,
        caller: str = "",
        fresh: bool = False,
    ) -> Coroutine[object, None, Outcome]: ...

    def tell(self, actor_id: str, event: object) -> None: ...

    def epoch_of(self, actor_id: str) -> int: ...

    async def query(self, actor_id: str, query: ActorQuery) -> object: ...

    async def attach(
        self,
        actor_id: str,
        *,
        after: int,
        tail_only: bool = False,
        wants_progress: bool = False,
        kinds: Collection[PartKind] = (),
    ) -> Attachment | None: ...

    def live(self, actor_id: str) -> AbstractContextManager[Subscription]: ...

    def end_of(self, run_id: str) -> AbstractContextManager[asyncio.Future[Event | None]]: ...

    def end_streams(self, actor_id: str, reason: str) -> None: ...

    async def write(self, actor_id: str, commits: Sequence[Commit]) -> None: ...

    async def flush(self, actor_id: str) -> None: ...


D = TypeVar("D", bound=ActorDirectory, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorAccess(Generic[D]):
    """Access to actors: send inputs and follow streams through the directory, read journals and rows.

    All parts have one access scope. ``locks`` are those of requests in progress, shared by all scopes.
    """

    directory: D
    journals: ScopedJournals
    records: ScopedRecords
    clock: Clock
    locks: KeyedLocks = field(default_factory=KeyedLocks)


EntryAccess = ActorAccess[ActorDirectory]
"""The access of entry points, for the access scope of a caller."""

InternalAccess = ActorAccess[Directory]
"""The access of handlers, archiving and sweeps: the server's own work, with the scope of everything."""


async def ask_new(
    directory: ActorDirectory, actor_id: str, event: object, request: IdempotencyKey | None, *, caller: str
) -> Outcome:
    """Create an actor by its first input and wait until it is on disk. Errors: those of `Loop.ask`.

    If the caller is cancelled, the cancellation is raised after the commit. A caller that holds the lock of a
    request or a name therefore holds it until the next holder finds the actor on disk.
    """
    try:
        return await directory.ask(actor_id, event, request, caller=caller, fresh=True)
    except asyncio.CancelledError:
        with suppress(WonderError):
            await directory.flush(actor_id)
        raise
