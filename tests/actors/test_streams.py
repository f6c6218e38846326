"""Who is listening: subscriptions, texts while they are spoken, slow readers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from wonder_server.actors import streams as streams_module
from wonder_server.actors.streams import (
    LAG_BYTES,
    Closed,
    Delta,
    NodeProgress,
    Reply,
    Streams,
    Subscription,
)
from wonder_server.core.conversation.values import Move
from wonder_server.core.records import Emit
from wonder_server.ports.journal import Event
from wonder_server.services.executor import StepProgress, StepTrace

ROOM = "conv_1"


def event(sequence: int, kind: str = "conversation_turn", turn: str = "", message: str = "") -> Event:
    return Event(sequence, 0, ROOM, Emit(kind.replace("_", "."), None, turn, message))


def streams(items: int = 100, size: int = 100_000) -> Streams:
    return Streams(items, size)


def taken(subscription: Subscription) -> list[Any]:
    return list(subscription.take())


def texts(items: list[Any]) -> list[tuple[int, str]]:
    return [(item.offset, item.text) for item in items if isinstance(item, Delta)]


async def test_everybody_who_listens_hears_the_same() -> None:
    here = streams()
    first, _ = here.subscribe(ROOM)
    second, _ = here.subscribe(ROOM)
    elsewhere, _ = here.subscribe("conv_2")
    here.publish(ROOM, [event(1), event(2)])
    assert [item.sequence for item in taken(first)] == [1, 2]
    assert [item.sequence for item in taken(second)] == [1, 2]
    assert taken(elsewhere) == []


async def test_pieces_that_a_reader_has_not_taken_are_merged() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    for piece in ("Once", " upon", "", " a"):
        here.say(ROOM, "msg_1", piece)
    assert texts(taken(reader)) == [(0, "Once upon a")]
    here.say(ROOM, "msg_1", " time")
    assert texts(taken(reader)) == [(11, " time")]


async def test_pieces_are_not_merged_over_what_came_between_them() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    for number in (1, 2):
        here.begin(ROOM, f"turn_{number}", f"msg_{number}", 1)
    here.say(ROOM, "msg_1", "a")
    here.say(ROOM, "msg_2", "b")
    here.say(ROOM, "msg_1", "c")
    here.publish(ROOM, [event(1)])
    here.say(ROOM, "msg_1", "d")
    items = taken(reader)
    assert texts(items) == [(0, "a"), (0, "b"), (1, "c"), (2, "d")]
    assert isinstance(items[3], Event)


async def test_merging_does_not_change_what_another_reader_holds() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    here.say(ROOM, "msg_1", "a")
    lagging, _ = here.subscribe(ROOM)
    held = taken(reader)
    here.say(ROOM, "msg_1", "b")
    here.say(ROOM, "msg_1", "c")
    assert texts(held) == [(0, "a")]
    assert texts(taken(lagging)) == [(1, "bc")]


async def test_offsets_count_code_points() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    here.say(ROOM, "msg_1", "é🙂")
    taken(reader)
    here.say(ROOM, "msg_1", "x")
    assert texts(taken(reader)) == [(2, "x")]


async def test_a_message_that_begins_again_says_so_and_starts_at_nothing() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    here.say(ROOM, "msg_1", "half an ans")
    here.begin(ROOM, "turn_1", "msg_1", 2)
    here.say(ROOM, "msg_1", "whole")
    half, again = taken(reader)
    assert (half.text, half.restarted) == ("half an ans", False)
    # What follows the announcement may be merged into it.
    assert (again.offset, again.text, again.attempt, again.restarted) == (0, "whole", 2, True)
    _, (so_far,) = here.subscribe(ROOM)
    assert (so_far.text, so_far.attempt) == ("whole", 2)


async def test_an_announcement_reaches_those_who_have_not_heard_the_first_attempt_too() -> None:
    here = streams()
    here.begin(ROOM, "turn_1", "msg_1", 2)
    _, (so_far,) = here.subscribe(ROOM)
    assert (so_far.text, so_far.attempt) == ("", 2)


async def test_what_is_spoken_is_at_hand_until_its_event_closes_it() -> None:
    here = streams()
    here.begin(ROOM, "turn_1", "msg_1", 1)
    here.begin(ROOM, "turn_2", "msg_2", 1)
    here.say(ROOM, "msg_1", "a")
    here.say(ROOM, "msg_1", "b")
    assert here.spoken(ROOM, "turn_1") == "ab"
    assert here.spoken(ROOM, "turn_9") == ""
    here.publish(ROOM, [event(1, "move_recorded", "turn_1", "msg_1")])
    assert here.spoken(ROOM, "turn_1") == ""
    here.say(ROOM, "msg_2", "c")
    here.publish(ROOM, [event(2, "turn_cancelled", "turn_2")])
    assert here.spoken(ROOM, "turn_2") == ""
    here.say(ROOM, "msg_2", "too late")
    assert here.subscribe(ROOM)[1] == []
    assert not here._speaking


async def test_a_slow_reader_is_closed_and_nobody_else_notices() -> None:
    here = streams(items=3)
    slow, _ = here.subscribe(ROOM)
    quick, _ = here.subscribe(ROOM)
    heard = []
    for sequence in range(1, 6):
        here.publish(ROOM, [event(sequence)])
        heard += taken(quick)
    assert [item.sequence for item in heard] == [1, 2, 3, 4, 5]
    assert taken(slow) == [Closed("slow")]
    here.publish(ROOM, [event(6)])
    assert taken(slow) == []


async def test_a_reader_is_slow_by_bytes_too_merged_pieces_included() -> None:
    here = streams(size=1000)
    reader, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    for _ in range(9):
        here.say(ROOM, "msg_1", "x" * 100)
    assert len(texts(taken(reader))) == 1
    for _ in range(11):
        here.say(ROOM, "msg_1", "x" * 100)
    assert taken(reader) == [Closed("slow")]


async def test_a_burst_is_taken_piece_by_piece_and_closes_nobody() -> None:
    here = streams(size=100 * LAG_BYTES)
    reader, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    for number in range(9):
        here.say(ROOM, "msg_1", "x" * (LAG_BYTES // 3))
        here.publish(ROOM, [event(number + 1)])
    pieces = []
    while items := taken(reader):
        pieces.append(sum(len(item.text) for item in items if isinstance(item, Delta)))
    assert sum(pieces) == 9 * (LAG_BYTES // 3) and max(pieces) <= LAG_BYTES * 4 // 3
    assert not reader.closed


async def test_who_lets_much_wait_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "LAG_S", 0.0)
    here = streams(size=100 * LAG_BYTES)
    slow, _ = here.subscribe(ROOM)
    quick, _ = here.subscribe(ROOM)
    here.begin(ROOM, "turn_1", "msg_1", 1)
    heard = 0
    for _ in range(3):
        here.say(ROOM, "msg_1", "x" * (LAG_BYTES // 2))
        heard += sum(len(text) for _, text in texts(taken(quick)))
    assert not slow.closed
    await asyncio.sleep(0.01)
    assert taken(slow) == [Closed("slow")]
    assert heard == 3 * (LAG_BYTES // 2) and not quick.closed


async def test_whatever_an_event_holds_counts() -> None:
    here = streams(size=2000)
    reader, _ = here.subscribe(ROOM)
    result = {"deep": [{"text": "x" * 1000}] * 2}
    value = Move(id="move_1", conversation_id=ROOM, turn_id="turn_1", sequence=1, message_id="", raw=result)
    here.publish(ROOM, [Event(1, 0, ROOM, Emit("move.recorded", value))])
    assert taken(reader) == [Closed("slow")]


async def test_replies_stay_in_their_place() -> None:
    reader, _ = (here := streams()).subscribe(ROOM)
    here.publish(ROOM, [event(1)])
    reader.push(Reply(b"sent"))
    here.publish(ROOM, [event(2)])
    assert [type(item).__name__ for item in taken(reader)] == ["Event", "Reply", "Event"]


async def test_a_reader_that_waits_is_woken() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    waiting = reader.wait()
    await asyncio.sleep(0)
    assert not waiting.done()
    here.publish(ROOM, [event(1)])
    await waiting
    await reader.wait()
    assert len(taken(reader)) == 1


async def test_draining_tells_everybody_and_whoever_comes_later() -> None:
    here = streams()
    reader, _ = here.subscribe(ROOM)
    here.publish(ROOM, [event(1)])
    here.drain()
    assert [type(item).__name__ for item in taken(reader)] == ["Event", "Closed"]
    late, _ = here.subscribe(ROOM)
    assert taken(late) == [Closed("draining")]


async def test_who_has_gone_leaves_nothing() -> None:
    here = streams()
    first, _ = here.subscribe(ROOM)
    second, _ = here.subscribe(ROOM)
    assert here.count == 2
    for reader in (first, second, second):
        here.unsubscribe(ROOM, reader)
    assert here.count == 0
    assert not here._subscriptions
    here.close(ROOM, "ended")


# --- runs -------------------------------------------------------------------------------------------


def progress(number: int, output: str = "") -> NodeProgress:
    return NodeProgress(
        node_id="n", execution_id="op_1", item=StepProgress(step_id=str(number), output=output)
    )


async def test_progress_goes_to_those_who_asked_for_it() -> None:
    here = streams()
    plain, _ = here.subscribe(ROOM)
    eager, _ = here.subscribe(ROOM, wants_progress=True)
    here.progress(ROOM, progress(1))
    here.progress("run_other", progress(2))
    here.publish(ROOM, [event(1)])
    assert [type(item).__name__ for item in taken(plain)] == ["Event"]
    assert [type(item).__name__ for item in taken(eager)] == ["NodeProgress", "Event"]


async def test_who_watches_later_is_told_what_nodes_are_doing_now() -> None:
    here = streams()
    here.progress(ROOM, progress(1, "much output"))
    here.progress(ROOM, replace(progress(2), execution_id="op_2"))
    eager, _ = here.subscribe(ROOM, wants_progress=True)
    plain, _ = here.subscribe(ROOM)
    assert [(item.execution_id, item.item.output) for item in taken(eager)] == [("op_1", ""), ("op_2", "")]
    assert taken(plain) == []
    done = StepTrace(step_id="s", kind="http", position=0, attempt=1, status="completed")
    here.progress(ROOM, NodeProgress(node_id="n", execution_id="op_1", item=done))
    ended = Emit("node.completed", SimpleNamespace(id="op_2"))
    here.publish(ROOM, [Event(1, 0, ROOM, ended)])
    late, _ = here.subscribe(ROOM, wants_progress=True)
    assert taken(late) == []
    here.progress(ROOM, progress(3))
    here.publish(ROOM, [event(2, "workflow_completed")])
    assert taken(here.subscribe(ROOM, wants_progress=True)[0]) == []


async def test_a_slow_reader_misses_progress_first() -> None:
    here = Streams(limit_items=5, limit_bytes=1 << 20)
    reader, _ = here.subscribe(ROOM, wants_progress=True)
    for number in range(1, 5):
        here.publish(ROOM, [event(number)])
        here.progress(ROOM, progress(number))
    items = taken(reader)
    assert [item.sequence for item in items if isinstance(item, Event)] == [1, 2, 3, 4]
    assert not reader.closed
    for number in range(20):
        here.progress(ROOM, progress(number))
    assert not reader.closed and len(taken(reader)) <= 5
    for number in range(5, 12):
        here.publish(ROOM, [event(number)])
        here.progress(ROOM, progress(number))
    assert taken(reader) == [Closed("slow")]


async def test_much_output_of_a_task_does_not_end_a_stream() -> None:
    here = Streams(limit_items=1000, limit_bytes=10_000)
    reader, _ = here.subscribe(ROOM, wants_progress=True)
    for number in range(20):
        here.progress(ROOM, progress(number, "x" * 4000))
    assert not reader.closed and 0 < len(taken(reader)) < 4


def ended(sequence: int) -> Event:
    return Event(sequence, 1, ROOM, Emit("workflow_completed", None))


async def test_the_end_of_a_run_is_told_to_all_who_wait_for_it() -> None:
    here = streams()
    first, second, gone = (here.end_of(ROOM) for _ in range(3))
    here.forget_end(ROOM, gone)
    here.publish("run_other", [Event(1, 1, "run_other", Emit("workflow_failed", None))])
    here.publish(ROOM, [event(1)])
    assert not first.done()
    last = ended(3)
    here.publish(ROOM, [event(2), last])
    assert first.result() is second.result() is last and not gone.done()
    here.forget_end(ROOM, first)
    assert not here._ends


async def test_who_has_stopped_waiting_for_an_end_is_passed_over() -> None:
    here = streams()
    end = here.end_of(ROOM)
    end.cancel()
    here.publish(ROOM, [ended(1)])
    assert not here._ends


async def test_a_server_that_goes_away_ends_the_wait() -> None:
    here = streams()
    end = here.end_of(ROOM)
    here.drain()
    assert end.result() is None and here.end_of(ROOM).result() is None
    assert not here._ends
