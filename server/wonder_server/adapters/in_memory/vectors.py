"""The port ``Vectors`` in plain Python, for tests and for servers without FAISS."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Collection, Sequence

from wonder_server.ports.vectors import Vector, VectorSource


class PlainVectors:
    """Implements `Vectors` by comparing with every vector of the source: slow and exact."""

    def __init__(self, source: VectorSource, embedder: str) -> None:
        self._source = source
        self._embedder = embedder

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None:
        """Do nothing: the source stores the vectors."""

    async def remove(self, agent_id: str, keys: Collection[int]) -> None:
        """Do nothing: the source has removed the vectors."""

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        wanted = array("f", vector)
        allowed = None if among is None else set(among)
        scored = [
            (key, sum(map(float.__mul__, wanted, array("f", stored))))
            for key, stored in await self._source.vectors(agent_id, self._embedder)
            if allowed is None or key in allowed
        ]
        return heapq.nsmallest(limit, scored, key=lambda pair: (-pair[1], pair[0]))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
