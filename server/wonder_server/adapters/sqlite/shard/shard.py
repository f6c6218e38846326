"""A shard: the journal and record of the conversations and runs whose ids name it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from wonder_server.adapters.sqlite.codec.interning import Interner, decode
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard import reads
from wonder_server.adapters.sqlite.shard.compact_runs import (
    ALWAYS_WRITTEN,
    MAX_EXPANDED_AT_ONCE,
    CompactRunError,
    expand,
    require_expanded,
    supports_compact,
)
from wonder_server.adapters.sqlite.shard.queries import EVENT_COLUMNS
from wonder_server.adapters.sqlite.shard.reads import PartReader
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.writes import Pin, Writes
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.journal import Commit, Entry, Event, Loaded, frees_space
from wonder_server.ports.records import EventQuery, Head, Query, QueryResult, Snapshot

T = TypeVar("T")

_DATA: Final = -3
"""The place of the content among the columns of an event."""

_STORED_LIMIT: Final = 20_000
MAX_EVENTS_BYTES: Final = 256 * 1024
"""About as many bytes of events are read at once; a reader that is slow holds them."""


class _RollbackAfterRead(Exception):
    """What was read in a write that is not to be kept."""

    def __init__(self, value: Any) -> None:
        super().__init__("seen")
        self.value = value


class SqliteShard:
    """One shard file. Implements the port ``Journal``, and the queries that `Records` merges."""

    def __init__(self, database: Database, seals: Seals) -> None:
        """Internal; use `open`."""
        self.database = database
        self.seals = seals
        self._interner = Interner()
        self._stored: set[Pin] = set()
        """Known to be on disk, so that they need not be written again."""

    @classmethod
    async def open(cls, path: Path) -> SqliteShard:
        """Open or create the shard file. Errors: STORAGE_UNAVAILABLE."""
        database = await Database.open(path, MIGRATIONS)
        name = f"{path.parent.name}/{path.name}"
        try:
            return cls(database, await database.read(lambda connection: Seals.load(connection, name)))
        except BaseException:
            await database.close()
            raise

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
        future = self.database.submit_with(self._write, list(commits), frees=any(map(frees_space, commits)))
        future.add_done_callback(self._on_written)
        return future

    def _on_written(self, written: asyncio.Future[tuple[set[Pin], list[Pin]]]) -> None:
        """Remember which definitions are on disk now, if they are."""
        if written.cancelled() or written.exception() is not None:
            return
        stored, pins = written.result()
        if len(stored) > _STORED_LIMIT:
            stored.clear()
        stored.update(pins)

    async def load(self, actor_id: str, planner: Planner) -> Loaded | None:
        return await self._read_expanded(
            [actor_id], lambda connection: reads.load(connection, actor_id, planner, self.seals)
        )

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        sql = (
            "SELECT actor, fingerprint, CAST(answer AS BLOB), seal FROM requests_answered"
            " WHERE scope = ? AND id = ?"
        )

        def read(connection: sqlite3.Connection) -> CompletedRequest | None:
            row = connection.execute(sql, (scope, request_id)).fetchone()
            if row is None:
                return None
            actor, fingerprint, data, found = row
            key = scope, request_id, actor, fingerprint
            return CompletedRequest(
                fingerprint, decode(self.seals.check("requests_answered", key, data, found, 1))
            )

        return await self.database.read(read)

    async def events(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Event]:
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE actor = ? AND sequence > ? ORDER BY sequence LIMIT ?"

        def read(connection: sqlite3.Connection) -> list[Event]:
            found: list[Event] = []
            size, parts = 0, PartReader(connection, actor_id, self.seals)
            with closing(connection.execute(sql, (actor_id, after, limit))) as rows:
                for row in rows:
                    if found and row[1] != found[-1].sequence + 1:
                        self.seals.raise_damaged("events", (actor_id, found[-1].sequence + 1))
                    found.append(reads.event(parts, row, planner))
                    size += len(row[_DATA])
                    if size + parts.size > MAX_EVENTS_BYTES:
                        return found
            if len(found) < limit:
                reads.check_complete(connection, actor_id, after, found, self.seals)
            return found

        return await self._read_expanded([actor_id], read)

    async def entries(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Entry]:
        # The journal is there whole, also of those that were written in brief.
        return await self.database.read(
            lambda connection: reads.entries(connection, actor_id, planner, after, limit, self.seals)
        )

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

        return await self._read_expanded([actor_id], read)

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        """Where the records of these actors, all of this shard, end."""
        return await self._read_expanded(actors, lambda connection: reads.heads(connection, actors))

    async def query(self, query: Query, row_type: type) -> QueryResult:
        """The rows that ``query`` asks for, of this shard, each with its place in the order."""

        def read(connection: sqlite3.Connection) -> QueryResult:
            return reads.rows(connection, query, row_type, self.seals)

        return await self._read_expanded([] if query.table in ALWAYS_WRITTEN else [query.actor], read)

    async def snapshot(self, actor: str, queries: Sequence[tuple[Query, type]]) -> Snapshot | None:
        """What the queries find of one actor, each with the class of its rows; see `Records.snapshot`."""

        def read(connection: sqlite3.Connection) -> Snapshot | None:
            head = reads.heads(connection, [actor]).get(actor)
            if head is None:
                return None
            found = [reads.rows(connection, query, row_type, self.seals) for query, row_type in queries]
            return Snapshot(head, [[value for _, value in rows] for rows in found])

        return await self._read_expanded([actor], read, between_commits=True)

    async def query_events(self, planner: Planner, query: EventQuery) -> QueryResult:
        """The events that ``query`` asks for, of this shard, in its order."""

        def read(connection: sqlite3.Connection) -> QueryResult:
            return reads.events(connection, planner, query, self.seals)

        return await self._read_expanded([query.actor], read)

    async def _read_expanded(
        self, actors: Sequence[str], read: Callable[[sqlite3.Connection], T], *, between_commits: bool = False
    ) -> T:
        """What ``read`` finds of these actors, once those that were written in brief are written out."""
        look = self.database.read_between_commits if between_commits else self.database.read
        doubtful = [actor for actor in actors if supports_compact(actor)]
        if not doubtful:
            return await look(read)

        def read_what_is_whole(connection: sqlite3.Connection) -> T:
            require_expanded(connection, doubtful)
            return read(connection)

        try:
            return await look(read_what_is_whole)
        except CompactRunError as found:
            briefs = found.actors
        try:
            for start in range(0, len(briefs), MAX_EXPANDED_AT_ONCE):
                some = briefs[start : start + MAX_EXPANDED_AT_ONCE]
                await self.database.write(partial(expand, actors=some, seals=self.seals))
        except WonderError:
            # The disk may be full: what can be read is read all the same, and not kept.
            return await self._read_and_roll_back(briefs, read)
        return await look(read)

    async def _read_and_roll_back(self, briefs: Sequence[str], read: Callable[[sqlite3.Connection], T]) -> T:
        """What ``read`` would find if these actors were written out."""

        def write_and_read(connection: sqlite3.Connection) -> None:
            expand(connection, briefs, self.seals)
            raise _RollbackAfterRead(read(connection))

        try:
            # Nothing of it is kept.
            await self.database.write(write_and_read, frees=True)
        except _RollbackAfterRead as seen:
            found: T = seen.value
            return found
        raise AssertionError("it always raises")

    # --- writing --------------------------------------------------------------------------------

    def _write(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> tuple[set[Pin], list[Pin]]:
        """In the writer's thread. Returns the pins that were written, and the set that is to hold them."""
        writes = Writes(self._interner)
        for commit in commits:
            writes.add(commit)
        if writes.erases:
            # What was known to be stored may be gone, and what is still to be noted of it.
            self._stored = set()
        return self._stored, writes.execute(connection, self._stored)
