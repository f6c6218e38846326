"""The loop's promises: one commit a round, nothing shown before it, nothing lost when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.actors.kit import ROOM, Stage, TestJournal, rest, room_id
from tests.core.conversation_kit import ASSEMBLED, agent, call, room, said, send, workflow
from tests.replacing import replace
from wonder_server.actors import actor as actors
from wonder_server.actors import scribe
from wonder_server.actors.replay import replay
from wonder_server.core.commands import RunWorkflow, Stop
from wonder_server.core.conversation import inputs
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.values import OperationKind, TurnStatus
from wonder_server.core.coordinator.inputs import CancelRun
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.frozen import replace as changed
from wonder_server.core.idempotency import Request


@pytest.fixture(autouse=True)
def _at_once_and_quietly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scribe, "RELOAD_AFTER_S", 0.0)
    with capture_logs():
        yield


def request(request_id: str = "r1", fingerprint: str = "f1", scope: str = ROOM) -> Request:
    return Request(scope, request_id, fingerprint)


async def reason_of(asking: asyncio.Task[Any]) -> Reason:
    with pytest.raises(WonderError) as refused:
        await asking
    return refused.value.fault.reason


async def assembled(stage: Stage, **fields: Any) -> str:
    """A conversation with a turn that waits for its model; the id of that operation."""
    await stage.open()
    await stage.send(**fields)
    stage.loop.succeeded(ROOM, stage.run_commands()[-1].operation_id, ASSEMBLED)
    await rest()
    return stage.model_calls()[-1].operation_id


async def replays(stage: Stage, actor: str = ROOM) -> None:
    planner = stage.loop.planner_of(actor)
    verdict = replay(planner, await stage.journal.entries(actor, planner, 0, 1000))
    assert verdict.difference is None
    assert verdict.steps


# --- rounds -----------------------------------------------------------------------------------------


async def test_what_arrives_during_a_commit_goes_together_into_the_next() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    asking = [stage.asking(send(f"seed {number}")) for number in range(11)]
    await rest()
    stage.journal.release()
    outcomes = await asyncio.gather(*asking)
    # The first round had already begun with what was there.
    assert stage.journal.commits in (2, 3)
    assert sum(len(commit.entries) for (commit,) in stage.journal.together) == 12
    assert len({outcome.answer["turn_id"] for outcome in outcomes}) == 11
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await replays(stage)


async def test_nothing_is_shown_handed_out_or_answered_before_the_commit_has_returned() -> None:
    stage = Stage()
    await stage.open()
    before = len(stage.events)
    stage.journal.hold()
    asking = stage.asking(send())
    cancelling = stage.asking(inputs.CancelTurn(turn_id="turn_0"))
    await rest()
    assert not asking.done()
    assert not cancelling.done(), "a refusal too may rest on what is not written yet"
    assert len(stage.events) == before
    assert [type(command) for command in stage.commands] == [RunWorkflow], "a hook leaves no trace"
    stage.journal.release()
    await asking
    assert await reason_of(cancelling) is Reason.TURN_NOT_FOUND
    assert stage.names()[before:] == ["participant.joined", "conversation_turn", "message.appended"]
    assert len(stage.run_commands()) == 1


async def test_a_late_result_writes_nothing() -> None:
    stage = Stage()
    operation_id = await assembled(stage)
    commits = stage.journal.commits
    stage.loop.succeeded(ROOM, "op_0", {})
    stage.loop.failed(ROOM, stage.run_commands()[0].operation_id, Fault(reason=Reason.TIMEOUT, message="."))
    await rest()
    assert stage.journal.commits == commits
    assert list(stage.state().operations) == [operation_id]


async def test_a_caller_who_has_gone_leaves_the_turn_running() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    asking = stage.asking(send())
    await rest()
    asking.cancel()
    stage.journal.release()
    await rest()
    assert len(stage.run_commands()) == 1


# --- failures ---------------------------------------------------------------------------------------


async def test_when_a_commit_fails_callers_are_told_and_nothing_of_it_is_left() -> None:
    stage = Stage()
    await stage.open()
    shown = list(stage.events)
    stage.journal.broken = True
    asking = [stage.asking(send("a")), stage.asking(send("b")), stage.asking(inputs.CancelTurn(turn_id="x"))]
    for each in asking:
        assert await reason_of(each) is Reason.STORAGE_UNAVAILABLE
    await rest()
    assert stage.events == shown
    begun = [command for command in stage.commands if isinstance(command, RunWorkflow)]
    stops = [Stop(operation_id=command.operation_id) for command in begun]
    # One commit or two, as the loop has time for: each run is stopped after it began.
    assert [command for command in stage.commands if command not in begun] == stops
    for run, stop in zip(begun, stops, strict=True):
        assert stage.commands.index(run) < stage.commands.index(stop)
    stage.journal.broken = False
    await stage.send("c")
    assert stage.state().conversation.turn_count == 1  # type: ignore[union-attr]
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await replays(stage)


async def test_a_result_that_could_not_be_written_is_told_again() -> None:
    stage = Stage()
    operation_id = await assembled(stage, extraction=False)
    stage.journal.broken = True
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=said("hello")))
    await rest()
    assert "turn.completed" not in stage.names()
    stage.journal.broken = False
    await rest()
    assert stage.names().count("turn.completed") == 1
    assert len(stage.model_calls()) == 1, "it need not be asked twice"
    await replays(stage)


async def test_what_may_not_be_repeated_goes_on_through_a_failed_commit() -> None:
    stage = Stage()
    operation_id = await assembled(stage)
    result = said("", call("once", "c1"), call("find", "c2"))
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=result))
    await rest()
    once, find = stage.tasks()
    stage.journal.broken = True
    stage.loop.succeeded(ROOM, find.operation_id, {})
    await rest()
    stage.journal.broken = False
    await rest()
    assert list(stage.state().operations) == [once.operation_id]
    stage.loop.succeeded(ROOM, once.operation_id, {"done": True})
    await rest()
    results = [message["content"] for message in stage.model_calls()[-1].request["messages"][-2:]]
    assert results == ['{"done":true}', "{}"]


async def test_a_run_whose_start_could_not_be_read_starts_when_it_can() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (command,) = stage.run_commands()
    stage.journal.loads_broken = True
    stage.start(command)
    await rest()
    assert stage.tasks() == []
    stage.journal.loads_broken = False
    await rest()
    assert len(stage.tasks()) == 1


def breaking(kind: type) -> Any:
    """The conversation planner with a fault in it."""

    def plan(state: Any, event: Any, now_ms: int) -> Any:
        if isinstance(event, kind):
            raise ZeroDivisionError
        return CONVERSATION.plan(state, event, now_ms)

    return replace(CONVERSATION, plan=plan)


async def test_an_input_that_breaks_the_planner_fails_its_operation_and_is_not_tried_for_ever() -> None:
    stage = Stage(conversation=breaking(inputs.ModelAnswered))
    operation_id = await assembled(stage)
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=said("hello")))
    await rest()
    (turn,) = stage.state().turns.values()
    assert turn.status is TurnStatus.FAILED
    assert turn.fault is not None
    assert turn.fault.reason is Reason.INTERNAL
    assert len(stage.model_calls()) == 1


async def test_a_broken_ask_is_told_so_and_the_conversation_goes_on() -> None:
    stage = Stage(conversation=breaking(inputs.CancelTurn))
    await stage.open()
    sent = await stage.send()
    cancelling = stage.asking(inputs.CancelTurn(turn_id=sent.answer["turn_id"]))
    assert await reason_of(cancelling) is Reason.INTERNAL
    await rest()
    await stage.send("again")
    assert len(stage.state().active_turns()) == 2


# --- requests ---------------------------------------------------------------------------------------


async def test_a_repeated_request_is_told_the_first_answer_and_starts_nothing() -> None:
    stage = Stage(idle_limit=0)
    await stage.open()
    stage.journal.hold()
    together = [stage.asking(send("a"), request()), stage.asking(send("b"), request())]
    await rest()
    stage.journal.release()
    first, second = await asyncio.gather(*together)
    later = await stage.loop.ask(ROOM, send("c"), request())
    assert first.answer == second.answer == later.answer
    assert second.decisions == later.decisions == ()
    await stage.loop.ask(ROOM, inputs.CancelTurn(turn_id=first.answer["turn_id"]))
    assert stage.loop.live == 0
    assert (await stage.loop.ask(ROOM, send("d"), request())).answer == first.answer
    assert len(stage.run_commands()) == 1


async def test_a_request_id_for_something_else_is_refused() -> None:
    stage = Stage()
    await stage.open()
    await stage.loop.ask(ROOM, send("a"), request())
    assert await reason_of(stage.asking(send("b"), request(fingerprint="f2"))) is Reason.REQUEST_ID_REUSED
    assert (await stage.loop.ask(ROOM, send("c"), request(scope="elsewhere"))).decisions


async def test_a_refused_request_may_be_tried_again() -> None:
    stage = Stage()
    assert await reason_of(stage.asking(send("a"), request())) is Reason.CONVERSATION_NOT_FOUND
    await stage.open()
    assert (await stage.loop.ask(ROOM, send("a"), request())).decisions


async def test_requests_are_remembered_beyond_what_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "REQUESTS_AT_HAND", 2)
    stage = Stage()
    await stage.open()
    first = await stage.loop.ask(ROOM, send("a"), request("r1"))
    for number in range(2, 6):
        await stage.loop.ask(ROOM, send(f"{number}"), request(f"r{number}"))
    assert (await stage.loop.ask(ROOM, send("z"), request("r1"))).answer == first.answer


# --- runs -------------------------------------------------------------------------------------------


async def test_a_volatile_run_travels_in_its_parents_commit() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    commits = stage.journal.commits
    (command,) = stage.run_commands()
    stage.start(command)
    await rest()
    (task,) = stage.tasks()
    assert stage.journal.commits == commits
    assert stage.sequences(command.run_id) == [], "its events are not on disk yet"
    stage.loop.succeeded(command.run_id, task.operation_id, {})
    await rest()
    # The run's own steps, and the conversation's with its answer, in one transaction.
    assert stage.journal.commits == commits + 1
    written = stage.journal.together[-1]
    assert [each.actor_id for each in written] == [command.run_id, ROOM]
    assert [each.root for each in written] == [ROOM, ROOM]
    assert len(written[0].entries) == 2
    assert written[0].brief, "nobody has looked at it"
    assert len(stage.recorded(command.run_id)) == 5
    assert stage.loop.peek(command.run_id) is None, "an ended run leaves memory"
    await replays(stage, command.run_id)


async def test_to_the_first_call_of_the_model_it_takes_two_commits() -> None:
    stage = Stage()
    await stage.open()
    before = stage.journal.commits
    chosen = replace(agent(), assembly=with_output("assembly"))
    await stage.loop.ask(ROOM, replace(send(), agent=chosen))
    stage.start(stage.run_commands()[0])
    await rest()
    task = stage.tasks()[0]
    stage.loop.succeeded(stage.run_commands()[0].run_id, task.operation_id, ASSEMBLED)
    await rest()
    assert len(stage.model_calls()) == 1
    assert stage.journal.commits == before + 2


def with_output(name: str, action: str = "context") -> Any:
    """A workflow that puts out what its task does."""
    flow = workflow(name, action)
    return replace(flow, spec=replace(flow.spec, output_mapping={"request": "state.n.request"}))


async def test_a_volatile_run_is_written_before_it_does_what_may_not_be_done_twice() -> None:
    stage = Stage()
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(ROOM, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.journal.hold()
    stage.start(command)
    await rest()
    assert stage.tasks() == []
    stage.journal.release()
    await rest()
    (task,) = stage.tasks()
    assert [each.actor_id for each in stage.journal.together[-1]] == [command.run_id]
    commits = stage.journal.commits
    stage.loop.succeeded(command.run_id, task.operation_id, ASSEMBLED)
    await rest()
    # Its result is written too, before it is passed on: a crash in between may not forget it.
    assert stage.journal.commits == commits + 2
    assert len(stage.model_calls()) == 1
    await replays(stage, command.run_id)


async def test_a_volatile_run_that_could_not_be_written_begins_again() -> None:
    stage = Stage()
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(ROOM, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.journal.broken = True
    stage.start(command)
    await rest()
    assert stage.tasks() == []
    stage.journal.broken = False
    await rest()
    (task,) = stage.tasks()
    stage.loop.succeeded(command.run_id, task.operation_id, ASSEMBLED)
    await rest()
    assert len(stage.model_calls()) == 1


async def test_a_given_up_attempt_of_a_hook_does_not_end_the_turn() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (first,) = stage.run_commands()
    stage.start(first)
    await rest()
    operation = stage.state().operations[first.operation_id]
    stage.clock.now = operation.wake_ms
    stage.loop.tell(ROOM, inputs.Woken(operation_id=operation.id))
    await rest()
    # What the handler does with the command to stop.
    stage.loop.tell(first.run_id, CancelRun(reason="Nobody waits for it any more."))
    await rest()
    assert stage.state().active_turns()
    assert stage.names().count("context_assembly.failed") == 0
    assert stage.recorded(first.run_id)[-1] == "workflow.cancelled", "what it did is on record all the same"


async def test_an_answer_that_was_lost_is_given_again() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(ROOM, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.start(command)
    await rest()
    journal.broken_for = ROOM
    stage.loop.succeeded(command.run_id, stage.tasks()[0].operation_id, ASSEMBLED)
    await rest()
    await stage.loop.stop()
    # The run has ended on disk, and its parent has not heard of it, when the server goes.
    assert await journal.unfinished() == [ROOM]
    journal.broken_for = ""
    again = Stage(journal)
    again.loop.resume([ROOM])
    await rest()
    (repeated,) = again.run_commands()
    assert repeated == changed(command, fresh=False)
    again.start(repeated)
    await rest()
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
    await rest()
    (turn,) = stage.state().turns.values()
    assert turn.status is TurnStatus.FAILED


# --- memory -----------------------------------------------------------------------------------------


async def test_a_thousand_idle_conversations_leave_no_task() -> None:
    stage = Stage(idle_limit=10)
    tasks = len(asyncio.all_tasks())
    for number in range(1000):
        await stage.open(room_id(number))
    await rest()
    assert len(asyncio.all_tasks()) == tasks
    assert stage.loop.live == 10
    assert not stage.loop._tasks
    assert len(stage.loop._wakes) == 0


async def test_what_has_work_pending_stays_in_memory_and_the_longest_idle_leaves_first() -> None:
    stage = Stage(idle_limit=2)
    await stage.open()
    await stage.send()
    for number in range(2, 6):
        await stage.open(room_id(number))
    await rest()
    assert stage.loop.live == 3
    assert stage.loop.peek(ROOM) is not None
    assert stage.loop.peek(room_id(5)) is not None
    assert stage.loop.peek(room_id(3)) is None


async def test_idle_conversations_leave_by_their_weight_as_well_as_by_their_number() -> None:
    stage = Stage(idle_bytes=100_000)
    operation_id = await assembled(stage, extraction=False)
    long = said("x" * 60_000)
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=long))
    await rest()
    assert stage.loop.peek(ROOM) is None, "heavier than all may be together"
    for number in range(2, 22):
        await stage.open(room_id(number))
    await rest()
    assert stage.loop.live == 20


async def test_what_has_left_memory_comes_back_as_it_was() -> None:
    stage = Stage(idle_limit=0)
    operation_id = await assembled(stage, extraction=False)
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=said("hello")))
    await rest()
    assert stage.loop.live == 0
    await stage.send("next")
    assert [turn.ordinal for turn in stage.state().turns.values()] == [1, 2]
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await replays(stage)


# --- stop and resume --------------------------------------------------------------------------------


async def test_stop_leaves_what_is_pending_in_the_outbox_and_resume_hands_it_out() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await assembled(stage)
    await stage.loop.stop()
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=said("too late")))
    await rest()
    assert await reason_of(stage.asking(send("x"))) is Reason.SERVER_DRAINING
    assert await journal.unfinished() == [ROOM]
    again = Stage(journal)
    again.loop.resume(await journal.unfinished())
    await rest()
    (repeated,) = again.model_calls()
    assert (repeated.operation_id, repeated.dispatches) == (operation_id, 2)
    assert repeated.request == stage.model_calls()[0].request
    assert again.sequences() == []
    await again.loop.stop()
    await replays(again)


async def test_stop_lets_a_commit_under_way_finish_and_tells_those_behind_it() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    first = stage.asking(send("a"))
    await rest()
    stopping = asyncio.get_running_loop().create_task(stage.loop.stop())
    await rest()
    assert not stopping.done()
    stage.journal.release()
    await stopping
    assert (await first).answer["turn_id"]
    assert len(stage.loop._wakes) == 0


async def test_what_waited_between_two_attempts_goes_on_waiting_after_a_restart() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await assembled(stage)
    busy = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
    stage.loop.failed(ROOM, operation_id, busy)
    await rest()
    await stage.loop.stop()
    again = Stage(journal)
    again.loop.resume(await journal.unfinished())
    await rest()
    assert again.model_calls() == []
    assert len(again.loop._wakes) == 1
    again.clock.now = again.state().operations[operation_id].wake_ms
    again.loop.tell(ROOM, inputs.Woken(operation_id=operation_id))
    await rest()
    assert len(again.model_calls()) == 1
    await again.loop.stop()


async def test_a_store_that_cannot_be_read_at_the_start_is_read_later() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    await assembled(stage)
    await stage.loop.stop()
    again = Stage(journal)
    journal.loads_broken = True
    again.loop.resume([ROOM])
    await rest()
    assert again.model_calls() == []
    journal.loads_broken = False
    await rest()
    assert len(again.model_calls()) == 1
    assert OperationKind.MODEL in {op.kind for op in again.state().operations.values()}


async def test_a_resumed_run_and_its_parent_find_each_other() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await assembled(stage)
    result = said("", call("flow"))
    stage.loop.tell(ROOM, inputs.ModelAnswered(operation_id=operation_id, result=result))
    await rest()
    flow = stage.run_commands()[-1]
    assert not flow.volatile
    stage.start(flow)
    await rest()
    await stage.loop.stop()
    again = Stage(journal)
    assert sorted(await journal.unfinished()) == sorted([ROOM, flow.run_id])
    again.loop.resume(await journal.unfinished())
    await rest()
    (repeated,), (task,) = again.run_commands(), again.tasks()
    assert repeated == changed(flow, fresh=False)
    again.start(repeated)
    again.loop.succeeded(flow.run_id, task.operation_id, {"x": 1})
    await rest()
    assert len(again.model_calls()) == 1
    await replays(again, flow.run_id)
    await again.loop.stop()


async def test_a_room_is_made_once() -> None:
    stage = Stage()
    asking = [stage.asking(room()) for _ in range(2)]
    await rest()
    assert (await asking[0]).answer["conversation_id"] == room().conversation.id
    assert await reason_of(asking[1]) is Reason.ALREADY_EXISTS
