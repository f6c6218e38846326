"""The loop, written once: receive ─▶ plan ─▶ apply ─▶ dispatch.

Every conversation and every workflow run is an actor: a mailbox and a working set. While its mailbox is
empty it has no task and no thread, and when nothing is pending either it may leave memory altogether.

An actor plans what lies in its mailbox, input after input, in one stretch and without waiting for anything.
What was decided changes the working set at once and gathers in a *batch*: inputs and decisions (the
journal), rows, events and outbox. The batch goes to disk in one commit, one at a time for each actor; what is
planned meanwhile gathers for the next. **Nothing is shown to a client, handed out or answered before the
commit that holds it**, with one exception: a command that may be carried out again, or for nothing, without
anybody being able to tell (`Planner.early`) is handed out at once. Its result may be planned on before its
beginning is on disk, so a run of such work is as quick as a function, and a crash loses some milliseconds of
it, which are done again. See docs/adr/0008-write-behind.md.

Three more laws:

- A run whose work so far may all simply be done again (`Planner.must_commit` is False, it is *volatile*) is
  not written: its batch stays, its commands go out, and the batch travels with its answer, into the commit
  of whoever waits for it. One that has not ended after a moment
  (`wonder_server.actors.runtime.flush_timer`), or that
  somebody looks for, is written. Once it was written, what is on disk may not fall behind.
- A child is never on disk before the one that began it: a volatile parent's batch goes along in the child's
  first commit, ahead of it. So does that of a conversation whose hook began before it was written
  (docs/adr/0018-hooks-before-commit.md); until then the hook only does what leaves no trace.
- If a commit fails, the working set is thrown away with it and the actor is loaded again from what is on
  disk; `wonder_server.actors.runtime.recovery` says what becomes of the inputs. An input that breaks the
  planner, or
  that cannot be written, fails what it was about instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from wonder_server.actors.runtime import committer
from wonder_server.actors.runtime.actor import TURN_LANE, Actor, Batch, Envelope, Outcome
from wonder_server.actors.runtime.committer import Committer
from wonder_server.actors.runtime.fair_queue import current_caller
from wonder_server.actors.runtime.flush_timer import FlushTimer
from wonder_server.actors.runtime.idle_cache import IdleCache
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.recovery import PendingRecovery, plan_recovery
from wonder_server.actors.runtime.step import step
from wonder_server.actors.runtime.timers import Timers
from wonder_server.core.actor.commands import Answer, Command, RunTask, RunWorkflow, Stop
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.idempotency import Request
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Commit, Event, Journal

_log = logger("actors")

MAX_BATCH_INPUTS = 64
"""Inputs that one commit takes at most."""

MAX_COMMITS_BEFORE_FLUSH = 16
"""Commits under way, above which volatile runs that go on for long are not written as well."""

MAX_RELOAD_BACKOFF = 512
"""An actor that can never be loaded, such as a damaged one, is tried again after at most as many times the
usual pause, or when a request names it."""

MAX_COMMITS_BEFORE_THROTTLE = 32
"""Commits under way, above which nobody of the crowd begins: the disk could not follow."""


class Loop(Committer):
    """All actors of this process.

    ``journal_of(actor_id)`` finds the actor's shard; ``dispatch(actor_id, command)`` hands a command to its
    handler and returns at once, though its result may be there already; ``publish(actor_id, events)`` shows
    events to whoever is attached.
    """

    def __init__(
        self,
        planners: Iterable[Planner],
        journal_of: Callable[[str], Journal],
        clock: Clock,
        *,
        dispatch: Callable[[str, Command], None],
        publish: Callable[[str, list[Event]], None],
        idle_limit: int,
        idle_bytes: int,
    ) -> None:
        super().__init__(planners, IdleCache(idle_limit, idle_bytes), journal_of, publish)
        self._clock = clock
        self._dispatch = dispatch
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers = Timers(clock, self._on_timer)
        self._flush_timer = FlushTimer(self._on_flush_due)
        self._clock_offsets_ms: dict[str, int] = {}
        """By actor: how far its time is ahead of the server's, as long as this process lives."""
        self.on_result: Callable[[str], None] = _ignore
        """Told of each operation whose result is told to its actor, by its id."""
        self.timer_input: Callable[[str, Any], Any] = _unchanged
        """May add to the input that wakes an operation, by its id."""

    # --- receive --------------------------------------------------------------------------------

    def register_new(self, actor_id: str) -> None:
        """Say that the actor of this fresh id was never written, so that the store need not be asked."""
        if actor_id not in self._actors and not self._stopping:
            actor = self._actor(actor_id)
            actor.state, actor.has_all_requests = actor.planner.new_state(), True

    async def ask(self, actor_id: str, event: Any, request: Request | None = None) -> Outcome:
        """Send an input and wait until what it led to is on disk.

        Raises the fault that the planner refuses with, REQUEST_ID_REUSED, or STORAGE_UNAVAILABLE.
        """
        if self._stopping:
            raise error(
                Reason.SERVER_DRAINING, "The server is shutting down; try again.", retry_after_ms=1000
            )
        if name := current_caller.get():
            actor = self._actor(actor_id)
            actor.lane = actor.lane._replace(caller=name)
        reply: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._post(actor_id, Envelope(event, reply, request))
        return await reply

    def tell(
        self, actor_id: str, event: Any, child_commits: Sequence[Commit] = (), *, low_priority: bool = False
    ) -> None:
        """Send an input that nobody waits for. ``crowd``: to one of many actors that another has begun,
        which take turns with all the rest."""
        if not self._stopping:
            actor, parent = self._actor(actor_id), getattr(event, "parent", None)
            actor.low_priority |= low_priority
            if parent is not None and (started_by := self._actors.get(parent.actor_id)) is not None:
                actor.lane = started_by.lane
        self._post(actor_id, Envelope(event, child_commits=child_commits))

    def discard_unstarted(self, actor_id: str) -> bool:
        """Let go of an actor that is new and has not begun, so that it never does; False if it may have."""
        actor = self._actors.get(actor_id)
        if actor is None or actor.state is None or actor.entry_head or actor.batch or actor.inflight:
            return False
        if not actor.has_all_requests or actor.committed:
            return False
        del self._actors[actor_id]
        for envelope in actor.mailbox:
            envelope.resolve(
                error(Reason.RUN_NOT_FOUND, "The run did not begin; nobody waits for it any more.")
            )
        actor.mailbox.clear()
        actor.scheduled = False
        self._mark_idle(actor)
        return True

    async def flush(self, actor_id: str) -> None:
        """Have what is known of an actor written, if it is in memory and not on disk; for somebody asks.

        Raises STORAGE_UNAVAILABLE, SERVER_DRAINING.
        """
        actor = self._actors.get(actor_id)
        if actor is not None and not actor.committed:
            # Nothing to it, but that somebody waits until it is on disk with all that came before.
            await self.ask(actor_id, actor.planner.timer_fired(""))

    def report_success(self, actor_id: str, operation_id: str, output: Any) -> None:
        """An operation of the actor came to a good end."""
        self.on_result(operation_id)
        self.tell(actor_id, self.planner_of(actor_id).succeeded(operation_id, output, ""))

    def report_failure(self, actor_id: str, operation_id: str, fault: Any) -> None:
        """An operation of the actor failed."""
        self.on_result(operation_id)
        self.tell(actor_id, self.planner_of(actor_id).failed(operation_id, fault, ""))

    def _post(self, actor_id: str, envelope: Envelope) -> None:
        if self._stopping:
            return
        actor = self._actor(actor_id)
        actor.mailbox.append(envelope)
        self._schedule(actor, high_priority=envelope.reply is not None)

    # --- one stretch ----------------------------------------------------------------------------

    def _run_actor(self, actor: Actor) -> None:
        """Hand out and plan what there is, for a while; then write what is due, or rest."""
        unfinished = False
        if self._actors.get(actor.id) is actor:
            if actor.state is not None:
                unfinished = self._plan(actor)
                self._register_timers(actor)
            elif not actor.loading:
                self._start_loading(actor, self._load(actor))
        actor.scheduled = False
        if self._should_wait_for_children(actor):
            unfinished = True
        else:
            self._submit_if_due(actor)
        if unfinished or actor.ready_commands:
            self._schedule(actor)
        self._release_if_idle(actor)

    def _plan(self, actor: Actor) -> bool:
        """Hand out what may go and plan the mailbox, into which the results of that may come at once; True if
        time was up."""
        while True:
            if actor.ready_commands:
                self._dispatch_command(actor, actor.ready_commands.popleft())
            elif not (actor.mailbox and self._can_plan(actor)):
                return False
            elif self._needs_deduplication(actor, actor.mailbox[0]):
                self._start_loading(actor, self._deduplicate(actor, actor.mailbox[0]))
                return False
            elif not self._step(actor, actor.mailbox.popleft()):
                return False
            if monotonic() > self._slice_end:
                return True

    def _dispatch_command(self, actor: Actor, command: Command) -> None:
        self._dispatch(actor.id, command)
        if isinstance(command, RunWorkflow):
            batch, child = actor.batch, self._actors.get(command.run_id)
            if (
                child is not None
                and batch is not None
                and any(early is command for early in batch.early_commands)
            ):
                child.parent_uncommitted = actor.parent_uncommitted or batch.due

    def _step(self, actor: Actor, envelope: Envelope) -> bool:
        """Plan one input; False if that broke the working set."""
        try:
            commands = step(actor, envelope, self._clock.now_ms() + actor.clock_offset_ms)
        except Exception:
            actor.failure = WonderError(report_incident("actor_failed", actor=actor.id)), envelope
            return False
        batch = actor.batch
        if batch is not None and not batch.due and len(batch.inputs) == 1:
            self._flush_timer.add(actor, batch)
        for command in commands:
            if isinstance(command, Answer):
                # The batch goes with it, into the commit of whoever waits.
                sealed = actor.seal_batch(final=True)
                if sealed.recorded_entries:
                    self._timers.cancel_all(actor.id)
                self._answer_parent(command, sealed.all_commits())
            else:
                actor.ready_commands.append(command)
        return True

    def _register_timers(self, actor: Actor) -> None:
        """See to the timers of a batch that is not written yet."""
        batch = actor.batch
        if batch is not None and not batch.due:
            if batch.recorded_entries < len(batch.commit.entries):
                batch.record()
            self._set_timers(actor, batch)

    def _can_plan(self, actor: Actor) -> bool:
        """Whether the actor can plan one more input."""
        if actor.loading or actor.failure is not None:
            return False
        full = 1 if actor.isolate_inputs else MAX_BATCH_INPUTS
        if actor.batch is not None and len(actor.batch.inputs) >= full:
            actor.batch.due = True
            self._submit_if_due(actor)
        if actor.isolate_inputs and actor.inflight is not None:
            return False
        return actor.batch is None or len(actor.batch.inputs) < full

    def _on_flush_due(self, actor: Actor, batch: Batch) -> bool:
        """A volatile run has not ended for a while: somebody may look for it, and it may be long work. When
        much is being written they wait: what has to be written comes first."""
        if actor.batch is not batch or batch.due or self._actors.get(actor.id) is not actor:
            return True
        if self._commits_in_flight >= MAX_COMMITS_BEFORE_FLUSH:
            return False
        batch.due = True
        self._schedule(actor, high_priority=True)
        return True

    def _is_throttled(self) -> bool:
        return self._commits_in_flight >= MAX_COMMITS_BEFORE_THROTTLE

    # --- dispatch -------------------------------------------------------------------------------

    def _complete(self, actor: Actor, batch: Batch) -> None:
        """What waited for the batch."""
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

    def _set_timers(self, actor: Actor, batch: Batch) -> None:
        for operation_id, wake_ms in batch.timers.items():
            self._timers.set(actor.id, operation_id, _server_time(actor, wake_ms))
        batch.timers.clear()

    def _answer_parent(self, answer: Answer, child_commits: Sequence[Commit]) -> None:
        parent, planner = answer.parent, self.planner_of(answer.parent.actor_id)
        self.on_result(parent.operation_id)
        event = (
            planner.succeeded(parent.operation_id, answer.output, answer.run_id)
            if answer.fault is None
            else planner.failed(parent.operation_id, answer.fault, answer.run_id)
        )
        self.tell(parent.actor_id, event, child_commits)

    def _on_timer(self, actor_id: str, operation_id: str) -> None:
        self.tell(
            actor_id, self.timer_input(operation_id, self.planner_of(actor_id).timer_fired(operation_id))
        )

    # --- reading from disk ----------------------------------------------------------------------

    def _start_loading(self, actor: Actor, reading: Coroutine[Any, Any, None]) -> None:
        """Have the actor wait for a look at the disk."""
        actor.loading = True
        task = asyncio.get_running_loop().create_task(reading)
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_loaded, actor))

    def _on_loaded(self, actor: Actor, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        actor.loading = False
        if not task.cancelled():
            self._schedule(actor)

    async def _load(self, actor: Actor) -> None:
        planner = actor.planner
        try:
            loaded = await self._journal_of(actor.id).load(actor.id, planner)
            state = planner.new_state() if loaded is None else planner.restore(loaded.rows)
        except WonderError as problem:
            self._reset(actor, None, problem, None)
            return
        except Exception:
            self._reset(actor, None, WonderError(report_incident("actor_failed", actor=actor.id)), None)
            return
        actor.state = state
        interrupted = self._pending_recoveries.pop(actor.id, None) or PendingRecovery()
        inputs, actor.write_through, actor.isolate_inputs = (
            interrupted.retry,
            interrupted.write_through,
            interrupted.isolate,
        )
        if loaded is None:
            actor.has_all_requests = True
        else:
            actor.entry_head, actor.event_head = loaded.entry_head, loaded.event_head
            actor.submitted = actor.committed = True
            parent = planner.parent(state)
            actor.low_priority = bool(parent)
            if parent and self.planner_of(parent).kind != "run":
                actor.lane = TURN_LANE._replace(caller=actor.lane.caller)
            actor.clock_offset_ms = self._clock_offset_ms(actor.id, loaded.at_ms)
            for operation in loaded.rows["operations"]:
                self._timers.set(actor.id, operation.id, _server_time(actor, operation.wake_ms))
            if interrupted.restart:
                # After the results that are told again: what they close is not done again.
                inputs += [Envelope(planner.restarted(each)) for each in planner.pending(state)]
        actor.mailbox.extendleft(reversed(inputs))

    def _clock_offset_ms(self, actor_id: str, committed_ms: int) -> int:
        """How far the time of an actor, last written at ``written_ms``, is ahead of the server's.

        It is more than 0 if the clock was set back over a restart. The actor's time then goes on where its
        record ends, so that a timer waits for what is left of it and not for the clock to catch up.
        """
        offset_ms = max(self._clock_offsets_ms.get(actor_id, 0), committed_ms - self._clock.now_ms())
        if offset_ms > 0:
            self._clock_offsets_ms[actor_id] = offset_ms
        return max(0, offset_ms)

    def _needs_deduplication(self, actor: Actor, envelope: Envelope) -> bool:
        """Whether only the store knows if this request was carried out before."""
        request = envelope.request
        return not (
            request is None
            or envelope.deduplicated
            or actor.has_all_requests
            or (request.scope, request.id) in actor.recent_requests
        )

    async def _deduplicate(self, actor: Actor, envelope: Envelope) -> None:
        request = envelope.request
        assert request is not None
        try:
            earlier = await self._journal_of(actor.id).completed_request(request.scope, request.id)
        except WonderError as problem:
            envelope.resolve(problem)
        except Exception:
            envelope.resolve(WonderError(report_incident("actor_failed", actor=actor.id)))
        else:
            envelope.deduplicated = self._actors.get(actor.id) is actor
            if earlier is not None:
                actor.record_request(request, earlier)
            return
        if actor.mailbox and actor.mailbox[0] is envelope:
            actor.mailbox.popleft()

    # --- failing, stopping ----------------------------------------------------------------------

    def _reset(
        self, actor: Actor, failed: Batch | None, problem: WonderError, culprit: Envelope | None
    ) -> None:
        """Throw the working set away; load it again later, and tell it again what is left."""
        fault = problem.fault
        _log.error("actor_reset", actor=actor.id, reason=fault.reason, problem=str(problem))
        plan = plan_recovery(actor, failed, fault, culprit)
        self._actors.pop(actor.id, None)
        self._timers.cancel_all(actor.id)
        actor.mailbox.clear()
        actor.ready_commands.clear()
        actor.batch = actor.failure = None
        self._abort_early(actor, plan.abort, problem)
        for envelope in plan.reject:
            envelope.resolve(problem)
        interrupted = self._pending_recoveries.setdefault(actor.id, PendingRecovery())
        interrupted.retry += plan.retry
        interrupted.write_through = True
        interrupted.isolate += plan.isolate
        interrupted.restart |= not fault.transient
        for envelope in plan.fail:
            if envelope.reply is not None:
                envelope.resolve(problem)
            else:
                self._fail_operation(actor, envelope.input, fault, interrupted)
        self._notify_commit_waiters(actor)
        self._mark_idle(actor)
        if failed is None and not fault.transient:
            interrupted.failures += 1
        pause = committer.RELOAD_AFTER_S * min(2**interrupted.failures, MAX_RELOAD_BACKOFF)
        asyncio.get_running_loop().call_later(pause, self._reload, actor.id)

    def _abort_early(self, actor: Actor, early_commands: list[Command], problem: WonderError) -> None:
        """Stop what was begun too early: tasks, and children, of which nothing can be on disk."""
        for command in early_commands:
            if isinstance(command, RunTask):
                self._dispatch(actor.id, Stop(operation_id=command.operation_id))
            elif isinstance(command, RunWorkflow):
                self._dispatch(actor.id, Stop(operation_id=command.operation_id))
                self._pending_recoveries.pop(command.run_id, None)
                child = self._actors.pop(command.run_id, None)
                if child is None:
                    continue
                self._timers.cancel_all(child.id)
                plan = plan_recovery(child, None, problem.fault, None)
                child.mailbox.clear()
                child.ready_commands.clear()
                child.batch = child.failure = None
                for envelope in [*plan.reject, *plan.retry, *plan.fail]:
                    envelope.resolve(problem)
                self._abort_early(child, plan.abort, problem)
                self._notify_commit_waiters(child)
                self._mark_idle(child)

    def _fail_operation(self, actor: Actor, event: Any, fault: Fault, interrupted: PendingRecovery) -> None:
        """``event`` cannot be taken, now or ever: let what it was about fail instead."""
        operation_id, parent = getattr(event, "operation_id", ""), getattr(event, "parent", None)
        if parent is not None:
            self.report_failure(parent.actor_id, parent.operation_id, fault)
        elif operation_id:
            failed = actor.planner.failed(operation_id, fault, "")
            if type(failed) is not type(event):
                interrupted.retry.append(Envelope(failed))

    def _reload(self, actor_id: str) -> None:
        if actor_id in self._pending_recoveries and not self._stopping:
            self._schedule(self._actor(actor_id))

    def resume(self, actor_ids: Iterable[str]) -> None:
        """After a start, before anything is sent: hand out again what these actors' outboxes hold."""
        self._pending_recoveries.update({actor_id: PendingRecovery(restart=True) for actor_id in actor_ids})
        for actor_id in list(self._pending_recoveries):
            self._reload(actor_id)

    async def stop(self) -> None:
        """Take nothing more in; let commits under way finish. What is pending stays in the outbox."""
        self._stopping = True
        await self.wait_until_idle()
        self._timers.close()
        self._flush_timer.close()
        for actor in self._actors.values():
            for envelope in [*(actor.batch.inputs if actor.batch else ()), *actor.mailbox]:
                envelope.resolve(error(Reason.SERVER_DRAINING, "The server is shutting down; try again."))


def _server_time(actor: Actor, at_ms: int) -> int:
    """The server time of a moment in the actor's time; 0, for never, stays 0."""
    return max(1, at_ms - actor.clock_offset_ms) if at_ms else 0


def _ignore(_operation_id: str) -> None:
    """Nobody counts."""


def _unchanged(_operation_id: str, event: Any) -> Any:
    return event
