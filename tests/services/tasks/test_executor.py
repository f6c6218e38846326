"""Tasks run to their end: retries, timeouts, cancelling, progress (features H1, H2, I1, G6)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from wonder_server.core import frozen
from wonder_server.core.definitions.specs import (
    Action,
    ModelProfile,
    OnFailure,
    Pin,
    PinnedTask,
    Retry,
    Step,
    Task,
)
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.task.effects import NotStartedError
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ActionKind,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.actions.contract.kind import InlineNotPossibleError
from wonder_server.services.tasks.executor import Executor, StepProgress, StepTrace, TaskOutcome

CONTEXT = ExecutionContext(agent_id="agt_1", key="op_1/node")


class Clock:
    """Stands still."""

    def now_ms(self) -> int:
        return 1_000


class Nothing:
    """A service that no action here may use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Pauses:
    """Sleeping takes no time, and is remembered, in milliseconds."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(round(seconds * 1000))


SERVICES = Services(
    models=ModelAccess(model=Nothing(), default_profile=ModelProfile(provider="offline")),
    memory=Nothing(),
    network=NetworkAccess(web=Nothing(), mcp=Nothing(), policies=Nothing()),
    clock=Clock(),
)


def kind(run: Callable[[ActionCall], Awaitable[Any]], *, name: str = "test", **fields: Any) -> ActionKind:
    plain = ActionKind(name=name, description="", input_schema={}, output_schema={}, run=run)
    return replace(plain, **fields)


def executor(*kinds: ActionKind, pauses: Pauses | None = None) -> Executor:
    known = {**ACTIONS, **{each.name: each for each in kinds}}
    return Executor(SERVICES, kinds=known, sleep=pauses or Pauses())


def task(*steps: Step, **fields: Any) -> PinnedTask:
    pin = Pin(definition_id="def_1", library="demo", name="t", revision=1)
    return PinnedTask(pin=pin, spec=Task(steps=steps, **fields))


def step(id: str = "one", kind: str = "test", **fields: Any) -> Step:
    """A step of one action. A kind that only these tests know is repeatable by the action's definition."""
    idempotent = None if kind in ACTIONS else True
    action = Action(kind=kind, **{"idempotent": idempotent, **fields.pop("action", {})})
    return Step(id=id, action=action, **fields)


class Scripted:
    """An action that fails with what it is given, one try after another, and then succeeds."""

    def __init__(self, *faults: WonderError) -> None:
        self._faults = list(faults)
        self.calls: list[ActionCall] = []

    async def __call__(self, call: ActionCall) -> dict[str, Any]:
        self.calls.append(call)
        if self._faults:
            raise self._faults.pop(0)
        return {"n": len(self.calls)}


def busy(**fields: Any) -> WonderError:
    return error(Reason.MODEL_UNAVAILABLE, "busy", transient=True, **fields)


def wrong() -> WonderError:
    return error(Reason.ASSERTION_FAILED, "wrong")


async def test_steps_hand_data_on_through_state_and_output() -> None:
    outcome = await executor().execute(
        task(
            step("a", "context", input_mapping={"x": "input.n + 1"}, output_mapping={"state.x": "result.x"}),
            step("skipped", "context", condition="state.x > 5", output_mapping={"output.never": "1"}),
            step("b", "context", output_mapping={"output.y": "state.x * 2"}),
        ),
        {"n": 1},
        CONTEXT,
    )
    assert (outcome.output, outcome.fault) == ({"y": 4}, None)
    assert [(each.step_id, each.status, each.tries) for each in outcome.steps] == [
        ("a", "completed", 1),
        ("skipped", "skipped", 0),
        ("b", "completed", 1),
    ]


async def test_an_infrastructure_fault_is_retried_unseen_by_the_task() -> None:
    action, pauses = Scripted(busy(), busy()), Pauses()
    one = task(step(action={"max_attempts": 3, "backoff_ms": 100}, output_mapping={"output.n": "result.n"}))
    outcome = await executor(kind(action), pauses=pauses).execute(one, {}, CONTEXT)
    assert outcome.output == {"n": 3}
    assert pauses.taken == [100, 200]
    assert [(each.status, each.tries, each.attempt) for each in outcome.steps] == [("completed", 3, 1)]


async def test_a_provider_that_says_when_to_come_back_is_listened_to() -> None:
    pauses = Pauses()
    action = kind(Scripted(busy(retry_after_ms=5_000), busy()), min_backoff_ms=500)
    await executor(action, pauses=pauses).execute(task(step()), {}, CONTEXT)
    assert pauses.taken == [5_000, 1_000]


async def test_a_pause_that_the_task_will_not_outlive_is_not_taken() -> None:
    pauses = Pauses()
    outcome = await executor(kind(Scripted(busy(retry_after_ms=600_000))), pauses=pauses).execute(
        task(step()), {}, CONTEXT
    )
    assert outcome.fault is not None
    assert (outcome.fault.reason, pauses.taken) == (Reason.MODEL_UNAVAILABLE, [])


async def test_an_infrastructure_fault_that_does_not_go_away_fails_the_step() -> None:
    action = Scripted(*(busy() for _ in range(9)))
    outcome = await executor(kind(action)).execute(task(step(action={"max_attempts": 2})), {}, CONTEXT)
    assert outcome.fault is not None
    assert outcome.fault.reason is Reason.MODEL_UNAVAILABLE
    assert len(action.calls) == 2


async def test_a_business_fault_is_not_retried_by_the_executor() -> None:
    action = Scripted(wrong())
    outcome = await executor(kind(action)).execute(task(step(action={"max_attempts": 5})), {}, CONTEXT)
    assert outcome.output is None
    assert outcome.fault is not None
    assert (outcome.fault.reason, outcome.fault.metadata["step_id"]) == (Reason.ASSERTION_FAILED, "one")
    assert len(action.calls) == 1


async def test_a_task_that_retries_starts_over_from_its_first_step_with_a_fresh_context() -> None:
    first, checked, pauses = Scripted(), Scripted(wrong(), wrong()), Pauses()
    outcome = await executor(kind(first, name="first"), kind(checked, name="checked"), pauses=pauses).execute(
        task(
            step("a", "first", output_mapping={"state.seen": "has(state.seen) ? 'stale' : 'fresh'"}),
            step("b", "checked", on_failure=OnFailure.RETRY, output_mapping={"output.seen": "state.seen"}),
            retry=Retry(max_attempts=3, backoff_ms=50),
        ),
        {},
        CONTEXT,
    )
    assert outcome.output == {"seen": "fresh"}
    assert pauses.taken == [50, 100]
    assert [(each.step_id, each.attempt, each.status) for each in outcome.steps] == [
        ("a", 1, "completed"),
        ("b", 1, "failed"),
        ("a", 2, "completed"),
        ("b", 2, "failed"),
        ("a", 3, "completed"),
        ("b", 3, "completed"),
    ]


async def test_the_idempotency_key_is_the_same_in_every_try_and_attempt() -> None:
    action = Scripted(busy(), wrong())
    await executor(kind(action)).execute(
        task(step("save", on_failure=OnFailure.RETRY), retry=Retry(max_attempts=2)), {}, CONTEXT
    )
    assert [call.context.key for call in action.calls] == ["op_1/node/save"] * 3
    assert {call.context.agent_id for call in action.calls} == {"agt_1"}


async def hang(call: ActionCall) -> None:
    await asyncio.Event().wait()


async def test_an_action_that_hangs_is_stopped_and_tried_again() -> None:
    tried: list[int] = []

    async def hang_once(call: ActionCall) -> dict[str, Any]:
        tried.append(1)
        if len(tried) == 1:
            await asyncio.Event().wait()
        return {}

    outcome = await executor(kind(hang_once)).execute(task(step(action={"timeout_ms": 5})), {}, CONTEXT)
    assert outcome.output == {}
    assert len(tried) == 2


async def test_an_action_that_may_not_be_repeated_is_not_tried_again_after_a_timeout() -> None:
    once = task(step(action={"timeout_ms": 5, "idempotent": None}))
    outcome = await executor(kind(hang)).execute(once, {}, CONTEXT)
    assert outcome.fault is not None
    assert outcome.fault.reason is Reason.OUTCOME_UNKNOWN
    assert outcome.fault.message.startswith("The action 'test' took longer than 5 ms.")
    assert outcome.steps[0].tries == 1


@pytest.mark.parametrize(
    ("idempotent", "fault", "reason", "tries"),
    [
        (False, busy(), Reason.OUTCOME_UNKNOWN, 1),
        (None, busy(), Reason.OUTCOME_UNKNOWN, 1),
        (True, busy(), None, 2),
        (False, NotStartedError(Reason.TASK_FAILED, "Nobody listens."), None, 2),
        (False, wrong(), Reason.ASSERTION_FAILED, 1),
    ],
    ids=["author says no", "kind is unknown", "author says yes", "nothing happened", "known to have failed"],
)
async def test_what_must_not_be_done_twice_is_tried_again_only_if_nothing_happened(
    idempotent: bool | None, fault: WonderError, reason: Reason | None, tries: int
) -> None:
    action = Scripted(fault)
    once = task(
        step(action={"idempotent": idempotent}, on_failure=OnFailure.RETRY), retry=Retry(max_attempts=1)
    )
    outcome = await executor(kind(action)).execute(once, {}, CONTEXT)
    assert (outcome.fault.reason if outcome.fault else None) is reason
    assert outcome.steps[0].tries == len(action.calls) == tries


async def test_an_author_can_say_that_an_action_must_not_be_repeated() -> None:
    action = Scripted(busy())
    once = task(step(action={"idempotent": False}))
    outcome = await executor(kind(action)).execute(once, {}, CONTEXT)
    assert outcome.fault is not None and outcome.fault.reason is Reason.OUTCOME_UNKNOWN
    assert not outcome.fault.transient and outcome.fault.metadata["step_id"] == "one"


async def test_a_task_that_runs_out_of_time_says_if_nobody_knows_what_was_done() -> None:
    limited = task(step(action={"idempotent": None}), retry=Retry(timeout_ms=5))
    outcome = await executor(kind(hang)).execute(limited, {}, CONTEXT)
    assert outcome.fault is not None
    assert (outcome.fault.reason, outcome.fault.metadata["step_id"]) == (Reason.OUTCOME_UNKNOWN, "one")


async def test_a_task_that_runs_out_of_time_between_two_tries_knows_what_was_done() -> None:
    """Nothing is under way while the executor waits before the second try."""
    waiting = asyncio.Event()

    async def forever(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    refused = Scripted(NotStartedError(Reason.TASK_FAILED, "Nobody listens."))
    limited = task(step(action={"backoff_ms": 1, "idempotent": None}), retry=Retry(timeout_ms=20))
    one = Executor(SERVICES, kinds={"test": kind(refused)}, sleep=forever)
    outcome = await one.execute(limited, {}, CONTEXT)
    assert waiting.is_set()
    assert outcome.fault is not None and outcome.fault.reason is Reason.TIMEOUT


async def test_the_task_timeout_holds_for_everything_together() -> None:
    hanging = task(step("a", "context"), step("b"), retry=Retry(timeout_ms=10, max_attempts=5))
    outcome = await executor(kind(hang)).execute(hanging, {}, CONTEXT)
    assert outcome.fault is not None
    assert (outcome.fault.reason, outcome.fault.message) == (
        Reason.TIMEOUT,
        "The task took longer than 10 ms.",
    )
    assert [each.step_id for each in outcome.steps] == ["a"]


async def test_a_cancel_reaches_the_action_and_is_raised() -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def wait(call: ActionCall) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    running = asyncio.create_task(executor(kind(wait)).execute(task(step()), {}, CONTEXT))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped.is_set()


async def test_a_failure_nobody_foresaw_is_a_fault_without_its_text() -> None:
    async def surprise(call: ActionCall) -> None:
        raise KeyError("secret-key")

    outcome = await executor(kind(surprise)).execute(task(step()), {}, CONTEXT)
    assert outcome.fault is not None
    assert outcome.fault.reason is Reason.INTERNAL
    assert "secret" not in outcome.fault.message
    assert "KeyError" not in outcome.fault.message


async def test_an_action_never_sees_an_input_that_does_not_fit_its_schema() -> None:
    action = Scripted()
    strict = kind(action, input_schema={"required": ["a"]})
    outcome = await executor(strict).execute(task(step()), {}, CONTEXT)
    assert outcome.fault is not None
    assert (outcome.fault.reason, action.calls) == (Reason.INPUT_INVALID, [])
    assert "input.a: is missing" in outcome.fault.message


async def test_an_unknown_action_kind_is_a_fault() -> None:
    outcome = await executor().execute(task(step("a", "teleport")), {}, CONTEXT)
    assert outcome.fault is not None
    assert outcome.fault.reason is Reason.NOT_IMPLEMENTED


async def test_progress_tells_when_a_step_begins_and_when_it_is_over() -> None:
    told: list[StepTrace | StepProgress] = []
    steps = task(step("a", "context"), step("b", "context", condition="false"))
    outcome = await executor().execute(steps, {}, CONTEXT, told.append)
    assert [(each.step_id, each.status) for each in told if isinstance(each, StepTrace)] == [
        ("a", "running"),
        ("a", "completed"),
        ("b", "skipped"),
    ]
    assert tuple(told[1:]) == outcome.steps


async def test_a_task_that_only_computes_gives_way_to_others() -> None:
    """Each step takes a few milliseconds; the task's own timeout can only fire if it gives way."""
    heavy = "input.big.map(x, {'a': x, 'b': [x]}).filter(y, y.a > 0).size()"
    steps = [step(f"s{i}", "context", input_mapping={"n": heavy}) for i in range(100)]
    outcome = await executor().execute(
        task(*steps, retry=Retry(timeout_ms=20)), {"big": list(range(10_000))}, CONTEXT
    )
    assert outcome.fault is not None
    assert outcome.fault.reason is Reason.TIMEOUT


async def test_an_action_tells_how_far_it_is_and_what_happens() -> None:
    async def talk(call: ActionCall) -> dict[str, Any]:
        call.progress("half way", 0.5, "line\n")
        call.emit("found", {"n": 1})
        return {}

    told: list[StepTrace | StepProgress] = []
    events: list[tuple[str, str, Any]] = []
    await executor(kind(talk)).execute(
        task(step()), {}, CONTEXT, told.append, lambda *event: events.append(event)
    )
    assert told[1:-1] == [
        StepProgress(step_id="one", message="half way", fraction=0.5, output="line\n"),
        StepProgress(step_id="one", message="event found", output='{"n":1}'),
    ]
    assert events == [("op_1/node/one", "found", {"n": 1})]


# --- at once ------------------------------------------------------------------------------------


QUICK = task(
    step("a", "context", input_mapping={"x": "input.n + 1"}, output_mapping={"state.x": "result.x"}),
    step("no", "context", condition="state.x > 5"),
    step(
        "b", "assert", input_mapping={"condition": "state.x < 4"}, output_mapping={"output.y": "state.x * 2"}
    ),
)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is given up for its time, so that a machine that is slow decides nothing."""
    monkeypatch.setattr("wonder_server.services.tasks.executor.MAX_INLINE_S", 600)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("n", [1, 3, "text"], ids=["works", "fails", "cannot be evaluated"])
async def test_at_once_a_task_ends_as_it_does_otherwise(n: Any) -> None:
    at_once = executor().execute_inline(QUICK, {"n": n}, CONTEXT)
    assert at_once is not None
    waited_for = await executor().execute(QUICK, {"n": n}, CONTEXT)
    assert (at_once.output, at_once.fault) == (waited_for.output, waited_for.fault)
    assert waited_for.steps and not at_once.steps, "nobody looks at the steps of a task that nobody waits for"


async def test_a_task_that_starts_over_without_a_pause_or_with_one_is_left_to_the_loop() -> None:
    stubborn = task(
        step(kind="assert", action={"config": {"condition": False}}, on_failure=OnFailure.RETRY),
        retry=Retry(max_attempts=2, backoff_ms=0),
    )
    assert executor().execute_inline(stubborn, {}, CONTEXT) is None


def test_a_task_with_an_action_that_may_wait_is_not_done_at_once_not_even_begun() -> None:
    counted: list[int] = []

    def count(call: ActionCall) -> dict[str, Any]:
        counted.append(1)
        return {}

    waits = task(step("a", "counted"), step("b", "test"))
    one = executor(kind(hang, name="counted", run_inline=count), kind(hang))
    assert one.execute_inline(waits, {}, CONTEXT) is None
    assert counted == []


def unless_asked_to_wait(call: ActionCall) -> dict[str, Any]:
    if call.input.get("wait"):
        raise InlineNotPossibleError
    return {"by": "quick"}


async def waiting(call: ActionCall) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"by": call.context.key}


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("wait", [False, True])
async def test_an_action_that_is_quick_at_times_is_waited_for_at_others(wait: bool) -> None:
    at_times = step(input_mapping={"wait": "input.wait"}, output_mapping={"output.by": "result.by"})
    one = executor(kind(waiting, run_inline=unless_asked_to_wait))
    at_once = one.execute_inline(task(at_times), {"wait": wait}, CONTEXT)
    outcome = await one.execute(task(at_times), {"wait": wait}, CONTEXT)
    assert outcome.output == {"by": "op_1/node/one" if wait else "quick"}
    assert at_once == (None if wait else frozen.replace(outcome, steps=()))
    assert [(each.status, each.tries) for each in outcome.steps] == [("completed", 1)]


@pytest.mark.usefixtures("unhurried")
async def test_a_task_is_done_at_once_if_it_passes_by_the_actions_that_wait() -> None:
    first = step("a", "context", output_mapping={"output.n": "input.n"})
    one, either = executor(kind(waiting)), task(first, step("b", condition="input.n > 1"))
    assert one.execute_inline(either, {"n": 1}, CONTEXT) == TaskOutcome(output={"n": 1})
    assert one.execute_inline(either, {"n": 2}, CONTEXT) is None
    assert (await one.execute(either, {"n": 2}, CONTEXT)).output == {"n": 2}


def test_a_task_that_takes_too_long_at_once_is_given_up() -> None:
    heavy = "input.big.map(x, {'a': x, 'b': [x]}).filter(y, y.a > 0).size()"
    steps = [step(f"s{i}", "context", input_mapping={"n": heavy}) for i in range(100)]
    assert executor().execute_inline(task(*steps), {"big": list(range(10_000))}, CONTEXT) is None


def test_at_once_a_bad_input_and_an_unknown_kind_are_faults() -> None:
    strict = task(step("a", "context"), input_schema={"required": ["n"]})
    refused = executor().execute_inline(strict, {}, CONTEXT)
    assert refused is not None and refused.fault is not None
    assert refused.fault.reason is Reason.INPUT_INVALID
    unknown = executor().execute_inline(task(step("a", "teleport")), {}, CONTEXT)
    assert unknown is not None and unknown.fault is not None
    assert unknown.fault.reason is Reason.NOT_IMPLEMENTED


@pytest.mark.usefixtures("unhurried")
def test_ten_steps_take_few_calls_of_functions() -> None:
    """A count that is the same on every machine: 0.13 ms go with it where the machine is quiet."""
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
