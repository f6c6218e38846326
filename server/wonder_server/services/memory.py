"""Memory use-cases: what an agent stores, reads, lists and finds (features E1, E3, E4, E5, E6).

Every method takes the agent's id, which comes from the execution context or from a caller that may
act for that agent; whether it may, and whether the agent exists, is the caller's question.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.core.ids import random_id
from wonder_server.core.memory import (
    Change,
    Draft,
    Filter,
    Hit,
    Memory,
    Weights,
    check_content,
    check_draft,
    check_metadata,
    check_name,
    check_significance,
    check_weights,
    rank,
)
from wonder_server.ports.clock import Clock
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.memories import Entry, Memories, Text
from wonder_server.ports.vectors import Vectors, VectorSource
from wonder_server.services.paging import Page, PageRequest, page

T = TypeVar("T")

MAX_BATCH: Final = 1000
MAX_HITS: Final = 100
DEFAULT_HITS: Final = 10
MAX_TYPES: Final = 100
_MIN_POOL: Final = 50
_POOL_PER_HIT: Final = 4
"""Candidates taken from each of full text and vectors: significance may lift one from far down."""


class MemoryService:
    """The use-cases, over a store of records, a vector index and an embedder."""

    def __init__(
        self,
        *,
        memories: Memories,
        source: VectorSource,
        vectors: Vectors,
        embedder: Embedder,
        clock: Clock,
    ) -> None:
        self._memories = memories
        self._source = source
        self._vectors = vectors
        self._embedder = embedder
        self._clock = clock
        self._finishing: set[asyncio.Task[Any]] = set()

    async def write(self, agent_id: str, draft: Draft) -> Memory:
        """Store one memory; durable when this returns.

        Answers the earlier record where the draft's idempotency key or ``unless_known`` says so.
        Errors: FIELD_INVALID, PAYLOAD_TOO_LARGE, PAYLOAD_TOO_DEEP, NUMBER_OUT_OF_RANGE.
        """
        check_draft(draft)
        return (await self._finish(self._store(agent_id, [draft])))[0]

    async def write_all(self, agent_id: str, drafts: Sequence[Draft]) -> list[Memory]:
        """`write` for up to 1,000, in one commit: all or none. Answers in the drafts' order."""
        if not 1 <= len(drafts) <= MAX_BATCH:
            raise error(Reason.FIELD_INVALID, f"Give 1 to {MAX_BATCH} memories.", field="memories")
        for position, draft in enumerate(drafts):
            check_draft(draft, f"memories[{position}].")
        return await self._finish(self._store(agent_id, drafts))

    async def get(self, agent_id: str, memory_id: str) -> Memory:
        """One memory. Errors: MEMORY_NOT_FOUND, also where it is another agent's."""
        check_name(agent_id, "agent_id")
        for memory in await self._memories.get(agent_id, [memory_id]):
            return memory
        raise error(Reason.MEMORY_NOT_FOUND, "The agent has no memory with this id.", field="id")

    async def page(self, agent_id: str, request: PageRequest, *, types: Sequence[str] = ()) -> Page[Memory]:
        """One page of the agent's memories, newest first, of these types (none: all).

        Errors: FIELD_INVALID, PAGE_TOKEN_INVALID.
        """
        check_name(agent_id, "agent_id")
        _check_types(types)
        scope = ["memories", agent_id, *sorted(types)]
        before_id, limit = request.cursor(scope, ""), request.limit()
        found = await self._memories.page(agent_id, Filter(types=tuple(types)), before_id, limit + 1)
        return page(found, limit, scope, lambda memory: memory.id)

    async def search(
        self,
        agent_id: str,
        query: str,
        *,
        limit: int = 0,
        types: Sequence[str] = (),
        weights: Weights | None = None,
    ) -> list[Hit]:
        """The agent's memories that best fit ``query`` (plain text), best first, each explained.

        ``limit`` 0 means 10, at most 100. Full text (BM25 over stemmed words) and vectors are joined
        by score, see `core.memory.rank`. Errors: FIELD_INVALID.
        """
        check_name(agent_id, "agent_id")
        check_content(query, "query")
        _check_types(types)
        if not 0 <= limit <= MAX_HITS:
            raise error(Reason.FIELD_INVALID, f"A limit lies between 1 and {MAX_HITS}.", field="limit")
        limit = limit or DEFAULT_HITS
        weights = weights or Weights()
        check_weights(weights)
        pool = max(_MIN_POOL, limit * _POOL_PER_HIT)
        [vector] = await self._embedder.embed([query])
        wanted = Filter(types=tuple(types))
        among = await self._source.keys(agent_id, self._embedder.name, wanted) if wanted.narrows else None
        near = {
            key: cosine
            for key, cosine in await self._vectors.nearest(agent_id, vector, pool, among)
            if cosine > 0
        }
        candidates = await self._memories.recall(agent_id, query, near, wanted, pool)
        ranked = rank(candidates, weights, self._clock.now_ms(), limit)
        # One that was forgotten in between is left out.
        found = {
            memory.id: memory for memory in await self._memories.get(agent_id, [hit.id for hit in ranked])
        }
        return [
            Hit(
                memory=found[hit.id],
                score=hit.score,
                relevance=hit.relevance,
                significance=hit.significance,
                recency=hit.recency,
            )
            for hit in ranked
            if hit.id in found
        ]

    async def update(self, agent_id: str, memory_id: str, change: Change, *, etag: str = "") -> Memory:
        """Change a memory; its text and vector follow its content.

        With an ``etag`` only the version it names is changed. Errors: MEMORY_NOT_FOUND,
        ETAG_MISMATCH, and those of `write`.
        """
        _check_change(change)
        old = await self.get(agent_id, memory_id)
        if etag and etag != old.etag:
            raise error(Reason.ETAG_MISMATCH, "The memory has changed since; read it again.", field="etag")
        new = dataclasses.replace(
            old,
            type=old.type if change.type is None else change.type,
            content=old.content if change.content is None else change.content,
            significance=old.significance if change.significance is None else change.significance,
            metadata=old.metadata if change.metadata is None else change.metadata,
            updated_ms=self._clock.now_ms(),
            version=old.version + 1,
        )
        return await self._finish(self._replace(old, new))

    async def delete(self, agent_id: str, memory_id: str, *, etag: str = "") -> None:
        """Forget a memory: record, text and vector. Errors: MEMORY_NOT_FOUND, ETAG_MISMATCH."""
        version = (await self.get(agent_id, memory_id)).version if etag else None
        if version is not None and etag != str(version):
            raise error(Reason.ETAG_MISMATCH, "The memory has changed since; read it again.", field="etag")
        await self._finish(self._remove(agent_id, memory_id, version))

    async def _store(self, agent_id: str, drafts: Sequence[Draft]) -> list[Memory]:
        check_name(agent_id, "agent_id")
        now_ms = self._clock.now_ms()
        vectors = await self._embedder.embed([draft.content for draft in drafts])
        entries = [
            Entry(
                id=random_id("mem", now_ms), draft=draft, text=Text(content=draft.content, vectors=(vector,))
            )
            for draft, vector in zip(drafts, vectors, strict=True)
        ]
        stored = await self._memories.add(agent_id, entries, self._embedder.name, now_ms)
        fresh = [
            (key, vector)
            for item, entry in zip(stored, entries, strict=True)
            for key, vector in zip(item.vector_keys, entry.text.vectors, strict=False)
        ]
        await self._vectors.add(agent_id, fresh)
        return [item.memory for item in stored]

    async def _replace(self, old: Memory, new: Memory) -> Memory:
        text = None
        if new.content != old.content:
            text = Text(content=new.content, vectors=tuple(await self._embedder.embed([new.content])))
        stored = await self._memories.replace(new, old.version, text, self._embedder.name)
        if text is not None:
            await self._vectors.add(new.agent_id, list(zip(stored.vector_keys, text.vectors, strict=True)))
        await self._vectors.remove(new.agent_id, stored.gone)
        return stored.memory

    async def _remove(self, agent_id: str, memory_id: str, version: int | None) -> None:
        gone = await self._memories.remove(agent_id, memory_id, version, self._clock.now_ms())
        await self._vectors.remove(agent_id, gone)

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it to its end even if the caller goes away: rows that are committed must reach the
        index as well."""
        task = asyncio.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return await asyncio.shield(task)


def _check_change(change: Change) -> None:
    if change.type is not None:
        check_name(change.type, "type")
    if change.content is not None:
        check_content(change.content, "content")
    if change.significance is not None:
        check_significance(change.significance, "significance")
    if change.metadata is not None:
        check_metadata(change.metadata, "metadata")


def _check_types(types: Sequence[str]) -> None:
    if len(types) > MAX_TYPES:
        raise error(Reason.FIELD_INVALID, f"Give at most {MAX_TYPES} types.", field="types")
    for position, name in enumerate(types):
        check_name(name, f"types[{position}]")
