"""The loop: one commit for many inputs, nothing published before it, requests, memory and stop."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import (
    CONVERSATION_ID,
    LIMITS,
    Stage,
    TestJournal,
    assert_replays,
    error_reason,
    nth_conversation_id,
    run_ready_tasks,
    wait_for_assembly,
)
from tests.conformance.ports.journal_subjects import unfinished
from tests.core.conversation.conversation_kit import (
    new_conversation,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.actors.runtime import actor as actors
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.lifecycle_inputs import Update
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.idempotency import IdempotencyKey


def request(request_id: str = "r1", fingerprint: str = "f1", scope: str = CONVERSATION_ID) -> IdempotencyKey:
    return IdempotencyKey("", request_id, fingerprint, scope)


# --- commits ----------------------------------------------------------------------------------------


async def test_inputs_that_arrive_during_a_commit_share_the_next() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    asking = [stage.ask_in_background(send(f"seed {number}")) for number in range(11)]
    await run_ready_tasks()
    stage.journal.release()
    outcomes = await asyncio.gather(*asking)
    # The first batch may have been submitted with the first inputs.
    assert stage.journal.commits in (2, 3)
    assert sum(len(commit.entries) for (commit,) in stage.journal.transactions) == 12
    assert len({outcome.answer["turn_id"] for outcome in outcomes}) == 11
    assert stage.sequences() == list(range(1, len(stage.events) + 1))
    await assert_replays(stage)


async def test_nothing_is_published_dispatched_or_answered_before_the_commit() -> None:
    stage = Stage()
    await stage.open()
    before = len(stage.events)
    stage.journal.hold()
    asking = stage.ask_in_background(send())
    cancelling = stage.ask_in_background(inputs.CancelTurn(turn_id="turn_0"))
    await run_ready_tasks()
    assert not asking.done()
    assert not cancelling.done(), "a rejection may depend on uncommitted changes"
    assert len(stage.events) == before
    assert [type(command) for command in stage.commands] == [RunWorkflow], (
        "only a hook may be dispatched early"
    )
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


async def test_a_disconnected_caller_leaves_the_turn_running() -> None:
    stage = Stage()
    await stage.open()
    stage.journal.hold()
    asking = stage.ask_in_background(send())
    await run_ready_tasks()
    asking.cancel()
    stage.journal.release()
    await run_ready_tasks()
    assert len(stage.run_commands()) == 1


async def test_an_input_for_an_earlier_journal_entry_decides_nothing() -> None:
    """Archiving asks so, since the object that it wrote ends at that entry."""
    stage = Stage()
    await stage.open()
    (head,) = [entry.sequence for entry in await stage.journal.entries(CONVERSATION_ID, 0, 9)]
    stage.journal.hold()
    sending = stage.ask_in_background(send())
    renaming = stage.loop.ask(CONVERSATION_ID, Update(title="late"), entry_head=head)
    late = asyncio.get_running_loop().create_task(renaming)
    await run_ready_tasks()
    assert not late.done(), "the entry before it may never reach the disk"
    stage.journal.release()
    await sending
    assert await late == Outcome((), {})
    assert stage.state().conversation.title == ""
    entries = await stage.journal.entries(CONVERSATION_ID, 0, 9)
    assert [type(entry.input) for entry in entries] == [inputs.Create, inputs.Send]
    accepted = await stage.loop.ask(CONVERSATION_ID, Update(title="new"), entry_head=len(entries))
    assert accepted.decisions
    assert stage.state().conversation.title == "new"
    await assert_replays(stage)


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


async def test_a_reused_request_id_is_rejected() -> None:
    stage = Stage()
    await stage.open()
    await stage.loop.ask(CONVERSATION_ID, send("a"), request())
    assert (
        await error_reason(stage.ask_in_background(send("b"), request(fingerprint="f2")))
        is Reason.REQUEST_ID_REUSED
    )
    assert (await stage.loop.ask(CONVERSATION_ID, send("c"), request(scope="elsewhere"))).decisions


async def test_a_rejected_request_may_be_repeated() -> None:
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


async def test_idle_conversations_are_evicted_by_size_and_by_count() -> None:
    stage = Stage(limits=replace(LIMITS, idle_bytes=100_000))
    operation_id = await wait_for_assembly(stage, extraction=False)
    long = text_answer("x" * 60_000)
    stage.loop.tell(CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=long))
    await run_ready_tasks()
    assert stage.loop.peek(CONVERSATION_ID) is None, "the actor alone exceeds the limit"
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
    assert await unfinished(journal) == [CONVERSATION_ID]
    restarted = Stage(journal)
    await restarted.loop.resume()
    await run_ready_tasks()
    (repeated,) = restarted.model_calls()
    assert (repeated.operation_id, repeated.dispatches) == (operation_id, 2)
    assert repeated.request == stage.model_calls()[0].request
    assert restarted.sequences() == []
    await restarted.loop.stop()
    await assert_replays(restarted)


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
