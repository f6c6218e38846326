"""Reading a shard, in the writer's thread: rows and journals back into values."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from wonder_server.adapters.sqlite.codec import build, decode, names, read, unfold
from wonder_server.adapters.sqlite.shard_queries import heads_sql, rows_sql
from wonder_server.adapters.sqlite.shard_schema import FOLDED_TABLES, SHARED
from wonder_server.core.planner import Planner, Reload
from wonder_server.core.records import Emit
from wonder_server.ports.journal import Entry, Event, Loaded
from wonder_server.ports.records import Head, Query

_MOST_PARENTS: Final = 500
"""As many rows are named in one statement."""

Placed = tuple[tuple[int, str], Any]
"""A row's place in the order that was asked for, and its value."""


def heads(connection: sqlite3.Connection, actors: Sequence[str]) -> dict[str, Head]:
    """Where the records of these actors end."""
    sql, values = heads_sql(actors)
    return {row[0]: Head(*row[1:]) for row in connection.execute(sql, values).fetchall()}


def rows(connection: sqlite3.Connection, query: Query, row_type: type) -> list[Placed]:
    """The rows that a query asks for."""
    sql, values = rows_sql(query)
    parts: dict[str, Parts] = {}
    found = []
    for actor, row_id, order, data in connection.execute(sql, values).fetchall():
        part = parts.get(actor)
        if part is None:
            part = parts[actor] = Parts(connection, actor)
        found.append(((order, row_id), _value(query.table, data, part, row_type)))
    return found


class Parts:
    """Looks up the parts that an actor's values refer to, each once."""

    def __init__(self, connection: sqlite3.Connection, actor_id: str) -> None:
        self._connection = connection
        self._actor_id = actor_id
        self._known: dict[str, Any] = {}
        self.size = 0
        """Bytes of those that were looked up."""

    def __call__(self, digest: str) -> Any:
        if digest not in self._known:
            row = self._connection.execute(
                "SELECT data FROM parts"
                " WHERE root IN ((SELECT root FROM actors WHERE id = ?), ?) AND hash = ? LIMIT 1",
                (self._actor_id, SHARED, digest),
            ).fetchone()
            self._known[digest] = decode(row[0])
            self.size += len(row[0])
        return self._known[digest]


def load(connection: sqlite3.Connection, actor_id: str, planner: Planner) -> Loaded | None:
    """An actor as it was written; None if it was not."""
    actor = connection.execute(
        "SELECT entry_head, event_head,"
        " coalesce((SELECT at_ms FROM entries WHERE actor = actors.id AND sequence = entry_head), 0)"
        " FROM actors WHERE id = ?",
        (actor_id,),
    ).fetchone()
    if actor is None:
        return None
    part = Parts(connection, actor_id)
    found = _working_set(connection, actor_id, planner.reload)
    rows = {
        table: [
            _value(table, data, part, planner.row_types[table])
            for _, data in sorted(found.get(table, {}).items())
        ]
        for table in planner.row_types
    }
    return Loaded(rows, *actor)


def _working_set(
    connection: sqlite3.Connection, actor_id: str, reload: Reload
) -> dict[str, dict[tuple[int, str], str]]:
    """Rows by table, keyed so that they sort by ordinal, then id."""
    found: dict[str, dict[tuple[int, str], str]] = {}

    def add(table: str, where: str, *values: Any) -> None:
        sql = f"SELECT ordinal, id, data FROM {table} WHERE actor = ? AND {where}"
        for ordinal, row_id, data in connection.execute(sql, (actor_id, *values)).fetchall():
            found.setdefault(table, {})[ordinal, row_id] = data

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


def _value(table: str, data: str, part: Parts, row_type: type) -> Any:
    """A row's value. What was never folded is taken as it stands: a ``$`` in it is the user's own."""
    return build(unfold(decode(data), part), row_type) if table in FOLDED_TABLES else read(data, row_type)


def event(parts: Parts, row: tuple[Any, ...], planner: Planner) -> Event:
    """An event, from its columns `shard_queries.EVENT_COLUMNS`."""
    actor, sequence, at_ms, name, kind, turn_id, message_id, data = row
    cls = planner.event_types[kind]
    value = build(unfold(decode(data), parts), cls) if planner.kind == "run" else read(data, cls)
    return Event(sequence, at_ms, actor, Emit(name, kind, value, turn_id, message_id))


def entries(
    connection: sqlite3.Connection, actor_id: str, planner: Planner, after: int, limit: int
) -> list[Entry]:
    """Journal entries with a sequence above ``after``, in order."""
    sql = (
        "SELECT sequence, at_ms, input, decisions FROM entries "
        "WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
    )
    inputs, decisions = names(planner.inputs), names(planner.decisions)
    part = Parts(connection, actor_id)
    found = []
    for sequence, at_ms, told, decided in connection.execute(sql, (actor_id, after, limit)).fetchall():
        name, body = unfold(decode(told), part)
        made = unfold(decode(decided), part)
        found.append(
            Entry(
                sequence,
                at_ms,
                build(body, inputs[name]),
                tuple(build(item, decisions[kind]) for kind, item in made),
            )
        )
    return found
