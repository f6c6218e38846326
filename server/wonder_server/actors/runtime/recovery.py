"""Recovery of actors after a failed load, a failed commit or a planner error.

The loop discards the actor's state, loads it from disk again and plans again the inputs that are not on
disk, so no result of an operation is lost. Early commands count as never started: the loop stops them and
drops their results. Planning the inputs again starts them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from wonder_server.actors.runtime.actor import Actor, Batch, Envelope
from wonder_server.actors.runtime.commits import input_frees_space
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.actors.runtime.timers import Timers
from wonder_server.core.actor.commands import Answer, Command, ReportGate, RunTask, RunWorkflow, Stop
from wonder_server.core.errors import Fault, WonderError
from wonder_server.logs import logger

_log = logger("actors")

MAX_RELOAD_BACKOFF = 512
"""Maximum factor on the reload pause for an actor that cannot be loaded, for example a damaged one. A request
that names the actor reloads it at once."""


@dataclass(slots=True)
class PendingRecovery:
    """The recovery of an actor at its next load."""

    retry: list[Envelope] = field(default_factory=list)
    """Inputs to plan first."""
    restart: bool = False
    """True if the loop dispatches every operation of the outbox again."""
    write_through: bool = False
    """See `Actor.write_through`."""
    isolate: int = 0
    """Inputs to commit one at a time."""
    failures: int = 0
    """Consecutive permanent failures to load the actor."""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The division of an actor's inputs after a failure."""

    retry: list[Envelope]
    """Inputs to plan again."""
    reject: list[Envelope]
    """Inputs whose callers receive the error."""
    fail: list[Envelope]
    """Inputs that cannot be planned or written."""
    isolate: int
    """Number of inputs at the head of ``retry`` to commit one at a time."""
    abort: list[Command]
    """Early commands to stop."""


def plan_recovery(actor: Actor, failed: Batch | None, fault: Fault, culprit: Envelope | None) -> RecoveryPlan:
    """Divide the inputs that are not on disk by what to do with them.

    ``failed`` is the batch whose commit failed, if one did. ``culprit`` is the input that caused the
    failure, if it is known. After a transient fault, callers receive the error and other inputs are
    retried. Requests that free space and were not in the failed commit are retried first: a full disk refuses
    the result before them, and they free its space. After a permanent fault without a culprit, each input
    is committed alone; if no commit failed, the actor cannot be loaded and all inputs fail.
    """
    batches = [batch for batch in (failed, actor.batch) if batch is not None]
    early_commands = [command for batch in batches for command in batch.early_commands]
    aborted_operations = {
        command.operation_id for command in early_commands if not isinstance(command, Answer | ReportGate)
    }
    inputs = [envelope for batch in batches for envelope in batch.inputs]
    first = _requests_that_free_space(actor) if failed is not None and fault.transient else []
    retry: list[Envelope] = []
    reject: list[Envelope] = []
    fail: list[Envelope] = []
    for envelope in [*inputs, *actor.mailbox]:
        envelope.deduplicated = False
        if envelope is culprit:
            fail.append(envelope)
        elif envelope.reply is None and getattr(envelope.input, "operation_id", "") in aborted_operations:
            continue
        elif fault.transient and envelope.reply is not None:
            if envelope not in first:
                reject.append(envelope)
        elif fault.transient or failed is not None or culprit is not None:
            retry.append(envelope)
        else:
            fail.append(envelope)
    isolate = len(retry) if failed is not None and not fault.transient and culprit is None else 0
    return RecoveryPlan([*first, *retry], reject, fail, isolate, early_commands)


def _requests_that_free_space(actor: Actor) -> list[Envelope]:
    """Return the requests in the mailbox that a full disk accepts."""
    return [
        envelope
        for envelope in actor.mailbox
        if envelope.reply is not None and input_frees_space(envelope.input)
    ]


class Recovery:
    """Resets actors after failures and reloads them after a pause.

    ``dispatch(actor_id, command)`` stops early commands; ``report_failure(actor_id, operation_id, fault)``
    fails the operation of a parent whose child cannot start; ``on_discarded(actor_id)`` is called when the
    actor's decisions since its last commit are lost.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        timers: Timers,
        *,
        dispatch: Callable[[str, Command], None],
        report_failure: Callable[[str, str, Fault], None],
        on_discarded: Callable[[str], None],
        reload_after_s: float,
    ) -> None:
        self._scheduler = scheduler
        self._timers = timers
        self._dispatch = dispatch
        self._report_failure = report_failure
        self._on_discarded = on_discarded
        self._reload_after_s = reload_after_s
        self._pending: dict[str, PendingRecovery] = {}
        """Actors that were reset and are not loaded again, by id."""
        self._closed = False
        """True after `leave`."""

    def is_pending(self, actor_id: str) -> bool:
        """Return True if the actor was reset and is not loaded again."""
        return actor_id in self._pending

    def take(self, actor_id: str) -> PendingRecovery:
        """Remove and return what to do with an actor that was just loaded."""
        return self._pending.pop(actor_id, None) or PendingRecovery()

    def restart(self, actor_ids: Iterable[str]) -> None:
        """Load these actors and dispatch again every operation of their outboxes."""
        for actor_id in actor_ids:
            self.restart_when_loaded(actor_id)
            self._reload(actor_id)

    def restart_when_loaded(self, actor_id: str) -> None:
        """Dispatch again every operation of the actor's outbox at its next load."""
        self._pending.setdefault(actor_id, PendingRecovery()).restart = True

    def reset(
        self, actor: Actor, failed: Batch | None, problem: WonderError, culprit: Envelope | None
    ) -> None:
        """Discard the actor's state and schedule its reload. See `plan_recovery` for its inputs."""
        fault = problem.fault
        _log.error("actor_reset", actor=actor.id, reason=fault.reason, problem=str(problem))
        plan = plan_recovery(actor, failed, fault, culprit)
        self._discard(actor)
        self.abort_early(actor, plan.abort, problem)
        for envelope in plan.reject:
            envelope.resolve(problem)
        pending = self._pending.setdefault(actor.id, PendingRecovery())
        pending.retry += plan.retry
        pending.write_through = True
        pending.isolate += plan.isolate
        pending.restart |= not fault.transient
        for envelope in plan.fail:
            if envelope.reply is not None:
                envelope.resolve(problem)
            else:
                self._fail_operation(actor, envelope.input, fault, pending)
        self._scheduler.notify_commit_waiters(actor)
        self._scheduler.mark_idle(actor)
        if failed is None and not fault.transient:
            pending.failures += 1
        pause = self._reload_after_s * min(2**pending.failures, MAX_RELOAD_BACKOFF)
        asyncio.get_running_loop().call_later(pause, self._reload, actor.id)

    def abort_early(self, actor: Actor, early_commands: list[Command], problem: WonderError) -> None:
        """Stop early commands whose batch is lost: tasks, and child runs, which cannot be on disk."""
        for command in early_commands:
            if isinstance(command, RunTask):
                self._dispatch(actor.id, Stop(operation_id=command.operation_id))
            elif isinstance(command, RunWorkflow):
                self._dispatch(actor.id, Stop(operation_id=command.operation_id))
                self._abort_child(command.run_id, problem)

    def _abort_child(self, run_id: str, problem: WonderError) -> None:
        self._pending.pop(run_id, None)
        child = self._scheduler.actors.get(run_id)
        if child is None:
            return
        plan = plan_recovery(child, None, problem.fault, None)
        self._discard(child)
        for envelope in [*plan.reject, *plan.retry, *plan.fail]:
            envelope.resolve(problem)
        self.abort_early(child, plan.abort, problem)
        self._scheduler.notify_commit_waiters(child)
        self._scheduler.mark_idle(child)

    def leave(self, actors: Iterable[Actor], problem: WonderError) -> None:
        """Remove the actors of a shard that has another owner now, and reload nothing from now on.

        The new owner dispatches the operations of their outboxes, so their work here stops.
        """
        self._closed = True
        for pending in self._pending.values():
            for envelope in pending.retry:
                envelope.resolve(problem)
        self._pending.clear()
        for actor in actors:
            inputs = [*(actor.batch.inputs if actor.batch is not None else ()), *actor.mailbox]
            operations = actor.planner.pending(actor.state) if actor.state is not None else ()
            self._discard(actor)
            actor.scheduled = False
            self._scheduler.mark_idle(actor)
            for operation_id in operations:
                self._dispatch(actor.id, Stop(operation_id=operation_id))
            for envelope in inputs:
                envelope.resolve(problem)

    def _discard(self, actor: Actor) -> None:
        """Remove the actor from memory with everything that is not on disk."""
        self._scheduler.remove(actor)
        self._timers.cancel_all(actor.id)
        self._on_discarded(actor.id)

    def _fail_operation(self, actor: Actor, event: object, fault: Fault, pending: PendingRecovery) -> None:
        """Fail the operation that ``event`` is about, since the input can never be planned or written."""
        operation_id, parent = getattr(event, "operation_id", ""), getattr(event, "parent", None)
        if parent is not None:
            self._report_failure(parent.actor_id, parent.operation_id, fault)
        elif operation_id:
            failed = actor.planner.failed(operation_id, fault, "")
            if type(failed) is not type(event):
                pending.retry.append(Envelope(failed))

    def _reload(self, actor_id: str) -> None:
        if actor_id in self._pending and not self._scheduler.stopping and not self._closed:
            self._scheduler.schedule(self._scheduler.get_or_create(actor_id))
