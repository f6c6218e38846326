"""SQL statements of queries over a shard's rows and events. Values from callers are always bound
parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.codec.stored_names import stored_event, stored_path
from wonder_server.adapters.sqlite.connection import SqlValue
from wonder_server.adapters.sqlite.shard.schema import COLUMNS, FEW, OPEN
from wonder_server.core.actor.planner import Planner
from wonder_server.ports.records import EventQuery, Query

EVENT_COLUMNS: Final = (
    "actor, sequence, at_ms, name, kind, turn_id, message_id, CAST(data AS BLOB), seal, rowid"
)
ROW_COLUMNS: Final = "actor, id, parent, ordinal, status, alias, live, CAST(data AS BLOB), seal, rowid"
"""The data is read as bytes, so that invalid text reaches the seal check and is reported as damage."""


def rows_sql(query: Query, row_type: type) -> tuple[str, list[SqlValue]]:
    """Return the statement for one page of rows and its values. ``row_type`` is the class of the table's
    values."""
    where = _Where()
    for column in ("id", "actor", "parent", "alias"):
        where.equals(column, getattr(query, column))
    where.among("status", query.statuses)
    _add_fields(where, query, row_type)
    for path, wanted in query.members:
        where.add(
            "EXISTS (SELECT 1 FROM json_each(data, ?) WHERE json_extract(value, '$.id') = ?)",
            f"$.{stored_path(row_type, path)}",
            wanted,
        )
    for path, wanted in query.allowed:
        stored = f"$.{stored_path(row_type, path)}"
        where.add(
            "(coalesce(json_array_length(data, ?), 0) = 0"
            " OR EXISTS (SELECT 1 FROM json_each(data, ?) WHERE value = ?))",
            stored,
            stored,
            wanted,
        )
    where.between("created_ms", query.start_ms, query.end_ms)
    order = "ordinal" if query.by_ordinal else "created_ms"
    if query.actor and query.statuses and set(query.statuses) <= set(FEW.get(query.table, ())):
        # The plus keeps SQLite from using the index of the order, which would read all rows of the actor.
        order = f"+{order}"
    if query.after is not None:
        where.add(f"({order}, id) {'<' if query.newest_first else '>'} (?, ?)", *query.after)
    direction = "DESC" if query.newest_first else "ASC"
    sql = (
        f"SELECT {order}, {ROW_COLUMNS} FROM {query.table} WHERE {where} "
        f"ORDER BY {order} {direction}, id {direction} LIMIT ?"
    )
    return sql, [*where.values, query.limit]


def _add_fields(where: _Where, query: Query, row_type: type) -> None:
    """Add the conditions for fields of the value, and the one that selects the index of open rows."""
    still_open = OPEN.get(query.table, ())
    is_open = bool(query.statuses) and set(query.statuses) <= set(still_open)
    if is_open:
        # SQLite uses a partial index only for a condition with the text of the index.
        where.add(f"status IN ({', '.join(map(repr, still_open))})")
    columns = COLUMNS.get(query.table, {})
    for path, wanted in query.fields:
        if isinstance(wanted, tuple):
            column = columns.get(path, f"json_extract(data, '$.{stored_path(row_type, path)}')")
            where.among(column, wanted)
            where.add(f"{column} <> ''")
        elif path in columns and wanted and not is_open:
            where.equals(columns[path], wanted)
        elif path in columns:
            # The plus disables the column's index: either few rows are open, or nearly all rows match.
            where.add(f"+{columns[path]} = ?", wanted)
        else:
            where.add("coalesce(json_extract(data, ?), '') = ?", f"$.{stored_path(row_type, path)}", wanted)


def events_sql(planner: Planner, query: EventQuery) -> tuple[str, list[SqlValue]]:
    """Return the statement for one page of events and its values."""
    where = _Where()
    where.equals("actor", query.actor)
    if not query.actor:
        # SQLite uses a partial index only for a condition with the text of the index, so no value is bound.
        where.add(f"substr(actor, 1, {len(planner.prefix) + 1}) = '{planner.prefix}_'")
    if query.after_sequence:
        where.add("sequence > ?", query.after_sequence)
    where.among("name", [stored_event(planner.kind, name)[0] for name in query.names])
    where.equals("turn_id", query.turn_id)
    if query.project_id:
        where.add("actor IN (SELECT actor FROM conversations WHERE parent = ?)", query.project_id)
    where.between("at_ms", query.start_ms, query.end_ms)
    if query.actor:
        if query.after is not None:
            where.add("sequence > ?", query.after[2])
        order = "sequence"
    else:
        if query.after is not None:
            where.add("(at_ms, actor, sequence) < (?, ?, ?)", *query.after)
        order = "at_ms DESC, actor DESC, sequence DESC"
    sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE {where} ORDER BY {order} LIMIT ?"
    return sql, [*where.values, query.limit]


def heads_sql(actors: Sequence[str]) -> tuple[str, list[SqlValue]]:
    """Return the statement for the heads of these actors (id, sequence, time, executions) and its values."""
    sql = (
        "SELECT id, event_head,"
        " coalesce((SELECT at_ms FROM events WHERE actor = actors.id AND sequence = event_head), 0),"
        " coalesce((SELECT max(ordinal) FROM executions WHERE actor = actors.id), 0)"
        f" FROM actors WHERE id IN ({', '.join('?' * len(actors))})"
    )
    return sql, list(actors)


class _Where:
    """Conditions joined by AND, with their bound values in order."""

    def __init__(self) -> None:
        self._conditions = ["1"]
        self.values: list[SqlValue] = []

    def __str__(self) -> str:
        return " AND ".join(self._conditions)

    def add(self, condition: str, *values: SqlValue) -> None:
        self._conditions.append(condition)
        self.values += values

    def between(self, column: str, start: int, end: int) -> None:
        """Require ``start <= column < end``; 0 leaves a side open."""
        if start:
            self.add(f"{column} >= ?", start)
        if end:
            self.add(f"{column} < ?", end)

    def equals(self, column: str, wanted: str) -> None:
        if wanted:
            # SQLite does not derive the second condition from the first, and partial indexes need it.
            self.add(f"{column} = ? AND {column} <> ''", wanted)

    def among(self, column: str, wanted: Sequence[str]) -> None:
        if wanted:
            self.add(f"{column} IN ({', '.join('?' * len(wanted))})", *wanted)
