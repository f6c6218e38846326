"""Tasks that run inline, without waiting (features H1, H2)."""

from __future__ import annotations

import sys

import pytest

from tests.services.tasks.executor_kit import (
    CONTEXT,
    executor,
    hang,
    kind,
    step,
    task,
    unless_asked_to_wait,
    waiting,
)
from wonder_server.core import frozen
from wonder_server.core.definitions.specs import (
    OnFailure,
    Retry,
)
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.services.actions import (
    ActionCall,
)
from wonder_server.services.tasks.executor import TaskOutcome

QUICK = task(
    step("a", "context", input_mapping={"x": "input.n + 1"}, output_mapping={"state.x": "result.x"}),
    step("no", "context", condition="state.x > 5"),
    step(
        "b", "assert", input_mapping={"condition": "state.x < 4"}, output_mapping={"output.y": "state.x * 2"}
    ),
)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the limit of inline execution, so that a slow machine does not change the outcome."""
    monkeypatch.setattr("wonder_server.services.tasks.executor.MAX_INLINE_S", 600)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("n", [1, 3, "text"], ids=["works", "fails", "cannot be evaluated"])
async def test_an_inline_task_has_the_same_outcome(n: JsonValue) -> None:
    at_once = executor().execute_inline(QUICK, {"n": n}, CONTEXT)
    assert at_once is not None
    waited_for = await executor().execute(QUICK, {"n": n}, CONTEXT)
    assert (at_once.output, at_once.fault) == (waited_for.output, waited_for.fault)
    assert waited_for.steps and not at_once.steps, "an inline task has no trace"


async def test_a_task_that_retries_is_not_executed_inline() -> None:
    stubborn = task(
        step(kind="assert", action={"config": {"condition": False}}, on_failure=OnFailure.RETRY),
        retry=Retry(max_attempts=2, backoff_ms=0),
    )
    assert executor().execute_inline(stubborn, {}, CONTEXT) is None


def test_a_task_with_an_action_that_may_wait_is_not_started_inline() -> None:
    counted: list[int] = []

    def count(call: ActionCall) -> JsonDict:
        counted.append(1)
        return {}

    waits = task(step("a", "counted"), step("b", "test"))
    one = executor(kind(hang, name="counted", run_inline=count), kind(hang))
    assert one.execute_inline(waits, {}, CONTEXT) is None
    assert counted == []


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("wait", [False, True])
async def test_an_action_can_run_inline_or_wait_from_call_to_call(wait: bool) -> None:
    at_times = step(input_mapping={"wait": "input.wait"}, output_mapping={"output.by": "result.by"})
    one = executor(kind(waiting, run_inline=unless_asked_to_wait))
    at_once = one.execute_inline(task(at_times), {"wait": wait}, CONTEXT)
    outcome = await one.execute(task(at_times), {"wait": wait}, CONTEXT)
    assert outcome.output == {"by": "op_1/node/one" if wait else "quick"}
    assert at_once == (None if wait else frozen.replace(outcome, steps=()))
    assert [(each.status, each.tries) for each in outcome.steps] == [("completed", 1)]


@pytest.mark.usefixtures("unhurried")
async def test_a_task_runs_inline_if_it_skips_the_actions_that_wait() -> None:
    first = step("a", "context", output_mapping={"output.n": "input.n"})
    one, either = executor(kind(waiting)), task(first, step("b", condition="input.n > 1"))
    assert one.execute_inline(either, {"n": 1}, CONTEXT) == TaskOutcome(output={"n": 1})
    assert one.execute_inline(either, {"n": 2}, CONTEXT) is None
    assert (await one.execute(either, {"n": 2}, CONTEXT)).output == {"n": 2}


def test_an_inline_task_that_takes_too_long_is_abandoned() -> None:
    heavy = "input.big.map(x, {'a': x, 'b': [x]}).filter(y, y.a > 0).size()"
    steps = [step(f"s{i}", "context", input_mapping={"n": heavy}) for i in range(100)]
    assert executor().execute_inline(task(*steps), {"big": list(range(10_000))}, CONTEXT) is None


def test_an_invalid_input_and_an_unknown_kind_are_faults_of_an_inline_task() -> None:
    strict = task(step("a", "context"), input_schema={"required": ["n"]})
    refused = executor().execute_inline(strict, {}, CONTEXT)
    assert refused is not None and refused.fault is not None
    assert refused.fault.reason is Reason.INPUT_INVALID
    unknown = executor().execute_inline(task(step("a", "teleport")), {}, CONTEXT)
    assert unknown is not None and unknown.fault is not None
    assert unknown.fault.reason is Reason.NOT_IMPLEMENTED


@pytest.mark.usefixtures("unhurried")
def test_ten_steps_take_few_calls_of_functions() -> None:
    """Compare a count, which is the same on every machine. It takes 0.13 ms on a quiet one."""
    ten = task(
        *(
            step(
                f"s{number}",
                "context",
                condition="input.n > 0",
                input_mapping={"v": "input.n + 1"},
                output_mapping={"state.v": "result.v"},
            )
            for number in range(10)
        )
    )
    one, calls = executor(), 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    one.execute_inline(ten, {"n": 1}, CONTEXT)  # expressions are compiled the first time
    sys.setprofile(count)
    try:
        outcome = one.execute_inline(ten, {"n": 1}, CONTEXT)
    finally:
        sys.setprofile(None)
    assert outcome is None or outcome.fault is None
    assert calls < 800
