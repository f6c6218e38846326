"""Memories: the records, their full text and their embeddings, in one store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from wonder_server.core.memory.records import Candidate, Draft, Filter, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """What a memory says, as it is stored: with the vectors of its passages, in their order, and the key
    of the object that holds it where it is too long for a row."""

    content: str
    vectors: tuple[bytes, ...]
    content_ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A draft, ready to be stored: its id if it is new, and its text. It takes the place of the agent's
    memory ``supersedes_id``, if that still has the version ``supersedes_version`` (None: any). ``path`` goes
    before the fields that errors name."""

    id: str
    draft: Draft
    text: StoredText
    supersedes_id: str = ""
    supersedes_version: int | None = None
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record as it stands now. ``vector_keys`` name the vectors just stored with it, in their order;
    ``gone`` those that are there no more. ``written``: by this call; else an earlier one had."""

    memory: Memory
    vector_keys: tuple[int, ...] = ()
    removed_keys: tuple[int, ...] = ()
    written: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A change that a client named; ``fingerprint`` tells others that carry the same name apart."""

    id: str
    fingerprint: str


class Memories(Protocol):
    """Every method is about one agent: what another owns does not exist for it (feature E4). Contents that
    lie in an object are left out of what is read. A ``request`` that was carried out before changes
    nothing; REQUEST_ID_REUSED if it was another one."""

    async def add(
        self,
        agent_id: str,
        entries: Sequence[Entry],
        embedder: str,
        now_ms: int,
        request: Request | None = None,
    ) -> list[Stored]:
        """All entries in one transaction, each with text, vectors and links; where the draft's key or
        ``unless_known`` finds an earlier record, that one. Errors: MEMORY_NOT_FOUND and ETAG_MISMATCH for
        what is superseded, FIELD_INVALID for links to what is not there, AGENT_NOT_FOUND for an agent that
        was deleted."""
        ...

    async def get(self, agent_id: str, ids: Sequence[str]) -> list[Memory]:
        """Those of ``ids`` that are there, in their order."""
        ...

    async def page(self, agent_id: str, wanted: Filter, before_id: str, limit: int) -> list[Memory]:
        """By descending id (newest first), those wanted, below ``before_id`` (empty: from the top)."""
        ...

    async def recall(
        self,
        agent_id: str,
        query: str,
        near: Mapping[int, float],
        wanted: Filter,
        limit: int,
        read: Callable[[Sequence[Candidate]], Collection[str]] | None = None,
    ) -> list[Candidate]:
        """Of those wanted, what full text finds for any word of ``query`` (at most ``limit``), and the
        memories whose vector keys are in ``near`` (key -> cosine). ``query`` is plain text: it has no
        syntax. ``read`` chooses those, by id, that come with their record: a pure function, which is called
        wherever the store works."""
        ...

    def is_empty(self, agent_id: str) -> bool:
        """Whether it is known, without a look, that the agent has no memories at all, nor any that are being
        written. False where it is not known; a `recall` that finds none finds it out."""
        ...

    async def replace(
        self,
        memory: Memory,
        expected_version: int,
        text: StoredText | None,
        embedder: str,
        request: Request | None = None,
    ) -> Stored:
        """Store the new values of ``memory``, its links to what it contradicts and when it was archived
        among them; with a ``text`` also content and vectors. Errors: MEMORY_NOT_FOUND; ETAG_MISMATCH when
        the stored version is not the expected one; FIELD_INVALID for links to what is not there."""
        ...

    async def remove(
        self,
        agent_id: str,
        memory_id: str,
        expected_version: int | None,
        now_ms: int,
        request: Request | None = None,
    ) -> Stored | None:
        """Forget it: record, text, vectors and links; what it was, and the vector keys that are gone. None
        if the request did so before. What it had replaced is not found again. Errors as for `replace`."""
        ...


TombstoneStatus = Literal["leaving", "deleted", "kept"]
"""``leaving``: about to be deleted, unless the catalog thinks otherwise."""


class MemoryMaintenance(Protocol):
    """What keeps a store of memories in order, besides its users.

    An object is *loose* from before it is written until a memory has it, and again once none has.
    """

    async def add_unreferenced(self, keys: Sequence[str]) -> None:
        """Note objects that are about to be written."""
        ...

    async def unreferenced(self) -> list[str]:
        """Some of the objects noted that no memory has; none if there are none."""
        ...

    async def remove_unreferenced(self, keys: Sequence[str]) -> None:
        """These objects are gone: take them off the notes."""
        ...

    async def add_tombstone(self, agent_id: str, status: TombstoneStatus) -> None:
        """Note what becomes of an agent. Once it is ``deleted`` nothing is written for it, ever; what it
        remembers waits for `purge`."""
        ...

    async def tombstones(self) -> dict[str, TombstoneStatus]:
        """The agents that are ``leaving``, and those ``deleted`` that still have memories."""
        ...

    async def delete_agent_memories(self, agent_id: str, limit: int) -> tuple[int, list[int]]:
        """Forget up to ``limit`` memories of the agent: how many, and the vector keys that are gone."""
        ...


class IndexResidue(Protocol):
    """What stores keep of what was forgotten, and nobody can find any more."""

    async def purge(self) -> bool:
        """A small part of the work; False once nothing is left of what was forgotten before."""
        ...
