"""The interpreter of tasks: linear steps over an in-memory context (document 5, features H1, H2).

The theory. A task is a list of steps, a step is one action with data mapped in and out, and the context
is ``{input, state, output}``. `TaskState` says where a task stands. Whoever runs it alternates:

    decide(task, state)            what to do now
    record(task, state, outcome)   what follows from a step's result

==============  ============================================================================
decision        means
==============  ============================================================================
Skip            the step's condition is false: go on with the state it carries
Run             carry out the action with this input, then `record` its outcome
Proceed         the step is over (or failed and says ``continue``): go on with the state it carries
RetryTask       from step 0 with a fresh context: wait ``delay_ms``, go on with the state it carries
Done            the task's output
Failed          why the task has none
==============  ============================================================================

A step fails when its action fails, when one of its expressions does, or when its result is no payload.
Then its ``on_failure`` decides: ``abort`` fails the task; ``retry`` starts it over while
``retry.max_attempts`` allows, and else fails it; ``continue`` goes on as if the step had not been. An
output that does not match the task's schema is a wrong output like any other: the task is retried while
it may be, then fails. OUTCOME_UNKNOWN is never retried: the task would do again what must not be done twice.

These retries are about wrong outputs and visible here. Infrastructure errors were retried before, by
the executor, and are not seen here unless nothing helped.

Pure, and never raises: same task, state and outcome, same decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed
from typing import Any, assert_never

from wonder_server.core import expressions
from wonder_server.core.definitions.specs import Action, OnFailure, PinnedTask, Step
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import Value, replace
from wonder_server.core.schema import payloads, schemas


class TaskState(Value, frozen=True, kw_only=True):
    """Where a task stands: its context, the next step, and which attempt this is (from 1)."""

    input: Mapping[str, Any]
    state: Mapping[str, Any] = {}
    output: Mapping[str, Any] = {}
    position: int = 0
    attempt: int = 1

    def scope(self) -> dict[str, Any]:
        """What expressions see."""
        return {"input": self.input, "state": self.state, "output": self.output}


class Skip(Value, frozen=True, kw_only=True):
    """The step's condition does not hold."""

    state: TaskState


class Run(Value, frozen=True, kw_only=True):
    """Carry out ``action`` for ``step``, which is the task's step number ``position``.

    ``input`` is the action's config with the step's input over it."""

    step: Step
    position: int
    action: Action
    input: dict[str, Any]


class Proceed(Value, frozen=True, kw_only=True):
    """The step is over. ``fault`` is set if it failed and its task goes on all the same."""

    state: TaskState
    fault: Fault | None = None


class RetryTask(Value, frozen=True, kw_only=True):
    """Start over with ``state``, after ``delay_ms``, because of ``fault``."""

    state: TaskState
    fault: Fault
    delay_ms: int


class Done(Value, frozen=True, kw_only=True):
    """The task's output."""

    output: dict[str, Any]


class Failed(Value, frozen=True, kw_only=True):
    """Why the task has no output."""

    fault: Fault


class Succeeded(Value, frozen=True, kw_only=True):
    """An action's result, fed back to `record`; a failed action's outcome is its `Fault`."""

    result: Any


Outcome = Succeeded | Fault
AfterFailure = Proceed | RetryTask | Failed
Decision = Skip | Run | Done | AfterFailure


def begin(task: PinnedTask, input: Mapping[str, Any]) -> TaskState | Failed:
    """The state before the first step, or why the input is refused (INPUT_INVALID)."""
    problems = schemas.validate(task.spec.input_schema, input, name="input")
    if problems:
        message = f"The input does not match the task's schema: {'; '.join(problems[:5])}"
        return Failed(fault=_fault(task, Reason.INPUT_INVALID, message, field="input"))
    return TaskState(input=input)


def decide(task: PinnedTask, state: TaskState) -> Decision:
    """What to do now."""
    steps = task.spec.steps
    if state.position >= len(steps):
        return _finish(task, state)
    step = steps[state.position]
    if step.action is None:
        message = f"step '{step.id}' has no action: '{step.action_id}' was not resolved"
        return Failed(fault=_fault(task, Reason.INTERNAL, message, step=step))
    scope = state.scope()
    if step.condition:
        try:
            holds = expressions.evaluate(step.condition, scope)
        except expressions.ExpressionError as error:
            return _not_evaluated(task, state, "condition", error)
        if holds is False:
            return Skip(state=_next(state))
        if holds is not True:
            return _not_evaluated(task, state, "condition", "a condition must be true or false")
    action_input, target = dict(step.action.config), ""
    try:
        for target, source in step.input_mapping.items():
            action_input = expressions.assign(action_input, target, expressions.evaluate(source, scope))
    except expressions.ExpressionError as error:
        return _not_evaluated(task, state, f"input_mapping.{target}", error)
    return Run(step=step, position=state.position, action=step.action, input=action_input)


def record(task: PinnedTask, state: TaskState, outcome: Outcome) -> AfterFailure:
    """What follows from the outcome of the step that `decide` said to run."""
    step = task.spec.steps[state.position]
    match outcome:
        case Succeeded():
            wrong = payloads.check(outcome.result, field=f"steps[{state.position}].result")
            if wrong is not None:
                return _after_failure(task, state, step, _named(task, wrong, step))
            return _mapped(task, state, step, outcome.result)
        case Fault():
            return _after_failure(task, state, step, _named(task, outcome, step))
        case _:
            assert_never(outcome)


def _mapped(task: PinnedTask, state: TaskState, step: Step, result: Any) -> AfterFailure:
    """The step's output mapping; every expression sees the context as it was before the step."""
    scope, target = state.scope(), ""
    seen = {**scope, "result": result}
    try:
        for target, source in step.output_mapping.items():
            scope = expressions.assign(scope, target, expressions.evaluate(source, seen))
    except expressions.ExpressionError as error:
        return _not_evaluated(task, state, f"output_mapping.{target}", error)
    position = state.position + 1
    return Proceed(state=replace(state, position=position, state=scope["state"], output=scope["output"]))


def _finish(task: PinnedTask, state: TaskState) -> Decision:
    output = dict(state.output)
    wrong = payloads.check(output, field="output")
    if wrong is not None:
        return _start_over(task, state, _named(task, wrong))
    problems = schemas.validate(task.spec.output_schema, output, name="output")
    if problems:
        message = f"The output does not match the task's schema: {'; '.join(problems[:5])}"
        return _start_over(task, state, _fault(task, Reason.TASK_FAILED, message, field="output"))
    return Done(output=output)


def _after_failure(task: PinnedTask, state: TaskState, step: Step, fault: Fault) -> AfterFailure:
    match step.on_failure:
        case OnFailure.ABORT:
            return Failed(fault=fault)
        case OnFailure.RETRY if fault.reason is Reason.OUTCOME_UNKNOWN:
            return Failed(fault=fault)
        case OnFailure.RETRY:
            return _start_over(task, state, fault)
        case OnFailure.CONTINUE:
            return Proceed(state=_next(state), fault=fault)
        case _:
            assert_never(step.on_failure)


def _start_over(task: PinnedTask, state: TaskState, fault: Fault) -> RetryTask | Failed:
    retry = task.spec.retry
    if state.attempt >= retry.max_attempts:
        return Failed(fault=fault)
    fresh = TaskState(input=state.input, attempt=state.attempt + 1)
    return RetryTask(state=fresh, fault=fault, delay_ms=retry.backoff_ms * 2 ** (state.attempt - 1))


def _next(state: TaskState) -> TaskState:
    return replace(state, position=state.position + 1)


def _not_evaluated(
    task: PinnedTask, state: TaskState, place: str, problem: expressions.ExpressionError | str
) -> AfterFailure:
    """What follows from an expression of the step that has no value that it could be given."""
    step = task.spec.steps[state.position]
    message = f"step '{step.id}', {place}: {problem}"
    field = f"steps[{state.position}].{place}"
    fault = _fault(task, Reason.EXPRESSION_FAILED, message, step=step, field=field)
    return _after_failure(task, state, step, fault)


def _fault(
    task: PinnedTask, reason: Reason, message: str, *, step: Step | None = None, field: str = ""
) -> Fault:
    return _named(task, Fault(reason=reason, message=message, field=field), step)


def _named(task: PinnedTask, fault: Fault, step: Step | None = None) -> Fault:
    """The fault, saying in which task and step it happened."""
    place = {"task": str(task.pin)} | ({"step_id": step.id} if step is not None else {})
    return changed(fault, metadata={**place, **fault.metadata})
