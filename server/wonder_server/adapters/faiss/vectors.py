"""The vectors port over FAISS: an index per agent in memory, those of large ones also on disk.

SQLite is the truth. An index is read from it when first needed, page by page, and forgotten again when others
need the room. It is flat at first, and searched at once; a large one is then put into lists in the background
(`Index.of_lists`), with what changes meanwhile made good before the two are exchanged. An index with lists is
saved, because making them takes seconds: when it is read again, what the rows have and it has not is added,
and what they have no more is taken out (`snapshots.py`).

All work on indexes is done in one thread, because adding and searching at once race; but for small ones,
whose work takes less time than handing it over: the event loop touches them itself, while the thread has
nothing to do with them. Making lists, and reading and writing files, has a thread of its own.
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
from wonder_server.core.memory import EVERYTHING
from wonder_server.logs import logger
from wonder_server.ports.vectors import Vector, VectorSource

T = TypeVar("T")

_log = logger("vectors")

DEFAULT_MAX_BYTES: Final = 512 << 20
PAGE: Final = 4_000
"""Vectors read from the rows at a time, so that writes are not held up."""
_AT_ONCE_BYTES: Final = 4 << 20
"""Up to this size a search (0.2 ms) is not handed to the thread."""
_FEW: Final = 2_000
_STALE: Final = 0.05
"""From which share of changes on an index is worth saving again."""


class _Held:
    """One agent's index in memory."""

    def __init__(self, index: Index, read_up_to: int, saved: bool) -> None:
        self.index = index
        self.read_up_to = read_up_to
        """Keys only grow: what was read from the rows has this one or a lower one."""
        self.saved = saved
        self.size = index.size
        self.under_way = 0
        """Work on it that the thread has not finished."""
        self.removals = 0
        self.log: list[Callable[[Index], None]] | None = None
        """Changes since lists are being made of it."""
        self.improving: asyncio.Task[None] | None = None


class FaissVectors:
    """`Vectors` with at most ``max_bytes`` of indexes in memory, the least recently used going first; large
    ones are saved in ``folder``, if there is one."""

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
        self._loaded: OrderedDict[str, _Held] = OrderedDict()
        self._loading: dict[str, asyncio.Task[_Held]] = {}
        self._saving: dict[str, set[asyncio.Task[None]]] = {}
        self._size = 0
        self._thread: ThreadPoolExecutor | None = None
        self._builder: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def loaded(self) -> tuple[str, ...]:
        """The agents whose index is in memory, least recently used first."""
        return tuple(self._loaded)

    @property
    def size(self) -> int:
        """Bytes of the indexes in memory, about."""
        return self._size

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None:
        held = await self._present(agent_id)
        if held is None:
            return
        new = [(key, vector) for key, vector in vectors if key > held.read_up_to]
        await self._change(agent_id, held, lambda index: index.add(new))
        self._improve(agent_id, held)
        self._evict(keep=agent_id)

    async def remove(self, agent_id: str, keys: Collection[int]) -> None:
        if not keys:
            return
        held = await self._present(agent_id)
        if held is not None:
            held.saved = False
            held.removals += 1
            await self._change(agent_id, held, lambda index: index.remove(keys))
        snapshots = self._snapshots
        if snapshots is not None:
            # What is forgotten must not lie on in a file.
            await asyncio.gather(*self._saving.get(agent_id, ()), return_exceptions=True)
            await self._build(lambda: snapshots.forget(agent_id))

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        held = await self._held(agent_id)
        run = self._run if among is None or len(among) <= _FEW else self._hand_over
        return await run(held, lambda: held.index.nearest(vector, limit, among))

    async def wait_until_quiet(self) -> None:
        """Until no lists are being made and nothing is being saved."""
        while tasks := self._under_way():
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Save what is worth it, let go of the indexes and the threads."""
        self._closed = True
        for task in [*self._loading.values(), *self._under_way()]:
            task.cancel()
        await asyncio.gather(*self._loading.values(), *self._under_way(), return_exceptions=True)
        for agent_id, held in list(self._loaded.items()):
            self._let_go(agent_id, held)
        await asyncio.gather(*self._under_way(), return_exceptions=True)
        for thread in (self._thread, self._builder):
            if thread is not None:
                await asyncio.to_thread(thread.shutdown)

    def _under_way(self) -> list[asyncio.Task[None]]:
        improving = [held.improving for held in self._loaded.values() if held.improving is not None]
        return [*improving, *(task for tasks in self._saving.values() for task in tasks)]

    # --- in memory ------------------------------------------------------------------------------

    async def _present(self, agent_id: str) -> _Held | None:
        """The index if it is in memory or on its way there; the caller's change may be too late for
        what is being read just now."""
        if agent_id in self._loaded or agent_id in self._loading:
            return await self._held(agent_id)
        return None

    async def _held(self, agent_id: str) -> _Held:
        if agent_id in self._loaded:
            self._loaded.move_to_end(agent_id)
            return self._loaded[agent_id]
        if agent_id not in self._loading:
            # A task of its own: that one caller gives up must not disturb the others who wait.
            self._loading[agent_id] = asyncio.create_task(self._load(agent_id))
        return await asyncio.shield(self._loading[agent_id])

    async def _load(self, agent_id: str) -> _Held:
        try:
            held = await self._from_file(agent_id) or await self._from_rows(agent_id)
            self._loaded[agent_id] = held
            self._size += held.size
            self._improve(agent_id, held)
            self._evict(keep=agent_id)
            return held
        finally:
            del self._loading[agent_id]

    async def _from_rows(self, agent_id: str) -> _Held:
        index = await self._in_thread(lambda: Index(self._dimensions))
        last = await self._read(agent_id, index, after=0, only=None)
        return _Held(index, last, saved=False)

    async def _from_file(self, agent_id: str) -> _Held | None:
        """What was saved, brought to what the rows say; None where too little of it would be left."""
        snapshots = self._snapshots
        if snapshots is None:
            return None
        there = await self._build(lambda: snapshots.path(agent_id).exists())
        snapshot = await self._build(lambda: snapshots.load(agent_id)) if there else None
        if snapshot is None:
            if there:
                _log.warning("vector_index_rebuilt", agent=agent_id)
            return None
        rows = await self._source.keys(agent_id, self._embedder, EVERYTHING)

        def compare() -> tuple[list[int], list[int]]:
            _, numpy = libraries()
            stored = numpy.array(rows, dtype="int64")
            missing = numpy.setdiff1d(stored, snapshot.keys).tolist()
            return missing, numpy.setdiff1d(snapshot.keys, stored).tolist()

        missing, gone = await self._build(compare)
        if len(missing) + len(gone) > len(rows) // 2:
            return None
        index = snapshot.index
        await self._in_thread(lambda: index.remove(gone))
        if missing:
            await self._read(agent_id, index, after=missing[0] - 1, only=set(missing))
        return _Held(index, max(rows, default=0), saved=not gone)

    async def _read(self, agent_id: str, index: Index, after: int, only: set[int] | None) -> int:
        """Add what the rows have; the last key read."""
        while True:
            page = await self._source.vectors(agent_id, self._embedder, after, PAGE)
            wanted = page if only is None else [vector for vector in page if vector[0] in only]
            await self._in_thread(lambda: index.add(wanted))  # noqa: B023 - done before the next page
            after = page[-1][0] if page else after
            if len(page) < PAGE:
                return after

    def _evict(self, keep: str) -> None:
        if self._size <= self._max_bytes:
            return
        for agent_id in list(self._loaded):
            if self._size <= self._max_bytes:
                return
            held = self._loaded[agent_id]
            if agent_id != keep and held.improving is None:
                self._let_go(agent_id, held)

    def _let_go(self, agent_id: str, held: _Held) -> None:
        del self._loaded[agent_id]
        self._size -= held.size
        index = held.index
        worth = index.has_lists and (not held.saved or index.changes > _STALE * index.count)
        if self._snapshots is not None and worth:
            task = asyncio.create_task(self._save(agent_id, held))
            self._saving.setdefault(agent_id, set()).add(task)
            task.add_done_callback(lambda done: self._is_saved(agent_id, done))

    # --- lists and files ------------------------------------------------------------------------

    def _improve(self, agent_id: str, held: _Held) -> None:
        if held.improving is None and held.index.wants_lists and not self._closed:
            held.improving = asyncio.create_task(self._make_lists(agent_id, held))

    async def _make_lists(self, agent_id: str, held: _Held) -> None:
        snapshots, removals = self._snapshots, held.removals
        try:
            held.log = []
            made = await self._build(partial(Index.of_lists, *await self._hand_over(held, held.index.copy)))
            saved = snapshots is not None and await self._build(lambda: self._write(agent_id, made))
            log, held.log = held.log, None

            def exchange() -> None:
                for change in log:
                    change(made)
                held.index = made

            await self._hand_over(held, exchange)
            held.saved = saved and held.removals == removals
            if snapshots is not None and saved and not held.saved:
                await self._build(partial(snapshots.forget, agent_id))
            self._measure(agent_id, held)
        finally:
            held.log = None
            held.improving = None

    async def _save(self, agent_id: str, held: _Held) -> None:
        await self._hand_over(held, lambda: self._write(agent_id, held.index))

    def _write(self, agent_id: str, index: Index) -> bool:
        assert self._snapshots is not None
        try:
            self._snapshots.save(agent_id, index)
        except OSError as problem:
            _log.warning("vector_index_save_failed", agent=agent_id, why=problem.strerror)
            return False
        index.changes = 0
        return True

    def _is_saved(self, agent_id: str, task: asyncio.Task[None]) -> None:
        tasks = self._saving.get(agent_id, set())
        tasks.discard(task)
        if not tasks:
            self._saving.pop(agent_id, None)

    # --- threads --------------------------------------------------------------------------------

    async def _change(self, agent_id: str, held: _Held, change: Callable[[Index], None]) -> None:
        if held.log is not None:
            held.log.append(change)
        await self._run(held, lambda: change(held.index))
        self._measure(agent_id, held)

    def _measure(self, agent_id: str, held: _Held) -> None:
        if self._loaded.get(agent_id) is held:
            self._size += held.index.size - held.size
        held.size = held.index.size

    async def _run(self, held: _Held, work: Callable[[], T]) -> T:
        if held.under_way == 0 and held.size <= _AT_ONCE_BYTES:
            return work()
        return await self._hand_over(held, work)

    async def _hand_over(self, held: _Held, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()

        def finished(_job: object) -> None:
            held.under_way -= 1

        held.under_way += 1
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="faiss")
        # Not until the thread is done with it, also if whoever waits for it goes away.
        job = self._thread.submit(work)
        job.add_done_callback(lambda job: loop.is_closed() or loop.call_soon_threadsafe(finished, job))
        return await asyncio.wrap_future(job)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="faiss")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _build(self, work: Callable[[], T]) -> T:
        if self._builder is None:
            self._builder = ThreadPoolExecutor(1, thread_name_prefix="faiss-lists")
        return await asyncio.get_running_loop().run_in_executor(self._builder, work)
