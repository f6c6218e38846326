"""Reading rows, events and journals of a shard as values. Runs in the writer thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import msgspec

from wonder_server.adapters.sqlite.codec.fields import StoredValue
from wonder_server.adapters.sqlite.codec.interning import build, decode, part_name, read, resolve_parts
from wonder_server.adapters.sqlite.codec.stored_names import classes_by_tag, event_name
from wonder_server.adapters.sqlite.connection import Row, SqlValue
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard.queries import ROW_COLUMNS, events_sql, heads_sql, rows_sql
from wonder_server.adapters.sqlite.shard.schema import INTERNED_TABLES, SHARED
from wonder_server.core.actor.changes import Emit
from wonder_server.core.actor.planner import Planner, Reload
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.journal import Entry, Event, Loaded
from wonder_server.ports.records import EventQuery, Head, Query, QueryResult

_log = logger("store")

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError)
"""Errors of decoding a row without a seal, or a row that a bug wrote."""

_DATA: Final = -3
"""The index of the data among the columns of a row and of an event."""
_MAX_PARENTS: Final = 500
"""Maximum number of parents in one statement."""


def heads(connection: sqlite3.Connection, actors: Sequence[str]) -> dict[str, Head]:
    """Return the head of each of these actors that exists."""
    sql, values = heads_sql(actors)
    return {row[0]: Head(*row[1:]) for row in connection.execute(sql, values).fetchall()}


def rows(connection: sqlite3.Connection, query: Query, row_type: type, seals: Seals) -> QueryResult:
    """Return the rows for a query, each as ``((order, id), value)``.

    STORAGE_UNAVAILABLE if one is damaged, unless the query is lenient.
    """
    sql, values = rows_sql(query, row_type)
    parts: dict[str, PartReader] = {}
    found, budget, count = QueryResult(), _ByteBudget(query.max_bytes), 0
    with closing(connection.execute(sql, values)) as cursor:
        for order, *row in cursor:
            if not budget.add(len(row[_DATA] or "")):
                found.truncated = True
                break
            actor = row[0]
            part = parts.get(actor)
            if part is None:
                part = parts[actor] = PartReader(connection, actor, seals)
            count, before = count + 1, part.size
            try:
                found.append(((order, row[1]), _value(query.table, row, part, row_type)))
            except WonderError as problem:
                if not query.lenient:
                    raise
                _log.error("damaged_record_skipped", problem=str(problem))
            budget.used += part.size - before
    if len(found) < count == query.limit:
        # Damaged rows were skipped, so a result below the limit does not mean that there are no more rows.
        found.truncated = True
    return found


def events(connection: sqlite3.Connection, planner: Planner, query: EventQuery, seals: Seals) -> QueryResult:
    """Return the events for a query."""
    sql, values = events_sql(planner, query)
    found, budget = QueryResult(), _ByteBudget(query.max_bytes)
    with closing(connection.execute(sql, values)) as cursor:
        for row in cursor:
            if not budget.add(len(row[_DATA] or "")):
                found.truncated = True
                break
            part = PartReader(connection, row[0], seals)
            found.append(event(part, row, planner))
            budget.used += part.size
    return found


class _ByteBudget:
    """The bytes that one result may read. The first row always fits."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used = 0

    def add(self, size: int) -> bool:
        """Count a row of ``size`` bytes. Return False if it exceeds the budget."""
        fits = not self._max_bytes or not self.used or self.used + size <= self._max_bytes
        self.used += size + 1
        return fits


class PartReader:
    """Read the parts that an actor's values refer to, each once."""

    def __init__(self, connection: sqlite3.Connection, actor_id: str, seals: Seals) -> None:
        self._connection = connection
        self._actor_id = actor_id
        self.seals = seals
        self._known: dict[str, StoredValue] = {}
        self.size = 0
        """Total bytes of the parts read."""

    def __call__(self, digest: str) -> StoredValue:
        if digest not in self._known:
            row = self._connection.execute(
                "SELECT CAST(data AS BLOB) FROM parts"
                " WHERE root IN ((SELECT root FROM actors WHERE id = ?), ?) AND hash = ? LIMIT 1",
                (self._actor_id, SHARED, digest),
            ).fetchone()
            if row is None or type(row[0]) is not bytes or part_name(row[0]) != digest:
                self.seals.raise_damaged("parts", (self._actor_id, digest))
            self._known[digest] = decode(row[0])
            self.size += len(row[0])
        return self._known[digest]


def load(connection: sqlite3.Connection, actor_id: str, planner: Planner, seals: Seals) -> Loaded | None:
    """Read an actor; None if it does not exist. STORAGE_UNAVAILABLE if one of its rows is damaged."""
    actor = connection.execute(
        "SELECT entry_head, event_head, seal FROM actors WHERE id = ?", (actor_id,)
    ).fetchone()
    if actor is None:
        return None
    entry_head, event_head, seal = actor
    seals.check("actors", (actor_id, entry_head, event_head), b"", seal, 1)
    last = connection.execute(
        f"{_ENTRIES} WHERE actor = ? AND sequence = ?", (actor_id, entry_head)
    ).fetchone()
    at_ms = 0 if last is None else _verified_entry(seals, actor_id, last)[1]
    part = PartReader(connection, actor_id, seals)
    rows = {
        table: [_value(table, row, part, planner.row_types[table]) for _, row in sorted(found.items())]
        for table, found in _working_set(connection, actor_id, planner.reload, seals).items()
    }
    return Loaded({table: rows.get(table, []) for table in planner.row_types}, entry_head, event_head, at_ms)


def _working_set(
    connection: sqlite3.Connection, actor_id: str, reload: Reload, seals: Seals
) -> dict[str, dict[tuple[int, str], Row]]:
    """Read the rows to load, by table, with keys that sort by ordinal, then id."""
    found: dict[str, dict[tuple[int, str], Row]] = {}

    def add(table: str, where: str, *values: SqlValue) -> None:
        sql = f"SELECT {ROW_COLUMNS} FROM {table} WHERE actor = ? AND {where}"
        for row in connection.execute(sql, (actor_id, *values)).fetchall():
            if type(row[1]) is not str or type(row[3]) is not int:
                seals.raise_damaged(table, row[:2])
            found.setdefault(table, {})[row[3], row[1]] = row

    for table in reload.live:
        add(table, "live = 1")
    for table, count in reload.recent:
        add(table, "1 ORDER BY ordinal DESC LIMIT ?", count)
    for table, parent in reload.children:
        column = "id" if (table, parent) == ("turns", "works") else "parent"
        parents = [row_id for _, row_id in found.get(parent, {})]
        for start in range(0, len(parents), _MAX_PARENTS):
            some = parents[start : start + _MAX_PARENTS]
            add(table, f"{column} IN ({', '.join('?' * len(some))})", *some)
    return found


def _value(table: str, row: Row, part: PartReader, row_type: type) -> StoredValue:
    """Decode the value of a row with the columns `queries.ROW_COLUMNS`.

    Tables without interning are decoded directly: a ``$`` in them is user data.
    """
    *key, data, found, rowid = row
    data = part.seals.check(table, tuple(key), data, found, rowid)
    try:
        return (
            build(resolve_parts(decode(data), part), row_type)
            if table in INTERNED_TABLES
            else read(data, row_type)
        )
    except _UNREADABLE:
        part.seals.raise_damaged(table, tuple(key))


def event(parts: PartReader, row: Row, planner: Planner) -> Event:
    """Decode an event with the columns `queries.EVENT_COLUMNS`."""
    *key, data, found, rowid = row
    data = parts.seals.check("events", tuple(key), data, found, rowid)
    actor, sequence, at_ms, stored, _, turn_id, message_id = key
    try:
        name = event_name(stored)
        cls = planner.event_types[name.replace(".", "_")]
        value = build(resolve_parts(decode(data), parts), cls) if planner.kind == "run" else read(data, cls)
    except _UNREADABLE:
        parts.seals.raise_damaged("events", tuple(key))
    return Event(sequence, at_ms, actor, Emit(name, value, turn_id, message_id))


def check_complete(
    connection: sqlite3.Connection, actor_id: str, after: int, found: Sequence[Event], seals: Seals
) -> None:
    """Raise STORAGE_UNAVAILABLE unless ``found`` are all events after ``after``: sequences have no gaps.

    An archived record lacks its first events and its first journal entry, so then a later start is accepted.
    """
    actor = connection.execute("SELECT event_head FROM actors WHERE id = ?", (actor_id,)).fetchone()
    last = found[-1].sequence if found else after
    if actor is not None and last < actor[0]:
        seals.raise_damaged("events", (actor_id, last + 1))
    has_first = "SELECT 1 FROM entries WHERE actor = ? AND sequence = 1"
    if found and found[0].sequence > after + 1 and connection.execute(has_first, (actor_id,)).fetchone():
        seals.raise_damaged("events", (actor_id, after + 1))


def entries(
    connection: sqlite3.Connection, actor_id: str, planner: Planner, after: int, limit: int, seals: Seals
) -> list[Entry]:
    """Return journal entries with a sequence above ``after``, in order.

    STORAGE_UNAVAILABLE if one is damaged, or missing between two others.
    """
    sql = f"{_ENTRIES} WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
    inputs, decisions = classes_by_tag(planner.inputs), classes_by_tag(planner.decisions)
    part = PartReader(connection, actor_id, seals)
    found: list[Entry] = []
    for row in connection.execute(sql, (actor_id, after, limit)).fetchall():
        if found and row[0] != found[-1].sequence + 1:
            seals.raise_damaged("entries", (actor_id, found[-1].sequence + 1))
        sequence, at_ms, data, decision_data = _verified_entry(seals, actor_id, row)
        try:
            tag, body = resolve_parts(decode(data), part)
            value = build(body, inputs[tag])
            decided = tuple(
                build(item, decisions[kind]) for kind, item in resolve_parts(decode(decision_data), part)
            )
        except _UNREADABLE:
            seals.raise_damaged("entries", (actor_id, sequence))
        found.append(Entry(sequence, at_ms, value, decided))
    return found


_ENTRIES: Final = (
    "SELECT sequence, at_ms, CAST(input AS BLOB), CAST(decisions AS BLOB), seal, rowid FROM entries"
)


def _verified_entry(seals: Seals, actor_id: str, row: Row) -> tuple[int, int, bytes, bytes]:
    """Check the seal of a journal entry. Return sequence, time, input and decisions. STORAGE_UNAVAILABLE."""
    sequence, at_ms, data, decision_data, *seal = row
    whole = b"\n".join((data, decision_data)) if type(data) is type(decision_data) is bytes else None
    seals.check("entries", (actor_id, sequence, at_ms), whole, *seal)
    return sequence, at_ms, data, decision_data
