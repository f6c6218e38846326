"""Execution of tasks: retries, timeouts, cancellation, progress (features H1, H2, I1, G6)."""

from __future__ import annotations

import asyncio

import pytest

from tests.services.tasks.executor_kit import (
    CONTEXT,
    SERVICES,
    Pauses,
    Scripted,
    busy,
    executor,
    hang,
    kind,
    step,
    task,
    wrong,
)
from tests.views import ForAll
from wonder_server.core.definitions.specs import (
    OnFailure,
    Retry,
)
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.services.actions import (
    ActionCall,
)
from wonder_server.services.tasks.executor import Executor, StepProgress, StepTrace


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


async def test_a_retry_waits_as_long_as_the_provider_asks() -> None:
    pauses = Pauses()
    action = kind(Scripted(busy(retry_after_ms=5_000), busy()), min_backoff_ms=500)
    await executor(action, pauses=pauses).execute(task(step()), {}, CONTEXT)
    assert pauses.taken == [5_000, 1_000]


async def test_a_pause_beyond_the_tasks_timeout_is_not_taken() -> None:
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


async def test_an_action_that_hangs_is_stopped_and_tried_again() -> None:
    tried: list[int] = []

    async def hang_once(call: ActionCall) -> JsonDict:
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
        (False, NotStartedError(Reason.TASK_FAILED, "The connection was refused."), None, 2),
        (False, wrong(), Reason.ASSERTION_FAILED, 1),
    ],
    ids=["author says no", "kind is unknown", "author says yes", "nothing happened", "known to have failed"],
)
async def test_an_action_that_is_not_repeatable_is_retried_only_if_it_was_not_started(
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


async def test_a_timed_out_task_reports_an_unknown_outcome() -> None:
    limited = task(step(action={"idempotent": None}), retry=Retry(timeout_ms=5))
    outcome = await executor(kind(hang)).execute(limited, {}, CONTEXT)
    assert outcome.fault is not None
    assert (outcome.fault.reason, outcome.fault.metadata["step_id"]) == (Reason.OUTCOME_UNKNOWN, "one")


async def test_a_task_that_times_out_between_two_attempts_has_a_known_outcome() -> None:
    """Nothing runs while the executor waits before the second try."""
    waiting = asyncio.Event()

    async def forever(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    refused = Scripted(NotStartedError(Reason.TASK_FAILED, "The connection was refused."))
    limited = task(step(action={"backoff_ms": 1, "idempotent": None}), retry=Retry(timeout_ms=20))
    one = Executor(ForAll(SERVICES), SERVICES.clock, kinds={"test": kind(refused)}, sleep=forever)
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


async def test_an_unexpected_exception_is_a_fault_without_its_text() -> None:
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


async def test_progress_reports_the_start_and_end_of_a_step() -> None:
    progress: list[StepTrace | StepProgress] = []
    steps = task(step("a", "context"), step("b", "context", condition="false"))
    outcome = await executor().execute(steps, {}, CONTEXT, progress.append)
    assert [(each.step_id, each.status) for each in progress if isinstance(each, StepTrace)] == [
        ("a", "running"),
        ("a", "completed"),
        ("b", "skipped"),
    ]
    assert tuple(progress[1:]) == outcome.steps


async def test_a_task_that_only_computes_yields() -> None:
    """Each step takes a few milliseconds. The task's timeout can fire only if the executor yields."""
    heavy = "input.big.map(x, {'a': x, 'b': [x]}).filter(y, y.a > 0).size()"
    steps = [step(f"s{i}", "context", input_mapping={"n": heavy}) for i in range(100)]
    outcome = await executor().execute(
        task(*steps, retry=Retry(timeout_ms=20)), {"big": list(range(10_000))}, CONTEXT
    )
    assert outcome.fault is not None
    assert outcome.fault.reason is Reason.TIMEOUT


async def test_an_action_reports_progress_and_events() -> None:
    async def talk(call: ActionCall) -> JsonDict:
        call.progress("half way", 0.5, "line\n")
        call.emit("found", {"n": 1})
        return {}

    progress: list[StepTrace | StepProgress] = []
    events: list[tuple[str, str, JsonValue]] = []
    await executor(kind(talk)).execute(
        task(step()), {}, CONTEXT, progress.append, lambda *event: events.append(event)
    )
    assert progress[1:-1] == [
        StepProgress(step_id="one", message="half way", fraction=0.5, output="line\n"),
        StepProgress(step_id="one", message="event found", output='{"n":1}'),
    ]
    assert events == [("op_1/node/one", "found", {"n": 1})]


@pytest.mark.parametrize("result", ["x" * 50_000_000, [["y" * 1_000]] * 50_000], ids=["text", "list"])
async def test_a_result_above_the_limit_of_payloads_is_a_fault(result: object) -> None:
    async def run(_: ActionCall) -> object:
        return result

    outcome = await executor(kind(run)).execute(task(step()), {}, CONTEXT)
    assert outcome.fault is not None and outcome.fault.reason is Reason.PAYLOAD_TOO_LARGE
    assert len(outcome.fault.message) < 200
