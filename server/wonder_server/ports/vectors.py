"""Search of the nearest embeddings of one agent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from wonder_server.core.memory.records import Filter, Memory

Vector = tuple[int, bytes]
"""A key and little-endian float32 values of unit length. The vector of a key never changes: new content gets
a new key."""


NO_LIMIT: Final = 1 << 60
"""A limit above every count."""


class Vectors(Protocol):
    """An index for each agent; a cache of `VectorSource`.

    Call ``add`` and ``remove`` after the rows are committed. Both may be repeated, and neither loads an index
    into memory. No result contains a key of another agent (feature E4).
    """

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None: ...

    async def remove(self, agent_id: str, keys: Collection[int]) -> None: ...

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """Return at most ``limit`` keys with their cosine, best first; only keys of ``among``, if given."""
        ...

    async def close(self) -> None: ...


class VectorSource(Protocol):
    """Durable storage of vectors. Keys increase: a later commit never adds a lower one."""

    async def vectors(
        self, agent_id: str, embedder: str, after: int = 0, limit: int = NO_LIMIT
    ) -> list[Vector]:
        """Return the first ``limit`` of the agent's vectors by this embedder with keys above ``after``, by
        ascending key."""
        ...

    async def keys(self, agent_id: str, embedder: str, wanted: Filter) -> list[int]:
        """Return the keys of the selected memories; in ascending order if the filter selects all."""
        ...


class Reembedding(Protocol):
    """Embedding of memories after a change of embedder, or after the embedder was unavailable."""

    async def pending(self, embedder: str, after: int) -> tuple[list[Memory], int | None]:
        """Return some memories without vectors by this embedder, and the value of ``after`` (at first 0) for
        the next call, None at the end. Contents stored in an object are left out."""
        ...

    async def embed(self, memory: Memory, embedder: str, vectors: Sequence[bytes]) -> tuple[int, ...]:
        """Replace all vectors of the memory and return their keys; do nothing if the memory has changed
        since."""
        ...
