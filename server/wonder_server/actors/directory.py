"""The directory: reaches an actor by its id, and follows the placement of shards."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager

from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.runtime.loops import Loops
from wonder_server.actors.runtime.monotonic import monotonic_s
from wonder_server.actors.runtime.resumption import NO_WORK, ResumedWork
from wonder_server.actors.streaming.attachment import Attachment, StreamSource, attach
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import PartKind
from wonder_server.actors.streaming.subscription import Subscription
from wonder_server.core import ids
from wonder_server.core.actor.planner import Planner
from wonder_server.core.actor.queries import ActorQuery
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.json_types import JsonValue
from wonder_server.logs import logger
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.placement import Placement, owner_moved
from wonder_server.ports.scoped import ScopedRecords

_log = logger("actors")

RESUME_AFTER_S = 1.0
"""First pause after an error of the store during the resumption. It doubles with each."""
MAX_RESUME_PAUSE_S = 60.0


class Directory:
    """The way to every actor. The actors of this node's shards live in its loops.

    A loop dispatches commands to handlers, and handlers report results to the loop. The directory resolves
    this cycle: handlers are built with the directory, and `start_loops` then builds the loops with the
    handlers. Every other method requires `start_loops`.
    """

    _loops: Loops
    """Set once by `start_loops`."""

    def __init__(self, streams: StreamHub, records: ScopedRecords) -> None:
        """Build a directory. ``streams`` are the live streams of this node's actors, for their handlers."""
        self.streams = streams
        self._records = records

    def start_loops(
        self, planners: Iterable[Planner], ports: LoopPorts, limits: LoopLimits, placement: Placement
    ) -> Loops:
        """Build the loops of this node's shards, and follow their placement from now on. Call it once."""
        assert not hasattr(self, "_loops"), "the directory has its loops already"
        self._ports = ports
        self._work: ResumedWork = NO_WORK
        self._resuming: set[asyncio.Task[None]] = set()
        self._loops = Loops(planners, ports, limits)
        for shard, epoch in placement.held().items():
            self._loops.gain(shard, epoch)
        placement.watch(self)
        return self._loops

    # --- placement ------------------------------------------------------------------------------

    def gained(self, shard: int, epoch: int) -> None:
        """Take over a shard, and resume its unfinished actors beside the first inputs."""
        self._loops.lose(shard)
        self._loops.gain(shard, epoch)
        task = asyncio.get_running_loop().create_task(self._resume())
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    def lost(self, shard: int) -> None:
        """Leave a shard that another node owns."""
        self._loops.lose(shard)

    async def resume(self, work: ResumedWork) -> None:
        """Resume the actors with pending operations, and cancel orphaned operations, while the server
        serves.

        ``work`` is the part that handlers do, for shards that this node gains later too. An error of the
        store is logged, and the resumption continues at the same place after a pause.
        """
        self._work = work
        await self._resume()

    async def _resume(self) -> None:
        began, pause_s = monotonic_s(), RESUME_AFTER_S
        while not self._loops.is_stopping:
            try:
                resumed = await self._loops.resume(self._work)
            except WonderError as problem:
                _log.error("resumption_interrupted", reason=problem.fault.reason, problem=str(problem))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_RESUME_PAUSE_S)
                continue
            if resumed.dispatched or resumed.waiting:
                _log.info(
                    "actors_resumed", actors=resumed.dispatched, waiting=resumed.waiting,
                    orphans=resumed.orphans, seconds=round(monotonic_s() - began, 2),
                )  # fmt: skip
            return

    # --- actors ---------------------------------------------------------------------------------

    def owns(self, actor_id: str) -> bool:
        """Return True if this node owns the actor's shard, so that sweeps on this node process the actor."""
        return self._loops.owns(actor_id)

    def epoch_of(self, actor_id: str) -> int:
        """Return the epoch under which this node owns the actor's shard, for a write past its loop. Raises
        OWNER_MOVED."""
        return self._loops.epoch_of(actor_id)

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
        """Send an input and wait until its effects are on disk. See `Loops.ask`."""
        return self._loops.ask(actor_id, event, request, caller=caller, fresh=fresh, entry_head=entry_head)

    def tell(
        self,
        actor_id: str,
        event: object,
        *,
        fresh: bool = False,
        low_priority: bool = False,
        withdraws: bool = False,
    ) -> None:
        """Send an input without waiting. See `Loops.tell`."""
        self._loops.tell(actor_id, event, fresh=fresh, low_priority=low_priority, withdraws=withdraws)

    def report_success(self, actor_id: str, operation_id: str, output: JsonValue) -> None:
        """Report the output of a completed operation to its actor."""
        self._loops.report_success(actor_id, operation_id, output)

    def report_failure(self, actor_id: str, operation_id: str, fault: Fault) -> None:
        """Report the fault of a failed operation to its actor."""
        self._loops.report_failure(actor_id, operation_id, fault)

    async def query(self, actor_id: str, query: ActorQuery) -> object:
        """Return the owner's answer to a query. Raises OWNER_MOVED."""
        return self._loops.query(actor_id, query)

    def peek(self, actor_id: str) -> object | None:
        """Return the state of an actor in memory, or None. It may be ahead of the disk."""
        return self._loops.peek(actor_id)

    # --- streams --------------------------------------------------------------------------------

    async def attach(
        self,
        actor_id: str,
        *,
        after: int,
        tail_only: bool = False,
        wants_progress: bool = False,
        kinds: Collection[PartKind] = (),
    ) -> Attachment | None:
        """Attach a reader that has seen events up to ``after``. Return None if the actor does not exist.

        ``wants_progress``: send the progress of a run's tasks too. ``kinds``: send parts of messages of these
        kinds too. Errors: CURSOR_OUT_OF_RANGE, OWNER_MOVED.
        """
        if not self._loops.owns(actor_id):
            # A reader that attached before this node gained the shard would miss the events in between.
            raise owner_moved(ids.shard_of(actor_id))
        source = StreamSource(
            actor_id,
            self._ports.journal_of(actor_id),
            self._records,
            self.streams,
        )
        return await attach(
            source, after=after, tail_only=tail_only, wants_progress=wants_progress, kinds=kinds
        )

    @contextmanager
    def live(self, actor_id: str) -> Iterator[Subscription]:
        """Subscribe to what an actor publishes from now on, for the time of the context. Raises OWNER_MOVED:
        another owner publishes nothing here."""
        if not self._loops.owns(actor_id):
            raise owner_moved(ids.shard_of(actor_id))
        subscription, _ = self.streams.subscribe(actor_id)
        try:
            yield subscription
        finally:
            self.streams.unsubscribe(actor_id, subscription)

    @contextmanager
    def end_of(self, run_id: str) -> Iterator[asyncio.Future[Event | None]]:
        """Yield a future for the event that ends a run. See `StreamHub.wait_for_end`."""
        end = self.streams.wait_for_end(run_id)
        try:
            yield end
        finally:
            self.streams.cancel_end_wait(run_id, end)

    def end_streams(self, actor_id: str, reason: str) -> None:
        """End all streams of an actor. ``reason`` as in `Closed`."""
        self.streams.close(actor_id, reason)

    # --- the record -----------------------------------------------------------------------------

    async def write(self, actor_id: str, commits: Sequence[Commit]) -> None:
        """Write commits to the actor's shard past its loop, for a damaged record that accepts no input.

        Raises STORAGE_UNAVAILABLE, OWNER_MOVED.
        """
        await self._loops.write(actor_id, commits)

    async def flush(self, actor_id: str) -> None:
        """Write an actor that is in memory and not on disk. Raises STORAGE_UNAVAILABLE, SERVER_DRAINING."""
        await self._loops.flush(actor_id)
