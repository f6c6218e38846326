"""Reading a shard, in the writer's thread: rows and journals back into values."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import msgspec

from wonder_server.adapters.sqlite.codec import build, decode, part_name, read, unfold
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard_queries import ROW_COLUMNS, events_sql, heads_sql, rows_sql
from wonder_server.adapters.sqlite.shard_schema import FOLDED_TABLES, SHARED
from wonder_server.adapters.sqlite.stored_names import classes_by_tag, event_name
from wonder_server.core.errors import WonderError
from wonder_server.core.planner import Planner, Reload
from wonder_server.core.records import Emit
from wonder_server.logs import logger
from wonder_server.ports.journal import Entry, Event, Loaded
from wonder_server.ports.records import EventQuery, Found, Head, Query

_log = logger("store")

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError)
"""What reading raises of a row that has no seal yet, or was written by a bug."""

_DATA: Final = -3
"""Where the data stands among the columns of a row and of an event."""
_MOST_PARENTS: Final = 500
"""As many rows are named in one statement."""

Placed = tuple[tuple[int, str], Any]
"""A row's place in the order that was asked for, and its value."""


def heads(connection: sqlite3.Connection, actors: Sequence[str]) -> dict[str, Head]:
    """Where the records of these actors end."""
    sql, values = heads_sql(actors)
    return {row[0]: Head(*row[1:]) for row in connection.execute(sql, values).fetchall()}


def rows(connection: sqlite3.Connection, query: Query, row_type: type, seals: Seals) -> Found:
    """The rows that a query asks for, each a `Placed`. STORAGE_UNAVAILABLE if one is damaged, unless the
    query is lenient."""
    sql, values = rows_sql(query, row_type)
    parts: dict[str, Parts] = {}
    found, room, count = Found(), _Room(query.most_bytes), 0
    with closing(connection.execute(sql, values)) as cursor:
        for order, *row in cursor:
            if not room.takes(len(row[_DATA] or "")):
                found.cut = True
                break
            actor = row[0]
            part = parts.get(actor)
            if part is None:
                part = parts[actor] = Parts(connection, actor, seals)
            count, before = count + 1, part.size
            try:
                found.append(((order, row[1]), _value(query.table, row, part, row_type)))
            except WonderError as problem:
                if not query.lenient:
                    raise
                _log.error("damaged_record_skipped", problem=str(problem))
            room.taken += part.size - before
    if len(found) < count == query.limit:
        # Fewer than were asked for, though not because there are no more.
        found.cut = True
    return found


def events(connection: sqlite3.Connection, planner: Planner, query: EventQuery, seals: Seals) -> Found:
    """The events that a query asks for."""
    sql, values = events_sql(planner, query)
    found, room = Found(), _Room(query.most_bytes)
    with closing(connection.execute(sql, values)) as cursor:
        for row in cursor:
            if not room.takes(len(row[_DATA] or "")):
                found.cut = True
                break
            part = Parts(connection, row[0], seals)
            found.append(event(part, row, planner))
            room.taken += part.size
    return found


class _Room:
    """The bytes that one answer may still read; the first row always fits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0

    def takes(self, size: int) -> bool:
        """Take a row of so many bytes in, if there is room for it."""
        fits = not self._most or not self.taken or self.taken + size <= self._most
        self.taken += size + 1
        return fits


class Parts:
    """Looks up the parts that an actor's values refer to, each once."""

    def __init__(self, connection: sqlite3.Connection, actor_id: str, seals: Seals) -> None:
        self._connection = connection
        self._actor_id = actor_id
        self.seals = seals
        self._known: dict[str, Any] = {}
        self.size = 0
        """Bytes of those that were looked up."""

    def __call__(self, digest: str) -> Any:
        if digest not in self._known:
            row = self._connection.execute(
                "SELECT CAST(data AS BLOB) FROM parts"
                " WHERE root IN ((SELECT root FROM actors WHERE id = ?), ?) AND hash = ? LIMIT 1",
                (self._actor_id, SHARED, digest),
            ).fetchone()
            if row is None or type(row[0]) is not bytes or part_name(row[0]) != digest:
                self.seals.refuse("parts", (self._actor_id, digest))
            self._known[digest] = decode(row[0])
            self.size += len(row[0])
        return self._known[digest]


def load(connection: sqlite3.Connection, actor_id: str, planner: Planner, seals: Seals) -> Loaded | None:
    """An actor as it was written; None if it was not. STORAGE_UNAVAILABLE if a row of it is damaged."""
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
    at_ms = 0 if last is None else _checked(seals, actor_id, last)[1]
    part = Parts(connection, actor_id, seals)
    rows = {
        table: [_value(table, row, part, planner.row_types[table]) for _, row in sorted(found.items())]
        for table, found in _working_set(connection, actor_id, planner.reload, seals).items()
    }
    return Loaded({table: rows.get(table, []) for table in planner.row_types}, entry_head, event_head, at_ms)


def _working_set(
    connection: sqlite3.Connection, actor_id: str, reload: Reload, seals: Seals
) -> dict[str, dict[tuple[int, str], tuple[Any, ...]]]:
    """Rows by table, keyed so that they sort by ordinal, then id."""
    found: dict[str, dict[tuple[int, str], tuple[Any, ...]]] = {}

    def add(table: str, where: str, *values: Any) -> None:
        sql = f"SELECT {ROW_COLUMNS} FROM {table} WHERE actor = ? AND {where}"
        for row in connection.execute(sql, (actor_id, *values)).fetchall():
            if type(row[1]) is not str or type(row[3]) is not int:
                seals.refuse(table, row[:2])
            found.setdefault(table, {})[row[3], row[1]] = row

    for table in reload.live:
        add(table, "live = 1")
    for table, count in reload.recent:
        add(table, "1 ORDER BY ordinal DESC LIMIT ?", count)
    for table, parent in reload.children:
        column = "id" if (table, parent) == ("turns", "works") else "parent"
        parents = [row_id for _, row_id in found.get(parent, {})]
        for start in range(0, len(parents), _MOST_PARENTS):
            some = parents[start : start + _MOST_PARENTS]
            add(table, f"{column} IN ({', '.join('?' * len(some))})", *some)
    return found


def _value(table: str, row: Sequence[Any], part: Parts, row_type: type) -> Any:
    """The value of a row, from its columns `shard_queries.ROW_COLUMNS`. What was never folded is taken as it
    stands: a ``$`` in it is the user's own."""
    *key, data, found, place = row
    data = part.seals.check(table, tuple(key), data, found, place)
    try:
        return build(unfold(decode(data), part), row_type) if table in FOLDED_TABLES else read(data, row_type)
    except _UNREADABLE:
        part.seals.refuse(table, tuple(key))


def event(parts: Parts, row: tuple[Any, ...], planner: Planner) -> Event:
    """An event, from its columns `shard_queries.EVENT_COLUMNS`."""
    *key, data, found, place = row
    data = parts.seals.check("events", tuple(key), data, found, place)
    actor, sequence, at_ms, stored, _, turn_id, message_id = key
    try:
        name = event_name(stored)
        cls = planner.event_types[name.replace(".", "_")]
        value = build(unfold(decode(data), parts), cls) if planner.kind == "run" else read(data, cls)
    except _UNREADABLE:
        parts.seals.refuse("events", tuple(key))
    return Event(sequence, at_ms, actor, Emit(name, value, turn_id, message_id))


def refuse_lost(
    connection: sqlite3.Connection, actor_id: str, after: int, found: Sequence[Event], seals: Seals
) -> None:
    """Raise STORAGE_UNAVAILABLE if ``found`` are not all events above ``after``: sequences have no gaps. An
    archived record has neither its first events nor its first entry."""
    actor = connection.execute("SELECT event_head FROM actors WHERE id = ?", (actor_id,)).fetchone()
    last = found[-1].sequence if found else after
    if actor is not None and last < actor[0]:
        seals.refuse("events", (actor_id, last + 1))
    begins = "SELECT 1 FROM entries WHERE actor = ? AND sequence = 1"
    if found and found[0].sequence > after + 1 and connection.execute(begins, (actor_id,)).fetchone():
        seals.refuse("events", (actor_id, after + 1))


def entries(
    connection: sqlite3.Connection, actor_id: str, planner: Planner, after: int, limit: int, seals: Seals
) -> list[Entry]:
    """Journal entries with a sequence above ``after``, in order. STORAGE_UNAVAILABLE if one is damaged or
    missing between two others."""
    sql = f"{_ENTRIES} WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
    inputs, decisions = classes_by_tag(planner.inputs), classes_by_tag(planner.decisions)
    part = Parts(connection, actor_id, seals)
    found: list[Entry] = []
    for row in connection.execute(sql, (actor_id, after, limit)).fetchall():
        if found and row[0] != found[-1].sequence + 1:
            seals.refuse("entries", (actor_id, found[-1].sequence + 1))
        sequence, at_ms, told, decided = _checked(seals, actor_id, row)
        try:
            name, body = unfold(decode(told), part)
            given = build(body, inputs[name])
            made = tuple(build(item, decisions[kind]) for kind, item in unfold(decode(decided), part))
        except _UNREADABLE:
            seals.refuse("entries", (actor_id, sequence))
        found.append(Entry(sequence, at_ms, given, made))
    return found


_ENTRIES: Final = (
    "SELECT sequence, at_ms, CAST(input AS BLOB), CAST(decisions AS BLOB), seal, rowid FROM entries"
)


def _checked(seals: Seals, actor_id: str, row: tuple[Any, ...]) -> tuple[int, int, bytes, bytes]:
    """Sequence, time, input and decisions of a journal entry that is whole. STORAGE_UNAVAILABLE."""
    sequence, at_ms, told, decided, *seal = row
    whole = b"\n".join((told, decided)) if type(told) is type(decided) is bytes else None
    seals.check("entries", (actor_id, sequence, at_ms), whole, *seal)
    return sequence, at_ms, told, decided
