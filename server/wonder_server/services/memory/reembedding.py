"""Vectors for memories that have none by the present embedder, in the background (feature E8).

After a change of embedder that is all of them; where an embedder cannot be reached, those written meanwhile.
Search goes on: full text finds them all, and vectors those that have theirs by now.
"""

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
from wonder_server.ports.vectors import Reembedding, Vectors
from wonder_server.services.memory.large_contents import LargeContents

_log = logger("memory")

BATCH: Final = 64
"""Memories that are embedded at once."""
MAX_PAUSE_S: Final = 60.0
_INITIAL_PAUSE_S: Final = 1.0


class Reembedder:
    """One task that makes up for missing vectors; `start` and `close` it."""

    def __init__(
        self, *, store: Reembedding, large_contents: LargeContents, vectors: Vectors, embedder: Embedder
    ) -> None:
        self._store = store
        self._large_contents = large_contents
        self._vectors = vectors
        self._embedder = embedder
        self._woken = asyncio.Event()
        self._woken.set()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look once, and then whenever `wake` is called."""
        self._task = self._task or asyncio.create_task(self._run())

    def wake(self) -> None:
        """Something was written without vectors."""
        self._idle.clear()
        self._woken.set()

    async def wait_until_idle(self) -> None:
        """Until every memory has its vectors."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop; what is left is done after the next start."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = _INITIAL_PAUSE_S
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                done = await self.embed_pending()
            except WonderError as failure:
                _log.warning("embedding_pending", why=failure.fault.message, pause_s=pause)
                self._woken.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_S)
                continue
            pause = _INITIAL_PAUSE_S
            if done:
                _log.info("embedding_completed", memories=done, embedder=self._embedder.name)
            if not self._woken.is_set():
                self._idle.set()

    async def embed_pending(self) -> int:
        """Go through all memories once; how many got vectors. Raises what the embedder or a store raises."""
        done, after = 0, 0
        while True:
            found, following = await self._store.pending(self._embedder.name, after)
            for start in range(0, len(found), BATCH):
                done += await self._embed(found[start : start + BATCH])
            if following is None:
                return done
            after = following

    async def _embed(self, memories: list[Memory]) -> int:
        """Those that cannot be read, or that the embedder refuses, stay without: others do not wait for
        them. Raises what concerns them all."""
        try:
            return await self._embed_all(await self._large_contents.load(memories))
        except WonderError as failure:
            kind = failure.fault.metadata.get("kind")
            if failure.fault.reason is not Reason.STORAGE_UNAVAILABLE and kind != "refused":
                raise
            if len(memories) > 1:
                return sum([await self._embed([memory]) for memory in memories])
            _log.warning("embedding_rejected", memory=memories[0].id, why=failure.fault.message)
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
