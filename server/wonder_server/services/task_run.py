"""One execution of one task: what it needs done, one thing after another, and the trace of its steps.

`TaskRun.needs` is a generator that drives the interpreter (``core/task/plan.py``) and yields what somebody
has to do for it. Who does it is the executor's matter: it waits for actions, or carries them out at once.

======  ==========================================  ==========================
need    means                                       what to send back
======  ==========================================  ==========================
`Act`   carry out an action                         its outcome, and how often it was tried
`Pause` let time pass: the task starts over         None
None    a step was skipped: others may have a turn  None
======  ==========================================  ==========================
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from wonder_server.core import frozen
from wonder_server.core.definitions.specs import Action, PinnedTask, Step
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


class Act(Value, frozen=True, kw_only=True):
    """Carry out ``action`` for ``step``, with ``input``; ``context`` has the step's own key."""

    step: Step
    action: Action
    input: dict[str, Any]
    context: ExecutionContext


class Pause(Value, frozen=True, kw_only=True):
    """Wait this long."""

    delay_ms: int


Tried = tuple[plan.Outcome, int]
Ending = dict[str, Any] | Fault
Needs = Generator[Act | Pause | None, Any, Ending]


class TaskRun:
    """``trace`` grows as steps end, unless nobody will look at it. ``in_doubt`` is set by whoever carries
    actions out: the id of a step whose action is under way and must not be done twice, or empty."""

    def __init__(
        self,
        task: PinnedTask,
        context: ExecutionContext,
        clock: Clock,
        on_progress: Progress | None = None,
        on_event: OnEvent | None = None,
        *,
        traced: bool = True,
    ) -> None:
        self._task = task
        self._traced = traced
        self._context = context
        self._clock = clock
        self._on_progress = on_progress
        self._on_event = on_event
        self.trace: list[StepTrace] = []
        self.in_doubt = ""

    def needs(self, input: Mapping[str, Any]) -> Needs:
        """From the first step to the task's output, or to why there is none."""
        state = plan.begin(self._task, input)
        if isinstance(state, plan.Failed):
            return state.fault
        while True:
            decision = plan.decide(self._task, state)
            if isinstance(decision, plan.Done):
                return decision.output
            started_ms, tries = self._clock.now_ms() if self._traced else 0, 0
            if isinstance(decision, plan.Run):
                self._tell_begun(decision, state, started_ms)
                step = decision.step
                context = frozen.replace(self._context, key=f"{self._context.key}/{step.id}")
                tried: Tried = yield Act(
                    step=step, action=decision.action, input=decision.input, context=context
                )
                outcome, tries = tried
                decision = plan.record(self._task, state, outcome)
            elif isinstance(decision, plan.Skip):
                yield None
            if self._traced and state.position < len(self._task.spec.steps):
                self._note(self._task.spec.steps[state.position], state, decision, tries, started_ms)
            if isinstance(decision, plan.Failed):
                return decision.fault
            if isinstance(decision, plan.RetryTask):
                yield Pause(delay_ms=decision.delay_ms)
            state = decision.state

    def ended(self, ending: Ending) -> TaskOutcome:
        """How the task ended, with its trace."""
        if isinstance(ending, Fault):
            return TaskOutcome(fault=ending, steps=tuple(self.trace))
        return TaskOutcome(output=ending, steps=tuple(self.trace))

    def late(self, limit_ms: int) -> Fault:
        """Why a task has no output that was stopped after ``limit_ms``."""
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The task took longer than {limit_ms} ms.",
            metadata={"task": str(self._task.pin)},
        )
        if not self.in_doubt:
            return fault
        metadata = {**fault.metadata, "step_id": self.in_doubt}
        message = f"{fault.message} Step '{self.in_doubt}' was stopped."
        return outcome_unknown(replace(fault, message=message, metadata=metadata))

    # --- telling --------------------------------------------------------------------------------

    def tell(self, step: Step, message: str = "", fraction: float | None = None, output: str = "") -> None:
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
            self.tell(step, message=f"event {name}", output=msgspec.json.encode(payload).decode())

    def _tell_begun(self, run: plan.Run, state: plan.TaskState, started_ms: int) -> None:
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

    def _note(
        self,
        step: Step,
        state: plan.TaskState,
        decision: plan.Skip | plan.AfterFailure,
        tries: int,
        started_ms: int,
    ) -> None:
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
