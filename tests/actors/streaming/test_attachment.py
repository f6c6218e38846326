"""A reader's view is exact: past, text so far and live fit together however things interleave (B3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.actors.streaming import attachment as attachments
from wonder_server.actors.streaming.attachment import Attachment, CaughtUp, StreamSource, attach
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import Closed, Delta, KeepAlive
from wonder_server.core.actor.changes import Emit
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Event

CONVERSATION_ID = "conv_1"


class Gate:
    """A gate that lets one task through at a time."""

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
    """A scripted conversation: its record, its published events and its partial texts."""

    streams: StreamHub = field(default_factory=lambda: StreamHub(10_000, 10_000_000))
    gate: Gate = field(default_factory=Gate)
    written: list[Event] = field(default_factory=list)
    shown: int = 0
    open: dict[str, str] = field(default_factory=dict)
    """Texts so far of the messages in progress."""
    attempts: dict[str, int] = field(default_factory=dict)
    begun: int = 0

    async def head(self, actor_id: str) -> int | None:
        await self.gate.pass_through()
        return len(self.written)

    async def events(self, actor_id: str, after: int, limit: int) -> list[Event]:
        await self.gate.pass_through()
        return self.written[after : after + limit]

    def begin_message(self) -> None:
        self.begun += 1
        message = f"msg_{self.begun}"
        self.open[message], self.attempts[message] = "", 1
        self.streams.begin_message(CONVERSATION_ID, turn_of(message), message, 1)

    def append_text(self, message: str, text: str) -> None:
        self.open[message] += text
        self.streams.append_text(CONVERSATION_ID, turn_of(message), message, text)

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
            StreamSource(CONVERSATION_ID, self, self, self.streams),  # type: ignore[arg-type]
            after=after,
            tail_only=tail_only,
        )


def turn_of(message: str) -> str:
    return message.replace("msg", "turn")


@dataclass
class Client:
    """A client that checks its items: it fails if one is missing or repeated."""

    sequence: int
    text: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    caught_up: int | None = None

    def take(self, item: object) -> None:
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


async def stream_items(attachment: Attachment) -> AsyncIterator[object]:
    """Yield all items one by one. The last is a `Closed`."""
    while True:
        for item in await attachment.take():
            yield item
            if isinstance(item, Closed):
                return


async def read(stage: ScriptedActor, client: Client, after: int, tail_only: bool) -> None:
    attachment = await stage.attach(after, tail_only=tail_only)
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
def test_a_reader_misses_nothing_and_gets_nothing_twice(
    before: list[object], after: list[object], cursor: int, tail_only: bool
) -> None:
    async def play() -> None:
        stage = ScriptedActor()
        stage.write()
        for event in before:
            if event[0] != "read":
                stage.perform(*event)
        cursor_at = min(cursor, len(stage.written))
        client = Client(0 if tail_only else cursor_at)
        reading = asyncio.get_running_loop().create_task(read(stage, client, cursor_at, tail_only))
        await asyncio.sleep(0)
        for event in after:
            if event[0] == "read":
                stage.gate.open_once()
                for _ in range(4):
                    await asyncio.sleep(0)
            else:
                stage.perform(*event)
        stage.gate.open_for_all()
        for _ in range(12):
            await asyncio.sleep(0)
        stage.publish()
        stage.streams.close(CONVERSATION_ID, "ended")
        await asyncio.wait_for(reading, 60)
        assert client.sequence == len(stage.written)
        said = {message: text for message, text in client.text.items() if text}
        assert said == {message: text for message, text in stage.open.items() if text}
        assert stage.streams.count == 0

    attachments_page, attachments.PAGE = attachments.PAGE, 3
    try:
        asyncio.run(play())
    finally:
        attachments.PAGE = attachments_page


async def items_of(attachment: Attachment) -> list[object]:
    return [item async for item in stream_items(attachment)]


async def attach_reader(stage: ScriptedActor, after: int = 0, **options: object) -> Attachment:
    stage.gate.open = True
    attachment = await stage.attach(after, **options)
    assert attachment is not None
    return attachment


async def test_a_reader_gets_the_past_then_partial_texts_then_new_events() -> None:
    stage = ScriptedActor()
    stage.write()
    stage.begin_message()
    stage.append_text("msg_1", "Once ")
    stage.publish()
    items = stream_items(await attach_reader(stage))
    kinds = [type(await anext(items)).__name__ for _ in range(3)]
    stage.append_text("msg_1", "upon")
    stage.close("msg_1")
    stage.publish()
    stage.streams.close(CONVERSATION_ID, "ended")
    kinds += [type(item).__name__ async for item in items]
    assert kinds == ["Event", "Delta", "CaughtUp", "Delta", "Event", "Closed"]


async def test_a_message_that_failed_with_its_turn_is_not_shown_after_it() -> None:
    stage = ScriptedActor()
    stage.begin_message()
    stage.append_text("msg_1", "half")
    stage.gate.open = False
    attaching = asyncio.get_running_loop().create_task(stage.attach(0))
    await asyncio.sleep(0)
    stage.fail("msg_1")
    stage.publish()
    stage.gate.open_for_all()
    attachment = await attaching
    assert attachment is not None
    stage.streams.close(CONVERSATION_ID, "ended")
    assert [type(item).__name__ for item in await items_of(attachment)] == ["Event", "CaughtUp", "Closed"]


async def test_text_queued_behind_the_end_of_its_message_is_not_shown() -> None:
    stage = ScriptedActor()
    stage.begin_message()
    attaching = asyncio.get_running_loop().create_task(stage.attach(0))
    await asyncio.sleep(0)
    stage.append_text("msg_1", "whole")
    stage.close("msg_1")
    stage.publish()
    stage.gate.open_for_all()
    attachment = await attaching
    assert attachment is not None
    stage.streams.close(CONVERSATION_ID, "ended")
    assert [type(item).__name__ for item in await items_of(attachment)] == ["Event", "CaughtUp", "Closed"]


async def test_a_tail_only_reader_does_not_get_half_of_a_finished_message() -> None:
    stage = ScriptedActor()
    stage.begin_message()
    stage.append_text("msg_1", "half")
    stage.close("msg_1")
    attachment = await attach_reader(stage, tail_only=True)
    stage.publish()
    stage.streams.close(CONVERSATION_ID, "ended")
    assert [type(item).__name__ for item in await items_of(attachment)] == ["CaughtUp", "Closed"]


async def test_a_cursor_beyond_the_record_is_rejected_and_leaves_no_subscription() -> None:
    stage = ScriptedActor()
    stage.write()
    stage.gate.open = True
    with pytest.raises(WonderError) as refused:
        await stage.attach(2)
    assert refused.value.fault.reason is Reason.CURSOR_OUT_OF_RANGE
    assert refused.value.fault.metadata == {"last_sequence": "1"}
    assert refused.value.fault.message.endswith("beyond the last event, 1. Use a cursor of at most 1.")
    assert stage.streams.count == 0


async def test_attaching_to_a_missing_actor_fails_and_leaves_no_subscription() -> None:
    stage = ScriptedActor()
    stage.gate.open = True

    async def nowhere(actor_id: str) -> None:
        return None

    async def broken(actor_id: str) -> int | None:
        raise WonderError(refusal)

    with pytest.raises(WonderError) as problem:
        await stage.attach(5)
    refusal = problem.value.fault
    stage.head = nowhere  # type: ignore[method-assign]
    assert await stage.attach(0) is None
    stage.head = broken  # type: ignore[method-assign]
    with pytest.raises(WonderError):
        await stage.attach(0)
    assert stage.streams.count == 0


async def test_a_slow_reader_is_closed_and_resumes_from_its_cursor() -> None:
    stage = ScriptedActor(streams=StreamHub(5, 10_000_000))
    for _ in range(3):
        stage.write()
    stage.publish()
    slow, quick = await attach_reader(stage), await attach_reader(stage)
    slow_items, quick_items = stream_items(slow), stream_items(quick)
    for items in (slow_items, quick_items):
        for _ in range(4):
            await anext(items)
    for _ in range(8):
        stage.write()
        stage.publish()
        assert isinstance(await anext(quick_items), Event)
    assert await anext(slow_items) == Closed("slow")
    assert slow.sequence == 3
    resumed = await attach_reader(stage, slow.sequence)
    stage.streams.close(CONVERSATION_ID, "ended")
    shown = [item.sequence for item in await items_of(resumed) if isinstance(item, Event)]
    assert shown == list(range(4, 12))
    await slow_items.aclose()  # type: ignore[attr-defined]
    await quick_items.aclose()  # type: ignore[attr-defined]


async def test_an_idle_attachment_gets_keep_alives() -> None:
    stage = ScriptedActor(streams=StreamHub(100, 10_000_000, keep_alive_after_s=0.0))
    stage.write()
    attachment = await attach_reader(stage, 1)
    items = stream_items(attachment)
    assert await anext(items) == CaughtUp(1)
    assert await anext(items) == KeepAlive()
    assert await anext(items) == KeepAlive()
    await items.aclose()  # type: ignore[attr-defined]
