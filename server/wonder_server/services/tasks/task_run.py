"""One execution of one task, as others see it: the trace of its steps, and what is told while it runs.

Whoever drives a task (``services/tasks/executor.py``) says here what becomes of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from wonder_server.core.definitions.specs import PinnedTask, Step
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import Value
from wonder_server.core.task import plan
from wonder_server.core.task.effects import outcome_unknown
from wonder_server.ports.clock import Clock
from wonder_server.services.actions import ExecutionContext


class StepTrace(Value, frozen=True, kw_only=True):
    """What became of one step, or that it has begun.

    ``status`` is ``running`` (only while progress is told), ``completed``, ``skipped`` or ``failed``;
    ``attempt`` is the task's, from 1; ``tries`` is how often the action ran. Times in milliseconds.
    """

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
    """How far the running step is, in its own words; never part of a record.

    ``fraction`` is the part that is done, from 0 to 1, None where nobody knows; ``output`` is more of what
    it puts out, such as the lines of a command.
    """

    step_id: str
    message: str = ""
    fraction: float | None = None
    output: str = ""


class TaskOutcome(Value, frozen=True, kw_only=True):
    """How a task ended: exactly one of ``output`` and ``fault`` is set."""

    output: dict[str, Any] | None = None
    fault: Fault | None = None
    steps: tuple[StepTrace, ...] = ()


Progress = Callable[[StepTrace | StepProgress], None]

OnEvent = Callable[[str, str, Mapping[str, Any]], None]
"""Takes the key, name and payload of an event that a step emits, at once. The key is the same in every try
and attempt, so that whoever records events can keep each once."""

Ending = dict[str, Any] | Fault


class TaskRun:
    """``trace`` grows as steps end. ``in_doubt`` is set by whoever carries actions out: the id of a step
    whose action is under way and must not be done twice, or empty."""

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
        """How the task ended, with its trace."""
        if isinstance(ending, Fault):
            return TaskOutcome(fault=ending, steps=tuple(self.trace))
        return TaskOutcome(output=ending, steps=tuple(self.trace))

    def timed_out(self, limit_ms: int) -> Fault:
        """Why a task has no output that was stopped after ``limit_ms``."""
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

    # --- telling --------------------------------------------------------------------------------

    def report_progress(
        self, step: Step, message: str = "", fraction: float | None = None, output: str = ""
    ) -> None:
        """How far the running step is."""
        if self._on_progress is not None:
            self._on_progress(
                StepProgress(step_id=step.id, message=message, fraction=fraction, output=output)
            )

    def emit(self, step: Step, context: ExecutionContext, name: str, payload: Mapping[str, Any]) -> None:
        """An event of the running step."""
        if self._on_event is not None:
            self._on_event(context.key, name, payload)
        if self._on_progress is not None:
            self.report_progress(step, message=f"event {name}", output=msgspec.json.encode(payload).decode())

    def step_started(self, run: plan.Run, state: plan.TaskState, started_ms: int) -> None:
        """A step begins."""
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
        """The step that ``state`` is at is over, if it is at one; ``decision`` is what follows."""
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
