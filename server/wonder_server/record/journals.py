"""All journals of a server. Finds the store of an actor's shard and merges queries over all stores."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from wonder_server.codec.fields import StoredValue
from wonder_server.core import ids
from wonder_server.core.actor.planner import Planner
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.journal import Event
from wonder_server.ports.record_store import RecordStore
from wonder_server.ports.records import EventQuery, Head, Query, QueryResult, Snapshot
from wonder_server.record.journal import StoredJournal


def row_types(planners: Sequence[Planner]) -> dict[str, type]:
    """Return the class of each table's rows. If several planners have a table, queries read the first's."""
    return {table: cls for planner in reversed(planners) for table, cls in planner.row_types.items()}


class StoredJournals:
    """Implements the ports ``Journals``, ``Records`` and ``Epochs`` on record stores.

    An id names one of 32 shards, and shard ``s`` of ``n`` stores lies in store ``s % n``. So every id fits
    every number of stores.
    """

    def __init__(self, journals: Sequence[StoredJournal], row_types: Mapping[str, type]) -> None:
        """Internal; use `on`."""
        self._journals = journals
        self._row_types = row_types

    @classmethod
    def on(cls, stores: Sequence[RecordStore], planners: Sequence[Planner]) -> StoredJournals:
        """Return the journals of these planners' actors on these stores."""
        return cls([StoredJournal(store, planners) for store in stores], row_types(planners))

    @property
    def files(self) -> Sequence[StoredJournal]:
        """The journals, in order."""
        return self._journals

    def of(self, actor_id: str) -> StoredJournal:
        """Return the journal of the shard that an actor's id names."""
        return self._journals[ids.shard_of(actor_id) % len(self._journals)]

    def holds(self, actor_id: str) -> bool:
        """Return True if the id names a shard."""
        try:
            ids.shard_of(actor_id)
        except (ValueError, IndexError):
            return False
        return True

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        found = await asyncio.gather(*(each.completed_request(scope, request_id) for each in self._journals))
        return next((answer for answer in found if answer is not None), None)

    async def members(self, root: str) -> list[str]:
        found = await asyncio.gather(*(each.members(root) for each in self._journals))
        return [actor for actors in found for actor in actors]

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        """Raise the epochs of these shards; implements the port ``Epochs``."""
        count = len(self._journals)
        found = await asyncio.gather(
            *(
                journal.raise_epochs([shard for shard in shards if shard % count == index])
                for index, journal in enumerate(self._journals)
            )
        )
        return {shard: epoch for epochs in found for shard, epoch in epochs.items()}

    # --- Records --------------------------------------------------------------------------------

    async def head(self, actor_id: str) -> int | None:
        return await self.of(actor_id).head(actor_id) if self.holds(actor_id) else None

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        by_journal: dict[StoredJournal, list[str]] = {}
        for actor in actors:
            if self.holds(actor):
                by_journal.setdefault(self.of(actor), []).append(actor)
        found = await asyncio.gather(*(journal.heads(own) for journal, own in by_journal.items()))
        return {actor: head for heads in found for actor, head in heads.items()}

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        if not self.holds(actor):
            return None
        typed = [(replace(query, actor=actor), self._row_types[query.table]) for query in queries]
        return await self.of(actor).snapshot(actor, typed)

    async def get(self, table: str, row_id: str, actor: str = "") -> StoredValue | None:
        rows = await self.find(Query(table=table, id=row_id, actor=actor, limit=1))
        return rows[0] if rows else None

    async def find(self, query: Query) -> list[StoredValue]:
        row_type = self._row_types[query.table]
        journals = self._journals
        colocated = query.actor or query.colocated_with
        if colocated:
            journals = [self.of(colocated)] if self.holds(colocated) else []
        found = await asyncio.gather(*(journal.query(query, row_type) for journal in journals))
        merged = _merged(found, itemgetter(0), query.limit, reverse=query.newest_first)
        return QueryResult((value for _, value in merged), truncated=merged.truncated, end=merged.end)

    async def events(self, prefix: str, query: EventQuery) -> list[Event]:
        if query.actor:
            if not self.holds(query.actor):
                return []
            return await self.of(query.actor).query_events(prefix, query)
        found = await asyncio.gather(*(journal.query_events(prefix, query) for journal in self._journals))
        return _merged(
            found,
            lambda event: (event.at_ms, event.actor_id, event.sequence),
            query.limit,
            reverse=True,
        )


def _merged(
    found: Sequence[QueryResult],
    position: Callable[[StoredValue], StoredValue],
    limit: int,
    *,
    reverse: bool,
) -> QueryResult:
    """Merge the results of journals. Stop where a truncated result ends: rows after it may precede the
    others."""
    if len(found) == 1:
        [only] = found
        if len(only) > limit:
            return QueryResult(only[:limit])
        return QueryResult(only, truncated=only.truncated, end=only.end)
    ends = [each.end or position(each[-1]) for each in found if each.truncated]
    last = (max(ends) if reverse else min(ends)) if ends else None
    merged = QueryResult()
    for item in heapq.merge(*found, key=position, reverse=reverse):
        if len(merged) == limit:
            return merged
        place = position(item)
        if last is not None and (place < last if reverse else place > last):
            break
        merged.append(item)
        if place == last:
            merged.truncated = True
            return merged
    if last is not None:
        merged.truncated, merged.end = True, last
    return merged
