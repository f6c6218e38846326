"""The stream hub: subscriptions, partial texts, slow readers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from wonder_server.actors.streaming import subscription as subscriptions
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import Closed, Delta, NodeProgress, Reply
from wonder_server.actors.streaming.subscription import MAX_LAG_BYTES, Subscription
from wonder_server.core.actor.changes import Emit
from wonder_server.core.conversation.model.values import Move
from wonder_server.ports.journal import Event
from wonder_server.services.tasks.executor import StepProgress, StepTrace

CONVERSATION_ID = "conv_1"


def event(sequence: int, kind: str = "conversation_turn", turn: str = "", message: str = "") -> Event:
    return Event(sequence, 0, CONVERSATION_ID, Emit(kind.replace("_", "."), None, turn, message))


def stream_hub(items: int = 100, size: int = 100_000) -> StreamHub:
    return StreamHub(items, size)


def take_all(subscription: Subscription) -> list[object]:
    return list(subscription.take())


def texts(items: list[object]) -> list[tuple[int, str]]:
    return [(item.offset, item.text) for item in items if isinstance(item, Delta)]


async def test_every_reader_gets_the_same_items() -> None:
    here = stream_hub()
    first, _ = here.subscribe(CONVERSATION_ID)
    second, _ = here.subscribe(CONVERSATION_ID)
    elsewhere, _ = here.subscribe("conv_2")
    here.publish(CONVERSATION_ID, [event(1), event(2)])
    assert [item.sequence for item in take_all(first)] == [1, 2]
    assert [item.sequence for item in take_all(second)] == [1, 2]
    assert take_all(elsewhere) == []


async def test_pieces_that_a_reader_has_not_taken_are_merged() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    for piece in ("Once", " upon", "", " a"):
        here.append_text(CONVERSATION_ID, "turn_1", "msg_1", piece)
    assert texts(take_all(reader)) == [(0, "Once upon a")]
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " time")
    assert texts(take_all(reader)) == [(11, " time")]


async def test_deltas_are_not_merged_across_other_items() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    for number in (1, 2):
        here.begin_message(CONVERSATION_ID, f"turn_{number}", f"msg_{number}", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "a")
    here.append_text(CONVERSATION_ID, "turn_2", "msg_2", "b")
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "c")
    here.publish(CONVERSATION_ID, [event(1)])
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "d")
    items = take_all(reader)
    assert texts(items) == [(0, "a"), (0, "b"), (1, "c"), (2, "d")]
    assert isinstance(items[3], Event)


async def test_merging_does_not_change_what_another_reader_holds() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "a")
    lagging, _ = here.subscribe(CONVERSATION_ID)
    held = take_all(reader)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "b")
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "c")
    assert texts(held) == [(0, "a")]
    assert texts(take_all(lagging)) == [(1, "bc")]


async def test_offsets_count_code_points() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "é🙂")
    take_all(reader)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "x")
    assert texts(take_all(reader)) == [(2, "x")]


async def test_a_restarted_message_is_announced_and_starts_at_offset_zero() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "half an ans")
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 2)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "whole")
    half, again = take_all(reader)
    assert (half.text, half.restarted) == ("half an ans", False)
    # Text after a restart may be merged into its delta.
    assert (again.offset, again.text, again.attempt, again.restarted) == (0, "whole", 2, True)
    _, (so_far,) = here.subscribe(CONVERSATION_ID)
    assert (so_far.text, so_far.attempt) == ("whole", 2)


async def test_a_restart_is_announced_to_readers_of_a_later_attempt() -> None:
    here = stream_hub()
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 2)
    _, (so_far,) = here.subscribe(CONVERSATION_ID)
    assert (so_far.text, so_far.attempt) == ("", 2)


async def test_partial_text_is_available_until_its_event_closes_it() -> None:
    here = stream_hub()
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.begin_message(CONVERSATION_ID, "turn_2", "msg_2", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "a")
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "b")
    assert here.partial_texts(CONVERSATION_ID) == {"turn_1": "ab"}
    assert here.partial_texts("conv_2") == {}
    here.publish(CONVERSATION_ID, [event(1, "move_recorded", "turn_1", "msg_1")])
    assert here.partial_texts(CONVERSATION_ID) == {}
    here.append_text(CONVERSATION_ID, "turn_2", "msg_2", "c")
    here.publish(CONVERSATION_ID, [event(2, "turn_cancelled", "turn_2")])
    assert here.partial_texts(CONVERSATION_ID) == {}
    here.append_text(CONVERSATION_ID, "turn_2", "msg_2", "too late")
    assert here.subscribe(CONVERSATION_ID)[1] == []
    assert not here._open_messages


# --- text of turns whose end is planned ------------------------------------------------------------


async def test_text_behind_a_planned_end_is_not_shown_and_ends_with_the_turn() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "Once")
    here.hold_text(CONVERSATION_ID, "turn_1")
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " upon")
    assert here.partial_texts(CONVERSATION_ID) == {"turn_1": "Once"}
    here.publish(CONVERSATION_ID, [event(1, "message_appended", "turn_1", "msg_1")])
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " a")
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_2", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_2", "Twice")
    here.publish(CONVERSATION_ID, [event(2, "turn_cancelled", "turn_1")])
    here.release_text(CONVERSATION_ID)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " time")
    items = take_all(reader)
    assert texts(items) == [(0, "Once")] and len(items) == 3
    assert here.partial_texts(CONVERSATION_ID) == {}


async def test_a_planned_end_that_is_lost_shows_the_text_once_and_without_a_hole() -> None:
    here = stream_hub()
    before, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "Once")
    here.hold_text(CONVERSATION_ID, "turn_1")
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " upon")
    here.hold_text(CONVERSATION_ID, "turn_1")
    during, (so_far,) = here.subscribe(CONVERSATION_ID)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " a")
    assert (so_far.offset, so_far.text) == (0, "Once") and take_all(during) == []
    here.release_text(CONVERSATION_ID)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", " time")
    here.release_text(CONVERSATION_ID)
    assert texts(take_all(before)) == [(0, "Once upon a time")]
    assert texts(take_all(during)) == [(4, " upon a time")]
    assert here.partial_texts(CONVERSATION_ID) == {"turn_1": "Once upon a time"}


async def test_a_message_that_begins_or_restarts_behind_a_planned_end_waits() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "half")
    here.hold_text(CONVERSATION_ID, "turn_1")
    here.hold_text(CONVERSATION_ID, "turn_2")
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 2)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "whole")
    here.begin_message(CONVERSATION_ID, "turn_2", "msg_2", 1)
    here.append_text(CONVERSATION_ID, "turn_2", "msg_2", "other")
    assert texts(take_all(reader)) == [(0, "half")]
    assert [so_far.text for so_far in here.subscribe(CONVERSATION_ID)[1]] == ["half"]
    here.release_text(CONVERSATION_ID)
    again, other = take_all(reader)
    assert (again.message_id, again.text, again.attempt) == ("msg_1", "whole", 2)
    assert (other.message_id, other.offset, other.text) == ("msg_2", 0, "other")


async def test_other_turns_and_conversations_stream_while_an_end_is_planned() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.hold_text(CONVERSATION_ID, "turn_1")
    here.hold_text("conv_2", "turn_2")
    here.begin_message(CONVERSATION_ID, "turn_2", "msg_2", 1)
    here.append_text(CONVERSATION_ID, "turn_2", "msg_2", "shown")
    here.publish(CONVERSATION_ID, [event(1, "turn_completed", "turn_2")])
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "waits")
    here.release_text("conv_2")
    assert texts(take_all(reader)) == [(0, "shown")]


# --- slow readers ----------------------------------------------------------------------------------


async def test_a_slow_reader_is_closed_without_affecting_others() -> None:
    here = stream_hub(items=3)
    slow, _ = here.subscribe(CONVERSATION_ID)
    quick, _ = here.subscribe(CONVERSATION_ID)
    received = []
    for sequence in range(1, 6):
        here.publish(CONVERSATION_ID, [event(sequence)])
        received += take_all(quick)
    assert [item.sequence for item in received] == [1, 2, 3, 4, 5]
    assert take_all(slow) == [Closed("slow")]
    here.publish(CONVERSATION_ID, [event(6)])
    assert take_all(slow) == []


async def test_a_reader_is_slow_by_bytes_too_merged_pieces_included() -> None:
    here = stream_hub(size=1000)
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    for _ in range(9):
        here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "x" * 100)
    assert len(texts(take_all(reader))) == 1
    for _ in range(11):
        here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "x" * 100)
    assert take_all(reader) == [Closed("slow")]


async def test_a_burst_is_taken_in_pieces_and_closes_no_reader() -> None:
    here = stream_hub(size=100 * MAX_LAG_BYTES)
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    for number in range(9):
        here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "x" * (MAX_LAG_BYTES // 3))
        here.publish(CONVERSATION_ID, [event(number + 1)])
    pieces = []
    while items := take_all(reader):
        pieces.append(sum(len(item.text) for item in items if isinstance(item, Delta)))
    assert sum(pieces) == 9 * (MAX_LAG_BYTES // 3) and max(pieces) <= MAX_LAG_BYTES * 4 // 3
    assert not reader.closed


async def test_a_reader_over_the_lag_limit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_LAG_S", 0.0)
    here = stream_hub(size=100 * MAX_LAG_BYTES)
    slow, _ = here.subscribe(CONVERSATION_ID)
    quick, _ = here.subscribe(CONVERSATION_ID)
    here.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    received = 0
    for _ in range(3):
        here.append_text(CONVERSATION_ID, "turn_1", "msg_1", "x" * (MAX_LAG_BYTES // 2))
        received += sum(len(text) for _, text in texts(take_all(quick)))
    assert not slow.closed
    await asyncio.sleep(0.01)
    assert take_all(slow) == [Closed("slow")]
    assert received == 3 * (MAX_LAG_BYTES // 2) and not quick.closed


async def test_the_size_of_an_event_includes_all_texts() -> None:
    here = stream_hub(size=2000)
    reader, _ = here.subscribe(CONVERSATION_ID)
    result = {"deep": [{"text": "x" * 1000}] * 2}
    value = Move(
        id="move_1", conversation_id=CONVERSATION_ID, turn_id="turn_1", sequence=1, message_id="", raw=result
    )
    here.publish(CONVERSATION_ID, [Event(1, 0, CONVERSATION_ID, Emit("move.recorded", value))])
    assert take_all(reader) == [Closed("slow")]


async def test_replies_keep_their_order() -> None:
    reader, _ = (here := stream_hub()).subscribe(CONVERSATION_ID)
    here.publish(CONVERSATION_ID, [event(1)])
    reader.push(Reply(b"sent"))
    here.publish(CONVERSATION_ID, [event(2)])
    assert [type(item).__name__ for item in take_all(reader)] == ["Event", "Reply", "Event"]


async def test_a_waiting_reader_is_notified() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    waiting = reader.wait()
    await asyncio.sleep(0)
    assert not waiting.done()
    here.publish(CONVERSATION_ID, [event(1)])
    await waiting
    await reader.wait()
    assert len(take_all(reader)) == 1


async def test_draining_closes_present_and_later_readers() -> None:
    here = stream_hub()
    reader, _ = here.subscribe(CONVERSATION_ID)
    here.publish(CONVERSATION_ID, [event(1)])
    here.drain()
    assert [type(item).__name__ for item in take_all(reader)] == ["Event", "Closed"]
    late, _ = here.subscribe(CONVERSATION_ID)
    assert take_all(late) == [Closed("draining")]


async def test_unsubscribing_leaves_nothing() -> None:
    here = stream_hub()
    first, _ = here.subscribe(CONVERSATION_ID)
    second, _ = here.subscribe(CONVERSATION_ID)
    assert here.count == 2
    for reader in (first, second, second):
        here.unsubscribe(CONVERSATION_ID, reader)
    assert here.count == 0
    assert not here._subscriptions
    here.close(CONVERSATION_ID, "ended")


# --- runs -------------------------------------------------------------------------------------------


def progress(number: int, output: str = "") -> NodeProgress:
    return NodeProgress(
        node_id="n", execution_id="op_1", item=StepProgress(step_id=str(number), output=output)
    )


async def test_progress_goes_only_to_readers_that_want_it() -> None:
    here = stream_hub()
    plain, _ = here.subscribe(CONVERSATION_ID)
    eager, _ = here.subscribe(CONVERSATION_ID, wants_progress=True)
    here.publish_progress(CONVERSATION_ID, progress(1))
    here.publish_progress("run_other", progress(2))
    here.publish(CONVERSATION_ID, [event(1)])
    assert [type(item).__name__ for item in take_all(plain)] == ["Event"]
    assert [type(item).__name__ for item in take_all(eager)] == ["NodeProgress", "Event"]


async def test_a_later_reader_gets_the_current_progress() -> None:
    here = stream_hub()
    here.publish_progress(CONVERSATION_ID, progress(1, "much output"))
    here.publish_progress(CONVERSATION_ID, replace(progress(2), execution_id="op_2"))
    eager, _ = here.subscribe(CONVERSATION_ID, wants_progress=True)
    plain, _ = here.subscribe(CONVERSATION_ID)
    assert [(item.execution_id, item.item.output) for item in take_all(eager)] == [("op_1", ""), ("op_2", "")]
    assert take_all(plain) == []
    done = StepTrace(step_id="s", kind="http", position=0, attempt=1, status="completed")
    here.publish_progress(CONVERSATION_ID, NodeProgress(node_id="n", execution_id="op_1", item=done))
    ended = Emit("node.completed", SimpleNamespace(id="op_2"))
    here.publish(CONVERSATION_ID, [Event(1, 0, CONVERSATION_ID, ended)])
    late, _ = here.subscribe(CONVERSATION_ID, wants_progress=True)
    assert take_all(late) == []
    here.publish_progress(CONVERSATION_ID, progress(3))
    here.publish(CONVERSATION_ID, [event(2, "workflow_completed")])
    assert take_all(here.subscribe(CONVERSATION_ID, wants_progress=True)[0]) == []


async def test_a_slow_reader_misses_progress_first() -> None:
    here = StreamHub(limit_items=5, limit_bytes=1 << 20)
    reader, _ = here.subscribe(CONVERSATION_ID, wants_progress=True)
    for number in range(1, 5):
        here.publish(CONVERSATION_ID, [event(number)])
        here.publish_progress(CONVERSATION_ID, progress(number))
    items = take_all(reader)
    assert [item.sequence for item in items if isinstance(item, Event)] == [1, 2, 3, 4]
    assert not reader.closed
    for number in range(20):
        here.publish_progress(CONVERSATION_ID, progress(number))
    assert not reader.closed and len(take_all(reader)) <= 5
    for number in range(5, 12):
        here.publish(CONVERSATION_ID, [event(number)])
        here.publish_progress(CONVERSATION_ID, progress(number))
    assert take_all(reader) == [Closed("slow")]


async def test_much_output_of_a_task_does_not_end_a_stream() -> None:
    here = StreamHub(limit_items=1000, limit_bytes=10_000)
    reader, _ = here.subscribe(CONVERSATION_ID, wants_progress=True)
    for number in range(20):
        here.publish_progress(CONVERSATION_ID, progress(number, "x" * 4000))
    assert not reader.closed and 0 < len(take_all(reader)) < 4


def ended(sequence: int) -> Event:
    return Event(sequence, 1, CONVERSATION_ID, Emit("workflow_completed", None))


async def test_the_end_of_a_run_resolves_every_waiter() -> None:
    here = stream_hub()
    first, second, gone = (here.wait_for_end(CONVERSATION_ID) for _ in range(3))
    here.cancel_end_wait(CONVERSATION_ID, gone)
    here.publish("run_other", [Event(1, 1, "run_other", Emit("workflow_failed", None))])
    here.publish(CONVERSATION_ID, [event(1)])
    assert not first.done()
    last = ended(3)
    here.publish(CONVERSATION_ID, [event(2), last])
    assert first.result() is second.result() is last and not gone.done()
    here.cancel_end_wait(CONVERSATION_ID, first)
    assert not here._end_waiters


async def test_a_cancelled_waiter_is_skipped() -> None:
    here = stream_hub()
    end = here.wait_for_end(CONVERSATION_ID)
    end.cancel()
    here.publish(CONVERSATION_ID, [ended(1)])
    assert not here._end_waiters


async def test_a_stopping_server_ends_the_wait() -> None:
    here = stream_hub()
    end = here.wait_for_end(CONVERSATION_ID)
    here.drain()
    assert end.result() is None and here.wait_for_end(CONVERSATION_ID).result() is None
    assert not here._end_waiters
