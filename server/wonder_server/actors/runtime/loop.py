"""The actor loop of one shard: receive ─▶ plan ─▶ apply ─▶ dispatch.

Every conversation and every workflow run is an actor: a mailbox, a state and a planner. An actor with an
empty mailbox has no task and no thread. Without pending operations it may also leave memory.

The loop plans the inputs of a mailbox one after another, without waiting for I/O. It applies each decision
to the state immediately and adds it to the actor's *batch*: inputs and decisions (the journal entries),
rows, events and outbox. The batch is written in one commit, and each actor has at most one commit in
flight. Inputs that are planned meanwhile go into the next batch.

**The loop publishes, dispatches and answers nothing before the commit that holds it.** There is one
exception: early dispatch. The loop dispatches a command at once if its effect can safely happen twice or in
vain (`Planner.allows_early_dispatch`). The planner may use the result before the start is committed, so a
run of such commands never waits for the disk. A crash loses a few milliseconds of that work, and the loop
executes it again. See docs/adr/0008-write-behind.md.

Three more laws:

- **Volatile runs are not written.** A run is volatile while all its work can safely be executed again
  (`Planner.must_commit` returns False). Its commands are dispatched, its batch stays in memory, and the
  batch is written together with its answer, in the commit of the actor that waits for it. The loop writes
  an unfinished volatile run after a moment (`wonder_server.actors.runtime.flush_timer`) or when a request
  reads it. After its first commit the run's record may not fall behind.
- **A child is never on disk before its parent.** The first commit of a child also holds the batch of its
  volatile parent, ahead of its own. The same holds for a conversation whose hook started before the
  conversation was written (docs/adr/0018-hooks-before-commit.md). Until that commit the hook executes
  side-effect-free commands only.
- **A commit that the store refuses for its epoch ends the loop.** The shard has another owner by then. The
  loop drops all actors, reloads nothing and stops their work; `wonder_server.actors.runtime.loops` ends it.
- **A failed commit discards the state.** The loop reloads the actor from disk;
  `wonder_server.actors.runtime.recovery` decides about each input. An input that breaks the planner, or
  that cannot be written, fails the operation it is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wonder_server.actors.runtime.actor import Actor, Batch, Envelope, Outcome
from wonder_server.actors.runtime.commits import CommitsInFlight, OwnedJournal
from wonder_server.actors.runtime.committer import CommitPorts, Committer
from wonder_server.actors.runtime.flush_timer import FlushTimer
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loading import Loader
from wonder_server.actors.runtime.monotonic import monotonic_s
from wonder_server.actors.runtime.recovery import Recovery
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.actors.runtime.step import PlannedCallback, step
from wonder_server.actors.runtime.timers import ActorClocks, Timers
from wonder_server.core.actor.commands import Answer, Command, RunWorkflow
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.ports.clock import Clock
from wonder_server.ports.failpoints import NO_FAILPOINTS, Failpoints
from wonder_server.ports.journal import Commit, Event, Journal

MAX_BATCH_INPUTS = 64
"""Maximum number of inputs in one batch."""

MAX_COMMITS_BEFORE_FLUSH = 16
"""Commits in flight at which the loop stops writing unfinished volatile runs. Batches that must be written
come first."""


def _ignore_id(_id: str) -> None:
    """Do nothing."""


def _ignore_epoch(_shard: int, _epoch: int) -> None:
    """Do nothing."""


def _ignore_shard(_shard: int) -> None:
    """Do nothing."""


def _keep_input(_actor_id: str, _state: object, event: object) -> object:
    return event


def _ignore_decisions(_actor_id: str, _state: object, _event: object, _decisions: Sequence[object]) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPorts:
    """The effects of a loop, as callables."""

    journal_of: Callable[[str], Journal]
    """Returns the journal of the shard that an id names."""
    clock: Clock
    dispatch: Callable[[str, Command], None]
    """Starts to execute an actor's command and returns at once. It may report the result before it
    returns."""
    publish: Callable[[str, list[Event]], None]
    """Shows committed events of an actor to its readers."""
    on_result: Callable[[str], None] = _ignore_id
    """Receives the id of each operation whose result is reported."""
    complete_input: Callable[[str, object, object], object] = _keep_input
    """Returns an input with what is known only as it is planned. Receives the actor's id, its state for
    reading, and the input."""
    failpoints: Failpoints = NO_FAILPOINTS
    on_planned: PlannedCallback = _ignore_decisions
    """Receives each planned input that led to decisions."""
    on_discarded: Callable[[str], None] = _ignore_id
    """Receives the id of each actor whose decisions since its last commit are lost."""
    on_stale: Callable[[int, int], None] = _ignore_epoch
    """Receives a shard and the epoch of this process that the store refused. The shard was left before."""
    on_left: Callable[[int], None] = _ignore_shard
    """Receives each shard that this process has left."""


class Router(Protocol):
    """Delivers inputs to actors of any shard."""

    def tell(
        self,
        actor_id: str,
        event: object,
        child_commits: Sequence[Commit] = (),
        *,
        low_priority: bool = False,
    ) -> None: ...

    def report_failure(self, actor_id: str, operation_id: str, fault: Fault) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """The parts that the loops of one process share, so that scheduling is fair between all of them."""

    scheduler: Scheduler
    timers: Timers
    flush_timer: FlushTimer
    in_flight: CommitsInFlight
    router: Router
    clocks: ActorClocks
    claim: Callable[[str], bool]
    """Returns True for an actor that must dispatch its outbox again when it loads; see
    `wonder_server.actors.runtime.resumption`."""


class Loop:
    """All actors of one shard, for as long as this process owns the shard.

    `wonder_server.actors.runtime.loops.Loops` calls it. It composes the loader, the committer and the
    recovery, and shares scheduler and timers with the other loops.
    """

    def __init__(
        self,
        journal: OwnedJournal,
        shared: SharedParts,
        ports: LoopPorts,
        limits: LoopLimits,
        *,
        on_stale: Callable[[], None],
    ) -> None:
        self.epoch = journal.epoch
        self._clock = ports.clock
        self._dispatch = ports.dispatch
        self._on_result = ports.on_result
        self._complete_input = ports.complete_input
        self._on_planned = ports.on_planned
        self._failpoints = ports.failpoints
        self._timers = shared.timers
        self._flush_timer = shared.flush_timer
        self._scheduler = shared.scheduler
        self._in_flight = shared.in_flight
        self._router = shared.router
        self._actors = self._scheduler.actors
        self._recovery = Recovery(
            self._scheduler,
            self._timers,
            dispatch=ports.dispatch,
            report_failure=shared.router.report_failure,
            on_discarded=ports.on_discarded,
            reload_after_s=limits.reload_after_s,
        )
        self._claim = shared.claim
        self._loader = Loader(
            self._scheduler,
            self._recovery,
            self._timers,
            journal=journal.journal,
            clocks=shared.clocks,
            claim=shared.claim,
        )
        self._committer = Committer(
            self._scheduler,
            self._recovery,
            CommitPorts(
                journal=journal,
                in_flight=shared.in_flight,
                publish=ports.publish,
                on_committed=self._complete,
                on_stale=on_stale,
            ),
            retry_after_s=limits.reload_after_s,
        )

    # --- receive --------------------------------------------------------------------------------

    def register_new(self, actor_id: str) -> None:
        """Create the actor for a fresh id. The loop does not read it from the store."""
        if actor_id not in self._actors and not self._scheduler.stopping:
            actor = self._scheduler.get_or_create(actor_id)
            actor.state, actor.has_all_requests = actor.planner.new_state(), True
            self._claim(actor_id)

    async def ask(
        self,
        actor_id: str,
        event: object,
        request: IdempotencyKey | None = None,
        *,
        caller: str = "",
        entry_head: int | None = None,
    ) -> Outcome:
        """Send an input and wait until its effects are on disk.

        ``caller`` names the queue in which the actor waits from now on; "" keeps its queue. ``entry_head``:
        decide nothing unless this is the sequence of the actor's last journal entry.
        Raises the fault of the planner's rejection, REQUEST_ID_REUSED, STORAGE_UNAVAILABLE or
        SERVER_DRAINING.
        """
        if self._scheduler.stopping:
            raise error(
                Reason.SERVER_DRAINING, "The server is shutting down; try again.", retry_after_ms=1000
            )
        if caller:
            actor = self._scheduler.get_or_create(actor_id)
            actor.lane = actor.lane._replace(caller=caller)
        reply: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._post(actor_id, Envelope(event, reply, request, entry_head=entry_head))
        return await reply

    def tell(
        self,
        actor_id: str,
        event: object,
        child_commits: Sequence[Commit] = (),
        *,
        low_priority: bool = False,
    ) -> None:
        """Send an input without waiting.

        ``low_priority``: the actor is one of many that another actor starts. It yields to actors that have
        planned an input already.
        """
        if not self._scheduler.stopping:
            actor, parent = self._scheduler.get_or_create(actor_id), getattr(event, "parent", None)
            actor.low_priority |= low_priority
            if parent is not None and (started_by := self._actors.get(parent.actor_id)) is not None:
                actor.lane = started_by.lane
        self._post(actor_id, Envelope(event, child_commits=child_commits))

    def discard_unstarted(self, actor_id: str) -> bool:
        """Remove a new actor that has not planned an input. Return False if it may have started."""
        actor = self._actors.get(actor_id)
        if actor is None or actor.state is None or actor.entry_head or actor.batch or actor.inflight:
            return False
        if not actor.has_all_requests or actor.committed:
            return False
        del self._actors[actor_id]
        for envelope in actor.mailbox:
            if (parent := getattr(envelope.input, "parent", None)) is not None:
                self._on_result(parent.operation_id)
            envelope.resolve(
                error(Reason.RUN_NOT_FOUND, f"Run {actor_id} did not start: its parent cancelled it.")
            )
        actor.mailbox.clear()
        actor.scheduled = False
        self._scheduler.mark_idle(actor)
        return True

    async def flush(self, actor_id: str) -> None:
        """Write an actor that is in memory and not on disk, so that its record can be read.

        Raises STORAGE_UNAVAILABLE, SERVER_DRAINING.
        """
        actor = self._actors.get(actor_id)
        if actor is not None and not actor.committed:
            # An input without effect: its reply waits until everything before it is on disk.
            await self.ask(actor_id, actor.planner.timer_fired(""))

    def _post(self, actor_id: str, envelope: Envelope) -> None:
        if self._scheduler.stopping:
            return
        actor = self._scheduler.get_or_create(actor_id)
        actor.mailbox.append(envelope)
        self._scheduler.schedule(actor, high_priority=envelope.reply is not None)

    # --- start and stop -------------------------------------------------------------------------

    def restart(self, actor_ids: Iterable[str]) -> None:
        """Load these actors and dispatch again every operation in their outboxes."""
        self._recovery.restart(actor_ids)

    def leave(self, problem: WonderError) -> None:
        """Drop every actor of the shard, since it has another owner. Their callers receive ``problem``."""
        self._committer.leave()
        self._recovery.leave([actor for actor in self._actors.values() if actor.home is self], problem)

    # --- plan -----------------------------------------------------------------------------------

    def work(self, actor: Actor) -> None:
        """Dispatch and plan for one time slice; then submit a due batch, or release the actor."""
        unfinished = False
        if self._actors.get(actor.id) is actor:
            if actor.state is not None:
                unfinished = self._plan(actor)
                self._register_timers(actor)
            elif not actor.loading:
                self._loader.start_loading(actor)
        actor.scheduled = False
        if self._committer.should_wait_for_children(actor):
            unfinished = True
        else:
            self._committer.submit_if_due(actor)
        if unfinished or actor.ready_commands:
            self._scheduler.schedule(actor)
        self._scheduler.release_if_idle(actor)

    def _plan(self, actor: Actor) -> bool:
        """Dispatch ready commands and plan the mailbox. Return True if the time slice ended first.

        A dispatched command may report its result at once; the result is then the next input.
        """
        loader, scheduler = self._loader, self._scheduler
        while True:
            if actor.ready_commands:
                self._dispatch_command(actor, actor.ready_commands.popleft())
            elif not (actor.mailbox and self._can_plan(actor)):
                return False
            elif loader.needs_deduplication(actor, actor.mailbox[0]):
                loader.start_deduplication(actor, actor.mailbox[0])
                return False
            elif not self._step(actor, actor.mailbox.popleft()):
                return False
            if monotonic_s() > scheduler.slice_end:
                return True

    def _dispatch_command(self, actor: Actor, command: Command) -> None:
        self._dispatch(actor.id, command)
        if type(command) is RunWorkflow:
            batch, child = actor.batch, self._actors.get(command.run_id)
            if (
                child is not None
                and batch is not None
                and any(early is command for early in batch.early_commands)
            ):
                child.parent_uncommitted = actor.parent_uncommitted or batch.due

    def _step(self, actor: Actor, envelope: Envelope) -> bool:
        """Plan one input. Return False if the planner failed; the state is then invalid."""
        try:
            now_ms = self._clock.now_ms() + actor.clock_offset_ms
            envelope.input = self._complete_input(actor.id, actor.state, envelope.input)
            commands = step(actor, envelope, now_ms, self._on_planned)
        except Exception:
            actor.failure = WonderError(report_incident("actor_failed", actor=actor.id)), envelope
            return False
        batch = actor.batch
        if batch is not None and not batch.due and len(batch.inputs) == 1:
            self._flush_timer.add(actor, batch)
        for command in commands:
            if type(command) is Answer:
                # The parent's commit writes the batch.
                sealed = actor.seal_batch(final=True)
                if sealed.recorded_entries:
                    self._timers.cancel_all(actor.id)
                self._answer_parent(command, sealed.all_commits())
            else:
                actor.ready_commands.append(command)
        return True

    def _can_plan(self, actor: Actor) -> bool:
        """Return True if the actor can plan one more input."""
        if actor.loading or actor.failure is not None:
            return False
        full = 1 if actor.isolate_inputs else MAX_BATCH_INPUTS
        if actor.batch is not None and len(actor.batch.inputs) >= full:
            actor.batch.due = True
            self._committer.submit_if_due(actor)
        if actor.isolate_inputs and actor.inflight is not None:
            return False
        return actor.batch is None or len(actor.batch.inputs) < full

    def submit_if_due(self, actor: Actor) -> None:
        """Submit the actor's batch if it is due and no commit of the actor is in flight."""
        self._committer.submit_if_due(actor)

    def on_flush_due(self, actor: Actor, batch: Batch) -> bool:
        """Write a volatile run that has not ended for a while, since a client may read it. Return False to
        ask again later: while many commits are in flight, batches that must be written come first."""
        if actor.batch is not batch or batch.due or self._actors.get(actor.id) is not actor:
            return True
        if self._in_flight.count >= MAX_COMMITS_BEFORE_FLUSH:
            return False
        batch.due = True
        self._scheduler.schedule(actor, high_priority=True)
        return True

    # --- after a commit -------------------------------------------------------------------------

    def _complete(self, actor: Actor, batch: Batch) -> None:
        """Do what waited for the batch: set timers, reply, dispatch."""
        self._set_timers(actor, batch)
        actor.isolate_inputs = max(0, actor.isolate_inputs - len(batch.inputs))
        actor.write_through = actor.write_through and (actor.isolate_inputs > 0 or not batch.commit.entries)
        for envelope, outcome in batch.replies:
            envelope.resolve(outcome)
        for command in batch.commands:
            if isinstance(command, Answer):
                self._answer_parent(command, [])
            else:
                actor.ready_commands.append(command)

    def _answer_parent(self, answer: Answer, child_commits: Sequence[Commit]) -> None:
        """Report a run's result to its parent, with the commits that the parent's commit includes."""
        self._failpoints.reach("before-answer")
        parent, planner = answer.parent, self._scheduler.planner_of(answer.parent.actor_id)
        self._on_result(parent.operation_id)
        event = (
            planner.succeeded(parent.operation_id, answer.output, answer.run_id)
            if answer.fault is None
            else planner.failed(parent.operation_id, answer.fault, answer.run_id)
        )
        self._router.tell(parent.actor_id, event, child_commits)

    # --- timers ---------------------------------------------------------------------------------

    def _register_timers(self, actor: Actor) -> None:
        """Set the timers of a batch that is not due."""
        batch = actor.batch
        if batch is not None and not batch.due:
            if batch.recorded_entries < len(batch.commit.entries):
                batch.record()
            self._set_timers(actor, batch)

    def _set_timers(self, actor: Actor, batch: Batch) -> None:
        for operation_id, wake_ms in batch.timers.items():
            self._timers.set(actor.id, operation_id, actor.server_time_ms(wake_ms))
        batch.timers.clear()
