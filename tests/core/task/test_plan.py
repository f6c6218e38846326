"""Laws of the task interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wonder_server.core import frozen
from wonder_server.core.definitions.specs import Action, OnFailure, Pin, PinnedTask, Retry, Step, Task
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.task import plan
from wonder_server.core.task.action_effects import is_repeatable
from wonder_server.core.task.plan import TaskState

PIN = Pin(definition_id="def_1", library="demo", name="greet", revision=3)
BROKEN = Fault(reason=Reason.ASSERTION_FAILED, message="too short")


def step(id: str = "one", **fields: Any) -> Step:
    return replace(Step(id=id, action=Action(kind="context")), **fields)


def task(*steps: Step, **fields: Any) -> PinnedTask:
    return PinnedTask(pin=PIN, spec=Task(steps=steps, **fields))


def test_a_step_runs_with_its_config_and_the_mapped_input_over_it() -> None:
    action = Action(kind="context", config={"a": 1, "b": 1})
    wanted = task(step(action=action, input_mapping={"b": "input.x + 1", "c": "state.y"}))
    decision = plan.decide(wanted, TaskState(input={"x": 1}, state={"y": "z"}))
    assert isinstance(decision, plan.Run)
    assert decision.input == {"a": 1, "b": 2, "c": "z"}
    assert decision.action.config == {"a": 1, "b": 1}


def test_a_result_is_mapped_into_state_and_output_and_the_next_step_is_due() -> None:
    one = task(step(output_mapping={"state.a.b": "result.x", "output.sum": "result.x + input.y"}))
    decision = plan.record(one, TaskState(input={"y": 2}), plan.Succeeded(result={"x": 1}))
    assert decision == plan.Proceed(
        state=TaskState(input={"y": 2}, state={"a": {"b": 1}}, output={"sum": 3}, position=1)
    )


def test_an_output_mapping_sees_the_context_as_it_was_before_the_step() -> None:
    swap = task(step(output_mapping={"state.a": "state.b", "state.b": "state.a"}))
    decision = plan.record(swap, TaskState(input={}, state={"a": 1, "b": 2}), plan.Succeeded(result=None))
    assert isinstance(decision, plan.Proceed)
    assert decision.state.state == {"a": 2, "b": 1}


def test_a_step_whose_condition_is_false_is_skipped() -> None:
    decision = plan.decide(task(step(condition="has(state.go)")), TaskState(input={}))
    assert decision == plan.Skip(state=TaskState(input={}, position=1))


def test_after_the_last_step_the_output_is_done() -> None:
    assert plan.decide(task(step()), TaskState(input={}, output={"a": 1}, position=1)) == plan.Done(
        output={"a": 1}
    )


def test_abort_fails_the_task_despite_its_retries() -> None:
    aborting = task(step(), retry=Retry(max_attempts=3))
    decision = plan.record(aborting, TaskState(input={}), BROKEN)
    assert isinstance(decision, plan.Failed)
    assert decision.fault == replace(BROKEN, metadata={"task": "demo/greet@3", "step_id": "one"})


def test_retry_restarts_the_task_with_a_new_context_up_to_its_attempts() -> None:
    trying = task(step("zero"), step(on_failure=OnFailure.RETRY), retry=Retry(max_attempts=3, backoff_ms=100))
    first = plan.record(
        trying, TaskState(input={"a": 1}, state={"s": 1}, output={"o": 1}, position=1), BROKEN
    )
    assert isinstance(first, plan.RetryTask)
    assert (first.state, first.delay_ms) == (TaskState(input={"a": 1}, attempt=2), 100)
    second = plan.record(trying, frozen.replace(first.state, position=1), BROKEN)
    assert isinstance(second, plan.RetryTask)
    assert (second.state.attempt, second.delay_ms) == (3, 200)
    assert isinstance(plan.record(trying, frozen.replace(second.state, position=1), BROKEN), plan.Failed)


def test_continue_ignores_the_failed_step() -> None:
    going = task(step(on_failure=OnFailure.CONTINUE, output_mapping={"state.a": "1"}), step("two"))
    decision = plan.record(going, TaskState(input={}), BROKEN)
    assert isinstance(decision, plan.Proceed)
    assert decision.state == TaskState(input={}, position=1)
    assert decision.fault is not None


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (step(condition="input.zz"), "steps[0].condition"),
        (step(condition="1"), "steps[0].condition"),
        (step(input_mapping={"a": "input.zz"}), "steps[0].input_mapping.a"),
        (step(output_mapping={"state.a": "result.zz"}), "steps[0].output_mapping.state.a"),
        (step(output_mapping={"state.a": "1 +"}), "steps[0].output_mapping.state.a"),
    ],
)
@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_failing_expression_fails_its_step_and_names_the_place(
    broken: Step, field: str, on_failure: OnFailure
) -> None:
    wanted = task(replace(broken, on_failure=on_failure), retry=Retry(max_attempts=2))
    state = TaskState(input={})
    decision = plan.decide(wanted, state)
    if isinstance(decision, plan.Run):
        decision = plan.record(wanted, state, plan.Succeeded(result={}))
    expected = {"abort": plan.Failed, "retry": plan.RetryTask, "continue": plan.Proceed}[on_failure]
    assert isinstance(decision, expected)
    assert isinstance(decision, plan.Failed | plan.RetryTask | plan.Proceed)
    assert decision.fault is not None
    assert (decision.fault.reason, decision.fault.field) == (Reason.EXPRESSION_FAILED, field)
    assert decision.fault.metadata == {"task": "demo/greet@3", "step_id": "one"}
    assert decision.fault.message.startswith("step 'one', ")


def test_a_result_that_is_no_payload_fails_its_step() -> None:
    decision = plan.record(task(step()), TaskState(input={}), plan.Succeeded(result={"n": 2**60}))
    assert isinstance(decision, plan.Failed)
    assert (decision.fault.reason, decision.fault.field) == (
        Reason.NUMBER_OUT_OF_RANGE,
        "steps[0].result.n",
    )


def test_an_input_that_does_not_match_the_schema_is_refused_before_the_first_step() -> None:
    strict = task(step(), input_schema={"type": "object", "required": ["name"]})
    refused = plan.begin(strict, {})
    assert isinstance(refused, plan.Failed)
    assert (refused.fault.reason, refused.fault.field) == (Reason.INPUT_INVALID, "input")
    assert "input.name: is missing" in refused.fault.message
    assert plan.begin(strict, {"name": "a"}) == TaskState(input={"name": "a"})


def test_an_output_that_does_not_match_the_schema_is_a_wrong_output_and_retried() -> None:
    strict = task(step(), output_schema={"required": ["a"]}, retry=Retry(max_attempts=2))
    first = plan.decide(strict, TaskState(input={}, position=1))
    assert isinstance(first, plan.RetryTask)
    last = plan.decide(strict, TaskState(input={}, position=1, attempt=2))
    assert isinstance(last, plan.Failed)
    assert "output.a: is missing" in last.fault.message


def test_a_step_without_an_action_is_a_fault_and_not_an_exception() -> None:
    unresolved = task(Step(id="one", action_id="missing"))
    assert isinstance(plan.decide(unresolved, TaskState(input={})), plan.Failed)


def test_deciding_changes_nothing_and_decides_the_same_again() -> None:
    wanted = task(step(input_mapping={"a.b": "input.x"}, output_mapping={"state.a.b": "result"}))
    state = TaskState(input={"x": [1]}, state={"a": {"c": 1}})
    assert plan.decide(wanted, state) == plan.decide(wanted, state)
    outcome = plan.Succeeded(result=1)
    assert plan.record(wanted, state, outcome) == plan.record(wanted, state, outcome)
    assert state == TaskState(input={"x": [1]}, state={"a": {"c": 1}})


def test_a_task_is_repeatable_if_all_its_actions_are() -> None:
    assert is_repeatable(task(step(), step(action=Action(kind="memory.write"))))
    assert not is_repeatable(task(step(), step(action=Action(kind="mcp"))))
    assert not is_repeatable(task(step(), step(action=Action(kind="unknown-kind"))))
    assert not is_repeatable(task(Step(id="one", action_id="unresolved")))


@pytest.mark.parametrize(
    ("config", "mapping", "repeatable"),
    [
        ({}, {}, True),  # GET
        ({"method": "PUT"}, {}, True),
        ({"method": "delete"}, {}, True),
        ({"method": "POST"}, {}, False),
        ({"method": "PATCH"}, {}, False),
        ({"method": 7}, {}, False),
        # The result of a mapping of the method is unknown before it runs.
        ({"method": "GET"}, {"method": "input.method"}, False),
        ({"method": "GET"}, {"url": "input.url"}, True),
    ],
)
def test_an_http_request_is_repeatable_by_its_method_if_that_is_fixed(
    config: JsonDict, mapping: dict[str, str], repeatable: bool
) -> None:
    asking = step(action=Action(kind="http", config=config), input_mapping=mapping)
    assert is_repeatable(task(asking)) is repeatable


def test_the_actions_own_declaration_decides() -> None:
    assert is_repeatable(task(step(action=Action(kind="mcp", idempotent=True))))
    assert is_repeatable(task(step(action=Action(kind="http", config={"method": "POST"}, idempotent=True))))
    assert not is_repeatable(task(step(action=Action(kind="context", idempotent=False))))


def test_a_task_with_an_unknown_outcome_does_not_restart() -> None:
    trying = task(step(on_failure=OnFailure.RETRY), retry=Retry(max_attempts=3))
    unknown = Fault(reason=Reason.OUTCOME_UNKNOWN, message="It may have been done.")
    failed = plan.record(trying, TaskState(input={}), unknown)
    assert isinstance(failed, plan.Failed) and failed.fault.reason is Reason.OUTCOME_UNKNOWN
    going = task(step(on_failure=OnFailure.CONTINUE))
    assert isinstance(plan.record(going, TaskState(input={}), unknown), plan.Proceed)


@pytest.mark.parametrize(
    ("broken", "field", "column"),
    [
        ({"condition": "state.missing > 1"}, "condition", 7),
        ({"condition": "input.a && state.b"}, "condition", 18),
        ({"input_mapping": {"a": "1 + state.b"}}, "input_mapping.a", 11),
        ({"output_mapping": {"output.a": "1 / (input.n - 1)"}}, "output_mapping.output.a", 3),
    ],
)
def test_a_fault_of_an_expression_names_task_step_field_and_column(
    broken: JsonDict, field: str, column: int
) -> None:
    wrong = task(step("first"), step("second", **broken))
    state = TaskState(input={"n": 1, "a": True}, position=1)
    decision = plan.decide(wrong, state)
    if isinstance(decision, plan.Run):
        decision = plan.record(wrong, state, plan.Succeeded(result={}))
    assert isinstance(decision, plan.Failed)
    fault = decision.fault
    assert (fault.reason, fault.field) == (Reason.EXPRESSION_FAILED, f"steps[1].{field}")
    assert (fault.metadata["task"], fault.metadata["step_id"]) == ("demo/greet@3", "second")
    assert fault.message.startswith(f"step 'second', {field}: ")
    assert fault.message.endswith(f"(column {column})")
