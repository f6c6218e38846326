"""SQL statements of queries over a shard's rows and events. Values from callers are always bound
parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.connection import SqlValue
from wonder_server.adapters.sqlite.shard.schema import FEW, OPEN
from wonder_server.ports.record_store import EventSelection, RowSelection
from wonder_server.ports.records import Query

_NO_LIMIT: Final = -1

EVENT_COLUMNS: Final = (
    "actor, sequence, at_ms, name, kind, turn_id, message_id, CAST(data AS BLOB), seal, rowid"
)
_DATA: Final = "CAST(data AS BLOB)"
ROW_COLUMNS: Final = f"actor, id, parent, ordinal, status, alias, live, {_DATA}, seal, rowid"
"""The data is read as bytes, so that invalid text reaches the seal check and is reported as damage."""


def rows_sql(selection: RowSelection) -> tuple[str, list[SqlValue]]:
    """Return the statement for one page of rows and its values."""
    query = selection.query
    if query.text is not None:
        return _searched_rows_sql(selection)
    where = _Where()
    for column in ("id", "actor", "parent", "alias"):
        where.equals(column, getattr(query, column))
    where.among("actor", query.actors)
    where.among("status", query.statuses)
    _add_columns(where, query, selection.columns)
    for path, wanted in selection.members:
        where.add(
            "EXISTS (SELECT 1 FROM json_each(data, ?) WHERE json_extract(value, '$.id') = ?)",
            f"$.{path}",
            wanted,
        )
    for path, wanted in selection.allowed:
        stored = f"$.{path}"
        where.add(
            "(coalesce(json_array_length(data, ?), 0) = 0"
            " OR EXISTS (SELECT 1 FROM json_each(data, ?) WHERE value = ?))",
            stored,
            stored,
            wanted,
        )
    where.between("created_ms", query.start_ms, query.end_ms)
    _add_projects(where, query.table, query.projects)
    if query.by_id:
        return _rows_by_id(where, selection)
    order = "ordinal" if query.by_ordinal else "created_ms"
    is_few = query.actor and query.statuses and set(query.statuses) <= set(FEW.get(query.table, ()))
    is_of_turn = query.table == "messages" and query.actor and query.parent
    if query.actors or is_few or is_of_turn:
        # The plus keeps SQLite from using the index of the order, which would read all rows of the actor, or
        # of all actors.
        order = f"+{order}"
    if query.after is not None:
        where.add(f"({order}, id) {'<' if query.newest_first else '>'} (?, ?)", *query.after)
    direction = "DESC" if query.newest_first else "ASC"
    sql = (
        f"SELECT {order}, {ROW_COLUMNS} FROM {query.table} WHERE {where} "
        f"ORDER BY {order} {direction}, id {direction} LIMIT ?"
    )
    return sql, [*where.values, selection.limit or _NO_LIMIT]


def _rows_by_id(where: _Where, selection: RowSelection) -> tuple[str, list[SqlValue]]:
    """Return the statement for a page in the order of ids, which the index of ids has."""
    query = selection.query
    if query.after is not None:
        where.add(f"id {'<' if query.newest_first else '>'} ?", query.after[1])
    sql = (
        f"SELECT 0, {ROW_COLUMNS} FROM {query.table} WHERE {where} "
        f"ORDER BY id {'DESC' if query.newest_first else 'ASC'} LIMIT ?"
    )
    return sql, [*where.values, selection.limit or _NO_LIMIT]


def _searched_rows_sql(selection: RowSelection) -> tuple[str, list[SqlValue]]:
    """Return the statement for the rows of an actor or of all in which a text is searched.

    A row that other filters exclude has no data instead of being left out. So the limit is one of rows read:
    a filter that few rows meet would make one statement read all rows.
    """
    query = selection.query
    wanted, place = _Where(), _Where()
    for column in ("id", "parent", "alias"):
        wanted.equals(column, getattr(query, column))
    wanted.among("status", query.statuses)
    wanted.between("created_ms", query.start_ms, query.end_ms)
    _add_projects(wanted, query.table, query.projects)
    place.equals("actor", query.actor)
    place.among("actor", query.actors)
    order = "0" if query.by_id else "ordinal" if query.by_ordinal else "created_ms"
    sign, direction = ("<", "DESC") if query.newest_first else (">", "ASC")
    if query.after is not None and query.by_id:
        place.add(f"id {sign} ?", query.after[1])
    elif query.after is not None:
        place.add(f"({order}, id) {sign} (?, ?)", *query.after)
    columns = ROW_COLUMNS.replace(_DATA, f"CASE WHEN {wanted} THEN {_DATA} END")
    ordered = f"id {direction}" if query.by_id else f"{order} {direction}, id {direction}"
    sql = f"SELECT {order}, {columns} FROM {query.table} WHERE {place} ORDER BY {ordered} LIMIT ?"
    return sql, [*wanted.values, *place.values, selection.limit or _NO_LIMIT]


def _add_columns(where: _Where, query: Query, columns: Sequence[tuple[str, str | tuple[str, ...]]]) -> None:
    """Add the conditions for filter columns, and the one that selects the index of open rows."""
    still_open = OPEN.get(query.table, ())
    is_open = bool(query.statuses) and set(query.statuses) <= set(still_open)
    if is_open:
        # SQLite uses a partial index only for a condition with the text of the index.
        where.add(f"status IN ({', '.join(map(repr, still_open))})")
    for column, wanted in columns:
        if isinstance(wanted, tuple):
            where.among(column, wanted)
            where.add(f"{column} <> ''")
        elif wanted and not is_open:
            where.equals(column, wanted)
        elif not wanted and not is_open:
            # SQLite uses a partial index only for a condition with the text of the index.
            where.add(f"{column} = ''")
        else:
            # The plus disables the column's index: few rows are open.
            where.add(f"+{column} = ?", wanted)


_PROJECT_COLUMNS: Final = {"conversations": "parent", "gates": "parent", "runs": "project_id"}
"""Tables whose rows name their project, and the column. Other rows belong to the project of their actor."""


def _add_projects(where: _Where, table: str, projects: frozenset[str] | None) -> None:
    """Require that the row or event belongs to one of these projects. The list is one bound value, since an
    access scope can have more projects than a statement can have values."""
    if projects is None:
        return
    wanted, listed = json.dumps(sorted(projects)), "IN (SELECT value FROM json_each(?))"
    if table in _PROJECT_COLUMNS:
        where.add(f"{_PROJECT_COLUMNS[table]} {listed}", wanted)
        return
    owners = (
        f"EXISTS (SELECT 1 FROM {owner} AS owner WHERE owner.actor = {table}.actor"
        f" AND owner.id = owner.actor AND owner.{_PROJECT_COLUMNS[owner]} {listed})"
        for owner in ("conversations", "runs")
    )
    where.add(f"({' OR '.join(owners)})", wanted, wanted)


def events_sql(selection: EventSelection) -> tuple[str, list[SqlValue]]:
    """Return the statement for one page of events and its values."""
    query, prefix = selection.query, selection.prefix
    where = _Where()
    where.equals("actor", query.actor)
    if not query.actor:
        # SQLite uses a partial index only for a condition with the text of the index, so no value is bound.
        where.add(f"substr(actor, 1, {len(prefix)}) = '{prefix}'")
    if query.after_sequence:
        where.add("sequence > ?", query.after_sequence)
    where.among("name", selection.names)
    where.equals("turn_id", query.turn_id)
    if query.project_id:
        where.add("actor IN (SELECT actor FROM conversations WHERE parent = ?)", query.project_id)
    _add_projects(where, "events", query.projects)
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
    """Return the statement for the heads of these actors (id, sequence, time, executions) and its values.

    A compact run has neither events nor executions yet. Its last journal entry ended it and has the time of
    its last event, and its row has the number of its executions as ordinal.
    """
    sql = (
        "SELECT id, event_head,"
        " coalesce(iif(brief, (SELECT at_ms FROM entries WHERE actor = actors.id AND sequence = entry_head),"
        " (SELECT at_ms FROM events WHERE actor = actors.id AND sequence = event_head)), 0),"
        " coalesce(iif(brief, (SELECT ordinal FROM runs WHERE actor = actors.id AND id = actors.id),"
        " (SELECT max(ordinal) FROM executions WHERE actor = actors.id)), 0)"
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
