"""Rows of the journal: entries of one commit share a row, and every entry is read alone or with others."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import CONVERSATION_ID, commit
from tests.sqlite_journals import SqliteJournal
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.codec.journal_rows import MAX_ROW_BYTES, read_row, write_rows
from wonder_server.codec.packing import unpack
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import Entry


def entry(sequence: int, reason: str = "") -> Entry:
    cancel = CancelTurn(turn_id=f"turn_{sequence}", reason=reason or f"reason {sequence}")
    return Entry(sequence, 1000 + sequence, cancel, ())


ENTRIES = [entry(sequence) for sequence in range(1, 8)]


@pytest_asyncio.fixture
async def shard(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    (tmp_path / "shards").mkdir()
    shard = await SqliteJournal.open(tmp_path / "shards" / "00.db")
    await shard.commit([commit(CONVERSATION_ID, entries=tuple(ENTRIES[:4]))])
    await shard.commit([commit(CONVERSATION_ID, entries=tuple(ENTRIES[4:5]))])
    await shard.commit([commit(CONVERSATION_ID, entries=tuple(ENTRIES[5:]))])
    yield shard
    await shard.close()


def sequences(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT sequence FROM entries ORDER BY sequence")]


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql).rowcount == 1
        connection.commit()


async def test_a_commit_writes_one_row_of_the_journal(shard: SqliteJournal) -> None:
    assert await shard.database.read(sequences) == [4, 5, 7]


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_entries_are_read_from_any_place_in_any_number(
    shard: SqliteJournal, after: int, limit: int
) -> None:
    found = await shard.entries(CONVERSATION_ID, after, limit)
    assert found == ENTRIES[after : after + limit]


async def test_an_actor_is_loaded_at_the_time_of_its_last_entry(shard: SqliteJournal) -> None:
    loaded = await shard.load(CONVERSATION_ID)
    assert loaded is not None
    assert (loaded.entry_head, loaded.at_ms) == (7, 1007)


async def test_a_row_of_an_earlier_version_is_read_between_new_ones(shard: SqliteJournal) -> None:
    def rewrite(connection: sqlite3.Connection) -> None:
        sql = "SELECT at_ms, CAST(input AS BLOB) FROM entries WHERE sequence = 5"
        at_ms, content = connection.execute(sql).fetchone()
        [line] = read_row(5, at_ms, unpack(content), b"")
        connection.execute(
            "UPDATE entries SET input = ?, decisions = ?, seal = NULL WHERE sequence = 5",
            (line.input.decode(), line.decisions.decode()),
        )
        connection.execute("UPDATE unsealed SET upto = 100 WHERE name = 'entries'")

    await shard.database.write(rewrite)
    path = shard.database.path
    await shard.close()
    again = await SqliteJournal.open(path)
    try:
        assert await again.entries(CONVERSATION_ID, 0, 100) == ENTRIES
    finally:
        await again.close()


async def test_a_damaged_row_is_one_problem_and_a_lost_row_another(shard: SqliteJournal) -> None:
    path = shard.database.path
    await shard.close()
    assert check_shard(path).problems == []
    change(path, "UPDATE entries SET at_ms = 5 WHERE sequence = 4")
    [problem] = check_shard(path).problems
    assert "entries" in problem and "is damaged" in problem
    change(path, "DELETE FROM entries WHERE sequence = 7")
    _, lost = check_shard(path).problems
    assert lost == f"shards/00.db: 2 of the entries of {CONVERSATION_ID} are missing"


async def test_a_lost_row_is_an_error_for_a_reader(shard: SqliteJournal) -> None:
    await shard.database.write(lambda c: c.execute("DELETE FROM entries WHERE sequence = 5").rowcount)
    with pytest.raises(WonderError, match="/5 in table entries"):
        await shard.entries(CONVERSATION_ID, 0, 100)


def test_a_row_takes_no_more_entries_above_its_size() -> None:
    text = '"' + "a" * (MAX_ROW_BYTES // 2) + '"'
    rows = list(write_rows([(sequence, 7, text, "[]") for sequence in range(1, 6)]))
    assert [row.sequence for row in rows] == [2, 4, 5]
    lines = [line for row in rows for line in read_row(row.sequence, row.at_ms, row.content, b"")]
    assert [line.sequence for line in lines] == [1, 2, 3, 4, 5]


def test_a_content_that_lacks_a_line_is_damage() -> None:
    [row] = write_rows([(1, 7, '["A",{}]', "[]")])
    with pytest.raises(ValueError, match="whole entries"):
        read_row(1, 7, row.content + b"\n8", b"")
