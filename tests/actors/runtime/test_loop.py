"""The loop's promises: one commit a round, nothing shown before it, nothing lost when it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.kit import CONVERSATION_ID, LIMITS, Stage, TestJournal, nth_conversation_id, run_ready_tasks
from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    agent,
    call,
    new_conversation,
    send,
    text_answer,
    workflow,
)
from tests.replacing import replace
from wonder_server.actors.runs.replay import replay
from wonder_server.actors.runtime import actor as actors
from wonder_server.core.actor.commands import RunWorkflow, Stop
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.inputs import CancelRun
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.frozen import replace as changed
from wonder_server.core.idempotency import Request


def request(request_id: str = "r1", fingerprint: str = "f1", scope: str = CONVERSATION_ID) -> Request:
    return Request(scope, request_id, fingerprint)


async def error_reason(asking: asyncio.Task[Any]) -> Reason:
    with pytest.raises(WonderError) as refused:
        await asking
    return refused.value.fault.reason


async def wait_for_assembly(stage: Stage, **fields: Any) -> str:
    """A conversation with a turn that waits for its model; the id of that operation."""
    await stage.open()
    await stage.send(**fields)
    stage.loop.report_success(CONVERSATION_ID, stage.run_commands()[-1].operation_id, ASSEMBLED)
    await run_ready_tasks()
    return stage.model_calls()[-1].operation_id


async def assert_replays(stage: Stage, actor: str = CONVERSATION_ID) -> None:
    planner = RUN if actor.startswith("run_") else CONVERSATION
    verdict = replay(planner, await stage.journal.entries(actor, planner, 0, 1000))
    assert verdict.difference is None
    assert verdict.steps


# --- rounds -----------------------------------------------------------------------------------------


async def test_inputs_that_arrive_during_a_commit_share_the_next() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    asking = [stage.ask_in_background(send(f"seed {number}")) for number in range(11)]
    await run_ready_tasks()
    stage.journal.release()
    outcomes = await asyncio.gather(*asking)
    # The first round had already begun with what was there.
    assert stage.journal.commits in (2, 3)
    assert sum(len(commit.entries) for (commit,) in stage.journal.transactions) == 12
    assert len({outcome.answer["turn_id"] for outcome in outcomes}) == 11
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await assert_replays(stage)


async def test_nothing_is_shown_handed_out_or_answered_before_the_commit_has_returned() -> None:
    stage = Stage()
    await stage.open()
    before = len(stage.events)
    stage.journal.hold()
    asking = stage.ask_in_background(send())
    cancelling = stage.ask_in_background(inputs.CancelTurn(turn_id="turn_0"))
    await run_ready_tasks()
    assert not asking.done()
    assert not cancelling.done(), "a refusal too may rest on what is not written yet"
    assert len(stage.events) == before
    assert [type(command) for command in stage.commands] == [RunWorkflow], "a hook leaves no trace"
    stage.journal.release()
    await asking
    assert await error_reason(cancelling) is Reason.TURN_NOT_FOUND
    assert stage.names()[before:] == ["participant.joined", "conversation_turn", "message.appended"]
    assert len(stage.run_commands()) == 1


async def test_a_late_result_writes_nothing() -> None:
    stage = Stage()
    operation_id = await wait_for_assembly(stage)
    commits = stage.journal.commits
    stage.loop.report_success(CONVERSATION_ID, "op_0", {})
    stage.loop.report_failure(
        CONVERSATION_ID, stage.run_commands()[0].operation_id, Fault(reason=Reason.TIMEOUT, message=".")
    )
    await run_ready_tasks()
    assert stage.journal.commits == commits
    assert list(stage.state().operations) == [operation_id]


async def test_a_caller_who_has_gone_leaves_the_turn_running() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    asking = stage.ask_in_background(send())
    await run_ready_tasks()
    asking.cancel()
    stage.journal.release()
    await run_ready_tasks()
    assert len(stage.run_commands()) == 1


# --- failures ---------------------------------------------------------------------------------------


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
    # One commit or two, as the loop has time for: each run is stopped after it began.
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
    assert len(stage.model_calls()) == 1, "it need not be asked twice"
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
    """The conversation planner with a fault in it."""

    def plan(state: Any, event: Any, now_ms: int) -> Any:
        if isinstance(event, kind):
            raise ZeroDivisionError
        return CONVERSATION.plan(state, event, now_ms)

    return replace(CONVERSATION, plan=plan)


async def test_an_input_that_breaks_the_planner_fails_its_operation_and_is_not_tried_for_ever() -> None:
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


# --- requests ---------------------------------------------------------------------------------------


async def test_a_repeated_request_gets_the_first_answer_and_starts_nothing() -> None:
    stage = Stage(limits=replace(LIMITS, idle_actors=0))
    await stage.open()
    stage.journal.hold()
    together = [stage.ask_in_background(send("a"), request()), stage.ask_in_background(send("b"), request())]
    await run_ready_tasks()
    stage.journal.release()
    first, second = await asyncio.gather(*together)
    later = await stage.loop.ask(CONVERSATION_ID, send("c"), request())
    assert first.answer == second.answer == later.answer
    assert second.decisions == later.decisions == ()
    await stage.loop.ask(CONVERSATION_ID, inputs.CancelTurn(turn_id=first.answer["turn_id"]))
    assert stage.loop.actor_count == 0
    assert (await stage.loop.ask(CONVERSATION_ID, send("d"), request())).answer == first.answer
    assert len(stage.run_commands()) == 1


async def test_a_request_id_for_something_else_is_refused() -> None:
    stage = Stage()
    await stage.open()
    await stage.loop.ask(CONVERSATION_ID, send("a"), request())
    assert (
        await error_reason(stage.ask_in_background(send("b"), request(fingerprint="f2")))
        is Reason.REQUEST_ID_REUSED
    )
    assert (await stage.loop.ask(CONVERSATION_ID, send("c"), request(scope="elsewhere"))).decisions


async def test_a_refused_request_may_be_tried_again() -> None:
    stage = Stage()
    assert await error_reason(stage.ask_in_background(send("a"), request())) is Reason.CONVERSATION_NOT_FOUND
    await stage.open()
    assert (await stage.loop.ask(CONVERSATION_ID, send("a"), request())).decisions


async def test_requests_are_deduplicated_beyond_the_recent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "MAX_RECENT_REQUESTS", 2)
    stage = Stage()
    await stage.open()
    first = await stage.loop.ask(CONVERSATION_ID, send("a"), request("r1"))
    for number in range(2, 6):
        await stage.loop.ask(CONVERSATION_ID, send(f"{number}"), request(f"r{number}"))
    assert (await stage.loop.ask(CONVERSATION_ID, send("z"), request("r1"))).answer == first.answer


# --- runs -------------------------------------------------------------------------------------------


async def test_a_volatile_run_travels_in_its_parents_commit() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    commits = stage.journal.commits
    (command,) = stage.run_commands()
    stage.start(command)
    await run_ready_tasks()
    (task,) = stage.tasks()
    assert stage.journal.commits == commits
    assert stage.sequences(command.run_id) == [], "its events are not on disk yet"
    stage.loop.report_success(command.run_id, task.operation_id, {})
    await run_ready_tasks()
    # The run's own steps, and the conversation's with its answer, in one transaction.
    assert stage.journal.commits == commits + 1
    written = stage.journal.transactions[-1]
    assert [each.actor_id for each in written] == [command.run_id, CONVERSATION_ID]
    assert [each.root for each in written] == [CONVERSATION_ID, CONVERSATION_ID]
    assert len(written[0].entries) == 2
    assert written[0].compact, "nobody has looked at it"
    assert len(stage.recorded(command.run_id)) == 5
    assert stage.loop.peek(command.run_id) is None, "an ended run leaves memory"
    await assert_replays(stage, command.run_id)


async def test_to_the_first_call_of_the_model_it_takes_two_commits() -> None:
    stage = Stage()
    await stage.open()
    before = stage.journal.commits
    chosen = replace(agent(), assembly=with_output("assembly"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    stage.start(stage.run_commands()[0])
    await run_ready_tasks()
    task = stage.tasks()[0]
    stage.loop.report_success(stage.run_commands()[0].run_id, task.operation_id, ASSEMBLED)
    await run_ready_tasks()
    assert len(stage.model_calls()) == 1
    assert stage.journal.commits == before + 2


def with_output(name: str, action: str = "context") -> Any:
    """A workflow that puts out what its task does."""
    flow = workflow(name, action)
    return replace(flow, spec=replace(flow.spec, output_mapping={"request": "state.n.request"}))


async def test_a_volatile_run_is_written_before_an_operation_that_is_not_repeatable() -> None:
    stage = Stage()
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.journal.hold()
    stage.start(command)
    await run_ready_tasks()
    assert stage.tasks() == []
    stage.journal.release()
    await run_ready_tasks()
    (task,) = stage.tasks()
    assert [each.actor_id for each in stage.journal.transactions[-1]] == [command.run_id]
    commits = stage.journal.commits
    stage.loop.report_success(command.run_id, task.operation_id, ASSEMBLED)
    await run_ready_tasks()
    # Its result is written too, before it is passed on: a crash in between may not forget it.
    assert stage.journal.commits == commits + 2
    assert len(stage.model_calls()) == 1
    await assert_replays(stage, command.run_id)


async def test_a_volatile_run_that_could_not_be_written_begins_again() -> None:
    stage = Stage()
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.journal.fails = True
    stage.start(command)
    await run_ready_tasks()
    assert stage.tasks() == []
    stage.journal.fails = False
    await run_ready_tasks()
    (task,) = stage.tasks()
    stage.loop.report_success(command.run_id, task.operation_id, ASSEMBLED)
    await run_ready_tasks()
    assert len(stage.model_calls()) == 1


async def test_a_given_up_attempt_of_a_hook_does_not_end_the_turn() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (first,) = stage.run_commands()
    stage.start(first)
    await run_ready_tasks()
    operation = stage.state().operations[first.operation_id]
    stage.clock.now = operation.wake_ms
    stage.loop.tell(CONVERSATION_ID, inputs.TimerFired(operation_id=operation.id))
    await run_ready_tasks()
    # What the handler does with the command to stop.
    stage.loop.tell(first.run_id, CancelRun(reason="Nobody waits for it any more."))
    await run_ready_tasks()
    assert stage.state().active_turns()
    assert stage.names().count("context_assembly.failed") == 0
    assert stage.recorded(first.run_id)[-1] == "workflow.cancelled", "what it did is on record all the same"


async def test_an_answer_that_was_lost_is_given_again() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.start(command)
    await run_ready_tasks()
    journal.fails_for = CONVERSATION_ID
    stage.loop.report_success(command.run_id, stage.tasks()[0].operation_id, ASSEMBLED)
    await run_ready_tasks()
    await stage.loop.stop()
    # The run has ended on disk, and its parent has not heard of it, when the server goes.
    assert await journal.unfinished() == [CONVERSATION_ID]
    journal.fails_for = ""
    again = Stage(journal)
    again.loop.resume([CONVERSATION_ID])
    await run_ready_tasks()
    (repeated,) = again.run_commands()
    assert repeated == changed(command, fresh=False)
    again.start(repeated)
    await run_ready_tasks()
    assert again.tasks() == []
    assert len(again.model_calls()) == 1
    await again.loop.stop()


async def test_a_run_that_cannot_even_start_fails_its_parents_operation() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (command,) = stage.run_commands()
    broken = replace(command.workflow, spec=replace(command.workflow.spec, nodes=()))
    stage.start(changed(command, workflow=broken))
    await run_ready_tasks()
    (turn,) = stage.state().turns.values()
    assert turn.status is TurnStatus.FAILED


# --- memory -----------------------------------------------------------------------------------------


async def test_a_thousand_idle_conversations_leave_no_task() -> None:
    stage = Stage(limits=replace(LIMITS, idle_actors=10))
    tasks = len(asyncio.all_tasks())
    for number in range(1000):
        await stage.open(nth_conversation_id(number))
    await run_ready_tasks()
    assert len(asyncio.all_tasks()) == tasks
    assert stage.loop.actor_count == 10
    assert stage.loop.is_idle
    assert stage.loop.timer_count == 0


async def test_actors_with_pending_work_stay_and_the_longest_idle_is_evicted_first() -> None:
    stage = Stage(limits=replace(LIMITS, idle_actors=2))
    await stage.open()
    await stage.send()
    for number in range(2, 6):
        await stage.open(nth_conversation_id(number))
    await run_ready_tasks()
    assert stage.loop.actor_count == 3
    assert stage.loop.peek(CONVERSATION_ID) is not None
    assert stage.loop.peek(nth_conversation_id(5)) is not None
    assert stage.loop.peek(nth_conversation_id(3)) is None


async def test_idle_conversations_leave_by_their_weight_as_well_as_by_their_number() -> None:
    stage = Stage(limits=replace(LIMITS, idle_bytes=100_000))
    operation_id = await wait_for_assembly(stage, extraction=False)
    long = text_answer("x" * 60_000)
    stage.loop.tell(CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=long))
    await run_ready_tasks()
    assert stage.loop.peek(CONVERSATION_ID) is None, "heavier than all may be together"
    for number in range(2, 22):
        await stage.open(nth_conversation_id(number))
    await run_ready_tasks()
    assert stage.loop.actor_count == 20


async def test_an_evicted_actor_is_loaded_unchanged() -> None:
    stage = Stage(limits=replace(LIMITS, idle_actors=0))
    operation_id = await wait_for_assembly(stage, extraction=False)
    stage.loop.tell(
        CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=text_answer("hello"))
    )
    await run_ready_tasks()
    assert stage.loop.actor_count == 0
    await stage.send("next")
    assert [turn.ordinal for turn in stage.state().turns.values()] == [1, 2]
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await assert_replays(stage)


# --- stop and resume --------------------------------------------------------------------------------


async def test_stop_leaves_pending_operations_in_the_outbox_and_resume_dispatches_them() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await wait_for_assembly(stage)
    await stage.loop.stop()
    stage.loop.tell(
        CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=text_answer("too late"))
    )
    await run_ready_tasks()
    assert await error_reason(stage.ask_in_background(send("x"))) is Reason.SERVER_DRAINING
    assert await journal.unfinished() == [CONVERSATION_ID]
    again = Stage(journal)
    again.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    (repeated,) = again.model_calls()
    assert (repeated.operation_id, repeated.dispatches) == (operation_id, 2)
    assert repeated.request == stage.model_calls()[0].request
    assert again.sequences() == []
    await again.loop.stop()
    await assert_replays(again)


async def test_stop_lets_a_commit_finish_and_rejects_waiting_inputs() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    first = stage.ask_in_background(send("a"))
    await run_ready_tasks()
    stopping = asyncio.get_running_loop().create_task(stage.loop.stop())
    await run_ready_tasks()
    assert not stopping.done()
    stage.journal.release()
    await stopping
    assert (await first).answer["turn_id"]
    assert stage.loop.timer_count == 0


async def test_a_conversation_is_created_once() -> None:
    stage = Stage()
    asking = [stage.ask_in_background(new_conversation()) for _ in range(2)]
    await run_ready_tasks()
    assert (await asking[0]).answer["conversation_id"] == new_conversation().conversation.id
    assert await error_reason(asking[1]) is Reason.ALREADY_EXISTS
