"""The interpreter of tasks: linear steps over an in-memory context (features H1, H2).

A task is a list of steps. A step executes one action with mapped input and output. The context is ``{input,
state, output}``, and `TaskState` holds it with the current position. The executor alternates two
functions::

    decide(task, state)            return the next action
    record(task, state, outcome)   return the effect of a step's result

==============  ============================================================================
decision        meaning
==============  ============================================================================
Skip            the step's condition is false: continue with its state
Run             execute the action with this input, then call `record` with the outcome
Proceed         the step has ended, or failed with ``continue``: continue with its state
RetryTask       restart from step 0 with a new context after ``delay_ms``
Done            the output of the task
Failed          the fault of the task
==============  ============================================================================

A step fails if its action fails, if one of its expressions fails, or if its result is no valid payload. Its
``on_failure`` decides: ``abort`` fails the task; ``retry`` restarts it up to ``retry.max_attempts``;
``continue`` ignores the step. An output that does not match the task's schema also restarts the task.
OUTCOME_UNKNOWN is never retried, since the restart would repeat an action that is not repeatable.

These retries concern wrong results. The executor retries infrastructure errors before, so only final ones
arrive here.

The functions are pure and never raise: the same task, state and outcome give the same decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed
from typing import assert_never, final

from wonder_server.core import expressions
from wonder_server.core.definitions.specs import Action, OnFailure, PinnedTask, Step
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import Value, replace
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.schema import payloads, schemas


class TaskState(Value, frozen=True, kw_only=True):
    """State of a task: its context, the position of the next step, and the number of the attempt (from 1)."""

    input: JsonObject
    state: Mapping[str, JsonValue] = {}
    output: Mapping[str, JsonValue] = {}
    position: int = 0
    attempt: int = 1

    def scope(self) -> JsonDict:
        """Return the variables of expressions."""
        return {"input": self.input, "state": self.state, "output": self.output}


@final
class Skip(Value, frozen=True, kw_only=True):
    """Skip the step, whose condition is false."""

    state: TaskState


@final
class Run(Value, frozen=True, kw_only=True):
    """Execute ``action`` of ``step``, the task's step number ``position``.

    ``input`` is the action's config, overridden by the step's input.
    """

    step: Step
    position: int
    action: Action
    input: JsonDict


@final
class Proceed(Value, frozen=True, kw_only=True):
    """Continue with the next step. ``fault`` is set if the step failed with ``on_failure: continue``."""

    state: TaskState
    fault: Fault | None = None


@final
class RetryTask(Value, frozen=True, kw_only=True):
    """Restart with ``state`` after ``delay_ms``, because of ``fault``."""

    state: TaskState
    fault: Fault
    delay_ms: int


@final
class Done(Value, frozen=True, kw_only=True):
    """The output of the task."""

    output: JsonDict


@final
class Failed(Value, frozen=True, kw_only=True):
    """The fault of a task without output."""

    fault: Fault


class Succeeded(Value, frozen=True, kw_only=True):
    """The result of an action, for `record`. The outcome of a failed action is its `Fault`."""

    result: JsonValue


Outcome = Succeeded | Fault
AfterFailure = Proceed | RetryTask | Failed
Decision = Skip | Run | Done | AfterFailure


def begin(task: PinnedTask, input: JsonObject) -> TaskState | Failed:
    """Return the state before the first step. Returns Failed with INPUT_INVALID for invalid input."""
    problems = schemas.validate(task.spec.input_schema, input, name="input")
    if problems:
        message = f"The input does not match the task's schema: {'; '.join(problems[:5])}"
        return Failed(fault=_fault(task, Reason.INPUT_INVALID, message, field="input"))
    return TaskState(input=input)


def decide(task: PinnedTask, state: TaskState) -> Decision:
    """Return the next action to take for this task state."""
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
            return _expression_failed(task, state, "condition", error)
        if holds is False:
            return Skip(state=_next(state))
        if holds is not True:
            return _expression_failed(task, state, "condition", "a condition must be true or false")
    action_input, target = dict(step.action.config), ""
    try:
        for target, source in step.input_mapping.items():
            action_input = expressions.assign(action_input, target, expressions.evaluate(source, scope))
    except expressions.ExpressionError as error:
        return _expression_failed(task, state, f"input_mapping.{target}", error)
    return Run(step=step, position=state.position, action=step.action, input=action_input)


def record(task: PinnedTask, state: TaskState, outcome: Outcome) -> AfterFailure:
    """Return the effect of the outcome of the step that `decide` returned."""
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


def _mapped(task: PinnedTask, state: TaskState, step: Step, result: JsonValue) -> AfterFailure:
    """Apply the step's output mapping. Each expression sees the context as it was before the step."""
    scope, target = state.scope(), ""
    variables = {**scope, "result": result}
    try:
        for target, source in step.output_mapping.items():
            scope = expressions.assign(scope, target, expressions.evaluate(source, variables))
    except expressions.ExpressionError as error:
        return _expression_failed(task, state, f"output_mapping.{target}", error)
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


def _expression_failed(
    task: PinnedTask, state: TaskState, place: str, problem: expressions.ExpressionError | str
) -> AfterFailure:
    """Return the effect of an expression of the step that failed."""
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
    """Return the fault with its task and step in the metadata."""
    place = {"task": str(task.pin)} | ({"step_id": step.id} if step is not None else {})
    return changed(fault, metadata={**place, **fault.metadata})
