"""Resumption of unfinished actors after a start, or after this process gained a shard.

A data folder may hold 100,000 runs that wait for a person, a signal or a time. Loading them all would take
minutes and gigabytes, so a start loads none. `Resumption.run` reads the outboxes page by page while the
server works, in the order of the actors' ids:

- If every operation of an actor waits (`Planner.waits`), the actor stays on disk, and its timers are set. An
  input or a timer loads it, as it loads an actor that has left memory.
- Any other actor is loaded, and its outbox is dispatched again. Few of them do so at the same time, so new
  work goes on beside them.

An input may reach an actor before its page. The actor then dispatches its outbox again when it loads:
`claim` returns True for it, once. It needs no list of the actors that are left: those are the ids after the
last page, except the actors that entered memory since the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.actors.runtime.timers import ActorClocks, Timers
from wonder_server.core import ids
from wonder_server.core.actor.planner import Planner
from wonder_server.ports.journal import Journal, Unfinished

PAGE: Final = 200
"""Actors whose outboxes are read at once: some milliseconds of the store's thread."""

MAX_RESUMING: Final = 16
"""Actors that load and dispatch their outboxes again at the same time."""


class ResumedWork(Protocol):
    """The part of a resumption that handlers do."""

    async def cancel_orphans(self, actor_ids: Sequence[str]) -> int:
        """Cancel the runs and turns of these actors whose parents no longer wait for them. Return their
        number."""
        ...

    async def report_gates(self, actors: Sequence[Unfinished]) -> None:
        """Report the open gates of these actors to the conversations whose turns wait for them."""
        ...

    async def root_of(self, actor_id: str) -> str:
        """Return the root run below which the children of a stored actor count, "" if they do not count."""
        ...

    def count_child(self, root_id: str, operation_id: str) -> None:
        """Count the unfinished child of an operation that waits."""
        ...


class NoResumedWork:
    """Handlers without orphans and quotas."""

    async def cancel_orphans(self, actor_ids: Sequence[str]) -> int:
        return 0

    async def report_gates(self, actors: Sequence[Unfinished]) -> None:
        return

    async def root_of(self, actor_id: str) -> str:
        return ""

    def count_child(self, root_id: str, operation_id: str) -> None:
        return


NO_WORK: Final = NoResumedWork()


@dataclass(slots=True)
class Resumed:
    """The result of a resumption: the number of actors that dispatched their outboxes again, of those that
    wait on disk, and of cancelled orphans."""

    dispatched: int = 0
    waiting: int = 0
    orphans: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumptionParts:
    """The parts of the process that a resumption uses. ``restart`` loads actors and dispatches again every
    operation of their outboxes."""

    scheduler: Scheduler
    timers: Timers
    clocks: ActorClocks
    restart: Callable[[Sequence[str]], None]


class Resumption:
    """Resumes the actors of some shards in one journal that were unfinished when this process gained them."""

    def __init__(self, journal: Journal, parts: ResumptionParts) -> None:
        self.journal = journal
        self.shards: set[int] = set()
        self.has_begun = False
        """True after the first page. No shard may be added then."""
        self._scheduler = parts.scheduler
        self._timers = parts.timers
        self._clocks = parts.clocks
        self._restart = parts.restart
        self._cursors = {planner.prefix: "" for planner in parts.scheduler.planners}
        """The id of the last actor of the last page, by prefix of the planner. Ids above it are left."""
        self._claimed: set[str] = set()
        """Actors that are left and have entered memory since the start."""

    def claim(self, actor_id: str) -> bool:
        """Return True if this actor is left and enters memory for the first time."""
        if not self._is_left(actor_id):
            return False
        self._claimed.add(actor_id)
        return True

    def _is_left(self, actor_id: str) -> bool:
        if actor_id in self._claimed or ids.shard_of(actor_id) not in self.shards:
            return False
        cursor = self._cursors.get(actor_id.partition("_")[0])
        return cursor is not None and actor_id > cursor

    async def run(self, work: ResumedWork, resumed: Resumed) -> None:
        """Resume the unfinished actors, conversations first, and count them in ``resumed``.

        Raises STORAGE_UNAVAILABLE. Call it again to continue after the last page.
        """
        self.has_begun = True
        for planner in self._scheduler.planners:
            if planner.prefix in self._cursors:
                await self._resume_kind(planner, work, resumed)
                del self._cursors[planner.prefix]

    async def _resume_kind(self, planner: Planner, work: ResumedWork, resumed: Resumed) -> None:
        prefix = planner.prefix
        while self.shards and not self._scheduler.stopping:
            page = await self.journal.unfinished(prefix, self._cursors[prefix], PAGE)
            own = [actor for actor in page if ids.shard_of(actor.actor_id) in self.shards]
            if own:
                resumed.orphans += await work.cancel_orphans([actor.actor_id for actor in own])
                await work.report_gates(own)
                await self._resume_page(planner, own, work, resumed)
            if page:
                self._cursors[prefix] = page[-1].actor_id
            if len(page) < PAGE:
                return

    async def _resume_page(
        self, planner: Planner, page: Sequence[Unfinished], work: ResumedWork, resumed: Resumed
    ) -> None:
        to_dispatch: list[str] = []
        for actor in page:
            if not self._waits(planner, actor):
                to_dispatch.append(actor.actor_id)
                continue
            children = [each.id for each in actor.operations if each.has_unfinished_child]
            root_id = await work.root_of(actor.actor_id) if children else ""
            if self._is_left(actor.actor_id):
                resumed.waiting += 1
                self._set_timers(actor)
                for operation_id in children if root_id else ():
                    work.count_child(root_id, operation_id)
        for some in _pieces(to_dispatch):
            claimed = [actor_id for actor_id in some if self.claim(actor_id)]
            resumed.dispatched += len(claimed)
            self._restart(claimed)
            await self._scheduler.wait_until_settled(claimed)

    def _waits(self, planner: Planner, actor: Unfinished) -> bool:
        """Return True if nothing must be dispatched again for the actor. A damaged outbox must: its load
        reports the damage."""
        now_ms = self._clocks.now_ms(actor.actor_id, actor.at_ms)
        return bool(actor.operations) and all(
            planner.waits(each.value, each.has_unfinished_child, now_ms) for each in actor.operations
        )

    def _set_timers(self, actor: Unfinished) -> None:
        for operation in actor.operations:
            at_ms = self._clocks.server_time_ms(actor.actor_id, actor.at_ms, operation.wake_ms)
            self._timers.set(actor.actor_id, operation.id, at_ms)


def _pieces(actor_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(actor_ids), MAX_RESUMING):
        yield actor_ids[start : start + MAX_RESUMING]
