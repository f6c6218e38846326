"""A reader's view is exact: past, text so far and live fit together however things interleave (B3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.actors.streaming import attachment as attachments
from wonder_server.actors.streaming.attachment import Attachment, CaughtUp, StreamSource, attach
from wonder_server.actors.streaming.hub import Closed, Delta, KeepAlive, StreamHub
from wonder_server.core.actor.changes import Emit
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Event

CONVERSATION_ID = "conv_1"


class Gate:
    """Lets through one at a time, when told to."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self.open = False

    async def pass_through(self) -> None:
        if not self.open:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def open_once(self) -> None:
        if self._waiting:
            self._waiting.pop(0).set_result(None)

    def open_for_all(self) -> None:
        self.open = True
        while self._waiting:
            self.open_once()


@dataclass
class ScriptedActor:
    """A conversation as it happens: what is written, what is shown, what is being said."""

    streams: StreamHub = field(default_factory=lambda: StreamHub(10_000, 10_000_000))
    gate: Gate = field(default_factory=Gate)
    written: list[Event] = field(default_factory=list)
    shown: int = 0
    open: dict[str, str] = field(default_factory=dict)
    """Messages being spoken, with what has been said."""
    attempts: dict[str, int] = field(default_factory=dict)
    begun: int = 0

    async def head(self, actor_id: str) -> int | None:
        await self.gate.pass_through()
        return len(self.written)

    async def events(self, actor_id: str, planner: Any, after: int, limit: int) -> list[Event]:
        await self.gate.pass_through()
        return self.written[after : after + limit]

    def begin_message(self) -> None:
        self.begun += 1
        message = f"msg_{self.begun}"
        self.open[message], self.attempts[message] = "", 1
        self.streams.begin_message(CONVERSATION_ID, turn_of(message), message, 1)

    def append_text(self, message: str, text: str) -> None:
        self.open[message] += text
        self.streams.append_text(CONVERSATION_ID, message, text)

    def restart(self, message: str) -> None:
        self.open[message] = ""
        self.attempts[message] += 1
        self.streams.begin_message(CONVERSATION_ID, turn_of(message), message, self.attempts[message])

    def write(self, kind: str = "conversation_turn", message: str = "", turn: str = "") -> None:
        emit = Emit(kind.replace("_", "."), None, turn or turn_of(message), message)
        self.written.append(Event(len(self.written) + 1, 0, CONVERSATION_ID, emit))

    def close(self, message: str) -> None:
        del self.open[message]
        self.write("message_appended", message)

    def fail(self, message: str) -> None:
        del self.open[message]
        self.write("turn_failed", turn=turn_of(message))

    def publish(self) -> None:
        self.streams.publish(CONVERSATION_ID, self.written[self.shown :])
        self.shown = len(self.written)

    def perform(self, what: int, which: int) -> None:
        messages = list(self.open)
        message = messages[which % len(messages)] if messages else ""
        match what:
            case 0 if len(messages) < 3:
                self.begin_message()
            case 1 | 2 | 3 if message:
                self.append_text(message, "abcdefgh"[: which % 4 + 1])
            case 4 if message:
                self.restart(message)
            case 5:
                self.write(turn="turn_other")
            case 6 if message:
                self.close(message)
            case 7 if message:
                self.fail(message)
            case _:
                self.publish()

    async def attach(self, after: int, *, tail_only: bool = False) -> Attachment | None:
        return await attach(
            StreamSource(CONVERSATION_ID, CONVERSATION, self, self, self.streams),  # type: ignore[arg-type]
            after=after,
            tail_only=tail_only,
        )


def turn_of(message: str) -> str:
    return message.replace("msg", "turn")


@dataclass
class Client:
    """What a client makes of what it is told; wrong if anything is missing or comes twice."""

    sequence: int
    text: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    caught_up: int | None = None

    def take(self, item: Any) -> None:
        match item:
            case CaughtUp():
                assert self.caught_up is None
                assert item.sequence >= self.sequence
                self.sequence = self.caught_up = item.sequence
            case Event():
                assert item.sequence == self.sequence + 1
                self.sequence = item.sequence
                if item.emit.message_id:
                    self.text.pop(item.emit.message_id, None)
                    self.over.add(item.emit.message_id)
                if item.emit.kind == "turn_failed":
                    self.text.pop(item.emit.turn_id.replace("turn", "msg"), None)
                    self.over.add(item.emit.turn_id.replace("turn", "msg"))
            case Delta():
                assert item.message_id not in self.over
                before = "" if item.restarted else self.text.get(item.message_id, "")
                assert item.offset == len(before)
                self.text[item.message_id] = before + item.text


async def stream_items(attachment: Attachment) -> AsyncIterator[Any]:
    """Everything, one by one; a `Closed` is the last."""
    while True:
        for item in await attachment.take():
            yield item
            if isinstance(item, Closed):
                return


async def read(world: ScriptedActor, client: Client, after: int, tail_only: bool) -> None:
    attachment = await world.attach(after, tail_only=tail_only)
    assert attachment is not None
    async for item in stream_items(attachment):
        client.take(item)
    attachment.close()


ACTIONS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "read", "read"]), st.integers(0, 30)),
    min_size=8,
    max_size=40,
)


@given(before=ACTIONS, after=ACTIONS, cursor=st.integers(0, 12), tail_only=st.booleans())
def test_whenever_a_reader_attaches_it_misses_nothing_and_sees_nothing_twice(
    before: list[Any], after: list[Any], cursor: int, tail_only: bool
) -> None:
    async def play() -> None:
        world = ScriptedActor()
        world.write()
        for event in before:
            if event[0] != "read":
                world.perform(*event)
        cursor_at = min(cursor, len(world.written))
        client = Client(0 if tail_only else cursor_at)
        reading = asyncio.get_running_loop().create_task(read(world, client, cursor_at, tail_only))
        await asyncio.sleep(0)
        for event in after:
            if event[0] == "read":
                world.gate.open_once()
                for _ in range(4):
                    await asyncio.sleep(0)
            else:
                world.perform(*event)
        world.gate.open_for_all()
        for _ in range(12):
            await asyncio.sleep(0)
        world.publish()
        world.streams.close(CONVERSATION_ID, "ended")
        await asyncio.wait_for(reading, 60)
        assert client.sequence == len(world.written)
        said = {message: text for message, text in client.text.items() if text}
        assert said == {message: text for message, text in world.open.items() if text}
        assert world.streams.count == 0

    attachments_page, attachments.PAGE = attachments.PAGE, 3
    try:
        asyncio.run(play())
    finally:
        attachments.PAGE = attachments_page


async def items_of(attachment: Attachment) -> list[Any]:
    return [item async for item in stream_items(attachment)]


async def attach_reader(world: ScriptedActor, after: int = 0, **options: Any) -> Attachment:
    world.gate.open = True
    attachment = await world.attach(after, **options)
    assert attachment is not None
    return attachment


async def test_a_reader_gets_the_past_then_partial_texts_then_new_events() -> None:
    world = ScriptedActor()
    world.write()
    world.begin_message()
    world.append_text("msg_1", "Once ")
    world.publish()
    items = stream_items(await attach_reader(world))
    kinds = [type(await anext(items)).__name__ for _ in range(3)]
    world.append_text("msg_1", "upon")
    world.close("msg_1")
    world.publish()
    world.streams.close(CONVERSATION_ID, "ended")
    kinds += [type(item).__name__ async for item in items]
    assert kinds == ["Event", "Delta", "CaughtUp", "Delta", "Event", "Closed"]


async def test_a_message_that_failed_with_its_turn_is_not_shown_after_it() -> None:
    world = ScriptedActor()
    world.begin_message()
    world.append_text("msg_1", "half")
    world.gate.open = False
    attaching = asyncio.get_running_loop().create_task(world.attach(0))
    await asyncio.sleep(0)
    world.fail("msg_1")
    world.publish()
    world.gate.open_for_all()
    attachment = await attaching
    assert attachment is not None
    world.streams.close(CONVERSATION_ID, "ended")
    assert [type(item).__name__ for item in await items_of(attachment)] == ["Event", "CaughtUp", "Closed"]


async def test_text_that_waits_behind_the_event_that_ended_it_is_not_shown() -> None:
    world = ScriptedActor()
    world.begin_message()
    attaching = asyncio.get_running_loop().create_task(world.attach(0))
    await asyncio.sleep(0)
    world.append_text("msg_1", "whole")
    world.close("msg_1")
    world.publish()
    world.gate.open_for_all()
    attachment = await attaching
    assert attachment is not None
    world.streams.close(CONVERSATION_ID, "ended")
    assert [type(item).__name__ for item in await items_of(attachment)] == ["Event", "CaughtUp", "Closed"]


async def test_from_now_on_a_message_that_was_just_closed_is_not_shown_half() -> None:
    world = ScriptedActor()
    world.begin_message()
    world.append_text("msg_1", "half")
    world.close("msg_1")
    attachment = await attach_reader(world, tail_only=True)
    world.publish()
    world.streams.close(CONVERSATION_ID, "ended")
    assert [type(item).__name__ for item in await items_of(attachment)] == ["CaughtUp", "Closed"]


async def test_a_cursor_beyond_the_record_is_refused_and_leaves_no_subscription() -> None:
    world = ScriptedActor()
    world.write()
    world.gate.open = True
    with pytest.raises(WonderError) as refused:
        await world.attach(2)
    assert refused.value.fault.reason is Reason.CURSOR_OUT_OF_RANGE
    assert refused.value.fault.metadata == {"last_sequence": "1"}
    assert world.streams.count == 0


async def test_attaching_to_a_missing_actor_fails_and_leaves_no_subscription() -> None:
    world = ScriptedActor()
    world.gate.open = True

    async def nowhere(actor_id: str) -> None:
        return None

    async def broken(actor_id: str) -> int | None:
        raise WonderError(refusal)

    with pytest.raises(WonderError) as problem:
        await world.attach(5)
    refusal = problem.value.fault
    world.head = nowhere  # type: ignore[method-assign]
    assert await world.attach(0) is None
    world.head = broken  # type: ignore[method-assign]
    with pytest.raises(WonderError):
        await world.attach(0)
    assert world.streams.count == 0


async def test_a_reader_that_falls_behind_is_closed_with_the_cursor_to_come_back_with() -> None:
    world = ScriptedActor(streams=StreamHub(5, 10_000_000))
    for _ in range(3):
        world.write()
    world.publish()
    slow, quick = await attach_reader(world), await attach_reader(world)
    slow_items, quick_items = stream_items(slow), stream_items(quick)
    for items in (slow_items, quick_items):
        for _ in range(4):
            await anext(items)
    for _ in range(8):
        world.write()
        world.publish()
        assert isinstance(await anext(quick_items), Event)
    assert await anext(slow_items) == Closed("slow")
    assert slow.sequence == 3
    again = await attach_reader(world, slow.sequence)
    world.streams.close(CONVERSATION_ID, "ended")
    shown = [item.sequence for item in await items_of(again) if isinstance(item, Event)]
    assert shown == list(range(4, 12))
    await slow_items.aclose()  # type: ignore[attr-defined]
    await quick_items.aclose()  # type: ignore[attr-defined]


async def test_silence_is_broken_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "KEEP_ALIVE_AFTER_S", 0.0)
    world = ScriptedActor()
    world.write()
    attachment = await attach_reader(world, 1)
    items = stream_items(attachment)
    assert await anext(items) == CaughtUp(1)
    assert await anext(items) == KeepAlive()
    assert await anext(items) == KeepAlive()
    await items.aclose()  # type: ignore[attr-defined]
