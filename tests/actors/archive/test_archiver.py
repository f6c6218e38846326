"""The archive: expired conversations are archived and restored without loss (B11)."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from pathlib import Path

import pytest

from tests.actors.archive.archive_stage import HOUR, ArchiveStage, archived
from tests.actors.kit import CONVERSATION_ID
from tests.core.conversation.conversation_kit import send
from wonder_server.actors.conversation.conversations import SendRequest
from wonder_server.actors.runs.replay import replay
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.archives import _KEYS
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.core.actor.changes import Put
from wonder_server.core.conversation.model.lifecycle_inputs import BeginDeletion
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Participant
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.journal import Commit
from wonder_server.ports.records import EventQuery, Query

pytestmark = pytest.mark.disk


async def test_an_expired_conversation_is_archived_and_restored_row_for_row(house: ArchiveStage) -> None:
    for number in range(3):
        await house.turn(f"turn {number}")
    await house.expire()
    before, events = await house.lines(), await house.conversations.events(EventQuery(actor=CONVERSATION_ID))
    assert await house.sweeper.sweep() == 0
    house.clock.now += HOUR
    assert await house.sweeper.sweep() == 1
    left = await house.lines()
    assert set(left) == {"conversations", "actors", "entries"} and len(left["entries"]) == 1
    assert len(house.blobs.contents) == 1
    stub = await house.conversations.lookup.get(CONVERSATION_ID)
    assert stub.archived_ms == house.clock.now and stub.archive_key in house.blobs.contents
    assert await house.sweeper.sweep() == 0

    back = await house.conversations.open(CONVERSATION_ID)
    assert (back.archive_key, back.archived_ms, back.turn_count) == ("", 0, 3)
    assert not house.blobs.contents
    after = await house.lines()
    for table in ("turns", "messages", "moves", "parts", "requests_answered"):
        assert after.get(table) == before.get(table), table
    assert after["entries"][: len(before["entries"])] == before["entries"]
    again = await house.conversations.events(EventQuery(actor=CONVERSATION_ID, limit=100))
    assert [e.sequence for e in again] == list(range(1, len(events) + 3))
    assert [e.emit.name for e in again[len(events) :]] == ["conversation.updated"] * 2
    assert again[: len(events)] == events


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_message_restores_the_conversation_and_agents_see_its_history(
    house: ArchiveStage, restarts: bool
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    await house.sweeper.sweep()
    if restarts:
        house.restart()
    said = await house.conversations.send(CONVERSATION_ID, SendRequest(content="Back?", metadata={}))
    assert said.turn is not None and said.turn.ordinal == 2
    state = house.loop.peek(CONVERSATION_ID)
    assert isinstance(state, ConversationState) and state.conversation is not None
    assert [m.content for m in next(iter(state.messages.values()))] == ["turn 1", "To turn 1."]
    # The turn has moved its expiry on.
    assert state.conversation.expire_ms == house.clock.now + HOUR
    entries = await house.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, CONVERSATION, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert replay(CONVERSATION, entries).difference is None


async def test_a_conversation_is_archived_and_restored_repeatedly(house: ArchiveStage) -> None:
    await house.expire()
    for number in range(3):
        await house.turn(f"turn {number}")
        house.clock.now += HOUR
        assert await house.sweeper.sweep() == 1
        await house.archiver.ensure_restored(CONVERSATION_ID)
    assert len(await house.shards.find(Query(table="turns", actor=CONVERSATION_ID))) == 3
    entries = await house.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, CONVERSATION, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert replay(CONVERSATION, entries).difference is None


async def test_a_conversation_with_work_in_progress_is_not_archived(house: ArchiveStage) -> None:
    await house.expire(1)
    await house.loop.ask(CONVERSATION_ID, send("slow", extraction=False))
    house.clock.now += 2 * HOUR
    assert await house.sweeper.sweep() == 0
    assert (
        await house.conversations.lookup.get(CONVERSATION_ID)
    ).archived_ms == 0 and not house.blobs.contents


async def test_joining_during_archiving_keeps_the_conversation_active(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def slow_put(content: bytes) -> str:
        await house.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), "")
        return await put(content)

    monkeypatch.setattr(house.blobs, "put", slow_put)
    assert await house.sweeper.sweep() == 0
    room = await house.conversations.lookup.get(CONVERSATION_ID)
    assert (room.archived_ms, room.archive_key, room.participants[-1].id) == (0, "", "zoe")
    assert not house.blobs.contents and len((await house.lines("turns"))["turns"]) == 1


async def test_each_turn_moves_the_expiry_on(house: ArchiveStage) -> None:
    await house.expire()
    house.clock.now += HOUR - 1
    await house.turn("turn 1")
    house.clock.now += HOUR - 1
    assert await house.sweeper.sweep() == 0
    house.clock.now += 1
    assert await house.sweeper.sweep() == 1


async def test_sending_during_archiving_keeps_the_conversation_active(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def slow_put(content: bytes) -> str:
        await house.conversations.send(CONVERSATION_ID, SendRequest(content="Wait!", metadata={}))
        return await put(content)

    monkeypatch.setattr(house.blobs, "put", slow_put)
    assert await house.sweeper.sweep() == 0
    assert not house.blobs.contents
    found = await house.shards.find(
        Query(table="messages", actor=CONVERSATION_ID, newest_first=False, limit=9)
    )
    assert [message.content for message in found] == ["turn 1", "To turn 1.", "Wait!"]
    room = await house.conversations.lookup.get(CONVERSATION_ID)
    assert (room.archived_ms, room.archive_key) == (0, "")


async def test_concurrent_reads_restore_the_conversation_once(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch
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
    opened = await asyncio.gather(*(house.conversations.open(CONVERSATION_ID) for _ in range(10)))
    assert {room.archive_key for room in opened} == {""}
    names = [
        e.emit.name for e in await house.conversations.events(EventQuery(actor=CONVERSATION_ID, limit=100))
    ]
    # Given a time, put away, brought back.
    assert names.count("conversation.updated") == 3


# --- what is of it goes with it ---------------------------------------------------------------------


async def test_the_record_may_be_larger_than_a_page(house: ArchiveStage) -> None:
    await house.turn("turn 1")
    many = [
        Put("moves", f"move_{n:04}", message, parent="turn_x", ordinal=n)
        for n, message in enumerate(
            await house.shards.find(Query(table="moves", actor=CONVERSATION_ID)) * 650
        )
    ]
    written = Commit(CONVERSATION_ID, CONVERSATION, changes=list(many))
    heads = (await house.lines("actors"))["actors"][0]
    written.entry_head, written.event_head = heads["entry_head"], heads["event_head"]
    await house.shards.of(CONVERSATION_ID).commit([written])
    before = await house.lines("moves")
    await house.expire()
    house.clock.now += HOUR
    assert await house.sweeper.sweep() == 1
    await house.conversations.open(CONVERSATION_ID)
    assert await house.lines("moves") == before and len(before["moves"]) == 651


async def test_deleting_an_archived_conversation_leaves_neither_rows_nor_object(house: ArchiveStage) -> None:
    await archived(house)
    await house.lifecycle.delete(CONVERSATION_ID, version=0, request_id="bye")
    assert not house.blobs.contents
    left = await house.lines()
    assert list(left) == ["requests_answered"]
    await house.lifecycle.delete(CONVERSATION_ID, version=0, request_id="bye")
    with pytest.raises(WonderError) as problem:
        await house.conversations.open(CONVERSATION_ID)
    assert problem.value.fault.reason is Reason.CONVERSATION_NOT_FOUND


@pytest.mark.parametrize("loss", ["gone", "damaged"])
async def test_a_conversation_whose_object_is_lost_can_be_deleted(house: ArchiveStage, loss: str) -> None:
    key = await archived(house)
    if loss == "gone":
        del house.blobs.contents[key]
    elif loss == "damaged":
        house.blobs.contents[key] = house.blobs.contents[key][:-1] + b"x"
    await house.lifecycle.delete(CONVERSATION_ID, version=0, request_id="")
    assert await house.lines() == {} and not house.blobs.contents


async def test_an_unreachable_object_store_is_a_transient_error(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await archived(house)

    async def down(_: str) -> bytes | None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Down.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "get", down)
        with pytest.raises(WonderError):
            await house.lifecycle.delete(CONVERSATION_ID, version=0, request_id="")
    assert key in house.blobs.contents
    assert (await house.conversations.open(CONVERSATION_ID)).turn_count == 1


@pytest.mark.parametrize("then", ["sweep", "start", "delete", "put away"])
async def test_a_stale_object_is_removed_after_a_crash(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """A crash after the conversation is back, and before its object is gone."""
    await archived(house)

    async def crash(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "delete", crash)
        with pytest.raises(WonderError):
            await house.conversations.open(CONVERSATION_ID)
    house.restart()
    room = await house.conversations.open(CONVERSATION_ID)
    assert (room.archive_key, room.stale_archive) == ("", next(iter(house.blobs.contents)))
    if then == "sweep":
        assert await house.sweeper.sweep() == 0
    elif then == "start":
        await house.sweeper.recover()
    elif then == "delete":
        await house.lifecycle.delete(CONVERSATION_ID, version=0, request_id="")
        assert not house.blobs.contents and await house.lines() == {}
        return
    else:
        house.clock.now += 2 * HOUR
        assert await house.sweeper.sweep() == 1
        assert len(house.blobs.contents) == 1
        room = await house.conversations.open(CONVERSATION_ID)
    assert not house.blobs.contents
    assert (await house.conversations.lookup.get(CONVERSATION_ID)).stale_archive == ""
    entries = await house.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, CONVERSATION, 0, 1000)
    assert replay(CONVERSATION, entries).difference is None


@pytest.mark.parametrize("then", ["delete", "speak"])
async def test_an_object_of_a_conversation_that_stayed_is_removed(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It is deleted, or somebody speaks in it, while it is written; and the object cannot be removed."""
    await house.turn("turn 1")
    await house.expire()
    house.clock.now += HOUR
    put = house.blobs.put

    async def slow_put(content: bytes) -> str:
        if then == "delete":
            await house.loop.ask(CONVERSATION_ID, BeginDeletion())
        else:
            await house.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), "")
        return await put(content)

    async def crash(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(house.blobs, "put", slow_put)
        patched.setattr(house.blobs, "delete", crash)
        assert await house.sweeper.sweep() == 0
    assert len(house.blobs.contents) == 1
    house.restart()
    await house.sweeper.sweep()
    assert not house.blobs.contents
    assert ("conversations" in await house.lines()) == (then == "speak")


async def test_an_interrupted_archiving_is_completed_at_the_next_start(
    house: ArchiveStage, monkeypatch: pytest.MonkeyPatch
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
    (key,) = house.blobs.contents
    house.restart()
    await house.sweeper.recover()
    assert list(house.blobs.contents) == [key]
    assert (await house.conversations.lookup.get(CONVERSATION_ID)).archive_key == key


async def test_an_interrupted_deletion_is_completed_by_the_next_sweep(house: ArchiveStage) -> None:
    await house.turn("turn 1")
    await house.loop.ask(CONVERSATION_ID, BeginDeletion())
    house.restart()
    with pytest.raises(WonderError):
        await house.conversations.open(CONVERSATION_ID)
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
