"""The loops of one process: one for each shard that this process owns.

All loops share the scheduler, so that fairness between callers and between kinds of work spans all shards.
They share the timers and the limits of commits in flight as well. Each loop has the journal of its shard and
the epoch under which this process owns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import NamedTuple, assert_never

from wonder_server.actors.runtime.actor import Actor, Batch, Home, Outcome
from wonder_server.actors.runtime.commits import CommitsInFlight, OwnedJournal
from wonder_server.actors.runtime.flush_timer import FlushTimer
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import Loop, LoopPorts, SharedParts
from wonder_server.actors.runtime.resumption import NO_WORK, Resumed, ResumedWork, Resumption, ResumptionParts
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.actors.runtime.timers import ActorClocks, Timers
from wonder_server.core import ids
from wonder_server.core.actor.planner import Planner
from wonder_server.core.actor.queries import (
    ActorQuery,
    Forget,
    ListMembers,
    ReadCalledTurn,
    ReadConversation,
    ReadSpending,
)
from wonder_server.core.errors import Fault, Reason, error
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.json_types import JsonValue
from wonder_server.logs import logger
from wonder_server.ports.journal import Commit, Journal
from wonder_server.ports.placement import owner_moved

_log = logger("actors")

MAX_COMMITS_BEFORE_THROTTLE = 32
"""Commits in flight at which no low-priority actor starts, since the disk could not follow."""


class LoopNumbers(NamedTuple):
    """Actors in memory, those with something to do, and the commits that the stores have not finished."""

    conversations: int
    runs: int
    busy: int
    commits_in_flight: int


class Loops:
    """All actors of this process. Each input goes to the loop of its actor's shard."""

    def __init__(self, planners: Iterable[Planner], ports: LoopPorts, limits: LoopLimits) -> None:
        self._ports = ports
        self._limits = limits
        self._loops: dict[str, Loop] = {}
        """The loop of each shard that this process owns, by the character that names the shard in ids. Every
        input looks a loop up, and this key costs a third of the shard's number."""
        self._in_flight = CommitsInFlight()
        self._timers = Timers(ports.clock, self._on_timer)
        self._flush_timer = FlushTimer(_offer, limits.flush_after_s)
        self._scheduler = Scheduler(planners, limits, home_of=self._home_of, is_throttled=self._is_throttled)
        self._clocks = ActorClocks(ports.clock)
        self._resumptions: dict[int, Resumption] = {}
        """The resumption of each shard whose unfinished actors have not all been resumed."""
        self._resuming = asyncio.Lock()
        self._shared = SharedParts(
            scheduler=self._scheduler,
            timers=self._timers,
            flush_timer=self._flush_timer,
            in_flight=self._in_flight,
            router=self,
            clocks=self._clocks,
            claim=self._claim,
        )

    # --- shards ---------------------------------------------------------------------------------

    def gain(self, shard: int, epoch: int) -> None:
        """Own a shard under this epoch. `resume` then resumes its actors with pending operations."""
        letter = ids.letter_of(shard)
        journal = OwnedJournal(self._ports.journal_of(ids.in_shard("conv_0", shard)), epoch)

        def on_stale() -> None:
            if self._loops.get(letter) is loop:
                self.lose(shard)
                self._ports.on_stale(shard, epoch)

        loop = Loop(journal, self._shared, self._ports, self._limits, on_stale=on_stale)
        self._loops[letter] = loop
        resumption = self._open_resumption(journal.journal)
        resumption.shards.add(shard)
        self._resumptions[shard] = resumption

    def _open_resumption(self, journal: Journal) -> Resumption:
        """Return the resumption of this journal that has not begun, or a new one."""
        for resumption in self._resumptions.values():
            if resumption.journal is journal and not resumption.has_begun:
                return resumption
        parts = ResumptionParts(
            scheduler=self._scheduler, timers=self._timers, clocks=self._clocks, restart=self._restart
        )
        return Resumption(journal, parts)

    def lose(self, shard: int) -> None:
        """Drop the actors of a shard without writing, end their streams, and answer their callers with
        OWNER_MOVED. Do nothing if this process does not own the shard."""
        loop = self._loops.pop(ids.letter_of(shard), None)
        resumption = self._resumptions.pop(shard, None)
        if resumption is not None:
            resumption.shards.discard(shard)
        if loop is not None:
            _log.warning("shard_left", shard=shard, epoch=loop.epoch)
            # End the streams first, so that no reader sees text of decisions that are dropped.
            self._ports.on_left(shard)
            loop.leave(owner_moved(shard))

    def owns(self, actor_id: str) -> bool:
        """Return True if this process owns the actor's shard."""
        return actor_id[-1] in self._loops

    def _loop_of(self, actor_id: str) -> Loop | None:
        return self._loops.get(actor_id[-1])

    def _home_of(self, actor_id: str) -> Home:
        return self._loops[actor_id[-1]]

    # --- inputs ---------------------------------------------------------------------------------

    def ask(
        self,
        actor_id: str,
        event: object,
        request: IdempotencyKey | None = None,
        *,
        caller: str = "",
        fresh: bool = False,
        entry_head: int | None = None,
    ) -> Coroutine[object, None, Outcome]:
        """Send an input and wait until its effects are on disk. ``entry_head`` as in `Loop.ask`.

        ``fresh``: the id is new, so the loop does not look for the actor in the store. Raises the fault of
        the planner's rejection, REQUEST_ID_REUSED, STORAGE_UNAVAILABLE, OWNER_MOVED or SERVER_DRAINING.
        """
        loop = self._loop_of(actor_id)
        if loop is None:
            raise owner_moved(ids.shard_of(actor_id))
        if fresh:
            loop.register_new(actor_id)
        return loop.ask(actor_id, event, request, caller=caller, entry_head=entry_head)

    def tell(
        self,
        actor_id: str,
        event: object,
        child_commits: Sequence[Commit] = (),
        *,
        fresh: bool = False,
        low_priority: bool = False,
        withdraws: bool = False,
    ) -> None:
        """Send an input without waiting. See `Loop.tell`. An input for a shard of another owner is dropped:
        that owner learns what it needs from the outbox of its own shard.

        ``fresh`` as in `ask`. ``withdraws``: if the actor has planned nothing yet, drop it with its inputs
        instead of planning this one.
        """
        loop = self._loop_of(actor_id)
        if loop is None or (withdraws and loop.discard_unstarted(actor_id)):
            return
        if fresh:
            loop.register_new(actor_id)
        loop.tell(actor_id, event, child_commits, low_priority=low_priority)

    async def write(self, actor_id: str, commits: Sequence[Commit]) -> None:
        """Write commits to the actor's shard past its loop. Raises OWNER_MOVED."""
        loop = self._loop_of(actor_id)
        if loop is None:
            raise owner_moved(ids.shard_of(actor_id))
        await OwnedJournal(self._ports.journal_of(actor_id), loop.epoch).submit(commits)

    def epoch_of(self, actor_id: str) -> int:
        """Return the epoch under which this process owns the actor's shard. Raises OWNER_MOVED."""
        loop = self._loop_of(actor_id)
        if loop is None:
            raise owner_moved(ids.shard_of(actor_id))
        return loop.epoch

    async def flush(self, actor_id: str) -> None:
        """Write an actor that is in memory and not on disk, so that its record can be read.

        Raises STORAGE_UNAVAILABLE, OWNER_MOVED, SERVER_DRAINING.
        """
        loop = self._loop_of(actor_id)
        if loop is None:
            raise owner_moved(ids.shard_of(actor_id))
        await loop.flush(actor_id)

    def report_success(self, actor_id: str, operation_id: str, output: JsonValue) -> None:
        """Report the output of a completed operation to its actor."""
        self._ports.on_result(operation_id)
        self.tell(actor_id, self._scheduler.planner_of(actor_id).succeeded(operation_id, output, ""))

    def report_failure(self, actor_id: str, operation_id: str, fault: Fault) -> None:
        """Report the fault of a failed operation to its actor."""
        self._ports.on_result(operation_id)
        self.tell(actor_id, self._scheduler.planner_of(actor_id).failed(operation_id, fault, ""))

    # --- queries --------------------------------------------------------------------------------

    def query(self, actor_id: str, query: ActorQuery) -> object:
        """Answer a query from memory. Raises OWNER_MOVED."""
        if self._loop_of(actor_id) is None:
            raise owner_moved(ids.shard_of(actor_id))
        match query:
            case ListMembers():
                return tuple(self._scheduler.members_of(actor_id))
            case Forget():
                return self._scheduler.evict(actor_id)
            case ReadConversation() | ReadCalledTurn() | ReadSpending():
                state = self._scheduler.peek(actor_id)
                return None if state is None else self._scheduler.planner_of(actor_id).query(state, query)
            case _:
                assert_never(query)

    # --- inspect --------------------------------------------------------------------------------

    def peek(self, actor_id: str) -> object | None:
        """Return the state of an actor in memory, or None. The state may be ahead of the disk."""
        return self._scheduler.peek(actor_id)

    @property
    def actor_count(self) -> int:
        """Number of actors in memory."""
        return len(self._scheduler.actors)

    @property
    def timer_count(self) -> int:
        """Number of timers that are set."""
        return len(self._timers)

    @property
    def is_idle(self) -> bool:
        """True if no actor is scheduled, in a commit or waiting for a read."""
        return self._scheduler.is_idle

    async def wait_until_idle(self) -> None:
        """Wait until all inputs are planned and all due batches are committed."""
        await self._scheduler.wait_until_idle()

    # --- start and stop -------------------------------------------------------------------------

    async def resume(self, work: ResumedWork = NO_WORK) -> Resumed:
        """Resume the unfinished actors of all shards that were gained and not resumed yet.

        Raises STORAGE_UNAVAILABLE. Call it again to continue at the same place.
        """
        resumed = Resumed()
        async with self._resuming:
            while self._resumptions and not self._scheduler.stopping:
                resumption = next(iter(self._resumptions.values()))
                await resumption.run(work, resumed)
                self._resumptions = {
                    shard: each for shard, each in self._resumptions.items() if each is not resumption
                }
        return resumed

    def _claim(self, actor_id: str) -> bool:
        """Return True for an actor that must dispatch its outbox again when it loads, once."""
        resumption = self._resumptions.get(ids.shard_of(actor_id)) if self._resumptions else None
        return resumption is not None and resumption.claim(actor_id)

    def _restart(self, actor_ids: Sequence[str]) -> None:
        for actor_id in actor_ids:
            loop = self._loop_of(actor_id)
            if loop is not None:
                loop.restart([actor_id])

    @property
    def is_stopping(self) -> bool:
        """True after `stop`."""
        return self._scheduler.stopping

    async def stop(self) -> None:
        """Accept no further inputs and wait for commits in flight. Pending operations stay in the outbox."""
        self._scheduler.stopping = True
        await self._scheduler.wait_until_idle()
        self._timers.close()
        self._flush_timer.close()
        for actor in self._scheduler.actors.values():
            for envelope in [*(actor.batch.inputs if actor.batch else ()), *actor.mailbox]:
                envelope.resolve(error(Reason.SERVER_DRAINING, "The server is shutting down; try again."))

    def numbers(self) -> LoopNumbers:
        """Return the numbers of this moment."""
        actors = self._scheduler.actors
        runs = sum(actor_id.startswith("run_") for actor_id in actors)
        return LoopNumbers(
            conversations=len(actors) - runs,
            runs=runs,
            busy=self._scheduler.busy_count,
            commits_in_flight=self._in_flight.count,
        )

    # --- parts that the loops share -------------------------------------------------------------

    def _is_throttled(self) -> bool:
        return self._in_flight.count >= MAX_COMMITS_BEFORE_THROTTLE

    def _on_timer(self, actor_id: str, operation_id: str) -> None:
        self._ports.failpoints.reach("before-timer")
        event = self._scheduler.planner_of(actor_id).timer_fired(operation_id)
        self.tell(actor_id, event)


def _offer(actor: Actor, batch: Batch) -> bool:
    return actor.home.on_flush_due(actor, batch)
