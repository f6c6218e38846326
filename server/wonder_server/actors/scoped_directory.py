"""The directory for one access scope: actors of other projects do not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager

from wonder_server.actors.directory import Directory
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.streaming.attachment import Attachment
from wonder_server.actors.streaming.items import PartKind
from wonder_server.actors.streaming.subscription import Subscription
from wonder_server.core.actor.queries import ActorQuery
from wonder_server.core.conversation.model.inputs import Create
from wonder_server.core.coordinator.model.inputs import Start, StartFork
from wonder_server.core.errors import Reason, WonderError, not_found
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.scoped import ScopedRecords


class ScopedDirectory:
    """Reaches the actors that ``records`` shows.

    `live` and `end_of` do not read: their callers have read the conversation, or start the run.
    """

    def __init__(self, directory: Directory, records: ScopedRecords) -> None:
        self._directory = directory
        self._records = records
        self._creating: set[str] = set()
        """Actors of the scope whose first input is in the mailbox, and which are not on disk yet."""
        self._telling: set[asyncio.Task[None]] = set()

    async def ask(
        self,
        actor_id: str,
        event: object,
        request: IdempotencyKey | None = None,
        *,
        caller: str = "",
        fresh: bool = False,
    ) -> Outcome:
        """See `Directory.ask`. Raises CONVERSATION_NOT_FOUND and RUN_NOT_FOUND for an actor outside of the
        scope, PROJECT_NOT_FOUND for a new one."""
        project_id = _project_of(event) if fresh else None
        if project_id is not None and not self._records.scope.has_project(project_id):
            raise not_found(Reason.PROJECT_NOT_FOUND, project_id, field="project_id")
        if project_id is None:
            if actor_id not in self._creating:
                await self._check(actor_id)
            return await self._directory.ask(actor_id, event, request, caller=caller, fresh=fresh)
        self._creating.add(actor_id)
        try:
            return await self._directory.ask(actor_id, event, request, caller=caller, fresh=fresh)
        finally:
            self._creating.discard(actor_id)

    def tell(self, actor_id: str, event: object) -> None:
        """See `Directory.tell`. An input to an actor outside of the scope is dropped."""

        async def tell() -> None:
            if await self._records.shows(actor_id):
                self._directory.tell(actor_id, event)

        task = asyncio.get_running_loop().create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def epoch_of(self, actor_id: str) -> int:
        """See `Directory.epoch_of`. It tells about a shard, which belongs to no project."""
        return self._directory.epoch_of(actor_id)

    async def query(self, actor_id: str, query: ActorQuery) -> object:
        """See `Directory.query`. An actor outside of the scope is not in memory."""
        return await self._directory.query(actor_id, query) if await self._records.shows(actor_id) else None

    async def attach(
        self,
        actor_id: str,
        *,
        after: int,
        tail_only: bool = False,
        wants_progress: bool = False,
        kinds: Collection[PartKind] = (),
    ) -> Attachment | None:
        """See `Directory.attach`."""
        if not await self._records.shows(actor_id):
            return None
        return await self._directory.attach(
            actor_id, after=after, tail_only=tail_only, wants_progress=wants_progress, kinds=kinds
        )

    def live(self, actor_id: str) -> AbstractContextManager[Subscription]:
        """See `Directory.live`."""
        return self._directory.live(actor_id)

    def end_of(self, run_id: str) -> AbstractContextManager[asyncio.Future[Event | None]]:
        """See `Directory.end_of`."""
        return self._directory.end_of(run_id)

    def end_streams(self, actor_id: str, reason: str) -> None:
        """See `Directory.end_streams`."""
        self._directory.end_streams(actor_id, reason)

    async def write(self, actor_id: str, commits: Sequence[Commit]) -> None:
        """See `Directory.write`. Raises as `ask` does."""
        await self._check(actor_id)
        await self._directory.write(actor_id, commits)

    async def flush(self, actor_id: str) -> None:
        """See `Directory.flush`. It tells nothing about the actor."""
        await self._directory.flush(actor_id)

    async def _check(self, actor_id: str) -> None:
        if not await self._records.shows(actor_id):
            raise _actor_not_found(actor_id)


def _project_of(event: object) -> str | None:
    """Return the project of the actor that the input creates; None if it creates none."""
    match event:
        case Create():
            return event.conversation.project_id
        case Start() | StartFork():
            return event.scope.project_id
        case _:
            return None


def _actor_not_found(actor_id: str) -> WonderError:
    if actor_id.startswith("run_"):
        return not_found(Reason.RUN_NOT_FOUND, actor_id, field="run_id")
    return not_found(Reason.CONVERSATION_NOT_FOUND, actor_id, field="conversation_id")
