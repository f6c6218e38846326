"""A shard: the journal and record of the conversations and runs whose ids name it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.sqlite.codec import Folder, build, decode, names, unfold
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard_queries import EVENT_COLUMNS, events_sql, heads_sql, rows_sql
from wonder_server.adapters.sqlite.shard_schema import FOLDED_TABLES, MIGRATIONS, SHARED
from wonder_server.adapters.sqlite.shard_writes import Pin, Writes
from wonder_server.core.planner import Planner, Reload
from wonder_server.core.records import Emit
from wonder_server.ports.journal import Answered, Commit, Entry, Event, Loaded
from wonder_server.ports.records import EventQuery, Head, Query, Snapshot

_STORED_LIMIT: Final = 20_000
_MOST_PARENTS: Final = 500
"""As many rows are named in one statement."""

MAX_EVENTS_BYTES: Final = 256 * 1024
"""About as many bytes of events are read at once; a reader that is slow holds them."""

Placed = tuple[tuple[int, str], Any]
"""A row's place in the order that was asked for, and its value."""


class SqliteShard:
    """One shard file. Implements the port ``Journal``, and the queries that `Records` merges."""

    def __init__(self, database: Database) -> None:
        """Internal; use `open`."""
        self.database = database
        self._folder = Folder()
        self._stored: set[Pin] = set()
        """Known to be on disk, so that they need not be written again."""

    @classmethod
    async def open(cls, path: Path) -> SqliteShard:
        """Open or create the shard file. Errors: STORAGE_UNAVAILABLE."""
        return cls(await Database.open(path, MIGRATIONS))

    async def close(self) -> None:
        await self.database.close()

    async def identity(self) -> tuple[int, int] | None:
        """Which shard this is, of how many; None if that was never written."""
        sql = "SELECT shard, shards FROM identity"
        return await self.database.read(lambda connection: connection.execute(sql).fetchone())

    async def identify(self, shard: int, shards: int) -> None:
        """Write down which shard this is."""
        sql = "INSERT INTO identity (shard, shards) VALUES (?, ?)"
        await self.database.write(lambda connection: connection.execute(sql, (shard, shards)).rowcount)

    # --- the journal ----------------------------------------------------------------------------

    async def commit(self, commits: Sequence[Commit]) -> None:
        await self.submit(commits)

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[Any]:
        future = self.database.submit_with(self._write, list(commits))
        future.add_done_callback(self._note)
        return future

    def _note(self, written: asyncio.Future[tuple[set[Pin], list[Pin]]]) -> None:
        """Remember which definitions are on disk now, if they are."""
        if written.cancelled() or written.exception() is not None:
            return
        stored, pins = written.result()
        if len(stored) > _STORED_LIMIT:
            stored.clear()
        stored.update(pins)

    async def load(self, actor_id: str, planner: Planner) -> Loaded | None:
        return await self.database.read(lambda connection: _load(connection, actor_id, planner))

    async def answered(self, scope: str, request_id: str) -> Answered | None:
        sql = "SELECT fingerprint, answer FROM requests_answered WHERE scope = ? AND id = ?"

        def read(connection: sqlite3.Connection) -> Answered | None:
            row = connection.execute(sql, (scope, request_id)).fetchone()
            return None if row is None else Answered(row[0], decode(row[1]))

        return await self.database.read(read)

    async def events(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Event]:
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"

        def read(connection: sqlite3.Connection) -> list[Event]:
            found, size, parts = [], 0, _Parts(connection, actor_id)
            with closing(connection.execute(sql, (actor_id, after, limit))) as rows:
                for row in rows:
                    found.append(_event(parts, row, planner))
                    size += len(row[-1])
                    if size + parts.size > MAX_EVENTS_BYTES:
                        break
            return found

        return await self.database.read(read)

    async def entries(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Entry]:
        sql = (
            "SELECT sequence, at_ms, input, decisions FROM entries "
            "WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"
        )
        inputs, decisions = names(planner.inputs), names(planner.decisions)

        def read(connection: sqlite3.Connection) -> list[Entry]:
            part = _Parts(connection, actor_id)
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

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        """Where the records of these actors, all of this shard, end."""
        return await self.database.read(lambda connection: _heads(connection, actors))

    async def query(self, query: Query, row_type: type) -> list[Placed]:
        """The rows that ``query`` asks for, of this shard, each with its place in the order."""
        return await self.database.read(lambda connection: _rows(connection, query, row_type))

    async def snapshot(self, actor: str, queries: Sequence[tuple[Query, type]]) -> Snapshot | None:
        """What the queries find of one actor, each with the class of its rows; see `Records.snapshot`."""

        def read(connection: sqlite3.Connection) -> Snapshot | None:
            head = _heads(connection, [actor]).get(actor)
            if head is None:
                return None
            found = [_rows(connection, query, row_type) for query, row_type in queries]
            return Snapshot(head, [[value for _, value in rows] for rows in found])

        return await self.database.glance(read)

    async def query_events(self, planner: Planner, query: EventQuery) -> list[Event]:
        """The events that ``query`` asks for, of this shard, in its order."""
        sql, values = events_sql(planner, query)

        def read(connection: sqlite3.Connection) -> list[Event]:
            rows = connection.execute(sql, values).fetchall()
            return [_event(_Parts(connection, row[0]), row, planner) for row in rows]

        return await self.database.read(read)

    # --- writing --------------------------------------------------------------------------------

    def _write(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> tuple[set[Pin], list[Pin]]:
        """In the writer's thread. Returns the pins that were written, and the set that is to hold them."""
        writes = Writes(self._folder)
        for commit in commits:
            writes.add(commit)
        if writes.erases:
            # What was known to be stored may be gone, and what is still to be noted of it.
            self._stored = set()
        return self._stored, writes.carry_out(connection, self._stored)


# --- reading ----------------------------------------------------------------------------------------


def _heads(connection: sqlite3.Connection, actors: Sequence[str]) -> dict[str, Head]:
    sql, values = heads_sql(actors)
    return {row[0]: Head(*row[1:]) for row in connection.execute(sql, values).fetchall()}


def _rows(connection: sqlite3.Connection, query: Query, row_type: type) -> list[Placed]:
    sql, values = rows_sql(query)
    parts: dict[str, _Parts] = {}
    found = []
    for actor, row_id, order, data in connection.execute(sql, values).fetchall():
        part = parts.get(actor)
        if part is None:
            part = parts[actor] = _Parts(connection, actor)
        found.append(((order, row_id), _value(query.table, data, part, row_type)))
    return found


class _Parts:
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


def _load(connection: sqlite3.Connection, actor_id: str, planner: Planner) -> Loaded | None:
    actor = connection.execute(
        "SELECT entry_head, event_head FROM actors WHERE id = ?", (actor_id,)
    ).fetchone()
    if actor is None:
        return None
    part = _Parts(connection, actor_id)
    found = _working_set(connection, actor_id, planner.reload)
    rows = {
        table: [
            _value(table, data, part, planner.row_types[table])
            for _, data in sorted(found.get(table, {}).items())
        ]
        for table in planner.row_types
    }
    return Loaded(rows, actor[0], actor[1])


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


def _value(table: str, data: str, part: _Parts, row_type: type) -> Any:
    """A row's value. What was never folded is taken as it stands: a ``$`` in it is the user's own."""
    body = decode(data)
    return build(unfold(body, part) if table in FOLDED_TABLES else body, row_type)


def _event(parts: _Parts, row: tuple[Any, ...], planner: Planner) -> Event:
    actor, sequence, at_ms, name, kind, turn_id, message_id, data = row
    body = decode(data)
    if planner.kind == "run":
        body = unfold(body, parts)
    value = build(body, planner.event_types[kind])
    return Event(sequence, at_ms, actor, Emit(name, kind, value, turn_id, message_id))
