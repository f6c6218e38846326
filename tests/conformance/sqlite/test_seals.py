"""Checksums of rows in a shard file: old rows stay readable, newer ones need a seal.

The suite of damage for every store is `tests.conformance.ports.test_journal_damage`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
    commit,
    conversation,
    emitted,
    message,
    opened,
    put_conversation,
)
from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.sqlite.connection import connect, load_seals
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.statements import Statements
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.conversation.model.values import Message
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Entry
from wonder_server.ports.records import Query
from wonder_server.record.decoding import rows

MESSAGES = Query(table="messages", actor=CONVERSATION_ID, by_ordinal=True, newest_first=False)


@contextmanager
def inside(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Open the shard's file while no server uses it."""
    with closing(sqlite3.connect(tmp_path / "shards" / "00.db")) as connection:
        yield connection
        connection.commit()


async def write(tmp_path: Path, *changes: Any, sequence: int = 1) -> None:
    async with opened("sqlite", tmp_path, count=1) as shards:
        entry = Entry(sequence, sequence, CancelTurn(turn_id="turn_1"), ())
        await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, *changes, entries=(entry,))])


async def read(tmp_path: Path, query: Query = MESSAGES) -> list[Any]:
    async with opened("sqlite", tmp_path, count=1) as shards:
        assert isinstance(shards, SqliteJournals)
        return await shards.find(query)


async def damaged(tmp_path: Path) -> str:
    with pytest.raises(WonderError) as found:
        await read(tmp_path)
    assert found.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert not found.value.fault.transient
    return found.value.fault.message


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    await write(tmp_path, put_conversation(conversation(0)), message(1), message(2))
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        "data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB)",
        "data = x'ff' || data",
        "data = 5",
    ],
)
async def test_a_changed_row_is_damage_with_its_name(folder: Path, change: str) -> None:
    with inside(folder) as connection:
        assert connection.execute(f"UPDATE messages SET {change} WHERE id = 'msg_002'").rowcount == 1
    said = await damaged(folder)
    assert "msg_002 in table messages of shards/00.db" in said
    assert "wonder check" in said


async def test_a_filter_on_the_content_finds_damage_wherever_a_bit_is_flipped(folder: Path) -> None:
    by_author = Query(table="messages", actor=CONVERSATION_ID, fields=(("author", "ann"),))
    with inside(folder) as connection:
        [(data,)] = connection.execute("SELECT data FROM messages WHERE id = 'msg_002'")
    assert isinstance(data, bytes), "the value is packed"
    with closing(connect(folder / "shards" / "00.db", MIGRATIONS)) as connection:
        seals = load_seals(connection, "shards/00.db")
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            connection.execute("UPDATE messages SET data = ? WHERE id = 'msg_002'", (bytes(flipped),))
            for query in (by_author, replace(by_author, fields=(("author", ("bob", "ann")),))):
                with pytest.raises(WonderError) as found:
                    rows(Statements(connection, {}), query, Message, seals)
                assert "msg_002" in found.value.fault.message
            lenient = rows(Statements(connection, {}), replace(by_author, lenient=True), Message, seals)
            assert [value.id for _, value in lenient] == ["msg_001"]


async def test_a_filter_on_the_content_reads_unsealed_old_rows(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE messages SET seal = NULL")
        connection.execute("UPDATE unsealed SET upto = 2 WHERE name = 'messages'")
    by_author = Query(table="messages", actor=CONVERSATION_ID, fields=(("author", "ann"),))
    assert len(await read(folder, by_author)) == 2
    assert await read(folder, replace(by_author, fields=(("author", "bob"),))) == []


async def test_unsealed_old_rows_are_read_and_sealed_at_the_next_write(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE messages SET seal = NULL")
        connection.execute("UPDATE unsealed SET upto = 2 WHERE name = 'messages'")
    assert [each.content for each in await read(folder)] == ["message 1", "message 2"]
    await write(folder, message(2), message(3), sequence=2)
    with inside(folder) as connection:
        sealed = dict(connection.execute("SELECT id, seal IS NOT NULL FROM messages"))
        assert sealed == {"msg_001": 0, "msg_002": 1, "msg_003": 1}
        connection.execute("UPDATE messages SET seal = NULL WHERE id = 'msg_003'")
    assert "msg_003" in await damaged(folder)


@pytest.mark.parametrize(
    "change",
    ["messages SET created_ms = 77", "conversations SET called_by = 'run_1', created_ms = created_ms"],
)
async def test_the_check_compares_copied_columns_with_their_values(folder: Path, change: str) -> None:
    shard = folder / "shards" / "00.db"
    assert check_shard(shard).problems == []
    with inside(folder) as connection:
        connection.execute(f"UPDATE {change}")
    problems = check_shard(shard).problems
    assert problems
    assert all("is damaged" in line and "column" in line for line in problems)


async def test_a_damaged_event_is_one_problem_and_a_lost_one_another(tmp_path: Path) -> None:
    shard = tmp_path / "shards" / "00.db"
    async with opened("sqlite", tmp_path, count=1) as shards:
        events = tuple(map(emitted, range(1, 5)))
        await shards.of(CONVERSATION_ID).commit(
            [commit(CONVERSATION_ID, put_conversation(conversation(0)), events=events)]
        )
    assert check_shard(shard).problems == []
    with inside(tmp_path) as connection:
        assert connection.execute("UPDATE events SET data = '{}' WHERE sequence = 3").rowcount == 1
    [problem] = check_shard(shard).problems
    assert "events" in problem and "is damaged" in problem
    with inside(tmp_path) as connection:
        connection.execute("DELETE FROM events WHERE sequence = 2")
    _, lost = check_shard(shard).problems
    assert lost == f"shards/00.db: 1 of the events of {CONVERSATION_ID} are missing"
