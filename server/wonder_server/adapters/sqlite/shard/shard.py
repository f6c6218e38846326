"""One shard: the journals and records of the conversations and runs whose ids name this shard."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

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
"""The index of the content among the columns of an event."""

_STORED_LIMIT: Final = 20_000
"""Maximum number of parts and definitions in the set of those known to be stored."""
MAX_EVENTS_BYTES: Final = 256 * 1024
"""Approximate maximum bytes of events per read. A slow reader keeps them in memory."""


class _RollbackAfterRead(Exception):
    """Raised in a write to undo it after its result was read."""


class SqliteShard:
    """One shard file. Implements the port ``Journal`` and the queries that `SqliteShards` merges."""

    def __init__(self, database: Database, seals: Seals) -> None:
        """Internal; use `open`."""
        self.database = database
        self.seals = seals
        self._interner = Interner()
        self._stored: set[Pin] = set()
        """Parts and definitions that are known to be on disk, so commits do not write them again."""

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
        """Return the index of this shard and the number of shards; None if they were never stored."""
        sql = "SELECT shard, shards FROM identity"
        return await self.database.read(lambda connection: connection.execute(sql).fetchone())

    async def identify(self, shard: int, shards: int) -> None:
        """Store the index of this shard and the number of shards."""
        sql = "INSERT INTO identity (shard, shards) VALUES (?, ?)"
        await self.database.write(lambda connection: connection.execute(sql, (shard, shards)).rowcount)

    # --- the journal ----------------------------------------------------------------------------

    async def commit(self, commits: Sequence[Commit]) -> None:
        await self.submit(commits)

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[tuple[set[Pin], list[Pin]]]:
        future = self.database.submit_with(
            self._write, list(commits), frees_space=any(map(frees_space, commits))
        )
        future.add_done_callback(self._on_written)
        return future

    def _on_written(self, written: asyncio.Future[tuple[set[Pin], list[Pin]]]) -> None:
        """Record the pins of a successful write as stored."""
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
        # A compact run stores its whole journal, so it needs no expansion here.
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
        """Return the sequence of the actor's last event; None if the actor does not exist."""
        sql = "SELECT event_head FROM actors WHERE id = ?"

        def read(connection: sqlite3.Connection) -> int | None:
            row = connection.execute(sql, (actor_id,)).fetchone()
            return None if row is None else int(row[0])

        return await self._read_expanded([actor_id], read)

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        """Return the head of each of these actors. All must belong to this shard."""
        return await self._read_expanded(actors, lambda connection: reads.heads(connection, actors))

    async def query(self, query: Query, row_type: type) -> QueryResult:
        """Return this shard's rows for ``query``, each with its position in the order."""

        def read(connection: sqlite3.Connection) -> QueryResult:
            return reads.rows(connection, query, row_type, self.seals)

        return await self._read_expanded([] if query.table in ALWAYS_WRITTEN else [query.actor], read)

    async def snapshot(self, actor: str, queries: Sequence[tuple[Query, type]]) -> Snapshot | None:
        """Return the results of several queries of one actor, each with its row class; see
        `Records.snapshot`."""

        def read(connection: sqlite3.Connection) -> Snapshot | None:
            head = reads.heads(connection, [actor]).get(actor)
            if head is None:
                return None
            found = [reads.rows(connection, query, row_type, self.seals) for query, row_type in queries]
            return Snapshot(head, [[value for _, value in rows] for rows in found])

        return await self._read_expanded([actor], read, between_commits=True)

    async def query_events(self, planner: Planner, query: EventQuery) -> QueryResult:
        """Return this shard's events for ``query``, in its order."""

        def read(connection: sqlite3.Connection) -> QueryResult:
            return reads.events(connection, planner, query, self.seals)

        return await self._read_expanded([query.actor], read)

    async def _read_expanded(
        self, actors: Sequence[str], read: Callable[[sqlite3.Connection], T], *, between_commits: bool = False
    ) -> T:
        """Run ``read`` after expanding those of ``actors`` that are compact runs."""
        run_read = self.database.read_between_commits if between_commits else self.database.read
        candidates = [actor for actor in actors if supports_compact(actor)]
        if not candidates:
            return await run_read(read)

        def read_if_expanded(connection: sqlite3.Connection) -> T:
            require_expanded(connection, candidates)
            return read(connection)

        try:
            return await run_read(read_if_expanded)
        except CompactRunError as found:
            compact = found.actors
        try:
            for start in range(0, len(compact), MAX_EXPANDED_AT_ONCE):
                some = compact[start : start + MAX_EXPANDED_AT_ONCE]
                await self.database.write(partial(expand, actors=some, seals=self.seals))
        except WonderError:
            # The disk may be full. Expand the runs in a transaction that is rolled back after the read.
            return await self._read_and_roll_back(compact, read)
        return await run_read(read)

    async def _read_and_roll_back(self, compact: Sequence[str], read: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``read`` finds with these runs expanded, without keeping the expansion."""
        found: list[T] = []

        def write_and_read(connection: sqlite3.Connection) -> None:
            expand(connection, compact, self.seals)
            found.append(read(connection))
            raise _RollbackAfterRead

        with suppress(_RollbackAfterRead):
            await self.database.write(write_and_read, frees_space=True)
        return found[-1]

    # --- writing --------------------------------------------------------------------------------

    def _write(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> tuple[set[Pin], list[Pin]]:
        """Write commits, in the writer thread. Return the set of stored pins and the new pins to add to
        it."""
        writes = Writes(self._interner)
        for commit in commits:
            writes.add(commit)
        if writes.erases:
            # Erasing may remove stored parts. A new set also drops additions of writes still in progress.
            self._stored = set()
        return self._stored, writes.execute(connection, self._stored)
