"""Use cases of memory: write, read, list, search and delete what an agent remembers (features E1 to E6).

Every method takes the id of the agent. The caller checks that the agent exists and that the principal may
use its memory.

A write has these steps: check, embed, store long contents as objects, commit the row with text, vectors
and links, update the vector index. The rows are authoritative. After a crash the next start repairs
objects and index from them. With a ``request``, a repeated change is applied once, also across restarts."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Coroutine, Mapping, Sequence
from copy import copy
from typing import Final, TypeVar

from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.ids import random_id
from wonder_server.core.memory.queries import read_query
from wonder_server.core.memory.ranking import Candidate, Hit, Ranked, Weights, rank
from wonder_server.core.memory.records import Change, Draft, Filter, Memory
from wonder_server.core.memory.validation import (
    check_change,
    check_content,
    check_draft,
    check_filter,
    check_name,
    check_time,
    check_weights,
)
from wonder_server.ports.clock import Clock
from wonder_server.ports.memories import AnsweredRequest, Entry, Stored, StoredText
from wonder_server.ports.scoped import ScopedMemories
from wonder_server.services.memory.etags import version_of
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.repeats import as_changed, as_superseded, as_written
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.paging import Page, PageRequest, page

T = TypeVar("T")

MAX_BATCH: Final = 1000
MAX_HITS: Final = 100
DEFAULT_HITS: Final = 10
MAX_RESPONSE_BYTES: Final = 3 << 20
MAX_PAGE_BYTES: Final = 1 << 20
"""Maximum size of the memories in one response, approximately. A response has at least one memory."""
_MIN_POOL: Final = 32
_POOL_PER_HIT: Final = 4
"""Candidates per hit from full text and from vectors: significance can raise a low candidate."""


class MemoryService:
    """The use cases of memory for one access scope, over records, long contents and vectors."""

    def __init__(
        self,
        *,
        memories: ScopedMemories,
        large_contents: LargeContents,
        index: SemanticIndex,
        clock: Clock,
    ) -> None:
        self._memories = memories
        self._large_contents = large_contents
        self._index = index
        self._clock = clock
        self._running: set[asyncio.Task[object]] = set()

    def within(self, memories: ScopedMemories, index: SemanticIndex) -> MemoryService:
        """Return the service over other views of the same stores."""
        made = copy(self)
        made._memories, made._index = memories, index
        return made

    # --- writing --------------------------------------------------------------------------------

    async def has_executed(self, request: IdempotencyKey | None) -> bool:
        """Return True if this request was executed, whatever became of its agent."""
        return request is not None and await self._memories.answered(request) is not None

    async def written_before(
        self, request: IdempotencyKey | None, drafts: Sequence[Draft]
    ) -> list[Memory] | None:
        """Return the memories that an earlier execution of this request wrote, or None.

        One that was deleted since, alone or with its agent, is returned as it was written. Raises
        STORAGE_UNAVAILABLE."""
        answered = await self.answered(request)
        if answered is None or len(answered.memory_ids) != len(drafts):
            return (
                None  # Earlier versions stored one id of several; the keys of the drafts find the memories.
            )
        found = await self._remaining(answered, answered.memory_ids)
        return [
            found.get(memory_id) or as_written(answered, memory_id, draft)
            for memory_id, draft in zip(answered.memory_ids, drafts, strict=True)
        ]

    async def changed_before(self, answered: AnsweredRequest, memory_id: str, change: Change) -> Memory:
        """Return the memory that this earlier request changed. One that was deleted since has only the fields
        of ``change``."""
        found = await self._remaining(answered, [memory_id])
        return found.get(memory_id) or as_changed(answered, memory_id, change)

    async def superseded_before(
        self, request: IdempotencyKey | None, memory_id: str, draft: Draft
    ) -> tuple[Memory, Memory] | None:
        """Return the new and the old memory of an earlier execution of this request, or None. A new one that
        was deleted since is as it was written; an old one has only its id."""
        answered = await self.answered(request)
        if answered is None or len(answered.memory_ids) != 1:
            return None
        [new_id] = answered.memory_ids
        found = await self._remaining(answered, [new_id, memory_id])
        new = found.get(new_id)
        if new is None:
            new = dataclasses.replace(as_written(answered, new_id, draft), supersedes_id=memory_id)
        return new, found.get(memory_id) or as_superseded(answered, memory_id, new_id)

    async def answered(self, request: IdempotencyKey | None) -> AnsweredRequest | None:
        """Return the record of this request if it was executed."""
        return None if request is None else await self._memories.answered(request)

    async def _remaining(self, answered: AnsweredRequest, ids: Sequence[str]) -> dict[str, Memory]:
        """Return by id those memories of an answered request that still exist. Raises STORAGE_UNAVAILABLE."""
        try:
            kept = await self._memories.get(answered.agent_id, ids)
        except WonderError as problem:
            if problem.fault.reason is not Reason.AGENT_NOT_FOUND:
                raise
            return {}
        return {memory.id: memory for memory in await self._large_contents.load(kept)}

    async def write(self, agent_id: str, draft: Draft, *, request: IdempotencyKey | None = None) -> Memory:
        """Store one memory. It is durable on return.

        Return the existing memory if the request, the draft's idempotency key or ``unless_known`` matches
        one. Raises FIELD_INVALID, PAYLOAD_TOO_LARGE, PAYLOAD_TOO_DEEP, NUMBER_OUT_OF_RANGE,
        STORAGE_UNAVAILABLE, REQUEST_ID_REUSED."""
        check_draft(draft)
        return (await self._run_to_end(self._store(agent_id, [draft], request=request)))[0]

    async def write_all(
        self, agent_id: str, drafts: Sequence[Draft], *, request: IdempotencyKey | None = None
    ) -> list[Memory]:
        """Write up to 1,000 memories in one commit, all or none, and return them in the order of the drafts.
        See `write`."""
        if not 1 <= len(drafts) <= MAX_BATCH:
            raise error(
                Reason.FIELD_INVALID,
                f"The request has {len(drafts)} memories; give 1 to {MAX_BATCH}.",
                field="memories",
            )
        for position, draft in enumerate(drafts):
            check_draft(draft, f"memories[{position}].")
        return await self._run_to_end(self._store(agent_id, drafts, request=request, path="memories[{}]."))

    async def supersede(
        self,
        agent_id: str,
        memory_id: str,
        draft: Draft,
        *,
        etag: str = "",
        request: IdempotencyKey | None = None,
    ) -> tuple[Memory, Memory]:
        """Write a memory that replaces another, and return the new and the old one.

        An empty ``type`` or ``subject`` means that of the old one. Raises MEMORY_NOT_FOUND, ETAG_MISMATCH,
        FIELD_INVALID for a memory that was already replaced, and the errors of `write`."""
        check_draft(dataclasses.replace(draft, type=draft.type or "fact"))
        if not draft.type or not draft.subject:
            kind, subject = await self._type_and_subject_of(agent_id, memory_id)
            draft = dataclasses.replace(draft, type=draft.type or kind, subject=draft.subject or subject)
        [new] = await self._run_to_end(
            self._store(agent_id, [draft], request=request, supersedes_id=memory_id, version=version_of(etag))
        )
        return new, await self.get(agent_id, memory_id)

    async def update(
        self,
        agent_id: str,
        memory_id: str,
        change: Change,
        *,
        etag: str = "",
        request: IdempotencyKey | None = None,
    ) -> Memory:
        """Change a memory, and its text and vectors with its content.

        With an ``etag``, change only that version. Raises MEMORY_NOT_FOUND, ETAG_MISMATCH, and the errors
        of `write`."""
        check_change(change)
        while True:
            old = await self.get(agent_id, memory_id)
            new = dataclasses.replace(
                old,
                type=old.type if change.type is None else change.type,
                content=old.content if change.content is None else change.content,
                significance=old.significance if change.significance is None else change.significance,
                metadata=old.metadata if change.metadata is None else change.metadata,
                contradicts_ids=(
                    old.contradicts_ids if change.contradicts_ids is None else change.contradicts_ids
                ),
                archived_ms=old.archived_ms if change.archived_ms is None else change.archived_ms,
                said_ms=old.said_ms if change.said_ms is None else change.said_ms,
                subject=old.subject if change.subject is None else change.subject,
                updated_ms=self._clock.now_ms(),
                version=old.version + 1,
            )
            expected = version_of(etag)
            try:
                return await self._run_to_end(
                    self._replace(old, new, old.version if expected is None else expected, request)
                )
            except WonderError as problem:
                # Without an etag, apply the change to the version that another caller has written meanwhile.
                if etag or problem.fault.reason is not Reason.ETAG_MISMATCH:
                    raise

    async def delete(
        self, agent_id: str, memory_id: str, *, etag: str = "", request: IdempotencyKey | None = None
    ) -> None:
        """Delete a memory: record, text, vectors, links and its object.

        The object is deleted later if the object store is unavailable. Raises MEMORY_NOT_FOUND,
        ETAG_MISMATCH."""
        check_name(agent_id, "agent_id")
        await self._run_to_end(self._remove(agent_id, memory_id, version_of(etag), request))

    # --- reading --------------------------------------------------------------------------------

    async def get(self, agent_id: str, memory_id: str) -> Memory:
        """Return one memory. Raises MEMORY_NOT_FOUND, also for a memory of another agent, and
        STORAGE_UNAVAILABLE."""
        check_name(agent_id, "agent_id")
        for memory in await self._memories.get(agent_id, [memory_id]):
            return (await self._large_contents.load([memory]))[0]
        raise _memory_not_found(agent_id, memory_id, "id")

    async def page(self, agent_id: str, request: PageRequest, wanted: Filter | None = None) -> Page[Memory]:
        """Return one page of the agent's memories that match ``wanted``, newest first. None matches memories
        that are neither superseded nor archived.

        A page ends early when its contents exceed 1 MiB. Raises FIELD_INVALID, PAGE_TOKEN_INVALID,
        STORAGE_UNAVAILABLE."""
        wanted = wanted or Filter()
        check_name(agent_id, "agent_id")
        check_filter(wanted)
        scope = ["memories", agent_id, dataclasses.asdict(wanted)]
        before_id, limit = request.cursor(scope, ""), request.limit()
        found = await self._memories.page(agent_id, wanted, before_id, limit + 1)
        fitting = _fitting_count(found, MAX_PAGE_BYTES)
        listed = page(found, min(limit, fitting), scope, lambda memory: memory.id)
        return dataclasses.replace(listed, items=tuple(await self._large_contents.load(listed.items)))

    async def search(
        self,
        agent_id: str,
        query: str,
        *,
        limit: int = 0,
        wanted: Filter | None = None,
        weights: Weights | None = None,
        now_ms: int | None = None,
    ) -> list[Hit]:
        """Return the memories of the agent that match ``query`` (plain text) best, best first, each with its
        scores.

        ``limit`` 0 means 10; the maximum is 100. ``now_ms`` is the time at which the query is asked; None is
        now. The relevance combines full text (BM25 over stemmed words) and vectors, see
        `core.memory.ranking.rank`. Hits beyond 3 MiB of contents are omitted.
        Raises FIELD_INVALID, STORAGE_UNAVAILABLE."""
        check_name(agent_id, "agent_id")
        return await self.search_all(
            [agent_id], query, limit=limit, wanted=wanted, weights=weights, now_ms=now_ms
        )

    def search_inline(
        self, agent_id: str, query: str, *, limit: int = 0, wanted: Filter | None = None
    ) -> list[Hit] | None:
        """Return the result of `search` without waiting if the agent is known to have no memories; else
        None."""
        if not self._memories.is_empty(agent_id):
            return None
        _check_search(query, limit, wanted or Filter())
        return []

    async def search_all(
        self,
        agent_ids: Sequence[str],
        query: str,
        *,
        limit: int = 0,
        wanted: Filter | None = None,
        weights: Weights | None = None,
        now_ms: int | None = None,
    ) -> list[Hit]:
        """Search the memories of several agents; see `search`. The caller must have the scope for all of
        them."""
        wanted, weights = wanted or Filter(), weights or Weights()
        _check_search(query, limit, wanted)
        check_weights(weights)
        check_time(now_ms, "now")
        if all(map(self._memories.is_empty, agent_ids)):
            return []
        limit = limit or DEFAULT_HITS
        pool = max(_MIN_POOL, limit * _POOL_PER_HIT)
        vector = await self._index.embed_query(query)
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        asked, share = read_query(query, now_ms), self._index.share

        ranked: list[Ranked] = []

        def best(candidates: Sequence[Candidate]) -> list[str]:
            ranked[:] = rank(candidates, weights, now_ms, limit, share)
            return [hit.id for hit in ranked]

        single_agent = len(agent_ids) == 1
        candidates: list[Candidate] = []
        owners: dict[str, str] = {}
        for agent_id in agent_ids:
            near = await self._index.nearest(agent_id, vector, wanted, pool) if vector else {}
            recalled = await self._memories.recall(
                agent_id, asked, near, wanted, pool, best if single_agent else None
            )
            owners.update((candidate.id, agent_id) for candidate in recalled)
            candidates += recalled
        if not single_agent:
            best(candidates)
        found = {each.id: each.memory for each in candidates if each.memory is not None}
        for agent_id in () if single_agent else dict.fromkeys(owners[hit.id] for hit in ranked):
            # A memory that was deleted since `recall` is omitted.
            ids = [hit.id for hit in ranked if owners[hit.id] == agent_id]
            found.update(
                (memory.id, memory) for memory in await self._memories.get(agent_id, ids, lenient=True)
            )
        kept = [found[hit.id] for hit in ranked if hit.id in found]
        filled = await self._large_contents.load(kept[: _fitting_count(kept)], lenient=True)
        return _hits(ranked, {memory.id: memory for memory in filled})

    # --- parts ----------------------------------------------------------------------------------

    async def _type_and_subject_of(self, agent_id: str, memory_id: str) -> tuple[str, str]:
        check_name(agent_id, "agent_id")
        for memory in await self._memories.get(agent_id, [memory_id]):
            return memory.type, memory.subject
        raise _memory_not_found(agent_id, memory_id, "memory_id")

    async def _store(
        self,
        agent_id: str,
        drafts: Sequence[Draft],
        *,
        request: IdempotencyKey | None = None,
        supersedes_id: str = "",
        version: int | None = None,
        path: str = "",
    ) -> list[Memory]:
        check_name(agent_id, "agent_id")
        now_ms = self._clock.now_ms()
        contents = [draft.content for draft in drafts]
        vectors = await self._index.embed(contents)
        async with self._large_contents.reserve(agent_id, contents) as keys:
            # Sorted, so that lists show the memories in the order of the drafts.
            ids = sorted(random_id("mem", now_ms) for _ in drafts)
            entries = [
                Entry(
                    id=memory_id,
                    draft=draft,
                    text=StoredText(content=draft.content, vectors=of_it, content_ref=key),
                    supersedes_id=supersedes_id,
                    supersedes_version=version,
                    path=path.format(position),
                )
                for position, (memory_id, draft, of_it, key) in enumerate(
                    zip(ids, drafts, vectors, keys, strict=True)
                )
            ]
            stored = await self._memories.add(agent_id, entries, self._index.embedder_name, now_ms, request)
        if any(keys) and not all(item.written for item in stored):
            self._large_contents.schedule_collection()
        await self._index.update(agent_id, list(zip(stored, vectors, strict=True)))
        return await self._with_contents(stored, contents)

    async def _replace(
        self, old: Memory, new: Memory, expected_version: int, request: IdempotencyKey | None
    ) -> Memory:
        embedder = self._index.embedder_name
        if new.content == old.content:
            stored = await self._memories.replace(new, expected_version, None, embedder, request)
            return (await self._with_contents([stored], [new.content]))[0]
        [vectors] = await self._index.embed([new.content])
        async with self._large_contents.reserve(new.agent_id, [new.content]) as [key]:
            text = StoredText(content=new.content, vectors=vectors, content_ref=key)
            stored = await self._memories.replace(new, expected_version, text, embedder, request)
        await self._index.update(new.agent_id, [(stored, vectors)])
        if old.content_ref:
            await self._large_contents.try_collect()
        return (await self._with_contents([stored], [new.content]))[0]

    async def _remove(
        self, agent_id: str, memory_id: str, version: int | None, request: IdempotencyKey | None
    ) -> None:
        removed = await self._memories.remove(agent_id, memory_id, version, self._clock.now_ms(), request)
        if removed is None:  # An earlier request with this id has removed it.
            return
        await self._index.remove(agent_id, removed.removed_keys)
        if removed.memory.content_ref:
            await self._large_contents.try_collect()

    async def _with_contents(self, stored: Sequence[Stored], contents: Sequence[str]) -> list[Memory]:
        """Return the stored memories with their contents: those just written, or those read from the
        store."""
        memories = [
            dataclasses.replace(item.memory, content=content) if item.written else item.memory
            for item, content in zip(stored, contents, strict=True)
        ]
        return await self._large_contents.load(memories)

    async def _run_to_end(self, work: Coroutine[object, None, T]) -> T:
        """Run ``work`` to completion even if the caller is cancelled: committed rows must reach the index."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


def _memory_not_found(agent_id: str, memory_id: str, field: str) -> WonderError:
    place = f" of the agent '{agent_id}'"
    return not_found(Reason.MEMORY_NOT_FOUND, memory_id, field=field, place=place)


def _check_search(query: str, limit: int, wanted: Filter) -> None:
    check_content(query, "query")
    check_filter(wanted)
    if not 0 <= limit <= MAX_HITS:
        raise error(
            Reason.FIELD_INVALID,
            f"limit is {limit}; use 1 to {MAX_HITS}, or 0 for {DEFAULT_HITS}.",
            field="limit",
        )


def _fitting_count(memories: Sequence[Memory], max_bytes: int = MAX_RESPONSE_BYTES) -> int:
    """Return the number of leading memories that fit into a response, at least one."""
    size = 0
    for count, memory in enumerate(memories):
        size += memory.size_bytes + (len(json.dumps(memory.metadata)) if memory.metadata else 0)
        if count and size > max_bytes:
            return count
    return max(len(memories), 1)


def _hits(ranked: Sequence[Ranked], memories: Mapping[str, Memory]) -> list[Hit]:
    """Return the hits whose memories were read, with their scores."""
    return [
        Hit(
            memory=memories[hit.id],
            score=hit.score,
            relevance=hit.relevance,
            significance=hit.significance,
            recency=hit.recency,
        )
        for hit in ranked
        if hit.id in memories
    ]
