"""The archive: expired conversations are archived and restored without loss (B11)."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from pathlib import Path

import pytest

from tests.actors.archive.archive_stage import HOUR, ArchiveStage, archived, interrupted
from tests.actors.kit import CONVERSATION_ID, origin
from tests.core.conversation.conversation_kit import send
from wonder_server.actors.conversation.conversations import SendRequest
from wonder_server.actors.runs.replay import replay
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.archives import _KEYS
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.core.actor.changes import Put
from wonder_server.core.conversation.model.inputs import ModelUsageReported
from wonder_server.core.conversation.model.lifecycle_inputs import BeginDeletion
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Participant
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.ids import shard_of
from wonder_server.core.model import Usage
from wonder_server.ports.journal import Commit
from wonder_server.ports.records import EventQuery, Query

pytestmark = pytest.mark.disk


async def test_an_expired_conversation_is_archived_and_restored_row_for_row(stage: ArchiveStage) -> None:
    for number in range(3):
        await stage.turn(f"turn {number}")
    await stage.expire()
    before, events = await stage.lines(), await stage.conversations.events(EventQuery(actor=CONVERSATION_ID))
    assert await stage.sweeper.sweep() == 0
    stage.clock.now += HOUR
    assert await stage.sweeper.sweep() == 1
    left = await stage.lines()
    assert set(left) == {"conversations", "actors", "entries"} and len(left["entries"]) == 1
    assert len(stage.blobs.contents) == 1
    stub = await stage.conversations.lookup.get(CONVERSATION_ID)
    assert stub.archived_ms == stage.clock.now and stub.archive_key in stage.blobs.contents
    assert await stage.sweeper.sweep() == 0

    back = await stage.conversations.open(CONVERSATION_ID)
    assert (back.archive_key, back.archived_ms, back.turn_count) == ("", 0, 3)
    assert not stage.blobs.contents
    after = await stage.lines()
    for table in ("turns", "messages", "moves", "parts", "requests_answered"):
        assert after.get(table) == before.get(table), table
    assert after["entries"][: len(before["entries"])] == before["entries"]
    again = await stage.conversations.events(EventQuery(actor=CONVERSATION_ID, limit=100))
    assert [e.sequence for e in again] == list(range(1, len(events) + 3))
    assert [e.emit.name for e in again[len(events) :]] == ["conversation.updated"] * 2
    assert again[: len(events)] == events


async def test_a_replay_knows_the_history_of_a_restored_conversation(stage: ArchiveStage) -> None:
    """The context of the next turn depends on it: a summary is due or not."""
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    await stage.sweeper.sweep()
    await stage.conversations.open(CONVERSATION_ID)
    await stage.turn("turn 2")
    journal = stage.shards.of(CONVERSATION_ID)
    replayed = CONVERSATION.new_state()
    for entry in await journal.entries(CONVERSATION_ID, 0, 100):
        for decision in entry.decisions:
            CONVERSATION.apply(replayed, decision)
    loaded = await journal.load(CONVERSATION_ID)
    assert loaded is not None
    restored: ConversationState = CONVERSATION.restore(loaded.rows)
    assert len(replayed.turns) == 2
    assert replayed.turns == restored.turns and replayed.messages == restored.messages
    assert replayed.message_count == restored.message_count


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_message_restores_the_conversation_and_agents_see_its_history(
    stage: ArchiveStage, restarts: bool
) -> None:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    await stage.sweeper.sweep()
    if restarts:
        stage.restart()
    said = await stage.conversations.send(
        CONVERSATION_ID, SendRequest(content="Back?", origin=origin(), metadata={})
    )
    assert said.turn is not None and said.turn.ordinal == 2
    state = stage.loop.peek(CONVERSATION_ID)
    assert isinstance(state, ConversationState) and state.conversation is not None
    assert [m.content for m in next(iter(state.messages.values()))] == ["turn 1", "To turn 1."]
    # The turn has postponed the expiry.
    assert state.conversation.expire_ms == stage.clock.now + HOUR
    entries = await stage.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert replay(CONVERSATION, entries).difference is None


async def test_a_conversation_is_archived_and_restored_repeatedly(stage: ArchiveStage) -> None:
    await stage.expire()
    for number in range(3):
        await stage.turn(f"turn {number}")
        stage.clock.now += HOUR
        assert await stage.sweeper.sweep() == 1
        await stage.archiver.ensure_restored(CONVERSATION_ID)
    assert len(await stage.shards.find(Query(table="turns", actor=CONVERSATION_ID))) == 3
    entries = await stage.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert replay(CONVERSATION, entries).difference is None


async def test_a_conversation_with_work_in_progress_is_not_archived(stage: ArchiveStage) -> None:
    await stage.expire(1)
    await stage.loop.ask(CONVERSATION_ID, send("slow", extraction=False))
    stage.clock.now += 2 * HOUR
    assert await stage.sweeper.sweep() == 0
    assert (
        await stage.conversations.lookup.get(CONVERSATION_ID)
    ).archived_ms == 0 and not stage.blobs.contents


async def test_joining_during_archiving_keeps_the_conversation_active(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    put = stage.blobs.put

    async def slow_put(content: bytes) -> str:
        await stage.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), origin())
        return await put(content)

    monkeypatch.setattr(stage.blobs, "put", slow_put)
    assert await stage.sweeper.sweep() == 0
    conversation = await stage.conversations.lookup.get(CONVERSATION_ID)
    assert (conversation.archived_ms, conversation.archive_key, conversation.participants[-1].id) == (
        0,
        "",
        "zoe",
    )
    assert not stage.blobs.contents and len((await stage.lines("turns"))["turns"]) == 1


async def test_each_turn_postpones_the_expiry(stage: ArchiveStage) -> None:
    await stage.expire()
    stage.clock.now += HOUR - 1
    await stage.turn("turn 1")
    stage.clock.now += HOUR - 1
    assert await stage.sweeper.sweep() == 0
    stage.clock.now += 1
    assert await stage.sweeper.sweep() == 1


async def test_sending_during_archiving_keeps_the_conversation_active(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    put = stage.blobs.put

    async def slow_put(content: bytes) -> str:
        await stage.conversations.send(
            CONVERSATION_ID, SendRequest(content="Wait!", origin=origin(), metadata={})
        )
        return await put(content)

    monkeypatch.setattr(stage.blobs, "put", slow_put)
    assert await stage.sweeper.sweep() == 0
    assert not stage.blobs.contents
    found = await stage.shards.find(
        Query(table="messages", actor=CONVERSATION_ID, newest_first=False, limit=9)
    )
    assert [message.content for message in found] == ["turn 1", "To turn 1.", "Wait!"]
    conversation = await stage.conversations.lookup.get(CONVERSATION_ID)
    assert (conversation.archived_ms, conversation.archive_key) == (0, "")


async def test_a_journal_entry_between_export_and_end_keeps_the_conversation_active(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usage of a cancelled model call changes no row that archiving checks, and the object lacks it."""
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    put, turn_id = (
        stage.blobs.put,
        (await stage.shards.find(Query(table="turns", actor=CONVERSATION_ID)))[0].id,
    )
    late = ModelUsageReported(turn_id=turn_id, run_id="", usage=Usage(input_tokens=3))

    async def slow_put(content: bytes) -> str:
        await stage.loop.ask(CONVERSATION_ID, late)
        return await put(content)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "put", slow_put)
        assert await stage.sweeper.sweep() == 0
    conversation = await stage.conversations.lookup.get(CONVERSATION_ID)
    assert (conversation.archive_key, conversation.stale_archive) == ("", "")
    assert not stage.blobs.contents
    assert await stage.sweeper.sweep() == 1
    await stage.archiver.ensure_restored(CONVERSATION_ID)
    entries = await stage.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, 0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.input for entry in entries].count(late) == 1
    assert replay(CONVERSATION, entries).difference is None


async def test_concurrent_reads_restore_the_conversation_once(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    await stage.sweeper.sweep()
    get, delete, calls, gone = stage.blobs.get, stage.blobs.delete, itertools.count(), asyncio.Event()

    async def late_get(key: str) -> bytes | None:
        if next(calls):
            # A second restore would find no object.
            await gone.wait()
        return await get(key)

    async def recorded_delete(key: str) -> None:
        await delete(key)
        gone.set()

    monkeypatch.setattr(stage.blobs, "get", late_get)
    monkeypatch.setattr(stage.blobs, "delete", recorded_delete)
    opened = await asyncio.gather(*(stage.conversations.open(CONVERSATION_ID) for _ in range(10)))
    assert {conversation.archive_key for conversation in opened} == {""}
    names = [
        e.emit.name for e in await stage.conversations.events(EventQuery(actor=CONVERSATION_ID, limit=100))
    ]
    # Expiry set, archived, restored.
    assert names.count("conversation.updated") == 3


# --- dependents -------------------------------------------------------------------------------------


async def test_the_record_may_be_larger_than_a_page(stage: ArchiveStage) -> None:
    await stage.turn("turn 1")
    many = [
        Put("moves", f"move_{n:04}", message, parent="turn_x", ordinal=n)
        for n, message in enumerate(
            await stage.shards.find(Query(table="moves", actor=CONVERSATION_ID)) * 650
        )
    ]
    written = Commit(CONVERSATION_ID, changes=list(many))
    heads = (await stage.lines("actors"))["actors"][0]
    written.entry_head, written.event_head = heads["entry_head"], heads["event_head"]
    await stage.shards.of(CONVERSATION_ID).commit([written])
    before = await stage.lines("moves")
    await stage.expire()
    stage.clock.now += HOUR
    assert await stage.sweeper.sweep() == 1
    await stage.conversations.open(CONVERSATION_ID)
    assert await stage.lines("moves") == before and len(before["moves"]) == 651


async def test_the_archived_answer_of_a_request_replaces_a_later_one(stage: ArchiveStage) -> None:
    """Earlier versions forgot the ids of creations with archiving, and stored a second answer."""
    (heads,) = (await stage.lines("actors"))["actors"]
    journal, key = stage.shards.of(CONVERSATION_ID), IdempotencyKey("", "r", "print", "conversations")
    first = Commit(CONVERSATION_ID, requests=[(key, {"conversation_id": "first"})])
    first.entry_head, first.event_head = heads["entry_head"], heads["event_head"]
    await journal.commit([first])
    (line,) = (await stage.lines("requests_answered"))["requests_answered"]
    await archived(stage)
    await journal.database.write(lambda connection: connection.execute("DELETE FROM requests_answered"))
    later = Commit(CONVERSATION_ID[:-1] + "Z", requests=[(key, {"conversation_id": "second"})])
    await stage.shards.files[0].commit([later])
    await stage.conversations.open(CONVERSATION_ID)
    assert (await stage.lines("requests_answered"))["requests_answered"] == [line]
    found = await journal.completed_request("conversations", "r")
    assert found is not None and found.answer == {"conversation_id": "first"}


async def test_deleting_an_archived_conversation_leaves_neither_rows_nor_object(stage: ArchiveStage) -> None:
    await archived(stage)
    await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin("bye"))
    assert not stage.blobs.contents
    left = await stage.lines()
    assert list(left) == ["requests_answered"]
    await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin("bye"))
    with pytest.raises(WonderError) as problem:
        await stage.conversations.open(CONVERSATION_ID)
    assert problem.value.fault.reason is Reason.CONVERSATION_NOT_FOUND


@pytest.mark.parametrize("loss", ["gone", "damaged"])
async def test_a_conversation_whose_object_is_lost_can_be_deleted(stage: ArchiveStage, loss: str) -> None:
    key = await archived(stage)
    if loss == "gone":
        del stage.blobs.contents[key]
    elif loss == "damaged":
        stage.blobs.contents[key] = stage.blobs.contents[key][:-1] + b"x"
    await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin())
    assert await stage.lines() == {} and not stage.blobs.contents


async def test_an_unreachable_object_store_is_a_transient_error(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await archived(stage)

    async def down(_: str) -> bytes | None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Down.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "get", down)
        with pytest.raises(WonderError):
            await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin())
    assert key in stage.blobs.contents
    assert (await stage.conversations.open(CONVERSATION_ID)).turn_count == 1


@pytest.mark.parametrize("then", ["sweep", "start", "delete", "put away"])
async def test_a_stale_object_is_removed_after_a_crash(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Crash after the conversation is restored and before its object is deleted."""
    await archived(stage)

    async def crash(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "delete", crash)
        with pytest.raises(WonderError):
            await stage.conversations.open(CONVERSATION_ID)
    stage.restart()
    conversation = await stage.conversations.open(CONVERSATION_ID)
    assert (conversation.archive_key, conversation.stale_archive) == ("", next(iter(stage.blobs.contents)))
    if then == "sweep":
        assert await stage.sweeper.sweep() == 0
    elif then == "start":
        await stage.sweeper.recover()
    elif then == "delete":
        await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin())
        assert not stage.blobs.contents and await stage.lines() == {}
        return
    else:
        stage.clock.now += 2 * HOUR
        assert await stage.sweeper.sweep() == 1
        assert len(stage.blobs.contents) == 1
        conversation = await stage.conversations.open(CONVERSATION_ID)
    assert not stage.blobs.contents
    assert (await stage.conversations.lookup.get(CONVERSATION_ID)).stale_archive == ""
    entries = await stage.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, 0, 1000)
    assert replay(CONVERSATION, entries).difference is None


@pytest.mark.parametrize("then", ["delete", "speak"])
async def test_the_object_of_a_conversation_that_stays_active_is_removed(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Delete the conversation, or send a message, during archiving; the object cannot be deleted."""
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    put = stage.blobs.put

    async def slow_put(content: bytes) -> str:
        if then == "delete":
            await stage.loop.ask(CONVERSATION_ID, BeginDeletion())
        else:
            await stage.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), origin())
        return await put(content)

    async def crash(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "put", slow_put)
        patched.setattr(stage.blobs, "delete", crash)
        assert await stage.sweeper.sweep() == 0
    assert len(stage.blobs.contents) == 1
    stage.restart()
    await stage.sweeper.sweep()
    assert not stage.blobs.contents
    assert ("conversations" in await stage.lines()) == (then == "speak")


async def test_an_interrupted_archiving_is_completed_at_the_next_start(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash after the object is written. The next start writes the same object again."""
    key = await interrupted(stage, monkeypatch)
    await stage.sweeper.recover()
    assert list(stage.blobs.contents) == [key]
    assert (await stage.conversations.lookup.get(CONVERSATION_ID)).archive_key == key


async def test_an_interrupted_deletion_is_completed_by_the_next_sweep(stage: ArchiveStage) -> None:
    await stage.turn("turn 1")
    await stage.loop.ask(CONVERSATION_ID, BeginDeletion())
    stage.restart()
    with pytest.raises(WonderError):
        await stage.conversations.open(CONVERSATION_ID)
    assert await stage.sweeper.sweep() == 1
    assert await stage.lines() == {}


def test_lines_of_the_archive_name_every_table_of_a_shard(tmp_path: Path) -> None:
    """Fail when a migration adds a table that the archive does not name."""
    connection: sqlite3.Connection = connect(tmp_path / "00.db", MIGRATIONS)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    # Usage accounts outlive conversations, and charges are not stored.
    apart = {"identity", "migrations", "accounts", "unsealed", "epochs", "archive_objects"}
    apart |= {name for name in tables if name.startswith("sqlite_")}
    assert tables - apart == set(_KEYS)


async def test_a_sweep_skips_conversations_of_other_owners(stage: ArchiveStage) -> None:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    stage.loop.lose(shard_of(CONVERSATION_ID))
    assert await stage.sweeper.sweep() == 0 and not stage.blobs.contents


async def test_a_node_that_lost_the_shard_restores_nothing(stage: ArchiveStage) -> None:
    key = await archived(stage)
    before = await stage.lines()
    await stage.shards.raise_epochs([shard_of(CONVERSATION_ID)])
    for _ in range(2):
        with pytest.raises(WonderError) as refused:
            await stage.archiver.ensure_restored(CONVERSATION_ID)
        assert refused.value.fault.reason is Reason.OWNER_MOVED
    assert await stage.lines() == before and key in stage.blobs.contents
