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
from wonder_server.core.memory.records import Memory
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs, key_of
from wonder_server.ports.memories import MemoryMaintenance

_log = logger("memory")

T = TypeVar("T")

MAX_INLINE_BYTES: Final = 4096
"""A longer content lies in an object."""
MAX_CONCURRENT: Final = 8
"""Objects that are read or written at the same time for one caller."""


class LargeContents:
    """The objects of memories, over a store of objects and the notes on them."""

    def __init__(self, blobs: Blobs, maintenance: MemoryMaintenance) -> None:
        self._blobs = blobs
        self._maintenance = maintenance
        self._reserved: Counter[str] = Counter()
        self._being_collected: dict[str, asyncio.Event] = {}
        self._collecting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def reserve(self, agent_id: str, contents: Sequence[str]) -> AsyncIterator[list[str]]:
        """The keys of the objects that hold these contents, "" for those that fit into a row. They are in
        the store, and stay there until the rows that have them are committed, within this block.

        STORAGE_UNAVAILABLE.
        """
        objects = [_encode_object(agent_id, content) for content in contents]
        keys = [key_of(each) if each else "" for each in objects]
        wanted = {key: each for key, each in zip(keys, objects, strict=True) if each}
        if not wanted:
            yield keys
            return
        while under_way := [self._being_collected[key] for key in wanted if key in self._being_collected]:
            await under_way[0].wait()
        self._reserved.update(wanted.keys())
        try:
            await self._maintenance.add_unreferenced(list(wanted))
            room = asyncio.Semaphore(MAX_CONCURRENT)
            await _gather_all(*(self._put(each, room) for each in wanted.values()))
            yield keys
        except BaseException:
            self.schedule_collection()
            raise
        finally:
            self._reserved.subtract(wanted.keys())
            self._reserved += Counter()  # Forgets those that are at zero.

    async def load(self, memories: Sequence[Memory]) -> list[Memory]:
        """The memories with their contents, wherever they lie. STORAGE_UNAVAILABLE."""
        if not any(memory.content_ref and not memory.content for memory in memories):
            return list(memories)
        room = asyncio.Semaphore(MAX_CONCURRENT)
        return await _gather_all(*(self._load_one(memory, room) for memory in memories))

    async def collect(self) -> int:
        """Remove objects that no memory has; how many. STORAGE_UNAVAILABLE: the rest stay on the notes."""
        count = 0
        async with self._collecting:
            while found := await self._collect():
                count += found
        return count

    async def try_collect(self) -> None:
        """`collect`; where the store cannot be reached, later."""
        try:
            await self.collect()
        except WonderError as problem:
            _log.warning("memory_objects_removal_deferred", problem=str(problem))

    def schedule_collection(self) -> None:
        """`try_collecting`, without waiting for it."""
        task = asyncio.create_task(self.try_collect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Collect no more; the notes keep what is left for the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _collect(self) -> int:
        marked = [key for key in await self._maintenance.unreferenced() if key not in self._reserved]
        for key in marked:
            self._being_collected[key] = asyncio.Event()
        try:
            # Somebody may have written a row since they were read; from now on nobody can.
            unreferenced = set(await self._maintenance.unreferenced()) & set(marked) if marked else set()
            for key in unreferenced:
                await self._blobs.delete(key)
            if unreferenced:
                await self._maintenance.remove_unreferenced(sorted(unreferenced))
            return len(unreferenced)
        finally:
            for key in marked:
                self._being_collected.pop(key).set()

    async def _put(self, content: bytes, room: asyncio.Semaphore) -> None:
        async with room:
            await self._blobs.put(content)

    async def _load_one(self, memory: Memory, room: asyncio.Semaphore) -> Memory:
        if not memory.content_ref or memory.content:
            return memory
        async with room:
            content = await self._blobs.get(memory.content_ref)
        if content is None:
            _log.error("memory_object_missing", memory=memory.id, object=memory.content_ref)
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The content of the memory {memory.id} is missing in the object store; restore a backup.",
            )
        return dataclasses.replace(memory, content=content[len(_object_header(memory.agent_id)) :].decode())


async def _gather_all(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Their results, once all are over: nothing of them goes on when the first error is raised."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)


def _encode_object(agent_id: str, content: str) -> bytes:
    """The object for a content; empty if it fits into a row."""
    encoded = content.encode()
    return b"" if len(encoded) <= MAX_INLINE_BYTES else _object_header(agent_id) + encoded


def _object_header(agent_id: str) -> bytes:
    return f"memory of {agent_id}\n".encode()
