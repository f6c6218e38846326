"""Vectors: the nearest of one agent's embeddings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from wonder_server.core.memory.records import Filter, Memory

Vector = tuple[int, bytes]
"""A key and little-endian float32 values of unit length. A key's vector never changes: new content
gets a new key."""


NO_LIMIT: Final = 1 << 60
"""A limit that is none."""


class Vectors(Protocol):
    """An index per agent; a cache, for which `VectorSource` is the truth.

    ``add`` and ``remove`` are called after the rows are committed; both may be repeated, and neither
    loads an index that is not in memory. No answer ever holds a key of another agent (feature E4).
    """

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None: ...

    async def remove(self, agent_id: str, keys: Collection[int]) -> None: ...

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """At most ``limit`` keys with their cosine, best first; only of ``among``, if given."""
        ...

    async def close(self) -> None: ...


class VectorSource(Protocol):
    """Where the vectors lie durably. Keys grow: a later commit never adds a lower one."""

    async def vectors(
        self, agent_id: str, embedder: str, after: int = 0, limit: int = NO_LIMIT
    ) -> list[Vector]:
        """The first ``limit`` of the agent's vectors by the embedder of that name whose keys are above
        ``after``, by ascending key."""
        ...

    async def keys(self, agent_id: str, embedder: str, wanted: Filter) -> list[int]:
        """The keys of those that belong to the memories wanted, ascending where all are."""
        ...


class Reembedding(Protocol):
    """What is to be done after a change of embedder, or where one could not be reached."""

    async def pending(self, embedder: str, after: int) -> tuple[list[Memory], int | None]:
        """Some memories that have no vectors by this embedder, their contents left out where they lie in an
        object; and what to give for ``after`` (at first 0) to go on, None at the end."""
        ...

    async def embed(self, memory: Memory, embedder: str, vectors: Sequence[bytes]) -> tuple[int, ...]:
        """Replace all vectors of the memory by these: their keys; nothing, if it changed since."""
        ...
