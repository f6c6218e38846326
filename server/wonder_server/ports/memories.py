"""Memories: records, full text and embeddings in one store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.ranking import Candidate
from wonder_server.core.memory.records import Draft, Filter, Memory
from wonder_server.ports.blobs import UnreferencedObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """The content of a memory in stored form, with the vectors of its chunks in order. ``content_ref`` is the
    key of the object that contains a content too long for a row."""

    content: str
    vectors: tuple[bytes, ...]
    content_ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A draft that is ready to be stored: its id if it is new, and its text. It replaces the agent's memory
    ``supersedes_id`` if that has the version ``supersedes_version`` (None: any). ``path`` precedes the fields
    that errors name."""

    id: str
    draft: Draft
    text: StoredText
    supersedes_id: str = ""
    supersedes_version: int | None = None
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored record. ``vector_keys`` name the vectors stored with it, in order; ``removed_keys`` those that
    were removed. ``written``: this call wrote it; else an earlier one did."""

    memory: Memory
    vector_keys: tuple[int, ...] = ()
    removed_keys: tuple[int, ...] = ()
    written: bool = True


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that was executed at ``at_ms``. ``memory_ids`` are those that it wrote, in their order; ()
    for a deletion."""

    agent_id: str
    memory_ids: tuple[str, ...]
    at_ms: int


class AnsweredRequests(Protocol):
    """The requests that a store of memories remembers. They outlive their memories and agents."""

    async def answered(self, request: IdempotencyKey) -> AnsweredRequest | None:
        """Return the request with this id and fingerprint, of whichever agent, or None."""
        ...


class Memories(AnsweredRequests, Protocol):
    """The memories of agents. Each method reads and writes one agent's memories only (feature E4).

    Reads leave out contents that are stored in an object. A ``request`` that was executed before changes
    nothing; a different request with the same id raises REQUEST_ID_REUSED.
    """

    async def add(
        self,
        agent_id: str,
        entries: Sequence[Entry],
        embedder: str,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> list[Stored]:
        """Store all entries in one transaction, each with text, vectors and links, and return the records.

        If the draft's key or ``unless_known`` finds an earlier record, that record is returned. Errors:
        MEMORY_NOT_FOUND and ETAG_MISMATCH for a superseded memory, FIELD_INVALID for links to missing
        memories, AGENT_NOT_FOUND for a deleted agent.
        """
        ...

    async def get(self, agent_id: str, ids: Sequence[str], *, lenient: bool = False) -> list[Memory]:
        """Return the memories of ``ids`` that exist, in their order.

        STORAGE_UNAVAILABLE if one is damaged. With ``lenient``, damaged ones are omitted and logged once.
        """
        ...

    async def page(self, agent_id: str, wanted: Filter, before_id: str, limit: int) -> list[Memory]:
        """Return the selected memories with an id below ``before_id`` (empty: all), newest first."""
        ...

    async def recall(
        self,
        agent_id: str,
        query: MemoryQuery,
        near: Mapping[int, float],
        wanted: Filter,
        limit: int,
        read: Callable[[Sequence[Candidate]], Collection[str]] | None = None,
    ) -> list[Candidate]:
        """Return the selected memories that contain any word of ``query`` (at most ``limit``), and those
        whose vector keys are in ``near`` (key -> cosine).

        A memory said in a period that the query names counts as one that contains a word. ``read`` is a pure
        function that selects the ids whose records are returned too; the store may call it in another thread.
        Damaged records are omitted and logged once.
        """
        ...

    def is_empty(self, agent_id: str) -> bool:
        """Return True if the store knows, without reading, that the agent has no memories and none are being
        written.

        False means unknown; a `recall` without results makes it known.
        """
        ...

    async def replace(
        self,
        memory: Memory,
        expected_version: int,
        text: StoredText | None,
        embedder: str,
        request: IdempotencyKey | None = None,
    ) -> Stored:
        """Store the new values of ``memory`` with its links and archiving time; with a ``text`` also content
        and vectors.

        Errors: MEMORY_NOT_FOUND; ETAG_MISMATCH if the stored version is not the expected one; FIELD_INVALID
        for links to missing memories.
        """
        ...

    async def remove(
        self,
        agent_id: str,
        memory_id: str,
        expected_version: int | None,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> Stored | None:
        """Delete a memory with text, vectors and links. Return the deleted record and its vector keys.

        The result is None if the request did so before. Memories that it had superseded stay hidden. Errors
        as for `replace`.
        """
        ...


TombstoneStatus = Literal["leaving", "deleted", "kept"]
"""``leaving``: will be deleted unless the catalog still has the agent."""


class MemoryMaintenance(UnreferencedObjects, Protocol):
    """Maintenance of a store of memories; its unreferenced objects belong to agents."""

    async def add_tombstone(self, agent_id: str, status: TombstoneStatus) -> None:
        """Record the status of an agent. Nothing is ever written for an agent that is ``deleted``; its
        memories remain until `purge`."""
        ...

    async def tombstones(self) -> dict[str, TombstoneStatus]:
        """Return the agents that are ``leaving``, and those ``deleted`` that still have memories."""
        ...

    async def delete_agent_memories(self, agent_id: str, limit: int) -> tuple[int, list[int]]:
        """Delete up to ``limit`` memories of the agent. Return their number and the removed vector keys."""
        ...


class IndexResidue(Protocol):
    """Content of deleted memories that remains in a store's indexes and cannot be found by searches."""

    async def purge(self) -> bool:
        """Remove a small part of the residue. Return False if nothing of earlier deletions remains."""
        ...
