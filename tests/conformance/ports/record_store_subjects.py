"""The record stores that the suites of the port ``RecordStore`` test, and the rows they write.

A further store adds a class with the methods of `Subject` and a line in `subject`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from wonder_server.adapters.in_memory.record_store import MemoryRecordStore
from wonder_server.adapters.sqlite.connection import unavailable
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.codec.tables import READ_ROW, WRITTEN_COLUMNS
from wonder_server.ports.record_store import (
    Erasure,
    Fence,
    Reads,
    RecordStore,
    Reference,
    StoredRow,
    StoredValue,
    WriteBatch,
    Writes,
)

SUBJECTS = ["memory", "sqlite"]

FULL = unavailable("The disk is full.", transient=True)


class Subject(Protocol):
    """A record store, and what a suite does to it beside its port."""

    @property
    def store(self) -> RecordStore:
        """The open store."""
        ...

    async def reopen(self) -> None:
        """Close the store and open it again."""
        ...

    async def change(self, table: str, key: Mapping[str, StoredValue], column: str, value: Any) -> None:
        """Change one column of the one row that has these key columns, as damage would."""
        ...

    async def lose(self, table: str, key: Mapping[str, StoredValue]) -> None:
        """Remove the one row that has these key columns."""
        ...

    def set_full(self, full: bool) -> None:
        """Let the disk be full, or have space again."""
        ...

    def lose_next_answer(self) -> None:
        """Raise an error in the store after its next transaction has reached the disk."""
        ...


class MemorySubject:
    """The store in memory. It survives its reopening, and its commits have no answer to lose."""

    def __init__(self) -> None:
        self.store = MemoryRecordStore()

    async def reopen(self) -> None:
        pass

    async def change(self, table: str, key: Mapping[str, StoredValue], column: str, value: Any) -> None:
        rows, place, row = self._find(table, key)
        if table == "parts":
            rows[place] = value
            return
        at = WRITTEN_COLUMNS[table].index(column)
        rows[place] = (*row[:at], value, *row[at + 1 :])

    async def lose(self, table: str, key: Mapping[str, StoredValue]) -> None:
        rows, place, _ = self._find(table, key)
        del rows[place]

    def _find(self, table: str, key: Mapping[str, StoredValue]) -> tuple[dict[Any, Any], Any, StoredRow]:
        """Return the dictionary that holds the row, the row's place in it, and the row."""
        store, values = self.store, tuple(key.values())
        place: Any = values[-1] if len(values) == 1 else values
        if table in ("actors", "requests_answered", "parts"):
            whole = {"actors": store.actors, "requests_answered": store.requests, "parts": store.parts}
            rows: dict[Any, Any] = whole[table]  # type: ignore[assignment]
            if table == "parts":
                return rows, place, (*values, rows[place])
        else:
            by_actor: Any = {"entries": store.entries, "events": store.events, **store.tables}[table]
            rows, place = by_actor[values[0]], values[1]
        return rows, place, rows[place]

    def set_full(self, full: bool) -> None:
        self.store.rejection = FULL if full else None

    def lose_next_answer(self) -> None:
        pass


class SqliteSubject:
    """One shard file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.store: SqliteShard

    async def open(self) -> None:
        self.store = await SqliteShard.open(self._path)

    async def reopen(self) -> None:
        await self.store.close()
        await self.open()

    async def change(self, table: str, key: Mapping[str, StoredValue], column: str, value: Any) -> None:
        await self._execute(f"UPDATE {table} SET {column} = ?", key, value)

    async def lose(self, table: str, key: Mapping[str, StoredValue]) -> None:
        await self._execute(f"DELETE FROM {table}", key)

    async def _execute(self, sql: str, key: Mapping[str, StoredValue], *values: Any) -> None:
        where = " AND ".join(f"{column} = ?" for column in key)

        def run(connection: sqlite3.Connection) -> int:
            return connection.execute(f"{sql} WHERE {where}", (*values, *key.values())).rowcount

        assert await self.store.database.write(run) == 1

    def set_full(self, full: bool) -> None:
        self.store.database.write_rejection = lambda: FULL if full else None

    def lose_next_answer(self) -> None:
        self.store.database.failpoints = _LostAnswer()


class _LostAnswer:
    """Raises once, after a transaction has reached the disk."""

    is_due = True

    def reach(self, point: str, subject: str = "") -> None:
        if point == "after-commit" and self.is_due:
            self.is_due = False
            raise OSError("the answer is lost")


@asynccontextmanager
async def subject(kind: str, folder: Path) -> AsyncIterator[Subject]:
    """Yield a new store of this kind."""
    if kind == "memory":
        yield MemorySubject()
        return
    (folder / "shards").mkdir()
    opened = SqliteSubject(folder / "shards" / "00.db")
    await opened.open()
    yield opened
    await opened.store.close()


# --- rows -----------------------------------------------------------------------------------------

_DEFAULTS: dict[str, StoredValue] = {
    **dict.fromkeys(("parent", "status", "alias", "project_id", "workflow_id", "workflow_ref"), ""),
    **dict.fromkeys(("parent_actor", "called_by", "name", "turn_id", "message_id", "fingerprint"), ""),
    **dict.fromkeys(("ordinal", "live", "created_ms", "at_ms", "epoch", "brief", "seal"), 0),
    **dict.fromkeys(("entry_head", "event_head", "input_tokens"), 0),
    "kind": "conversation",
    "data": "{}",
    "input": "{}",
    "decisions": "",
    "answer": "{}",
}


def row(table: str, **columns: StoredValue) -> StoredRow:
    """Return a row as a commit writes it, with defaults for the other columns."""
    columns = {"root": columns.get("id"), **columns} if table == "actors" else columns
    return tuple(columns[name] if name in columns else _DEFAULTS[name] for name in WRITTEN_COLUMNS[table])


def batch(
    rows: Mapping[str, Sequence[StoredRow]] | None = None,
    *,
    deletes: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    fences: Sequence[Fence] = (),
    references: Sequence[Reference] = (),
    erasures: Sequence[Erasure] = (),
) -> WriteBatch:
    """Return a batch of these rows."""
    return WriteBatch(
        list(fences),
        list(erasures),
        list(references),
        {table: [value for each in found for value in each] for table, found in (rows or {}).items()},
        {table: [value for key in found for value in key] for table, found in (deletes or {}).items()},
    )


async def write(store: RecordStore, made: WriteBatch) -> None:
    """Write a batch."""
    await store.write(lambda writes: writes.write(made))


def write_all(writes: Writes, batches: list[WriteBatch]) -> None:
    """Write batches, as the function of `RecordStore.submit`."""
    for each in batches:
        writes.write(each)


def named(found: Sequence[StoredValue]) -> dict[str, StoredValue]:
    """Return the columns of a row that was read, by name, without its position."""
    return dict(zip(READ_ROW, found[:-1], strict=True))


def contents(reads: Reads, actors: Sequence[str]) -> dict[str, object]:
    """Return everything that the statements read of these actors, except parts and completed requests."""
    return {
        actor: (
            reads.actor(actor),
            [each[:-1] for each in reads.entries(actor, 0, 99)],
            [each[:-1] for each in reads.events(actor, 0, 99)],
            {
                table: sorted(each[:-1] for each in reads.newest_rows(table, actor, 99))
                for table in ("conversations", "messages", "operations", "runs")
            },
            list(reads.compact_runs([actor])),
        )
        for actor in actors
    }
