"""One execution of a task as clients see it: the trace of its steps, and its progress.

The executor (``services/tasks/executor.py``) reports every step here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from wonder_server.core.definitions.specs import PinnedTask, Step
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict, JsonObject
from wonder_server.core.task import plan
from wonder_server.core.task.outcome_errors import outcome_unknown
from wonder_server.ports.clock import Clock
from wonder_server.services.actions import ExecutionContext


class StepTrace(Value, frozen=True, kw_only=True):
    """The outcome of one step, or its start.

    ``status`` is ``running`` (only in progress reports), ``completed``, ``skipped`` or ``failed``.
    ``attempt`` is the task's, from 1. ``tries`` counts the attempts of the action. Times are in
    milliseconds."""

    step_id: str
    kind: str
    position: int
    attempt: int
    status: str
    tries: int = 0
    started_ms: int = 0
    duration_ms: int = 0
    fault: Fault | None = None


class StepProgress(Value, frozen=True, kw_only=True):
    """Progress of the running step, in the action's own words. It is not recorded.

    ``fraction`` is the completed part, from 0 to 1, None if unknown. ``output`` is added output, such as the
    lines of a command."""

    step_id: str
    message: str = ""
    fraction: float | None = None
    output: str = ""


class TaskOutcome(Value, frozen=True, kw_only=True):
    """The outcome of a task. Exactly one of ``output`` and ``fault`` is set."""

    output: JsonDict | None = None
    fault: Fault | None = None
    steps: tuple[StepTrace, ...] = ()


Progress = Callable[[StepTrace | StepProgress], None]

OnEvent = Callable[[str, str, JsonObject], None]
"""Receives the key, name and payload of an event that a step emits. The key is the same in every attempt, so
that a receiver can record each event once."""

Ending = JsonDict | Fault


class TaskRun:
    """The state of one execution. ``trace`` has the ended steps. The executor sets ``uncertain_step`` to the
    id of a step whose running action is not repeatable, or to empty."""

    def __init__(
        self,
        task: PinnedTask,
        context: ExecutionContext,
        clock: Clock,
        on_progress: Progress | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.task = task
        self.context = context
        self._clock = clock
        self._on_progress = on_progress
        self._on_event = on_event
        self.trace: list[StepTrace] = []
        self.uncertain_step = ""

    def outcome(self, ending: Ending) -> TaskOutcome:
        """Return the outcome of the task with its trace."""
        if isinstance(ending, Fault):
            return TaskOutcome(fault=ending, steps=tuple(self.trace))
        return TaskOutcome(output=ending, steps=tuple(self.trace))

    def timed_out(self, limit_ms: int) -> Fault:
        """Return the fault of a task that was stopped after ``limit_ms``."""
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The task took longer than {limit_ms} ms.",
            metadata={"task": str(self.task.pin)},
        )
        if not self.uncertain_step:
            return fault
        metadata = {**fault.metadata, "step_id": self.uncertain_step}
        message = f"{fault.message} Step '{self.uncertain_step}' was stopped."
        return outcome_unknown(replace(fault, message=message, metadata=metadata))

    # --- reports --------------------------------------------------------------------------------

    def report_progress(
        self, step: Step, message: str = "", fraction: float | None = None, output: str = ""
    ) -> None:
        """Report the progress of the running step."""
        if self._on_progress is not None:
            self._on_progress(
                StepProgress(step_id=step.id, message=message, fraction=fraction, output=output)
            )

    def emit(self, step: Step, context: ExecutionContext, name: str, payload: JsonObject) -> None:
        """Report an event of the running step."""
        if self._on_event is not None:
            self._on_event(context.key, name, payload)
        if self._on_progress is not None:
            self.report_progress(step, message=f"event {name}", output=msgspec.json.encode(payload).decode())

    def step_started(self, run: plan.Run, state: plan.TaskState, started_ms: int) -> None:
        """Report the start of a step."""
        if self._on_progress is not None:
            self._on_progress(
                StepTrace(
                    step_id=run.step.id,
                    kind=run.action.kind,
                    position=run.position,
                    attempt=state.attempt,
                    status="running",
                    started_ms=started_ms,
                )
            )

    def step_ended(
        self, state: plan.TaskState, decision: plan.Skip | plan.AfterFailure, tries: int, started_ms: int
    ) -> None:
        """Report the end of the step at which ``state`` is, if any. ``decision`` is the next decision."""
        if state.position >= len(self.task.spec.steps):
            return
        step = self.task.spec.steps[state.position]
        fault = None if isinstance(decision, plan.Skip) else decision.fault
        status = "skipped" if isinstance(decision, plan.Skip) else "failed" if fault else "completed"
        entry = StepTrace(
            step_id=step.id,
            kind=step.action.kind if step.action is not None else "",
            position=state.position,
            attempt=state.attempt,
            status=status,
            tries=tries,
            started_ms=started_ms,
            duration_ms=max(self._clock.now_ms() - started_ms, 0),
            fault=fault,
        )
        self.trace.append(entry)
        if self._on_progress is not None:
            self._on_progress(entry)
