"""Rows, events and journals refer to the messages of their conversation, and readers see no difference."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.ports.journal_subjects import CONVERSATION_ID, ROW_TYPES, Shards, commit, opened
from tests.replacing import replace
from tests.sqlite_journals import SqliteJournal
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.codec.packing import unpack
from wonder_server.core.actor.changes import Emit, Erase, Put
from wonder_server.core.conversation.model.inputs import Succeeded
from wonder_server.core.conversation.model.values import Caller, Conversation, Message, Role, Turn
from wonder_server.core.conversation.output.lifecycle_record import put_conversation
from wonder_server.core.conversation.output.record import put_message, put_turn
from wonder_server.core.coordinator.model.inputs import NodeSucceeded
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Commit, Entry, Event
from wonder_server.ports.records import Query

pytestmark = pytest.mark.disk

SAID = "the keeper of lighthouse 4711 counts the gulls"
OTHER = "the pilot of airship 8086 draws the clouds"
RUN_ID = f"run_{CONVERSATION_ID[5:]}"


def message(ordinal: int, content: str) -> Put:
    return put_message(
        Message(
            id=f"msg_{ordinal}",
            conversation_id=CONVERSATION_ID,
            turn_id="turn_1",
            ordinal=ordinal,
            role=Role.USER,
            author="ann",
            content=content,
        )
    )


def turn(content: str, ordinal: int = 1) -> Put:
    return put_turn(
        Turn(
            id=f"turn_{ordinal}",
            conversation_id=CONVERSATION_ID,
            ordinal=ordinal,
            caller=Caller(user_id="ann"),
            agent_id="agt_1",
            agent_name="helper",
            persona="shop/helper@1",
            input=content,
            metadata={"$m": 1, "said": {"$m": 1}} if content == OTHER else {},
        )
    )


def entry(sequence: int, content: str) -> Entry:
    output = {"request": {"messages": [{"role": "user", "content": content}] * 30}, "$m": {"$m": 1}}
    return Entry(sequence, sequence, Succeeded(operation_id="op_1", output=output), ())


def created(*changes: Put, **fields: Any) -> Commit:
    conversation = put_conversation(Conversation(id=CONVERSATION_ID, project_id="proj_1", **fields))
    return commit(CONVERSATION_ID, conversation, *changes, entries=(entry(1, "hello"),), event_head=1)


def of_run(content: str) -> Commit:
    said = entry(1, content).input
    done = NodeSucceeded(operation_id=said.operation_id, output=said.output)
    return commit(RUN_ID, entries=(Entry(1, 1, done, ()),), entry_head=1, event_head=1, root=CONVERSATION_ID)


def shard_of(store: Shards) -> SqliteJournal:
    shard = store.of(CONVERSATION_ID)
    assert isinstance(shard, SqliteJournal)
    return shard


async def tables_with(store: Shards, text: str) -> list[str]:
    """Return the table of each stored value that contains a text."""

    def read(connection: sqlite3.Connection) -> list[str]:
        tables = {"messages": "data", "turns": "data", "events": "data", "entries": "input", "parts": "data"}
        return [
            table
            for table, column in tables.items()
            for (data,) in connection.execute(f"SELECT {column} FROM {table}")
            if text.encode() in (unpack(data) if isinstance(data, bytes) else data.encode())
        ]

    return await shard_of(store).database.read(read)


async def turns_of(store: Shards) -> list[Turn]:
    query = Query(table="turns", actor=CONVERSATION_ID, by_ordinal=True)
    found = await shard_of(store).query(query, ROW_TYPES["turns"])
    return sorted((value for _, value in found), key=lambda each: each.ordinal)


async def test_rows_events_and_runs_refer_to_messages_of_the_same_write(tmp_path: Path) -> None:
    made = created(message(1, SAID), turn(SAID))
    made.events = [Event(1, 1, CONVERSATION_ID, Emit("message.appended", message(1, SAID).value, "turn_1"))]
    # The run comes first; the write still knows the message.
    async with opened("sqlite", tmp_path) as store:
        await shard_of(store).commit([of_run(SAID), made])
        assert await tables_with(store, SAID) == ["messages"]
        assert [each.input for each in await turns_of(store)] == [SAID]
        assert await shard_of(store).events(CONVERSATION_ID, 0, 9) == made.events
        assert await shard_of(store).entries(RUN_ID, 0, 9) == of_run(SAID).entries
        loaded = await shard_of(store).load(CONVERSATION_ID)
        assert loaded is not None and loaded.rows["turns"] == [turn(SAID).value]


async def test_the_journal_that_appends_a_message_repeats_it(tmp_path: Path) -> None:
    made = created(message(1, SAID), turn(SAID))
    made.entries = [Entry(1, 1, Succeeded(operation_id="op_1", output=SAID), ())]
    async with opened("sqlite", tmp_path) as store:
        await shard_of(store).commit([made])
        assert await tables_with(store, SAID) == ["messages", "entries"]


async def test_a_store_that_was_just_opened_refers_to_older_messages(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        await shard_of(store).commit([created(message(1, SAID))])
    later = commit(CONVERSATION_ID, turn(SAID), message(2, OTHER), entries=(entry(2, SAID),), entry_head=2)
    async with opened("sqlite", tmp_path) as store:
        await shard_of(store).commit([later])
        await shard_of(store).commit([commit(CONVERSATION_ID, turn(OTHER, 2), entry_head=2)])
        assert await tables_with(store, SAID) == ["messages"]
        assert [each.input for each in await turns_of(store)] == [SAID, OTHER]
        assert await shard_of(store).entries(CONVERSATION_ID, 1, 9) == later.entries


async def test_user_data_that_looks_like_a_reference_is_kept(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        await shard_of(store).commit([created(message(1, SAID), message(2, OTHER), turn(OTHER))])
        assert await turns_of(store) == [turn(OTHER).value]


async def test_a_structured_answer_that_looks_like_a_reference_to_a_part_is_no_damage(tmp_path: Path) -> None:
    answer = replace(turn(SAID).value, output={"$": "beer", "all": [{"$": "wine"}]})
    ended = Emit("turn.completed", answer, "turn_1")
    made = created(message(1, SAID), put_turn(answer))
    made.events = [Event(1, 1, CONVERSATION_ID, ended)]
    async with opened("sqlite", tmp_path, count=1) as store:
        await shard_of(store).commit([made])
        assert await turns_of(store) == [answer]
        assert await tables_with(store, '"beer"') == ["turns", "events"]
        assert await tables_with(store, SAID) == ["messages"]
    (path,) = (tmp_path / "shards").glob("*.db")
    assert [str(each) for each in check_shard(path).problems] == []


async def test_a_failed_write_leaves_no_reference_to_its_messages(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        other = commit(
            "conv_other0",
            put_conversation(Conversation(id="conv_other0", project_id="proj_1", external_ref="ref")),
        )
        await shard_of(store).commit([other])
        with pytest.raises(WonderError):
            await shard_of(store).commit([created(message(1, SAID), external_ref="ref")])
        await shard_of(store).commit([created(turn(SAID))])
        assert await tables_with(store, SAID) == ["turns"]
        assert [each.input for each in await turns_of(store)] == [SAID]


async def test_no_value_refers_to_messages_of_an_erased_record(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        await shard_of(store).commit([created(message(1, SAID))])
        erased = commit(CONVERSATION_ID, Erase(), turn(SAID), entries=(entry(2, SAID),), entry_head=2)
        await shard_of(store).commit([erased])
        assert [each.input for each in await turns_of(store)] == [SAID]
        assert await shard_of(store).entries(CONVERSATION_ID, 1, 9) == erased.entries


async def test_a_lost_message_is_found_by_readers_and_by_the_check(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path, count=1) as store:
        await shard_of(store).commit([created(message(1, SAID), turn(SAID)), of_run(SAID)])
        await shard_of(store).database.write(
            lambda connection: connection.execute("DELETE FROM messages").rowcount
        )
        with pytest.raises(WonderError) as raised:
            await turns_of(store)
        assert raised.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    (path,) = (tmp_path / "shards").glob("*.db")
    problems = [str(each) for each in check_shard(path).problems]
    assert f"shards/00.db: the message 1 of turns {CONVERSATION_ID}/turn_1 is missing" in problems
    assert f"shards/00.db: the message 1 of {CONVERSATION_ID} is missing" in problems  # In a part.
