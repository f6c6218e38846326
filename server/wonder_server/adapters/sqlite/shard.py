"""A shard: the journal and record of the conversations and runs whose ids name it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.sqlite.codec import Folder, Folding, build, decode, encode, names, unfold
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard_queries import EVENT_COLUMNS, events_sql, rows_sql
from wonder_server.adapters.sqlite.shard_schema import FOLDED_TABLES, MIGRATIONS, ROW_TABLES
from wonder_server.core.planner import Planner, Reload
from wonder_server.core.records import Delete, Emit, Put
from wonder_server.ports.journal import Answered, Commit, Entry, Event, Loaded
from wonder_server.ports.records import EventQuery, Query

_PUT: Final = {
    table: f"""
INSERT INTO {table} (actor, id, parent, ordinal, status, alias, live, created_ms, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (actor, id) DO UPDATE SET
    parent = excluded.parent, ordinal = excluded.ordinal, status = excluded.status,
    alias = excluded.alias, live = excluded.live, data = excluded.data
"""
    for table in ROW_TABLES
}
_DELETE: Final = {table: f"DELETE FROM {table} WHERE actor = ? AND id = ?" for table in ROW_TABLES}
_ACTOR: Final = """
INSERT INTO actors (id, kind, root, entry_head, event_head) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET entry_head = excluded.entry_head, event_head = excluded.event_head
"""
_ENTRY: Final = "INSERT INTO entries (actor, sequence, at_ms, input, decisions) VALUES (?, ?, ?, ?, ?)"
_EVENT: Final = """
INSERT INTO events (actor, sequence, at_ms, name, kind, turn_id, message_id, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_REQUEST: Final = (
    "INSERT INTO requests_answered (scope, id, actor, fingerprint, answer) VALUES (?, ?, ?, ?, ?)"
)
_PART: Final = "INSERT OR IGNORE INTO parts (root, hash, data) VALUES (?, ?, ?)"


class SqliteShard:
    """One shard file. Implements the port ``Journal``, and the queries that `Records` merges."""

    def __init__(self, database: Database) -> None:
        """Internal; use `open`."""
        self.database = database
        self._folder = Folder()

    @classmethod
    async def open(cls, path: Path) -> SqliteShard:
        """Open or create the shard file. Errors: STORAGE_UNAVAILABLE."""
        return cls(await Database.open(path, MIGRATIONS))

    async def close(self) -> None:
        await self.database.close()

    # --- the journal ----------------------------------------------------------------------------

    async def commit(self, commits: Sequence[Commit]) -> None:
        await self.database.write(lambda connection: self._write(connection, commits))

    async def load(self, actor_id: str, planner: Planner) -> Loaded | None:
        return await self.database.read(lambda connection: _load(connection, actor_id, planner))

    async def answered(self, scope: str, request_id: str) -> Answered | None:
        sql = "SELECT fingerprint, answer FROM requests_answered WHERE scope = ? AND id = ?"

        def read(connection: sqlite3.Connection) -> Answered | None:
            row = connection.execute(sql, (scope, request_id)).fetchone()
            return None if row is None else Answered(row[0], decode(row[1]))

        return await self.database.read(read)

    async def events(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Event]:
        sql = (
            f"SELECT {EVENT_COLUMNS} FROM events WHERE actor = ? AND sequence > ? "
            "ORDER BY sequence LIMIT ?"
        )

        def read(connection: sqlite3.Connection) -> list[Event]:
            rows = connection.execute(sql, (actor_id, after, limit)).fetchall()
            return [_event(connection, row, planner) for row in rows]

        return await self.database.read(read)

    async def entries(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Entry]:
        sql = (
            "SELECT sequence, at_ms, input, decisions FROM entries "
            "WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
        )
        inputs, decisions = names(planner.inputs), names(planner.decisions)

        def read(connection: sqlite3.Connection) -> list[Entry]:
            part = _parts(connection, _root(connection, actor_id))
            entries = []
            for sequence, at_ms, event, decided in connection.execute(
                sql, (actor_id, after, limit)
            ).fetchall():
                name, body = unfold(decode(event), part)
                made = unfold(decode(decided), part)
                entries.append(
                    Entry(
                        sequence,
                        at_ms,
                        build(body, inputs[name]),
                        tuple(build(item, decisions[kind]) for kind, item in made),
                    )
                )
            return entries

        return await self.database.read(read)

    async def unfinished(self) -> list[str]:
        sql = "SELECT DISTINCT actor FROM operations WHERE live = 1"
        return await self.database.read(
            lambda connection: [row[0] for row in connection.execute(sql).fetchall()]
        )

    # --- the record, for queries ----------------------------------------------------------------

    async def head(self, actor_id: str) -> int | None:
        """Sequence of the actor's last event; None if there is no such actor."""
        sql = "SELECT event_head FROM actors WHERE id = ?"

        def read(connection: sqlite3.Connection) -> int | None:
            row = connection.execute(sql, (actor_id,)).fetchone()
            return None if row is None else int(row[0])

        return await self.database.read(read)

    async def query(self, query: Query, row_type: type) -> list[Any]:
        """The rows that ``query`` asks for, of this shard, in its order."""
        sql, values = rows_sql(query)

        def read(connection: sqlite3.Connection) -> list[Any]:
            rows = connection.execute(sql, values).fetchall()
            return [
                _row(connection, query.table, actor, data, row_type) for actor, data in rows
            ]

        return await self.database.read(read)

    async def query_events(self, planner: Planner, query: EventQuery) -> list[Event]:
        """The events that ``query`` asks for, of this shard, in its order."""
        sql, values = events_sql(planner, query)

        def read(connection: sqlite3.Connection) -> list[Event]:
            rows = connection.execute(sql, values).fetchall()
            return [_event(connection, row, planner) for row in rows]

        return await self.database.read(read)

    # --- writing --------------------------------------------------------------------------------

    def _write(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> None:
        folding = self._folder.begin()
        for commit in commits:
            root = _root(connection, commit.actor_id) or _new_root(commit)
            self._write_one(connection, commit, root, folding)
            for digest, data in folding.parts.items():
                connection.execute(_PART, (root, digest, data.decode()))

    def _write_one(
        self, connection: sqlite3.Connection, commit: Commit, root: str, folding: Folding
    ) -> None:
        actor = commit.actor_id
        connection.execute(
            _ACTOR, (actor, commit.planner.kind, root, commit.entry_head, commit.event_head)
        )
        for entry in commit.entries:
            event = folding.text([type(entry.input).__name__, entry.input])
            made = folding.text([[type(d).__name__, d] for d in entry.decisions])
            connection.execute(_ENTRY, (actor, entry.sequence, entry.at_ms, event, made))
        for (table, row_id), change in _last(commit.changes).items():
            if isinstance(change, Delete):
                connection.execute(_DELETE[table], (actor, row_id))
            else:
                connection.execute(_PUT[table], (actor, *_columns(change, folding)))
        for happened in commit.events:
            emit = happened.emit
            data = (
                folding.text(emit.value)
                if commit.planner.kind == "run"
                else encode(emit.value).decode()
            )
            connection.execute(
                _EVENT,
                (
                    actor,
                    happened.sequence,
                    happened.at_ms,
                    emit.name,
                    emit.kind,
                    emit.turn_id,
                    emit.message_id,
                    data,
                ),
            )
        for request, answer in commit.requests:
            connection.execute(
                _REQUEST,
                (request.scope, request.id, actor, request.fingerprint, encode(answer).decode()),
            )


def _last(changes: Sequence[Put | Delete]) -> dict[tuple[str, str], Put | Delete]:
    """The last change of each row: what came before it in the same commit need not be written."""
    last: dict[tuple[str, str], Put | Delete] = {}
    for change in changes:
        last[change.table, change.id] = change
    return last


def _columns(put: Put, folding: Folding) -> tuple[Any, ...]:
    data = folding.text(put.value) if put.table in FOLDED_TABLES else encode(put.value).decode()
    return (
        put.id,
        put.parent,
        put.ordinal,
        put.status,
        put.alias,
        int(put.live),
        put.created_ms,
        data,
    )


def _new_root(commit: Commit) -> str:
    """The root of an actor that is written for the first time: see `Planner.root`."""
    return commit.root or commit.actor_id


def _root(connection: sqlite3.Connection, actor_id: str) -> str:
    row = connection.execute("SELECT root FROM actors WHERE id = ?", (actor_id,)).fetchone()
    return "" if row is None else str(row[0])


# --- reading ----------------------------------------------------------------------------------------


class _parts:
    """Looks up parts of one root, each once."""

    def __init__(self, connection: sqlite3.Connection, root: str) -> None:
        self._connection = connection
        self._root = root
        self._known: dict[str, Any] = {}

    def __call__(self, digest: str) -> Any:
        if digest not in self._known:
            row = self._connection.execute(
                "SELECT data FROM parts WHERE root = ? AND hash = ?", (self._root, digest)
            ).fetchone()
            self._known[digest] = decode(row[0])
        return self._known[digest]


def _load(connection: sqlite3.Connection, actor_id: str, planner: Planner) -> Loaded | None:
    actor = connection.execute(
        "SELECT root, entry_head, event_head FROM actors WHERE id = ?", (actor_id,)
    ).fetchone()
    if actor is None:
        return None
    part = _parts(connection, actor[0])
    found = _working_set(connection, actor_id, planner.reload)
    rows = {
        table: [
            build(unfold(decode(data), part), planner.row_types[table])
            for _, data in sorted(found.get(table, {}).items())
        ]
        for table in planner.row_types
    }
    return Loaded(rows, actor[1], actor[2])


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
        for _, row_id in list(found.get(parent, {})):
            add(table, f"{column} = ?", row_id)
    return found


def _row(connection: sqlite3.Connection, table: str, actor: str, data: str, row_type: type) -> Any:
    body = decode(data)
    if table in FOLDED_TABLES:
        body = unfold(body, _parts(connection, _root(connection, actor)))
    return build(body, row_type)


def _event(connection: sqlite3.Connection, row: tuple[Any, ...], planner: Planner) -> Event:
    actor, sequence, at_ms, name, kind, turn_id, message_id, data = row
    body = decode(data)
    if planner.kind == "run":
        body = unfold(body, _parts(connection, _root(connection, actor)))
    value = build(body, planner.event_types[kind])
    return Event(sequence, at_ms, actor, Emit(name, kind, value, turn_id, message_id))
