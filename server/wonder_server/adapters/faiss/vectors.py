"""The vectors port over FAISS: a flat inner-product index per agent, in memory only.

SQLite is the truth: an index is read from it when first needed and forgotten again when others need
the room. FAISS itself (with numpy some 60 MB) is imported at the first search, in the one thread that
does all work on indexes, because adding and searching at once race.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from wonder_server.ports.vectors import Vector, VectorSource

T = TypeVar("T")

DEFAULT_MAX_BYTES: Final = 512 << 20


class _Index:
    """One agent's index. Used in the FAISS thread only."""

    __slots__ = ("_faiss", "_index", "_numpy", "_read_up_to")

    def __init__(self, dimensions: int, vectors: Sequence[Vector]) -> None:
        self._faiss = importlib.import_module("faiss")
        self._numpy = importlib.import_module("numpy")
        # More threads would compete with the event loop for two cores, for a search of 20 µs.
        self._faiss.omp_set_num_threads(1)
        self._index: Any = self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(dimensions))
        self._read_up_to = -1
        self.add(vectors)
        self._read_up_to = vectors[-1][0] if vectors else 0

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return int(self._index.ntotal) * (int(self._index.d) * 4 + 16)

    def add(self, vectors: Sequence[Vector]) -> None:
        """Those not read from the source already: keys only grow, so those above its last."""
        new = [(key, vector) for key, vector in vectors if key > self._read_up_to]
        if new:
            self._index.add_with_ids(
                self._matrix([vector for _, vector in new]), self._ids([key for key, _ in new])
            )

    def remove(self, keys: Collection[int]) -> None:
        self._index.remove_ids(self._ids(keys))

    def nearest(self, vector: bytes, limit: int, among: Collection[int] | None) -> list[tuple[int, float]]:
        parameters = None
        limit = min(limit, int(self._index.ntotal) if among is None else len(among))
        if limit <= 0:
            return []
        if among is not None:
            parameters = self._faiss.SearchParameters(sel=self._faiss.IDSelectorBatch(self._ids(among)))
        scores, keys = self._index.search(self._matrix([vector]), limit, params=parameters)
        found = zip(keys[0].tolist(), scores[0].tolist(), strict=True)
        return sorted(
            ((key, score) for key, score in found if key >= 0), key=lambda pair: (-pair[1], pair[0])
        )

    def _matrix(self, vectors: Sequence[bytes]) -> Any:
        flat = self._numpy.frombuffer(b"".join(vectors), dtype="<f4")
        return flat.reshape(len(vectors), self._index.d)

    def _ids(self, keys: Collection[int]) -> Any:
        return self._numpy.fromiter(keys, dtype="int64", count=len(keys))


class FaissVectors:
    """`Vectors` with at most ``max_bytes`` of indexes in memory, the least recently used going first."""

    def __init__(
        self, source: VectorSource, embedder: str, dimensions: int, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        self._source = source
        self._embedder = embedder
        self._dimensions = dimensions
        self._max_bytes = max_bytes
        self._loaded: OrderedDict[str, _Index] = OrderedDict()
        self._loading: dict[str, asyncio.Task[_Index]] = {}
        self._thread: ThreadPoolExecutor | None = None

    @property
    def loaded(self) -> tuple[str, ...]:
        """The agents whose index is in memory, least recently used first."""
        return tuple(self._loaded)

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None:
        index = await self._present(agent_id)
        if index is not None:
            await self._run(lambda: index.add(vectors))
            self._evict(keep=agent_id)

    async def remove(self, agent_id: str, keys: Collection[int]) -> None:
        index = await self._present(agent_id)
        if index is not None and keys:
            await self._run(lambda: index.remove(keys))

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        index = await self._index(agent_id)
        return await self._run(lambda: index.nearest(vector, limit, among))

    async def close(self) -> None:
        """Let go of the indexes and the thread."""
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._loaded.clear()
        if self._thread is not None:
            self._thread.shutdown()

    async def _present(self, agent_id: str) -> _Index | None:
        """The index if it is in memory or on its way there; the caller's change may be too late for
        what is being read just now."""
        if agent_id in self._loaded or agent_id in self._loading:
            return await self._index(agent_id)
        return None

    async def _index(self, agent_id: str) -> _Index:
        if agent_id in self._loaded:
            self._loaded.move_to_end(agent_id)
            return self._loaded[agent_id]
        if agent_id not in self._loading:
            # A task of its own: that one caller gives up must not disturb the others who wait.
            self._loading[agent_id] = asyncio.create_task(self._load(agent_id))
        return await asyncio.shield(self._loading[agent_id])

    async def _load(self, agent_id: str) -> _Index:
        try:
            vectors = await self._source.vectors(agent_id, self._embedder)
            index = await self._run(lambda: _Index(self._dimensions, vectors))
            self._loaded[agent_id] = index
            self._evict(keep=agent_id)
            return index
        finally:
            del self._loading[agent_id]

    def _evict(self, keep: str) -> None:
        total = sum(index.size for index in self._loaded.values())
        for agent_id in [name for name in self._loaded if name != keep]:
            if total <= self._max_bytes:
                return
            total -= self._loaded.pop(agent_id).size

    async def _run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="faiss")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
