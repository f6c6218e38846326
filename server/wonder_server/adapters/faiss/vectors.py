"""The port ``Vectors`` with FAISS: one index per agent in memory. Large ones are saved to disk too.

The rows in SQLite are authoritative. `FaissVectors` reads an index from them at its first use, page by page,
and evicts it when others need the memory. A new index is flat. A background task then builds lists for a
large one (`Index.of_lists`), applies the changes made meanwhile, and exchanges the two. An index with lists
is saved, because building lists takes seconds. After reading a saved index, `FaissVectors` adds the vectors
that only the rows have and removes those that the rows do not have (`snapshots.py`).

One thread executes all work on indexes, because adding and searching at once would race. Small indexes are
the exception: their work takes less time than the handover, so the event loop does it while no job of the
thread uses them. A second thread builds lists and reads and writes files.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server.adapters.faiss.index import Index, libraries
from wonder_server.adapters.faiss.snapshots import Snapshots
from wonder_server.core.memory.records import EVERYTHING
from wonder_server.logs import logger
from wonder_server.ports.vectors import Vector, VectorSource

T = TypeVar("T")

_log = logger("vectors")

DEFAULT_MAX_BYTES: Final = 512 << 20
PAGE: Final = 4_000
"""Vectors read from the rows at a time, so that writes do not wait long."""
_INLINE_MAX_BYTES: Final = 4 << 20
"""Maximum size of an index that the event loop itself searches; a search takes up to 0.2 ms."""
_INLINE_MAX_KEYS: Final = 2_000
_STALE_SHARE: Final = 0.05
"""Minimum share of changed vectors for saving an index again."""


class _LoadedIndex:
    """One agent's index in memory."""

    def __init__(self, index: Index, read_up_to: int, saved: bool) -> None:
        self.index = index
        self.last_key = read_up_to
        """The highest key read from the rows. Keys only grow, so higher ones are new."""
        self.saved = saved
        self.size = index.size
        self.pending_jobs = 0
        """Number of unfinished jobs of the thread that use the index."""
        self.removals = 0
        self.pending_changes: list[Callable[[Index], None]] | None = None
        """Changes made while lists are built; None while no lists are built."""
        self.list_task: asyncio.Task[None] | None = None
        """The task that builds lists, if it runs."""


class FaissVectors:
    """Implements `Vectors` with at most ``max_bytes`` of indexes in memory, evicting the least recently used.

    Large indexes are saved in ``folder``, if given.
    """

    def __init__(
        self,
        source: VectorSource,
        embedder: str,
        dimensions: int,
        max_bytes: int = DEFAULT_MAX_BYTES,
        folder: Path | None = None,
    ) -> None:
        self._source = source
        self._embedder = embedder
        self._dimensions = dimensions
        self._max_bytes = max_bytes
        self._snapshots = Snapshots(folder, embedder, dimensions) if folder else None
        self._loaded: OrderedDict[str, _LoadedIndex] = OrderedDict()
        self._loading: dict[str, asyncio.Task[_LoadedIndex]] = {}
        self._saving: dict[str, set[asyncio.Task[None]]] = {}
        self._size = 0
        self._thread: ThreadPoolExecutor | None = None
        self._builder: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def loaded(self) -> tuple[str, ...]:
        """Return the agents with an index in memory, least recently used first."""
        return tuple(self._loaded)

    @property
    def size(self) -> int:
        """Return the approximate bytes of all indexes in memory."""
        return self._size

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None:
        loaded = await self._get_if_loaded(agent_id)
        if loaded is None:
            return
        new = [(key, vector) for key, vector in vectors if key > loaded.last_key]
        await self._change(agent_id, loaded, lambda index: index.add(new))
        self._build_lists(agent_id, loaded)
        self._evict(keep=agent_id)

    async def remove(self, agent_id: str, keys: Collection[int]) -> None:
        if not keys:
            return
        loaded = await self._get_if_loaded(agent_id)
        if loaded is not None:
            loaded.saved = False
            loaded.removals += 1
            await self._change(agent_id, loaded, lambda index: index.remove(keys))
        snapshots = self._snapshots
        if snapshots is not None:
            # A saved index must not keep a deleted vector.
            await asyncio.gather(*self._saving.get(agent_id, ()), return_exceptions=True)
            await self._run_in_builder(lambda: snapshots.delete(agent_id))

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        loaded = await self._get(agent_id)
        run = self._run if among is None or len(among) <= _INLINE_MAX_KEYS else self._run_in_thread
        return await run(loaded, lambda: loaded.index.nearest(vector, limit, among))

    async def wait_until_idle(self) -> None:
        """Wait until no task builds lists or saves an index."""
        while tasks := self._background_tasks():
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Save changed indexes, then release indexes and threads."""
        self._closed = True
        for task in [*self._loading.values(), *self._background_tasks()]:
            task.cancel()
        await asyncio.gather(*self._loading.values(), *self._background_tasks(), return_exceptions=True)
        for agent_id, loaded in list(self._loaded.items()):
            self._evict_one(agent_id, loaded)
        await asyncio.gather(*self._background_tasks(), return_exceptions=True)
        for thread in (self._thread, self._builder):
            if thread is not None:
                await asyncio.to_thread(thread.shutdown)

    def _background_tasks(self) -> list[asyncio.Task[None]]:
        building = [loaded.list_task for loaded in self._loaded.values() if loaded.list_task is not None]
        return [*building, *(task for tasks in self._saving.values() for task in tasks)]

    # --- in memory ------------------------------------------------------------------------------

    async def _get_if_loaded(self, agent_id: str) -> _LoadedIndex | None:
        """Return the index if it is in memory or being read; None otherwise.

        An index that is being read may have missed the caller's change, so the caller applies it again.
        """
        if agent_id in self._loaded or agent_id in self._loading:
            return await self._get(agent_id)
        return None

    async def _get(self, agent_id: str) -> _LoadedIndex:
        if agent_id in self._loaded:
            self._loaded.move_to_end(agent_id)
            return self._loaded[agent_id]
        if agent_id not in self._loading:
            # A separate task: the cancellation of one caller must not affect the others.
            self._loading[agent_id] = asyncio.create_task(self._load(agent_id))
        return await asyncio.shield(self._loading[agent_id])

    async def _load(self, agent_id: str) -> _LoadedIndex:
        try:
            loaded = await self._from_file(agent_id) or await self._from_rows(agent_id)
            self._loaded[agent_id] = loaded
            self._size += loaded.size
            self._build_lists(agent_id, loaded)
            self._evict(keep=agent_id)
            return loaded
        finally:
            del self._loading[agent_id]

    async def _from_rows(self, agent_id: str) -> _LoadedIndex:
        index = await self._run_untracked(lambda: Index(self._dimensions))
        last = await self._read(agent_id, index, after=0, only=None)
        return _LoadedIndex(index, last, saved=False)

    async def _from_file(self, agent_id: str) -> _LoadedIndex | None:
        """Read a saved index and update it to the rows. Return None if more than half of it would change."""
        snapshots = self._snapshots
        if snapshots is None:
            return None
        exists = await self._run_in_builder(lambda: snapshots.path(agent_id).exists())
        snapshot = await self._run_in_builder(lambda: snapshots.load(agent_id)) if exists else None
        if snapshot is None:
            if exists:
                _log.warning("vector_index_rebuilt", agent=agent_id)
            return None
        rows = await self._source.keys(agent_id, self._embedder, EVERYTHING)

        def compare() -> tuple[list[int], list[int]]:
            _, numpy = libraries()
            stored = numpy.array(rows, dtype="int64")
            missing = numpy.setdiff1d(stored, snapshot.keys).tolist()
            return missing, numpy.setdiff1d(snapshot.keys, stored).tolist()

        missing, removed = await self._run_in_builder(compare)
        if len(missing) + len(removed) > len(rows) // 2:
            return None
        index = snapshot.index
        await self._run_untracked(lambda: index.remove(removed))
        if missing:
            await self._read(agent_id, index, after=missing[0] - 1, only=set(missing))
        return _LoadedIndex(index, max(rows, default=0), saved=not removed)

    async def _read(self, agent_id: str, index: Index, after: int, only: set[int] | None) -> int:
        """Add the vectors of the rows, or those in ``only``. Return the last key read."""
        while True:
            page = await self._source.vectors(agent_id, self._embedder, after, PAGE)
            wanted = page if only is None else [vector for vector in page if vector[0] in only]
            await self._run_untracked(lambda: index.add(wanted))  # noqa: B023 - awaited before the next page
            after = page[-1][0] if page else after
            if len(page) < PAGE:
                return after

    def _evict(self, keep: str) -> None:
        if self._size <= self._max_bytes:
            return
        for agent_id in list(self._loaded):
            if self._size <= self._max_bytes:
                return
            loaded = self._loaded[agent_id]
            if agent_id != keep and loaded.list_task is None:
                self._evict_one(agent_id, loaded)

    def _evict_one(self, agent_id: str, loaded: _LoadedIndex) -> None:
        del self._loaded[agent_id]
        self._size -= loaded.size
        index = loaded.index
        is_stale = index.has_lists and (not loaded.saved or index.changes > _STALE_SHARE * index.count)
        if self._snapshots is not None and is_stale:
            task = asyncio.create_task(self._save(agent_id, loaded))
            self._saving.setdefault(agent_id, set()).add(task)
            task.add_done_callback(lambda done: self._on_saved(agent_id, done))

    # --- lists and files ------------------------------------------------------------------------

    def _build_lists(self, agent_id: str, loaded: _LoadedIndex) -> None:
        if loaded.list_task is None and loaded.index.wants_lists and not self._closed:
            loaded.list_task = asyncio.create_task(self._replace_with_lists(agent_id, loaded))

    async def _replace_with_lists(self, agent_id: str, loaded: _LoadedIndex) -> None:
        snapshots, removals = self._snapshots, loaded.removals
        try:
            loaded.pending_changes = []
            built = await self._run_in_builder(
                partial(Index.of_lists, *await self._run_in_thread(loaded, loaded.index.copy))
            )
            saved = snapshots is not None and await self._run_in_builder(lambda: self._write(agent_id, built))
            changes, loaded.pending_changes = loaded.pending_changes, None

            def exchange() -> None:
                for change in changes:
                    change(built)
                loaded.index = built

            await self._run_in_thread(loaded, exchange)
            loaded.saved = saved and loaded.removals == removals
            if snapshots is not None and saved and not loaded.saved:
                await self._run_in_builder(partial(snapshots.delete, agent_id))
            self._update_size(agent_id, loaded)
        finally:
            loaded.pending_changes = None
            loaded.list_task = None

    async def _save(self, agent_id: str, loaded: _LoadedIndex) -> None:
        await self._run_in_thread(loaded, lambda: self._write(agent_id, loaded.index))

    def _write(self, agent_id: str, index: Index) -> bool:
        assert self._snapshots is not None
        try:
            self._snapshots.save(agent_id, index)
        except OSError as problem:
            _log.warning("vector_index_save_failed", agent=agent_id, problem=problem.strerror)
            return False
        index.changes = 0
        return True

    def _on_saved(self, agent_id: str, task: asyncio.Task[None]) -> None:
        tasks = self._saving.get(agent_id, set())
        tasks.discard(task)
        if not tasks:
            self._saving.pop(agent_id, None)

    # --- threads --------------------------------------------------------------------------------

    async def _change(self, agent_id: str, loaded: _LoadedIndex, change: Callable[[Index], None]) -> None:
        if loaded.pending_changes is not None:
            loaded.pending_changes.append(change)
        await self._run(loaded, lambda: change(loaded.index))
        self._update_size(agent_id, loaded)

    def _update_size(self, agent_id: str, loaded: _LoadedIndex) -> None:
        if self._loaded.get(agent_id) is loaded:
            self._size += loaded.index.size - loaded.size
        loaded.size = loaded.index.size

    async def _run(self, loaded: _LoadedIndex, work: Callable[[], T]) -> T:
        if loaded.pending_jobs == 0 and loaded.size <= _INLINE_MAX_BYTES:
            return work()
        return await self._run_in_thread(loaded, work)

    async def _run_in_thread(self, loaded: _LoadedIndex, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()

        def on_finished(_job: object) -> None:
            loaded.pending_jobs -= 1

        loaded.pending_jobs += 1
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="faiss")
        # The count drops when the thread has finished, even if the caller is cancelled before.
        job = self._thread.submit(work)
        job.add_done_callback(lambda job: loop.is_closed() or loop.call_soon_threadsafe(on_finished, job))
        return await asyncio.wrap_future(job)

    async def _run_untracked(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="faiss")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run_in_builder(self, work: Callable[[], T]) -> T:
        if self._builder is None:
            self._builder = ThreadPoolExecutor(1, thread_name_prefix="faiss-lists")
        return await asyncio.get_running_loop().run_in_executor(self._builder, work)
