"""Writing batches of rows into a shard with few statements.

SQLite releases the interpreter lock for each statement, and a busy event loop takes long to return it. So
each statement writes many rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wonder_server.adapters.sqlite.shard.deletion import delete_record, delete_root
from wonder_server.codec.tables import ROW_TABLES, WRITTEN_COLUMNS
from wonder_server.core.budget import CHARGES
from wonder_server.ports.journal import StaleEpochError, external_ref_taken
from wonder_server.ports.record_store import StoredValue, WriteBatch


@dataclass(frozen=True, slots=True, eq=False)
class _Statement:
    """An INSERT or DELETE over rows of ``width`` values each."""

    head: str
    width: int
    tail: str = ""
    deletes: bool = False

    def of(self, count: int) -> str:
        """Return the SQL for ``count`` rows."""
        if self.deletes:
            return self.head + " OR ".join(["(actor = ? AND id = ?)"] * count)
        row = f"({', '.join('?' * self.width)})"
        return f"{self.head} VALUES {', '.join([row] * count)} {self.tail}"


_REPLACE: Final = (
    "ON CONFLICT (actor, id) DO UPDATE SET parent = excluded.parent, ordinal = excluded.ordinal,"
    " status = excluded.status, alias = excluded.alias, live = excluded.live, data = excluded.data,"
    " seal = excluded.seal"
)
_TAILS: Final = {
    **{table: _REPLACE for table in ROW_TABLES if table != CHARGES},
    "actors": (
        "ON CONFLICT (id) DO UPDATE SET entry_head = excluded.entry_head, event_head = excluded.event_head,"
        " seal = excluded.seal"
    ),
}
_WRITE: Final = {
    table: _Statement(
        f"INSERT {'OR IGNORE ' if table == 'parts' else ''}INTO {table} ({', '.join(columns)})",
        len(columns),
        _TAILS.get(table, ""),
    )
    for table, columns in WRITTEN_COLUMNS.items()
}
_DELETE: Final = {table: _Statement(f"DELETE FROM {table} WHERE ", 2, deletes=True) for table in ROW_TABLES}
_HOLDER: Final = "SELECT actor FROM conversations WHERE alias = ? AND parent = ? AND actor <> ? LIMIT 1"
"""Another conversation of a project with an external reference."""

_SIZES: Final = (256, 128, 64, *range(56, 31, -8), *range(28, 15, -4), *range(14, 7, -2), *range(7, 0, -1))
"""Rows per statement. The sizes are few, so that prepared statements (about 1 KiB a row) are reused. They are
enough that any number of rows needs few statements: after each, this thread waits for the interpreter
lock."""


def write(connection: sqlite3.Connection, batch: WriteBatch, epochs: Mapping[int, int]) -> None:
    """Write a batch; see `wonder_server.ports.record_store.Writes.write`. ``epochs`` are those of the file's
    shards."""
    for actor, shard, epoch in batch.fences:
        current = epochs.get(shard, 0)
        if epoch < current:
            raise StaleEpochError(actor, epoch, current)
    for erasure in batch.erasures:
        delete_record(connection, erasure)
    for actor, project_id, alias in batch.references:
        row = connection.execute(_HOLDER, (alias, project_id, actor)).fetchone()
        if row is not None:
            raise external_ref_taken(row[0])
    for table, deleted in batch.deletes.items():
        _execute(connection, _DELETE[table], deleted)
    for table, values in batch.rows.items():
        _execute(connection, _WRITE[table], values)
    for erasure in batch.erasures:
        if erasure.whole:
            delete_root(connection, erasure.actor_id)


def _execute(connection: sqlite3.Connection, statement: _Statement, values: Sequence[StoredValue]) -> None:
    start, rows = 0, len(values) // statement.width
    for size in _SIZES:
        while rows >= size:
            end = start + size * statement.width
            connection.execute(_statement(statement, size), values[start:end])
            start, rows = end, rows - size


@lru_cache(maxsize=512)
def _statement(statement: _Statement, rows: int) -> str:
    return statement.of(rows)
