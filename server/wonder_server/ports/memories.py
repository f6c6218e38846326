"""Memories: the records, their full text and their embeddings, in one store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wonder_server.core.memory import Candidate, Draft, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A draft, ready to be stored: its id if it is new, and its vector."""

    id: str
    draft: Draft
    vector: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record as it stands now. ``vector_key`` names the vector just stored with it, None where the
    record was there before."""

    memory: Memory
    vector_key: int | None


class Memories(Protocol):
    """Every method is about one agent: what another owns does not exist for it (feature E4)."""

    async def add(self, agent_id: str, entries: Sequence[Entry], embedder: str, now_ms: int) -> list[Stored]:
        """All entries in one transaction, each with text and vector; where the draft's key or
        ``unless_known`` finds an earlier record, that one."""
        ...

    async def get(self, agent_id: str, ids: Sequence[str]) -> list[Memory]:
        """Those of ``ids`` that are there, in their order."""
        ...

    async def page(self, agent_id: str, types: Sequence[str], before_id: str, limit: int) -> list[Memory]:
        """By descending id (newest first), of these types (none: all), below ``before_id`` (empty:
        from the top)."""
        ...

    async def recall(
        self, agent_id: str, query: str, near: Mapping[int, float], types: Sequence[str], limit: int
    ) -> list[Candidate]:
        """What full text finds for any word of ``query`` (at most ``limit``), and the memories whose
        vector keys are in ``near`` (key -> cosine). ``query`` is plain text: it has no syntax."""
        ...

    async def replace(
        self, memory: Memory, expected_version: int, vector: bytes | None, embedder: str
    ) -> tuple[int | None, list[int]]:
        """Store the new values of ``memory``; a ``vector`` replaces those it had. The new vector's
        key, and the keys that are gone. Errors: MEMORY_NOT_FOUND; ETAG_MISMATCH when the stored
        version is not the expected one."""
        ...

    async def remove(self, agent_id: str, memory_id: str, expected_version: int | None) -> list[int]:
        """Forget it: record, text and vectors; the keys that are gone. Errors as for `replace`."""
        ...
