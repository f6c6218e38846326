"""Failed commits, failed loads and planner errors: callers learn of them, and no result is lost."""

from __future__ import annotations

from typing import Any

from tests.actors.kit import (
    CONVERSATION_ID,
    Stage,
    assert_replays,
    error_reason,
    run_ready_tasks,
    wait_for_assembly,
)
from tests.core.conversation.conversation_kit import (
    call,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow, Stop
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason


async def test_a_failed_commit_is_reported_to_callers_and_leaves_nothing() -> None:
    stage = Stage()
    await stage.open()
    shown = list(stage.events)
    stage.journal.fails = True
    asking = [
        stage.ask_in_background(send("a")),
        stage.ask_in_background(send("b")),
        stage.ask_in_background(inputs.CancelTurn(turn_id="x")),
    ]
    for each in asking:
        assert await error_reason(each) is Reason.STORAGE_UNAVAILABLE
    await run_ready_tasks()
    assert stage.events == shown
    begun = [command for command in stage.commands if isinstance(command, RunWorkflow)]
    stops = [Stop(operation_id=command.operation_id) for command in begun]
    # The number of commits depends on timing: each run is stopped after its start.
    assert [command for command in stage.commands if command not in begun] == stops
    for run, stop in zip(begun, stops, strict=True):
        assert stage.commands.index(run) < stage.commands.index(stop)
    stage.journal.fails = False
    await stage.send("c")
    assert stage.state().conversation.turn_count == 1  # type: ignore[union-attr]
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await assert_replays(stage)


async def test_a_result_is_planned_again_after_a_failed_commit() -> None:
    stage = Stage()
    operation_id = await wait_for_assembly(stage, extraction=False)
    stage.journal.fails = True
    stage.loop.tell(
        CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=text_answer("hello"))
    )
    await run_ready_tasks()
    assert "turn.completed" not in stage.names()
    stage.journal.fails = False
    await run_ready_tasks()
    assert stage.names().count("turn.completed") == 1
    assert len(stage.model_calls()) == 1, "the answer is not requested again"
    await assert_replays(stage)


async def test_an_operation_that_is_not_repeatable_continues_through_a_failed_commit() -> None:
    stage = Stage()
    operation_id = await wait_for_assembly(stage)
    result = text_answer("", call("once", "c1"), call("find", "c2"))
    stage.loop.tell(CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=result))
    await run_ready_tasks()
    once, find = stage.tasks()
    stage.journal.fails = True
    stage.loop.report_success(CONVERSATION_ID, find.operation_id, {})
    await run_ready_tasks()
    stage.journal.fails = False
    await run_ready_tasks()
    assert list(stage.state().operations) == [once.operation_id]
    stage.loop.report_success(CONVERSATION_ID, once.operation_id, {"done": True})
    await run_ready_tasks()
    results = [message["content"] for message in stage.model_calls()[-1].request["messages"][-2:]]
    assert results == ['{"done":true}', "{}"]


async def test_a_run_whose_start_could_not_be_read_starts_when_it_can() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (command,) = stage.run_commands()
    stage.journal.loads_fail = True
    stage.start(command)
    await run_ready_tasks()
    assert stage.tasks() == []
    stage.journal.loads_fail = False
    await run_ready_tasks()
    assert len(stage.tasks()) == 1


def failing_planner(kind: type) -> Any:
    """Return the conversation planner, failing for inputs of ``kind``."""

    def plan(state: object, event: object, now_ms: int) -> Any:
        if isinstance(event, kind):
            raise ZeroDivisionError
        return CONVERSATION.plan(state, event, now_ms)

    return replace(CONVERSATION, plan=plan)


async def test_an_input_that_breaks_the_planner_fails_its_operation_once() -> None:
    stage = Stage(conversation=failing_planner(inputs.ModelAnswered))
    operation_id = await wait_for_assembly(stage)
    stage.loop.tell(
        CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=text_answer("hello"))
    )
    await run_ready_tasks()
    (turn,) = stage.state().turns.values()
    assert turn.status is TurnStatus.FAILED
    assert turn.fault is not None
    assert turn.fault.reason is Reason.INTERNAL
    assert len(stage.model_calls()) == 1


async def test_a_failing_request_is_reported_and_the_conversation_continues() -> None:
    stage = Stage(conversation=failing_planner(inputs.CancelTurn))
    await stage.open()
    sent = await stage.send()
    cancelling = stage.ask_in_background(inputs.CancelTurn(turn_id=sent.answer["turn_id"]))
    assert await error_reason(cancelling) is Reason.INTERNAL
    await run_ready_tasks()
    await stage.send("again")
    assert len(stage.state().active_turns()) == 2
