"""Background computation of missing vectors (feature E8).

Vectors are missing after a change of embedder, and for memories that were written while the embedder was
unavailable. Full text search finds these memories meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice
from typing import Final

from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.chunking import chunks
from wonder_server.core.memory.records import Memory
from wonder_server.logs import logger
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.placement import OwnsKey, owns_everything
from wonder_server.ports.vectors import Reembedding, Vectors
from wonder_server.services.memory.large_contents import LargeContents

_log = logger("memory")

BATCH: Final = 64
"""Memories that are embedded in one call."""
MAX_PAUSE_S: Final = 60.0
_INITIAL_PAUSE_S: Final = 1.0


class Reembedder:
    """A background task that embeds the memories without vectors. `start` and `close` it."""

    def __init__(
        self,
        *,
        store: Reembedding,
        large_contents: LargeContents,
        vectors: Vectors,
        embedder: Embedder,
        owns: OwnsKey = owns_everything,
    ) -> None:
        """``owns`` returns True for the agents whose memories this node embeds. Call `wake` when it gains
        some."""
        self._owns = owns
        self._store = store
        self._large_contents = large_contents
        self._vectors = vectors
        self._embedder = embedder
        self._wake_requested = asyncio.Event()
        self._wake_requested.set()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task. It runs once, and again after each call of `wake`."""
        self._task = self._task or asyncio.create_task(self._run())

    def wake(self) -> None:
        """Run again: a memory was written without vectors."""
        self._idle.clear()
        self._wake_requested.set()

    async def wait_until_idle(self) -> None:
        """Wait until every memory has its vectors."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop the task. The next start resumes it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = _INITIAL_PAUSE_S
        while True:
            await self._wake_requested.wait()
            self._wake_requested.clear()
            try:
                done = await self.embed_pending()
            except WonderError as failure:
                _log.warning("embedding_pending", problem=failure.fault.message, pause_s=pause)
                self._wake_requested.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_S)
                continue
            pause = _INITIAL_PAUSE_S
            if done:
                _log.info("embedding_completed", memories=done, embedder=self._embedder.name)
            if not self._wake_requested.is_set():
                self._idle.set()

    async def embed_pending(self) -> int:
        """Embed all memories of this node's agents that have no vectors, and return their number. Raises
        the errors of the embedder and of the stores."""
        done, after = 0, 0
        while True:
            pending, following = await self._store.pending(self._embedder.name, after)
            found = [memory for memory in pending if self._owns(memory.agent_id)]
            for start in range(0, len(found), BATCH):
                done += await self._embed(found[start : start + BATCH])
            if following is None:
                return done
            after = following

    async def _embed(self, memories: list[Memory]) -> int:
        """Embed a batch. A memory that is unreadable or that the embedder rejects stays without vectors.
        Raises errors that concern all memories."""
        try:
            return await self._embed_all(await self._large_contents.load(memories))
        except WonderError as failure:
            kind = failure.fault.metadata.get("kind")
            if failure.fault.reason is not Reason.STORAGE_UNAVAILABLE and kind != "refused":
                raise
            if len(memories) > 1:
                return sum([await self._embed([memory]) for memory in memories])
            _log.warning("embedding_rejected", memory=memories[0].id, problem=failure.fault.message)
            return 0

    async def _embed_all(self, memories: list[Memory]) -> int:
        split = [chunks(memory.content) for memory in memories]
        vectors = iter(await self._embedder.embed([passage for some in split for passage in some]))
        done = 0
        for memory, some in zip(memories, split, strict=True):
            own = tuple(islice(vectors, len(some)))
            keys = await self._store.embed(memory, self._embedder.name, own)
            if keys:
                await self._vectors.add(memory.agent_id, list(zip(keys, own, strict=True)))
                done += 1
        return done
