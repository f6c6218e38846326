"""The cursor of handled events, and failed turns, which raise at the end of their loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sdk.fake_server import (
    CONVERSATION,
    TURN,
    FakeConversation,
    a_turn,
    completed,
    event,
    message_event,
    serving,
)
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import errors_pb2 as errors
from wonder_sdk import (
    CallCancelledError,
    Client,
    ReconnectPolicy,
    ResourceExhaustedError,
    TurnCancelledError,
    TurnFailedError,
    UnavailableError,
    WonderError,
    sync,
    v1,
)
from wonder_sdk.conversation.handled_cursor import HandledCursor

NO_BACKOFF = ReconnectPolicy(initial_ms=0, max_ms=0, timeout_ms=600_000)


class Iterator:
    """A stand-in for an object that has a desk."""


def handed(handling: HandledCursor, *desks: Any, sequence: int) -> None:
    for desk in desks:
        desk.put(v1.Event(sequence=sequence))
    handling.record_arrival(sequence)


def taken(desk: Any, sequence: int) -> None:
    desk.on_next_requested()
    desk.on_item_given(v1.Event(sequence=sequence))


def test_undelivered_events_are_handled_and_queued_events_are_not() -> None:
    handling, owner = HandledCursor(5), Iterator()
    assert handling.cursor() == 5
    handling.record_arrival(7)
    assert handling.cursor() == 7
    desk = handling.new_tracker(owner, is_part=True)
    handed(handling, desk, sequence=8)
    handled_later = [v1.Event(sequence=9)]
    assert handling.cursor() == 7
    taken(desk, 8)
    assert handling.cursor() == 7, "in hand, and not done"
    desk.on_next_requested()
    assert handling.cursor() == 8
    handling.record_arrival(9)
    assert handling.cursor(handled_later) == 8 and handling.cursor() == 9


def test_the_slowest_consumer_holds_the_cursor() -> None:
    handling, one, other = HandledCursor(0), Iterator(), Iterator()
    slow, quick = (handling.new_tracker(each, is_part=True) for each in (one, other))
    handed(handling, slow, sequence=1)
    handed(handling, quick, sequence=2)
    handed(handling, slow, sequence=3)
    taken(quick, 2)
    quick.on_next_requested()
    assert handling.cursor() == 0
    taken(slow, 1)
    slow.on_next_requested()
    assert handling.cursor() == 2
    taken(slow, 3)
    slow.on_next_requested()
    assert handling.cursor() == 3


def test_an_unread_reply_does_not_hold_the_cursor_of_all_events() -> None:
    handling, reply, events = HandledCursor(0), Iterator(), Iterator()
    part = handling.new_tracker(reply, is_part=True)
    handed(handling, part, sequence=1)
    everything = handling.new_tracker(events, is_part=False)
    handed(handling, part, everything, sequence=2)
    taken(everything, 2)
    everything.on_next_requested()
    assert handling.cursor() == 0, "the first came before"
    taken(part, 1)
    assert handling.cursor() == 0
    taken(part, 2)
    part.on_next_requested()
    assert handling.cursor() == 2


def test_a_released_event_is_handled_at_the_next_step() -> None:
    handling, reply = HandledCursor(0), Iterator()
    desk = handling.new_tracker(reply, is_part=True)
    handed(handling, desk, sequence=1)
    handed(handling, desk, sequence=2)
    taken(desk, 1)
    del reply
    assert handling.cursor() == 0, "it may have been an exception"
    handling.on_program_continued()
    assert handling.cursor() == 2


def test_the_cursor_never_decreases() -> None:
    handling, reply = HandledCursor(10), Iterator()
    desk = handling.new_tracker(reply, is_part=True)
    desk.put(v1.Event(sequence=3))  # of a turn of long ago, which is shown again
    assert handling.cursor() == 10


# --- through a chat -----------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("cuts", [[], [3], [6, 5, 4], [9, 2]])
async def test_a_program_that_resumes_from_the_cursor_handles_each_event(
    together: int, cuts: list[int]
) -> None:
    """Check all groupings and disconnects: at most one event arrives twice."""
    fake = FakeConversation(hang_up_after=[*cuts], while_away=2, together=together)
    async with serving(fake) as address, Client(address, reconnect=NO_BACKOFF) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            await chat.send("What is my cat called?", request_id="r").started()
        await fake.advance(len(a_turn()))
        for crash_at in range(1, 11):
            handled: list[int] = []
            stored = 0
            with pytest.raises(ZeroDivisionError):
                async with wonder.converse(CONVERSATION) as chat:
                    try:
                        async for item in chat.events():
                            assert chat.cursor == (handled[-1] if handled else 0)
                            if isinstance(item, v1.Event):
                                if item.sequence == crash_at:
                                    raise ZeroDivisionError
                                handled.append(item.sequence)
                    finally:
                        stored = chat.cursor
            assert handled == [*range(1, crash_at)] and stored == crash_at - 1
            async with wonder.converse(CONVERSATION, after_sequence=stored) as chat:
                async for item in chat.events():
                    if isinstance(item, v1.Event):
                        handled.append(item.sequence)
                        if item.sequence == 10:
                            break
            assert handled == [*range(1, 11)]


async def test_the_end_of_a_reply_loop_handles_its_turn() -> None:
    fake = FakeConversation(script=a_turn()[:-1])
    async with serving(fake) as address, Client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        cursors = []
        async for item in chat.send("What is my cat called?"):
            if isinstance(item, v1.Event):
                cursors.append((item.sequence, chat.cursor))
        assert cursors == [(n, n - 1) for n in range(2, 10)]
        assert chat.cursor == 9


async def test_the_sync_client_has_the_same_cursor() -> None:
    def talk(address: str) -> None:
        with sync.Client(address) as wonder, wonder.converse(CONVERSATION) as chat:
            for item in chat.send("What is my cat called?"):
                if isinstance(item, v1.Event):
                    assert chat.cursor == item.sequence - 1
            assert chat.cursor == 9

    async with serving(FakeConversation(script=a_turn()[:-1])) as address:
        await asyncio.to_thread(talk, address)


# --- turns that do not complete -------------------------------------------------------------------------


def failing(reason: Any = errors.ERROR_REASON_BUDGET_EXHAUSTED) -> FakeConversation:
    error = errors.Fault(reason=reason, message="The budget is used up.", metadata={"budget": "agent"})
    turn = conversation.Turn(id=TURN, ordinal=1, status=conversation.TURN_STATUS_FAILED, error=error)
    script = [event(2, "conversation_turn"), message_event(3, "I"), event(4, "turn.failed", turn_failed=turn)]
    return FakeConversation(script=script)


def cancelled() -> FakeConversation:
    error = errors.Fault(reason=errors.ERROR_REASON_CANCELLED, message="Enough.")
    turn = conversation.Turn(id=TURN, ordinal=1, status=conversation.TURN_STATUS_CANCELLED, error=error)
    return FakeConversation(
        script=[event(2, "conversation_turn"), event(3, "turn.cancelled", turn_cancelled=turn)]
    )


async def test_a_turn_that_fails_raises_after_its_last_item() -> None:
    async with (
        serving(failing()) as address,
        Client(address) as wonder,
        wonder.converse(CONVERSATION) as chat,
    ):
        names = []
        reply = chat.send("Hello")
        with pytest.raises(TurnFailedError) as failed:
            async for item in reply:
                names += [item.name] if isinstance(item, v1.Event) else []
        assert names == ["conversation_turn", "message.appended", "turn.failed"]
        problem: WonderError = failed.value
        assert isinstance(problem, ResourceExhaustedError), "by its reason, too"
        assert not isinstance(problem, TurnCancelledError)
        assert (problem.message, problem.reason) == (
            "The budget is used up.", v1.ErrorReason.BUDGET_EXHAUSTED,
        )  # fmt: skip
        assert failed.value.turn_id == TURN and failed.value.turn.status is v1.TurnStatus.FAILED
        assert problem.metadata == {"budget": "agent"} and reply.turn == failed.value.turn
        assert chat.cursor == 4
        with pytest.raises(TurnFailedError):
            await anext(reply)


async def test_with_check_disabled_the_reply_has_the_failed_turn() -> None:
    async with (
        serving(failing()) as address,
        Client(address) as wonder,
        wonder.converse(CONVERSATION) as chat,
    ):
        reply = chat.send("Hello", check=False)
        assert [item async for item in reply]
        assert reply.turn is not None and reply.turn.status is v1.TurnStatus.FAILED


async def test_text_raises_the_error_of_the_turn() -> None:
    async with serving(failing()) as address, Client(address) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            for check in (True, False):
                with pytest.raises(TurnFailedError, match="used up"):
                    await chat.send("Hello", check=check).text()


async def test_a_cancel_by_another_client_raises_and_an_own_cancel_does_not() -> None:
    async with serving(cancelled()) as address, Client(address) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            with pytest.raises(TurnCancelledError, match=r"Enough\.") as stopped:
                async for _ in chat.send("Hello"):
                    pass
            assert isinstance(stopped.value, CallCancelledError) and isinstance(
                stopped.value, TurnFailedError
            )
    fake = cancelled()
    last = fake.script.pop()
    async with serving(fake) as address, Client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        reply = chat.send("Hello")
        await reply.cancel()
        fake.script.append(last)
        await fake.advance()
        assert [item.name async for item in reply if isinstance(item, v1.Event)][-1] == "turn.cancelled"
        assert reply.turn is not None and reply.turn.status is v1.TurnStatus.CANCELLED


async def test_the_sync_client_raises_the_same_failure() -> None:
    def talk(address: str) -> None:
        with sync.Client(address) as wonder, wonder.converse(CONVERSATION) as chat:
            with pytest.raises(TurnFailedError):
                for _ in chat.send("Hello"):
                    pass
            assert [*chat.send("Hello", check=False)]

    async with serving(failing()) as address:
        await asyncio.to_thread(talk, address)


async def test_a_failure_without_a_reason_raises() -> None:
    turn = conversation.Turn(id=TURN, status=conversation.TURN_STATUS_FAILED)
    script = [event(2, "conversation_turn"), event(3, "turn.failed", turn_failed=turn)]
    async with serving(FakeConversation(script=script)) as address, Client(address) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            with pytest.raises(TurnFailedError, match="gave no reason") as failed:
                await chat.send("Hello").text()
    assert not isinstance(failed.value, UnavailableError)


def test_a_completed_turn_is_not_a_failure() -> None:
    assert completed(3).event.turn_completed.status == conversation.TURN_STATUS_COMPLETED
