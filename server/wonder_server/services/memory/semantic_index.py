"""Vectors of memories: embed contents, update the vector index, find the nearest memories (feature E3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import islice

from wonder_server.core.errors import WonderError
from wonder_server.core.memory.chunking import chunks
from wonder_server.core.memory.records import Filter
from wonder_server.logs import logger
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.memories import Stored
from wonder_server.ports.scoped import ScopedVectors, ScopedVectorSource

_log = logger("memory")


class SemanticIndex:
    """The vector index with its embedder.

    If the embedder is unavailable, memories are stored without vectors and ``on_missing_vectors`` is called.
    Full text search finds them until they are embedded."""

    def __init__(
        self,
        *,
        vectors: ScopedVectors,
        source: ScopedVectorSource,
        embedder: Embedder,
        on_missing_vectors: Callable[[], None] = lambda: None,
    ) -> None:
        self._vectors = vectors
        self._source = source
        self._embedder = embedder
        self._on_missing_vectors = on_missing_vectors

    def within(self, vectors: ScopedVectors, source: ScopedVectorSource) -> SemanticIndex:
        """Return the index over other views of the same vectors."""
        made = copy(self)
        made._vectors, made._source = vectors, source
        return made

    @property
    def embedder_name(self) -> str:
        """Name of the embedder whose vectors the index holds."""
        return self._embedder.name

    @property
    def share(self) -> float:
        """Share of the vector score in the relevance of a search hit."""
        return self._embedder.share

    async def embed_query(self, query: str) -> bytes | None:
        """Return the vector of ``query``; None if the embedder is unavailable."""
        try:
            [vector] = await self._embedder.embed([chunks(query)[0]])
        except WonderError as failure:
            _log.warning("vector_search_skipped", problem=failure.fault.message)
            return None
        return vector

    async def embed(self, contents: Sequence[str]) -> list[tuple[bytes, ...]]:
        """Return the vectors of each content, one for each of its chunks. If the embedder is unavailable,
        return no vectors: the memories must be written anyway."""
        split = [chunks(content) for content in contents]
        try:
            vectors = iter(await self._embedder.embed([chunk for some in split for chunk in some]))
        except WonderError as failure:
            _log.warning("embedding_deferred", problem=failure.fault.message)
            return [() for _ in contents]
        return [tuple(islice(vectors, len(some))) for some in split]

    async def nearest(self, agent_id: str, vector: bytes, wanted: Filter, limit: int) -> dict[int, float]:
        """Return the keys of the agent's nearest vectors, each with its cosine, which is above 0."""
        among = await self._source.keys(agent_id, self.embedder_name, wanted) if wanted.narrows else None
        nearest = await self._vectors.nearest(agent_id, vector, limit, among)
        return {key: cosine for key, cosine in nearest if cosine > 0}

    async def update(self, agent_id: str, changes: Sequence[tuple[Stored, Sequence[bytes]]]) -> None:
        """Add and remove the vectors of committed memories."""
        added = [
            pair
            for stored, vectors in changes
            if stored.vector_keys
            for pair in zip(stored.vector_keys, vectors, strict=True)
        ]
        if added:
            await self._vectors.add(agent_id, added)
        if any(stored.written and not vectors for stored, vectors in changes):
            self._on_missing_vectors()
        await self.remove(agent_id, [key for stored, _ in changes for key in stored.removed_keys])

    async def remove(self, agent_id: str, keys: Sequence[int]) -> None:
        """Remove the vectors with these keys."""
        if keys:
            await self._vectors.remove(agent_id, keys)
