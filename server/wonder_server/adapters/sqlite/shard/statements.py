"""The statements of a shard file, for `wonder_server.ports.record_store`."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from typing import Final

from wonder_server.adapters.sqlite.connection import Row, SqlValue
from wonder_server.adapters.sqlite.shard import writes
from wonder_server.adapters.sqlite.shard.deletion import placeholders
from wonder_server.adapters.sqlite.shard.queries import (
    EVENT_COLUMNS,
    ROW_COLUMNS,
    events_sql,
    heads_sql,
    rows_sql,
)
from wonder_server.codec.tables import SHARED
from wonder_server.ports.record_store import EventSelection, RowSelection, WriteBatch

_ENTRIES: Final = (
    "SELECT sequence, at_ms, epoch, CAST(input AS BLOB), CAST(decisions AS BLOB), seal, rowid FROM entries"
    " WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
_OUTBOX: Final = "live = 1 AND actor > ? AND actor <= ?"
"""Selects the operations of a page of actors."""


class Statements:
    """The statements of one call in the writer thread. Implements ``Reads`` and ``Writes``.

    ``epochs`` are those of the file's shards.
    """

    def __init__(self, connection: sqlite3.Connection, epochs: Mapping[int, int]) -> None:
        self._connection = connection
        self._epochs = epochs

    def _all(self, sql: str, values: Sequence[SqlValue]) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def _stream(self, sql: str, values: Sequence[SqlValue]) -> Generator[Row]:
        with closing(self._connection.execute(sql, values)) as cursor:
            yield from cursor

    # --- reads of actors ------------------------------------------------------------------------

    def actor(self, actor_id: str) -> Row | None:
        found = self._all("SELECT entry_head, event_head, seal FROM actors WHERE id = ?", (actor_id,))
        return found[0] if found else None

    def entries(self, actor_id: str, after: int, limit: int) -> list[Row]:
        return self._all(_ENTRIES, (actor_id, after, limit))

    def live_rows(self, table: str, actor_id: str) -> list[Row]:
        return self._all(f"SELECT {ROW_COLUMNS} FROM {table} WHERE actor = ? AND live = 1", (actor_id,))

    def newest_rows(self, table: str, actor_id: str, count: int) -> list[Row]:
        sql = f"SELECT {ROW_COLUMNS} FROM {table} WHERE actor = ? ORDER BY ordinal DESC LIMIT ?"
        return self._all(sql, (actor_id, count))

    def rows_among(self, table: str, actor_id: str, column: str, values: Sequence[str]) -> list[Row]:
        marks = placeholders(values)
        sql = f"SELECT {ROW_COLUMNS} FROM {table} WHERE actor = ? AND {column} IN ({marks})"
        return self._all(sql, (actor_id, *values))

    def parts(self, actor_id: str, hashes: Sequence[str]) -> list[Row]:
        return self._all(
            "SELECT hash, CAST(data AS BLOB) FROM parts"
            " WHERE root IN ((SELECT root FROM actors WHERE id = ?), ?)"
            f" AND hash IN ({placeholders(hashes)})",
            (actor_id, SHARED, *hashes),
        )

    def message(self, actor_id: str, ordinal: int) -> Row | None:
        sql = (
            f"SELECT {ROW_COLUMNS} FROM messages"
            " WHERE actor = (SELECT root FROM actors WHERE id = ?) AND ordinal = ? LIMIT 1"
        )
        found = self._all(sql, (actor_id, ordinal))
        return found[0] if found else None

    def events(self, actor_id: str, after: int, limit: int) -> Generator[Row]:
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
        return self._stream(sql, (actor_id, after, limit))

    def request(self, scope: str, request_id: str) -> Row | None:
        sql = (
            "SELECT actor, fingerprint, CAST(answer AS BLOB), seal FROM requests_answered"
            " WHERE scope = ? AND id = ?"
        )
        found = self._all(sql, (scope, request_id))
        return found[0] if found else None

    def requests_of(self, actor_id: str, scopes: Collection[str]) -> list[Row]:
        return self._all(
            "SELECT scope, id, fingerprint, CAST(answer AS BLOB) FROM requests_answered"
            f" WHERE actor = ? AND scope IN ({placeholders(scopes)})",
            (actor_id, *scopes),
        )

    def compact_runs(self, actors: Sequence[str], *, without_heads: bool = False) -> list[Row]:
        where = "brief = 1 AND event_head = 0" if without_heads else "brief = 1"
        sql = f"SELECT id, root, entry_head FROM actors WHERE {where} AND id IN ({placeholders(actors)})"
        return self._all(sql, actors)

    def outbox(self, prefix: str, after: str, limit: int) -> tuple[list[Row], dict[str, int]]:
        first = max(after, prefix)
        ((last,),) = self._all(
            "SELECT max(actor) FROM (SELECT DISTINCT actor FROM operations"
            " WHERE live = 1 AND actor > ? AND actor < ? ORDER BY actor LIMIT ?)",
            # The accent follows the underscore, so it ends the ids with this prefix.
            (first, f"{prefix[:-1]}`", limit),
        )
        if last is None:
            return [], {}
        page = first, last
        rows = self._all(
            f"SELECT {ROW_COLUMNS} FROM operations WHERE {_OUTBOX} ORDER BY actor, created_ms, id", page
        )
        times = self._all(
            "SELECT id, at_ms FROM actors JOIN entries ON actor = id AND sequence = entry_head"
            f" WHERE id IN (SELECT DISTINCT actor FROM operations WHERE {_OUTBOX})",
            page,
        )
        return rows, dict(times)

    def with_outbox(self, actors: Sequence[str]) -> list[str]:
        marks = placeholders(actors)
        sql = f"SELECT DISTINCT actor FROM operations WHERE live = 1 AND actor IN ({marks})"
        return [row[0] for row in self._all(sql, actors)]

    # --- reads for lists ------------------------------------------------------------------------

    def heads(self, actors: Sequence[str]) -> list[Row]:
        return self._all(*heads_sql(actors))

    def rows(self, selection: RowSelection) -> Generator[Row]:
        return self._stream(*rows_sql(selection))

    def listed_events(self, selection: EventSelection) -> Generator[Row]:
        return self._stream(*events_sql(selection))

    def members(self, root: str) -> list[str]:
        # Two searches, since the index of roots omits the actors that are their own root.
        sql = (
            "SELECT id FROM actors WHERE root = ?1 AND root <> id"
            " UNION ALL SELECT id FROM actors WHERE id = ?1"
        )
        return [row[0] for row in self._all(sql, (root,))]

    # --- writes ---------------------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> None:
        writes.write(self._connection, batch, self._epochs)

    def mark_expanded(self, actors: Sequence[str]) -> None:
        self._connection.execute(f"UPDATE actors SET brief = 0 WHERE id IN ({placeholders(actors)})", actors)
