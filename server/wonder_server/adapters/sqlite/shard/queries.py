"""The statements of queries over a shard's rows and events. Everything a caller gives is a bound value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from wonder_server.adapters.sqlite.codec.stored_names import stored_event, stored_path
from wonder_server.adapters.sqlite.shard.schema import COLUMNS, FEW, OPEN
from wonder_server.core.actor.planner import Planner
from wonder_server.ports.records import EventQuery, Query

EVENT_COLUMNS: Final = (
    "actor, sequence, at_ms, name, kind, turn_id, message_id, CAST(data AS BLOB), seal, rowid"
)
ROW_COLUMNS: Final = "actor, id, parent, ordinal, status, alias, live, CAST(data AS BLOB), seal, rowid"
"""As bytes, so that what is no text any more is read too, and found to be damaged."""


def rows_sql(query: Query, row_type: type) -> tuple[str, list[Any]]:
    """The statement for one page of rows, and its values. ``row_type`` is the class of the table's values."""
    where = _Where()
    for column in ("id", "actor", "parent", "alias"):
        where.equals(column, getattr(query, column))
    where.among("status", query.statuses)
    still_open = OPEN.get(query.table, ())
    is_open = bool(query.statuses) and set(query.statuses) <= set(still_open)
    if is_open:
        # In the words of the index, or it is not used.
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
            # With a plus, so that no index is used: of few rows, or of nearly all.
            where.add(f"+{columns[path]} = ?", wanted)
        else:
            where.add("coalesce(json_extract(data, ?), '') = ?", f"$.{stored_path(row_type, path)}", wanted)
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
    if query.start_ms:
        where.add("created_ms >= ?", query.start_ms)
    if query.end_ms:
        where.add("created_ms < ?", query.end_ms)
    order = "ordinal" if query.by_ordinal else "created_ms"
    if query.actor and query.statuses and set(query.statuses) <= set(FEW.get(query.table, ())):
        # With a plus, so that they are found by status: by their order all others would be looked at.
        order = f"+{order}"
    if query.after is not None:
        where.add(f"({order}, id) {'<' if query.newest_first else '>'} (?, ?)", *query.after)
    way = "DESC" if query.newest_first else "ASC"
    sql = (
        f"SELECT {order}, {ROW_COLUMNS} FROM {query.table} WHERE {where} "
        f"ORDER BY {order} {way}, id {way} LIMIT ?"
    )
    return sql, [*where.values, query.limit]


def events_sql(planner: Planner, query: EventQuery) -> tuple[str, list[Any]]:
    """The statement for one page of events, and its values."""
    where = _Where()
    where.equals("actor", query.actor)
    if not query.actor:
        # Written out, since an index that is partial is only used for a condition that is its own.
        where.add(f"substr(actor, 1, {len(planner.prefix) + 1}) = '{planner.prefix}_'")
    if query.after_sequence:
        where.add("sequence > ?", query.after_sequence)
    where.among("name", [stored_event(planner.kind, name)[0] for name in query.names])
    where.equals("turn_id", query.turn_id)
    if query.project_id:
        where.add("actor IN (SELECT actor FROM conversations WHERE parent = ?)", query.project_id)
    if query.start_ms:
        where.add("at_ms >= ?", query.start_ms)
    if query.end_ms:
        where.add("at_ms < ?", query.end_ms)
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


def heads_sql(actors: Sequence[str]) -> tuple[str, list[Any]]:
    """The statement for the heads of some actors: id, sequence, time, executions."""
    sql = (
        "SELECT id, event_head,"
        " coalesce((SELECT at_ms FROM events WHERE actor = actors.id AND sequence = event_head), 0),"
        " coalesce((SELECT max(ordinal) FROM executions WHERE actor = actors.id), 0)"
        f" FROM actors WHERE id IN ({', '.join('?' * len(actors))})"
    )
    return sql, list(actors)


class _Where:
    """Conditions joined by AND, with their values in order."""

    def __init__(self) -> None:
        self._conditions = ["1"]
        self.values: list[Any] = []

    def __str__(self) -> str:
        return " AND ".join(self._conditions)

    def add(self, condition: str, *values: Any, escape: bool = False) -> None:
        self._conditions.append(condition + (" ESCAPE '\\'" if escape else ""))
        self.values += values

    def equals(self, column: str, wanted: str) -> None:
        if wanted:
            # The second half is for indexes of what is not empty: SQLite does not see it in the first.
            self.add(f"{column} = ? AND {column} <> ''", wanted)

    def among(self, column: str, wanted: Sequence[str]) -> None:
        if wanted:
            self.add(f"{column} IN ({', '.join('?' * len(wanted))})", *wanted)
