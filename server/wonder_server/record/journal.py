"""The journal of some shards on a record store: the journals and records of the actors in these shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Final, TypeVar

from wonder_server.codec.interning import Interner, decode
from wonder_server.codec.seals import Seals
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.journal import Commit, Entry, Event, Loaded, Unfinished
from wonder_server.ports.record_store import Reads, RecordStore, Writes
from wonder_server.ports.records import EventQuery, Head, Query, QueryResult, Snapshot
from wonder_server.record import compact_runs, decoding, loading, outboxes
from wonder_server.record.compact_runs import (
    ALWAYS_WRITTEN,
    MAX_EXPANDED_AT_ONCE,
    CompactRunError,
    expand,
    require_expanded,
    require_heads,
)
from wonder_server.record.decoding import PartReader
from wonder_server.record.encoding import Encoder, Known

T = TypeVar("T")

MAX_EVENTS_BYTES: Final = 256 * 1024
"""Approximate maximum bytes of events per read. A slow reader keeps them in memory."""


def _require_nothing(_: Reads, _actors: Sequence[str]) -> None:
    """Leave it to the read to find that it needs an expansion."""


class _RollbackAfterRead(Exception):
    """Raised in a write to undo it after its result was read."""


class StoredJournal:
    """Implements the port ``Journal`` on a record store, and the queries that `StoredJournals` merges.

    The prefix of an actor's id names its planner, one of ``planners``.
    """

    def __init__(self, store: RecordStore, planners: Sequence[Planner]) -> None:
        self.store = store
        self.seals = Seals(store.name, store.unsealed)
        self._planners: Mapping[str, Planner] = {planner.prefix: planner for planner in planners}
        self._kinds = {planner.prefix: planner.kind for planner in planners}
        self._interner = Interner()
        self._known = Known()

    def _planner_of(self, actor_id: str) -> Planner | None:
        """Return the planner of an actor; None if the id has another prefix, so that no actor can have it."""
        return self._planners.get(actor_id.partition("_")[0])

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        """Raise the epochs of these shards; implements the port ``Epochs``."""
        return await self.store.raise_epochs(shards)

    # --- the journal ----------------------------------------------------------------------------

    async def commit(self, commits: Sequence[Commit]) -> None:
        await self.submit(commits)

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[tuple[Known, Known]]:
        frees_space = any(commit.frees_space for commit in commits)
        future = self.store.submit(self._write, list(commits), frees_space=frees_space)
        future.add_done_callback(self._on_written)
        return future

    def _on_written(self, written: asyncio.Future[tuple[Known, Known]]) -> None:
        """Keep the facts of a successful write."""
        if written.cancelled() or written.exception() is not None:
            return
        known, found = written.result()
        known.add(found)

    def _write(self, writes: Writes, commits: Sequence[Commit]) -> tuple[Known, Known]:
        """Write commits, in the thread of the store. Return the known facts and the new facts to add to
        them."""
        encoder = Encoder(self._interner, self._kinds, partial(decoding.message_texts, seals=self.seals))
        for commit in commits:
            encoder.add(commit)
        if encoder.erases:
            # Erasing may remove what is known. A new object also drops additions of writes still in progress.
            self._known = Known()
        known = self._known
        batch, found = encoder.batch(writes, known)
        writes.write(batch)
        return known, found

    async def load(self, actor_id: str) -> Loaded | None:
        planner = self._planner_of(actor_id)
        if planner is None:
            return None
        return await self._read_expanded(
            [actor_id], lambda reads: loading.load(reads, actor_id, planner, self.seals)
        )

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        def read(reads: Reads) -> CompletedRequest | None:
            row = reads.request(scope, request_id)
            if row is None:
                return None
            actor, fingerprint, data, found = row
            key = scope, request_id, actor, fingerprint
            return CompletedRequest(
                fingerprint, decode(self.seals.check("requests_answered", key, data, found, 1))
            )

        return await self.store.read(read)

    async def events(self, actor_id: str, after: int, limit: int) -> list[Event]:
        planner = self._planner_of(actor_id)
        if planner is None:
            return []

        def read(reads: Reads) -> list[Event]:
            if self._supports_compact(actor_id):
                derived = compact_runs.events(reads, actor_id, planner, (after, limit), self.seals)
                if derived is not None:
                    return derived
            found: list[Event] = []
            size, parts = 0, PartReader(reads, actor_id, self.seals)
            with closing(reads.events(actor_id, after, limit)) as rows:
                for row in rows:
                    if found and row[1] != found[-1].sequence + 1:
                        self.seals.raise_damaged("events", (actor_id, found[-1].sequence + 1))
                    found.append(decoding.event(parts, row, planner))
                    size += decoding.data_size(row)
                    if size + parts.size > MAX_EVENTS_BYTES:
                        return found
            if len(found) < limit:
                decoding.check_complete(reads, actor_id, after, found, self.seals)
            return found

        return await self._read_expanded([actor_id], read, require=_require_nothing)

    async def entries(self, actor_id: str, after: int, limit: int) -> list[Entry]:
        # A compact run stores its whole journal, so it needs no expansion here.
        planner = self._planner_of(actor_id)
        if planner is None:
            return []

        def work(reads: Reads) -> list[Entry]:
            return decoding.entries(decoding.PartReader(reads, actor_id, self.seals), planner, after, limit)

        return await self.store.read(work)

    async def members(self, root: str) -> list[str]:
        """Return the ids of the actors in this store whose root is ``root``, itself included."""
        return await self.store.read(lambda reads: list(reads.members(root)))

    async def unfinished(self, prefix: str, after: str, limit: int) -> list[Unfinished]:
        planner = self._planners[prefix]
        return await self.store.read(
            lambda reads: outboxes.unfinished(reads, planner, after, limit, self.seals)
        )

    # --- the record, for queries ----------------------------------------------------------------

    async def head(self, actor_id: str) -> int | None:
        """Return the sequence of the actor's last event; None if the actor does not exist."""

        def read(reads: Reads) -> int | None:
            row = reads.actor(actor_id)
            return None if row is None else int(row[1])

        return await self._read_expanded([actor_id], read, require=require_heads)

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        """Return the head of each of these actors. All must belong to this store."""
        return await self._read_expanded(actors, partial(_heads, actors=actors), require=require_heads)

    async def query(self, query: Query, row_type: type) -> QueryResult:
        """Return this store's rows for ``query``, each with its position in the order."""

        def read(reads: Reads) -> QueryResult:
            return decoding.rows(reads, query, row_type, self.seals)

        return await self._read_expanded([] if query.table in ALWAYS_WRITTEN else [query.actor], read)

    async def snapshot(self, actor: str, queries: Sequence[tuple[Query, type]]) -> Snapshot | None:
        """Return the results of several queries of one actor, each with its row class; see
        `Records.snapshot`."""

        def read(reads: Reads) -> Snapshot | None:
            head = _heads(reads, [actor]).get(actor)
            if head is None:
                return None
            found = [decoding.rows(reads, query, row_type, self.seals) for query, row_type in queries]
            return Snapshot(head, [[value for _, value in rows] for rows in found])

        # The row of a run and its head need no expansion.
        reads_runs_only = ALWAYS_WRITTEN.issuperset([query.table for query, _ in queries])
        require = require_heads if reads_runs_only else require_expanded
        return await self._read_expanded([actor], read, between_commits=True, require=require)

    async def query_events(self, prefix: str, query: EventQuery) -> QueryResult:
        """Return this store's events for ``query``, in its order. Their actors' ids have this prefix."""
        planner = self._planners[prefix]

        def read(reads: Reads) -> QueryResult:
            return decoding.events(reads, planner, query, self.seals)

        return await self._read_expanded([query.actor], read)

    async def _read_expanded(
        self,
        actors: Sequence[str],
        read: Callable[[Reads], T],
        *,
        between_commits: bool = False,
        require: Callable[[Reads, Sequence[str]], None] = require_expanded,
    ) -> T:
        """Run ``read`` after expanding the compact runs among ``actors``, as far as ``require`` finds that
        ``read`` needs it."""
        run_read = partial(self.store.read, between_commits=between_commits)
        candidates = [actor for actor in actors if self._supports_compact(actor)]
        if not candidates:
            return await run_read(read)

        def read_if_expanded(reads: Reads) -> T:
            require(reads, candidates)
            return read(reads)

        try:
            return await run_read(read_if_expanded)
        except CompactRunError as found:
            compact = found.actors
        try:
            for start in range(0, len(compact), MAX_EXPANDED_AT_ONCE):
                await self.store.write(
                    partial(self._expand, actors=compact[start : start + MAX_EXPANDED_AT_ONCE])
                )
        except WonderError:
            # The disk may be full. Expand the runs in a transaction that is rolled back after the read.
            return await self._read_and_roll_back(compact, read)
        return await run_read(read)

    async def _read_and_roll_back(self, compact: Sequence[str], read: Callable[[Reads], T]) -> T:
        """Return what ``read`` finds with these runs expanded, without keeping the expansion."""
        found: list[T] = []

        def write_and_read(writes: Writes) -> None:
            self._expand(writes, compact)
            found.append(read(writes))
            raise _RollbackAfterRead

        with suppress(_RollbackAfterRead):
            await self.store.write(write_and_read, frees_space=True)
        return found[-1]

    def _expand(self, writes: Writes, actors: Sequence[str]) -> None:
        planner = self._planner_of(actors[0])
        assert planner is not None, "only actors of a planner have a compact form"
        expand(writes, actors, planner, self.seals)

    def _supports_compact(self, actor_id: str) -> bool:
        """Return True if actors of this kind can be stored in compact form."""
        planner = self._planner_of(actor_id)
        return planner is not None and planner.compact_row is not None


def _heads(reads: Reads, actors: Sequence[str]) -> dict[str, Head]:
    """Return the head of each of these actors that exists."""
    return {row[0]: Head(*row[1:]) for row in reads.heads(actors)}
