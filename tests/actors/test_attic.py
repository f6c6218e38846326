"""Conversations that expire: put away whole, brought back whole, and nothing lost on the way (B11)."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.actors.kit import ROOM, FakeClock
from tests.conformance.journal_subjects import ROW_TYPES
from tests.core.conversation_kit import ASSEMBLED, agent, room, said, send
from wonder_server.actors.attic import Attic, unpacked
from wonder_server.actors.conversations import Conversations, Saying
from wonder_server.actors.loop import Loop
from wonder_server.actors.replay import replay
from wonder_server.actors.rooms import Rooms
from wonder_server.actors.streams import Streams
from wonder_server.actors.sweeper import Sweeper
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.archives import _KEYS, SqliteArchives
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard_schema import MIGRATIONS
from wonder_server.adapters.sqlite.shards import SqliteShards
from wonder_server.core.commands import Command
from wonder_server.core.conversation import inputs
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.room_inputs import Revise, Vacate
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import OperationKind, Participant
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.records import Put
from wonder_server.ports.journal import Commit
from wonder_server.ports.records import EventQuery, Query

HOUR = 3_600_000


pytestmark = pytest.mark.disk


class Agents:
    """A library of one agent."""

    async def pin_agent(self, _: str) -> PinnedAgent:
        return agent(extraction=False)


class House:
    """A server's inside on real shards, with the test for a model; ``restart`` is a crash and a new start."""

    def __init__(self, shards: SqliteShards, blobs: MemoryBlobs) -> None:
        self.shards, self.blobs, self.clock = shards, blobs, FakeClock()
        self.restart()

    def restart(self) -> None:
        self.loop = Loop(
            (CONVERSATION, RUN), self.shards.of, self.clock,
            dispatch=self._dispatch, publish=lambda *_: None, idle_limit=100, idle_bytes=1 << 30,
        )  # fmt: skip
        self.archives = SqliteArchives(self.shards)
        self.attic = Attic(loop=self.loop, records=self.shards, archives=self.archives, blobs=self.blobs)
        shared: dict[str, Any] = {
            "loop": self.loop, "shards": self.shards, "records": self.shards,
            "streams": Streams(100, 1 << 20), "agents": Agents(),
        }  # fmt: skip
        self.conversations = Conversations(**shared, clock=self.clock, attic=self.attic)
        self.rooms = Rooms(**shared, conversations=self.conversations)
        self.sweeper = Sweeper(attic=self.attic, rooms=self.rooms, records=self.shards, clock=self.clock)

    def _dispatch(self, _actor_id: str, _command: Command) -> None:
        """Nothing is carried out: the test says what comes of it."""

    def pending(self, kind: OperationKind) -> str:
        state = self.loop.peek(ROOM)
        assert isinstance(state, ConversationState)
        return next(op.id for op in state.operations.values() if op.kind is kind)

    async def turn(self, text: str) -> None:
        """A whole turn."""
        await self.loop.ask(ROOM, send(f"seed {text}", text, extraction=False))
        assembly = self.pending(OperationKind.ASSEMBLY)
        await self.loop.ask(ROOM, inputs.Succeeded(operation_id=assembly, output=ASSEMBLED))
        model = self.pending(OperationKind.MODEL)
        await self.loop.ask(ROOM, inputs.ModelAnswered(operation_id=model, result=said(f"To {text}.")))

    async def lines(self, *tables: str) -> dict[str, list[Any]]:
        """What is written of the room, table by table."""
        found: dict[str, list[Any]] = {}
        async for page in self.archives.export(ROOM, ()):
            for table, row in page:
                found.setdefault(table, []).append(dict(row))
        return {table: rows for table, rows in found.items() if not tables or table in tables}

    async def expire(self, after_ms: int = HOUR) -> None:
        await self.loop.ask(ROOM, Revise(expire_ms=self.clock.now + after_ms))


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    shards = await SqliteShards.open(tmp_path / "shards", 1, ROW_TYPES)
    house = House(shards, MemoryBlobs())
    await house.loop.ask(ROOM, room(ROOM))
    yield house
    await house.loop.stop()
    await shards.close()


async def test_what_has_expired_is_put_away_and_comes_back_row_for_row(house: House) -> None:
    for number in range(3):
        await house.turn(f"turn {number}")
    await house.expire()
    before, events = await house.lines(), await house.conversations.events(EventQuery(actor=ROOM))
    assert await house.sweeper.sweep() == 0
    house.clock.now += HOUR
    assert await house.sweeper.sweep() == 1
    left = await house.lines()
    assert set(left) == {"conversations", "actors", "entries"} and len(left["entries"]) == 1
    assert len(house.blobs.held) == 1
    stub = await house.conversations.get(ROOM)
    assert stub.archived_ms == house.clock.now and stub.archive in house.blobs.held
    assert await house.sweeper.sweep() == 0

    back = await house.conversations.open(ROOM)
    assert (back.archive, back.archived_ms, back.turn_count) == ("", 0, 3)
    assert not house.blobs.held
    after = await house.lines()
    for table in ("turns", "messages", "moves", "parts", "requests_answered"):
        assert after.get(table) == before.get(table), table
    assert after["entries"][: len(before["entries"])] == before["entries"]
    again = await house.conversations.events(EventQuery(actor=ROOM, limit=100))
    assert [e.sequence for e in again] == list(range(1, len(events) + 3))
    assert [e.emit.name for e in again[len(events) :]] == ["conversation.updated"] * 2
    assert again[: len(events)] == events


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_message_brings_it_back_and_agents_see_what_was_said(house: House, restarts: bool) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    await house.sweeper.sweep()
    if restarts:
        house.restart()
    said = await house.conversations.send(ROOM, Saying(content="Back?", metadata={}))
    assert said.turn is not None and said.turn.ordinal == 2
    state = house.loop.peek(ROOM)
    assert isinstance(state, ConversationState) and state.conversation is not None
    assert [m.content for m in next(iter(state.messages.values()))] == ["turn 1", "To turn 1."]
    # The turn has moved its expiry on.
    assert state.conversation.expire_ms == house.clock.now + HOUR
    entries = await house.shards.of(ROOM).entries(ROOM, CONVERSATION, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert replay(CONVERSATION, entries).difference is None


async def test_it_goes_away_and_comes_back_again_and_again(house: House) -> None:
    await house.expire()
    for number in range(3):
        await house.turn(f"turn {number}")
        house.clock.now += HOUR
        assert await house.sweeper.sweep() == 1
        await house.attic.awake(ROOM)
    assert len(await house.shards.find(Query(table="turns", actor=ROOM))) == 3
    entries = await house.shards.of(ROOM).entries(ROOM, CONVERSATION, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert replay(CONVERSATION, entries).difference is None


async def test_while_something_is_under_way_nothing_is_put_away(house: House) -> None:
    await house.expire(1)
    await house.loop.ask(ROOM, send("slow", extraction=False))
    house.clock.now += 2 * HOUR
    assert await house.sweeper.sweep() == 0
    assert (await house.conversations.get(ROOM)).archived_ms == 0 and not house.blobs.held


async def test_who_joins_while_it_is_put_away_keeps_it_here(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def slow_put(content: bytes) -> str:
        await house.rooms.join(ROOM, Participant(type="user", id="zoe"), "")
        return await put(content)

    monkeypatch.setattr(house.blobs, "put", slow_put)
    assert await house.sweeper.sweep() == 0
    room = await house.conversations.get(ROOM)
    assert (room.archived_ms, room.archive, room.participants[-1].id) == (0, "", "zoe")
    assert not house.blobs.held and len((await house.lines("turns"))["turns"]) == 1


async def test_each_turn_moves_the_expiry_on(house: House) -> None:
    await house.expire()
    house.clock.now += HOUR - 1
    await house.turn("turn 1")
    house.clock.now += HOUR - 1
    assert await house.sweeper.sweep() == 0
    house.clock.now += 1
    assert await house.sweeper.sweep() == 1


async def test_who_speaks_while_it_is_put_away_keeps_it_here(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def slow_put(content: bytes) -> str:
        await house.conversations.send(ROOM, Saying(content="Wait!", metadata={}))
        return await put(content)

    monkeypatch.setattr(house.blobs, "put", slow_put)
    assert await house.sweeper.sweep() == 0
    assert not house.blobs.held
    found = await house.shards.find(Query(table="messages", actor=ROOM, newest_first=False, limit=9))
    assert [message.content for message in found] == ["turn 1", "To turn 1.", "Wait!"]
    room = await house.conversations.get(ROOM)
    assert (room.archived_ms, room.archive) == (0, "")


async def test_many_who_read_it_at_once_bring_it_back_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    await house.sweeper.sweep()
    get, delete, calls, gone = house.blobs.get, house.blobs.delete, itertools.count(), asyncio.Event()

    async def late_get(key: str) -> bytes | None:
        if next(calls):
            # A second one would find nothing any more.
            await gone.wait()
        return await get(key)

    async def told_delete(key: str) -> None:
        await delete(key)
        gone.set()

    monkeypatch.setattr(house.blobs, "get", late_get)
    monkeypatch.setattr(house.blobs, "delete", told_delete)
    opened = await asyncio.gather(*(house.conversations.open(ROOM) for _ in range(10)))
    assert {room.archive for room in opened} == {""}
    names = [e.emit.name for e in await house.conversations.events(EventQuery(actor=ROOM, limit=100))]
    # Given a time, put away, brought back.
    assert names.count("conversation.updated") == 3


# --- what is damaged or lost is said, and never made worse ------------------------------------------


async def away(house: House) -> str:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    await house.sweeper.sweep()
    (key,) = house.blobs.held
    return key


@pytest.mark.parametrize("loss", ["gone", "damaged"])
async def test_an_object_that_is_lost_or_damaged_is_said_and_nothing_is_changed(
    house: House, loss: str
) -> None:
    key = await away(house)
    whole = house.blobs.held[key]
    if loss == "gone":
        del house.blobs.held[key]
    else:
        house.blobs.held[key] = whole[:-1] + b"x"
    for _ in range(2):
        with pytest.raises(WonderError) as problem:
            await house.conversations.open(ROOM)
        assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    # It can still be looked at, and comes back when its object does.
    assert (await house.conversations.get(ROOM)).archive == key
    house.blobs.held[key] = whole
    assert (await house.conversations.open(ROOM)).turn_count == 1


def packed(*lines: str) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress("\n".join(lines).encode() + b"\n") + packer.flush()


HEADER = '{"format": "wonder-conversation", "version": 1, "id": "c", "runs": []}'


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no gzip", packed(""), packed("{}"), packed(HEADER), packed(HEADER, '{"lines": 1}'),
        packed(HEADER, '["turns", {"id": "x"}]', '{"lines": 2}'), packed("[]", '{"lines": 0}'),
        packed('{"format": "other", "version": 1}', '{"lines": 0}'), packed(HEADER, '{"lines": 0}')[:-9],
        packed(HEADER.replace('"version": 1', '"version": 99'), '{"lines": 0}'),
    ],
)  # fmt: skip
def test_what_is_not_a_whole_conversation_is_refused(content: bytes) -> None:
    with pytest.raises(WonderError) as problem:
        list(unpacked(content, version=3))
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE


def test_a_whole_one_is_read() -> None:
    whole = packed(HEADER, '["turns", {"id": "x"}]', '{"lines": 1}')
    assert list(unpacked(whole, version=1)) == [("turns", {"id": "x"})]


async def test_a_store_of_objects_that_fails_leaves_everything_where_it_is(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR

    async def full(_: bytes) -> str:
        raise error(Reason.STORAGE_UNAVAILABLE, "Full.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "put", full)
        assert await house.sweeper.sweep() == 0
    assert len((await house.lines())["turns"]) == 1
    # The next sweep takes it up.
    assert await house.sweeper.sweep() == 1
    assert (await house.conversations.open(ROOM)).turn_count == 1


async def test_half_restored_is_restored_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after the rows are back, and before anybody knows."""
    key = await away(house)

    class Crash(Exception):
        pass

    def crash(_: str) -> bool:
        raise Crash

    monkeypatch.setattr(house.loop, "forget", crash)
    with pytest.raises(Crash):
        await house.conversations.open(ROOM)
    assert key in house.blobs.held
    house.restart()
    assert await house.sweeper.sweep() == 0
    assert (await house.conversations.open(ROOM)).turn_count == 1
    assert not house.blobs.held
    entries = await house.shards.of(ROOM).entries(ROOM, CONVERSATION, 0, 1000)
    assert replay(CONVERSATION, entries).difference is None


# --- what is of it goes with it ---------------------------------------------------------------------


async def test_the_record_may_be_larger_than_a_page(house: House) -> None:
    await house.turn("turn 1")
    many = [
        Put("moves", f"move_{n:04}", message, parent="turn_x", ordinal=n)
        for n, message in enumerate(await house.shards.find(Query(table="moves", actor=ROOM)) * 650)
    ]
    written = Commit(ROOM, CONVERSATION, changes=list(many))
    heads = (await house.lines("actors"))["actors"][0]
    written.entry_head, written.event_head = heads["entry_head"], heads["event_head"]
    await house.shards.of(ROOM).commit([written])
    before = await house.lines("moves")
    await house.expire()
    house.clock.now += HOUR
    assert await house.sweeper.sweep() == 1
    await house.conversations.open(ROOM)
    assert await house.lines("moves") == before and len(before["moves"]) == 651


async def test_deleting_what_lies_in_the_archive_leaves_neither_rows_nor_object(house: House) -> None:
    await away(house)
    await house.rooms.delete(ROOM, version=0, request_id="bye")
    assert not house.blobs.held
    left = await house.lines()
    assert list(left) == ["requests_answered"]
    await house.rooms.delete(ROOM, version=0, request_id="bye")
    with pytest.raises(WonderError) as problem:
        await house.conversations.open(ROOM)
    assert problem.value.fault.reason is Reason.CONVERSATION_NOT_FOUND


@pytest.mark.parametrize("loss", ["gone", "damaged"])
async def test_what_is_lost_can_be_deleted(house: House, loss: str) -> None:
    key = await away(house)
    if loss == "gone":
        del house.blobs.held[key]
    elif loss == "damaged":
        house.blobs.held[key] = house.blobs.held[key][:-1] + b"x"
    await house.rooms.delete(ROOM, version=0, request_id="")
    assert await house.lines() == {} and not house.blobs.held


async def test_a_store_that_cannot_be_reached_is_no_loss(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await away(house)

    async def down(_: str) -> bytes | None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Down.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "get", down)
        with pytest.raises(WonderError):
            await house.rooms.delete(ROOM, version=0, request_id="")
    assert key in house.blobs.held
    assert (await house.conversations.open(ROOM)).turn_count == 1


@pytest.mark.parametrize("then", ["sweep", "start", "delete", "put away"])
async def test_an_object_that_is_spent_is_removed_whatever_comes_next(
    house: House, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """A crash after the conversation is back, and before its object is gone."""
    await away(house)

    async def crash(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "delete", crash)
        with pytest.raises(WonderError):
            await house.conversations.open(ROOM)
    house.restart()
    room = await house.conversations.open(ROOM)
    assert (room.archive, room.spent) == ("", next(iter(house.blobs.held)))
    if then == "sweep":
        assert await house.sweeper.sweep() == 0
    elif then == "start":
        await house.sweeper.finish()
    elif then == "delete":
        await house.rooms.delete(ROOM, version=0, request_id="")
        assert not house.blobs.held and await house.lines() == {}
        return
    else:
        house.clock.now += 2 * HOUR
        assert await house.sweeper.sweep() == 1
        assert len(house.blobs.held) == 1
        room = await house.conversations.open(ROOM)
    assert not house.blobs.held
    assert (await house.conversations.get(ROOM)).spent == ""
    entries = await house.shards.of(ROOM).entries(ROOM, CONVERSATION, 0, 1000)
    assert replay(CONVERSATION, entries).difference is None


@pytest.mark.parametrize("then", ["delete", "speak"])
async def test_an_object_of_a_conversation_that_stayed_is_removed(
    house: House, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It is deleted, or somebody speaks in it, while it is written; and the object cannot be removed."""
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def slow_put(content: bytes) -> str:
        if then == "delete":
            await house.loop.ask(ROOM, Vacate())
        else:
            await house.rooms.join(ROOM, Participant(type="user", id="zoe"), "")
        return await put(content)

    async def crash(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "put", slow_put)
        patched.setattr(house.blobs, "delete", crash)
        assert await house.sweeper.sweep() == 0
    assert len(house.blobs.held) == 1
    house.restart()
    await house.sweeper.sweep()
    assert not house.blobs.held
    assert ("conversations" in await house.lines()) == (then == "speak")


async def test_what_was_half_put_away_is_put_away_at_the_next_start(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the object is written: before anybody can speak in it, it is the same object again."""
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def crash(content: bytes) -> str:
        await put(content)
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "put", crash)
        assert await house.sweeper.sweep() == 0
    (key,) = house.blobs.held
    house.restart()
    await house.sweeper.finish()
    assert list(house.blobs.held) == [key]
    assert (await house.conversations.get(ROOM)).archive == key


async def test_a_deletion_that_a_crash_broke_off_is_finished_by_the_next_sweep(house: House) -> None:
    await house.turn("turn 1")
    await house.loop.ask(ROOM, Vacate())
    house.restart()
    with pytest.raises(WonderError):
        await house.conversations.open(ROOM)
    assert await house.sweeper.sweep() == 1
    assert await house.lines() == {}


def test_lines_of_the_archive_name_every_table_of_a_shard(tmp_path: Path) -> None:
    """A table that a later migration makes must be thought of here too."""
    connection: sqlite3.Connection = connect(tmp_path / "00.db", MIGRATIONS)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    # What agents have spent outlives their conversations, and charges are not kept.
    apart = {"identity", "migrations", "accounts", "unsealed"}
    apart |= {name for name in tables if name.startswith("sqlite_")}
    assert tables - apart == set(_KEYS)
