"""Checksums of rows: old rows stay readable, newer ones need a seal, swapped rows are found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
    operation,
    put_conversation,
)
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.records import Query

MESSAGES = Query(table="messages", actor=CONVERSATION_ID, by_ordinal=True, newest_first=False)


@contextmanager
def inside(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Open the shard's file while no server uses it."""
    with closing(sqlite3.connect(tmp_path / "shards" / "00.db")) as connection:
        yield connection
        connection.commit()


async def write(tmp_path: Path, *changes: Any) -> None:
    async with opened("sqlite", tmp_path, count=1) as shards:
        await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, *changes, entry_head=1)])


async def read(tmp_path: Path, query: Query = MESSAGES) -> list[Any]:
    async with opened("sqlite", tmp_path, count=1) as shards:
        assert isinstance(shards, SqliteShards)
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
        "data = replace(data, 'message 2', 'massage 2')",
        "data = x'ff' || data",
        "data = 5",
        "parent = 'turn_2'",
        "status = 'agent'",
        "live = 1",
        "ordinal = 7",
        "seal = seal + 1",
        "seal = NULL",
    ],
)
async def test_a_changed_row_is_damage_with_its_name(folder: Path, change: str) -> None:
    with inside(folder) as connection:
        assert connection.execute(f"UPDATE messages SET {change} WHERE id = 'msg_002'").rowcount == 1
    said = await damaged(folder)
    assert "msg_002 in table messages of shards/00.db" in said
    assert "wonder check" in said


async def test_rows_in_each_others_place_are_damage(folder: Path) -> None:
    with inside(folder) as connection:
        rows = dict(connection.execute("SELECT id, data FROM messages"))
        seals = dict(connection.execute("SELECT id, seal FROM messages"))
        for here, there in (("msg_001", "msg_002"), ("msg_002", "msg_001")):
            changed = (rows[there], seals[there], here)
            connection.execute("UPDATE messages SET data = ?, seal = ? WHERE id = ?", changed)
    assert "msg_001" in await damaged(folder)


async def test_a_lenient_query_omits_damaged_rows(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE messages SET data = '{}' WHERE id = 'msg_001'")
    found = await read(folder, Query(table="messages", actor=CONVERSATION_ID, lenient=True))
    assert [each.id for each in found] == ["msg_002"]


async def test_unsealed_old_rows_are_read_and_sealed_at_the_next_write(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE messages SET seal = NULL")
        connection.execute("UPDATE unsealed SET upto = 2 WHERE name = 'messages'")
    assert [each.content for each in await read(folder)] == ["message 1", "message 2"]
    await write(folder, message(2), message(3))
    with inside(folder) as connection:
        sealed = dict(connection.execute("SELECT id, seal IS NOT NULL FROM messages"))
        assert sealed == {"msg_001": 0, "msg_002": 1, "msg_003": 1}
        connection.execute("UPDATE messages SET seal = NULL WHERE id = 'msg_003'")
    assert "msg_003" in await damaged(folder)


async def test_a_part_that_does_not_match_its_hash_is_damage(tmp_path: Path) -> None:
    given = {"text": "long " * 1_000}
    await write(tmp_path, put_conversation(conversation(0)), operation(1, given=given))
    query = Query(table="operations", actor=CONVERSATION_ID)
    assert (await read(tmp_path, query))[0].input == given
    with inside(tmp_path) as connection:
        connection.execute("UPDATE parts SET data = replace(data, 'long', 'lung')")
    with pytest.raises(WonderError, match="in table parts"):
        await read(tmp_path, query)


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
