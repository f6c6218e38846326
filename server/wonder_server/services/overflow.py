"""Contents that are too long for a row: as objects, one for each content of an agent (feature E2).

An object is noted as loose, then written, then the row that has it is committed and with it the note taken
off. When a row lets go of its object it is noted again, in the same commit. So whatever a crash or a store
that is down leaves behind is on the notes, and `collect` removes it. Nothing collects an object that
somebody is about to have: `holding` it keeps collectors off, and waits for those that are at it.

Objects name their agent, so that no two agents ever share one, and nothing else that lies in the store has
a memory's key: forgetting takes away what is forgotten and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final, TypeVar, cast

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.memory import Memory
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs, key_of
from wonder_server.ports.memories import MemoryUpkeep

_log = logger("memory")

T = TypeVar("T")

MAX_INLINE_BYTES: Final = 4096
"""A longer content lies in an object."""
AT_ONCE: Final = 8
"""Objects that are read or written at the same time for one caller."""


class Overflow:
    """The objects of memories, over a store of objects and the notes on them."""

    def __init__(self, blobs: Blobs, upkeep: MemoryUpkeep) -> None:
        self._blobs = blobs
        self._upkeep = upkeep
        self._held: Counter[str] = Counter()
        self._collected: dict[str, asyncio.Event] = {}
        self._collecting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def holding(self, agent_id: str, contents: Sequence[str]) -> AsyncIterator[list[str]]:
        """The keys of the objects that hold these contents, "" for those that fit into a row. They are in
        the store, and stay there until the rows that have them are committed, within this block.

        STORAGE_UNAVAILABLE.
        """
        objects = [_object(agent_id, content) for content in contents]
        keys = [key_of(each) if each else "" for each in objects]
        wanted = {key: each for key, each in zip(keys, objects, strict=True) if each}
        if not wanted:
            yield keys
            return
        while under_way := [self._collected[key] for key in wanted if key in self._collected]:
            await under_way[0].wait()
        self._held.update(wanted.keys())
        try:
            await self._upkeep.loosen(list(wanted))
            room = asyncio.Semaphore(AT_ONCE)
            await _all(*(self._put(each, room) for each in wanted.values()))
            yield keys
        except BaseException:
            self.collect_soon()
            raise
        finally:
            self._held.subtract(wanted.keys())
            self._held += Counter()  # Forgets those that are at zero.

    async def fill(self, memories: Sequence[Memory]) -> list[Memory]:
        """The memories with their contents, wherever they lie. STORAGE_UNAVAILABLE."""
        if not any(memory.content_ref and not memory.content for memory in memories):
            return list(memories)
        room = asyncio.Semaphore(AT_ONCE)
        return await _all(*(self._filled(memory, room) for memory in memories))

    async def collect(self) -> int:
        """Remove objects that no memory has; how many. STORAGE_UNAVAILABLE: the rest stay on the notes."""
        count = 0
        async with self._collecting:
            while found := await self._collect():
                count += found
        return count

    async def try_collecting(self) -> None:
        """`collect`; where the store cannot be reached, later."""
        try:
            await self.collect()
        except WonderError as problem:
            _log.warning("memory_objects_removal_deferred", problem=str(problem))

    def collect_soon(self) -> None:
        """`try_collecting`, without waiting for it."""
        task = asyncio.create_task(self.try_collecting())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Collect no more; the notes keep what is left for the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _collect(self) -> int:
        marked = [key for key in await self._upkeep.loose() if key not in self._held]
        for key in marked:
            self._collected[key] = asyncio.Event()
        try:
            # Somebody may have written a row since they were read; from now on nobody can.
            still = set(await self._upkeep.loose()) & set(marked) if marked else set()
            for key in still:
                await self._blobs.delete(key)
            if still:
                await self._upkeep.tighten(sorted(still))
            return len(still)
        finally:
            for key in marked:
                self._collected.pop(key).set()

    async def _put(self, content: bytes, room: asyncio.Semaphore) -> None:
        async with room:
            await self._blobs.put(content)

    async def _filled(self, memory: Memory, room: asyncio.Semaphore) -> Memory:
        if not memory.content_ref or memory.content:
            return memory
        async with room:
            held = await self._blobs.get(memory.content_ref)
        if held is None:
            _log.error("memory_object_missing", memory=memory.id, object=memory.content_ref)
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The content of the memory {memory.id} is missing in the object store; restore a backup.",
            )
        return dataclasses.replace(memory, content=held[len(_head(memory.agent_id)) :].decode())


async def _all(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Their results, once all are over: nothing of them goes on when the first error is raised."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)


def _object(agent_id: str, content: str) -> bytes:
    """The object for a content; empty if it fits into a row."""
    said = content.encode()
    return b"" if len(said) <= MAX_INLINE_BYTES else _head(agent_id) + said


def _head(agent_id: str) -> bytes:
    return f"memory of {agent_id}\n".encode()
