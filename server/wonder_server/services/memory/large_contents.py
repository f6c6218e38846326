"""Contents that are too long for a row, stored as objects (feature E2).

An object's key is first recorded as unreferenced, then the object is written. The commit of a row that
refers to the object removes the key from the record. The commit that removes the reference adds it again.
So every object that a crash or an unavailable store leaves behind is recorded, and `collect` removes it.
`reserve` excludes collection of an object for a writer that needs it, and waits for a collection in
progress.

An object contains the id of its agent, so two agents never share one, and no other object in the store has
its key."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Final, TypeVar, cast

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.memory.records import Memory
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs, key_of
from wonder_server.ports.memories import MemoryMaintenance

_log = logger("memory")

T = TypeVar("T")

MAX_INLINE_BYTES: Final = 4096
"""Longer contents are stored as objects."""
MAX_CONCURRENT: Final = 8
"""Objects that are read or written concurrently for one caller."""


class LargeContents:
    """The objects of memories, over an object store and the record of unreferenced keys."""

    def __init__(self, blobs: Blobs, maintenance: MemoryMaintenance) -> None:
        self._blobs = blobs
        self._maintenance = maintenance
        self._reserved: Counter[str] = Counter()
        self._being_collected: dict[str, asyncio.Event] = {}
        self._collecting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def reserve(self, agent_id: str, contents: Sequence[str]) -> AsyncIterator[list[str]]:
        """Write objects for ``contents``, and yield their keys ("" for contents that fit into a row).

        The objects exist until the end of the block, within which the caller commits the rows. Raises
        STORAGE_UNAVAILABLE."""
        objects = [_encode_object(agent_id, content) for content in contents]
        keys = [key_of(each) if each else "" for each in objects]
        wanted = {key: each for key, each in zip(keys, objects, strict=True) if each}
        if not wanted:
            yield keys
            return
        while in_progress := [self._being_collected[key] for key in wanted if key in self._being_collected]:
            await in_progress[0].wait()
        self._reserved.update(wanted.keys())
        try:
            await self._maintenance.add_unreferenced(list(wanted))
            slots = asyncio.Semaphore(MAX_CONCURRENT)
            await _gather_all(*(self._put(each, slots) for each in wanted.values()))
            yield keys
        except BaseException:
            self.schedule_collection()
            raise
        finally:
            self._reserved.subtract(wanted.keys())
            self._reserved += Counter()  # Removes keys with a count of zero.

    async def load(self, memories: Sequence[Memory]) -> list[Memory]:
        """Return the memories with their contents, from row or object. Raises STORAGE_UNAVAILABLE."""
        if not any(memory.content_ref and not memory.content for memory in memories):
            return list(memories)
        slots = asyncio.Semaphore(MAX_CONCURRENT)
        return await _gather_all(*(self._load_one(memory, slots) for memory in memories))

    async def collect(self) -> int:
        """Remove unreferenced objects and return their number. Raises STORAGE_UNAVAILABLE; the remaining
        objects stay recorded."""
        count = 0
        async with self._collecting:
            while found := await self._collect():
                count += found
        return count

    async def try_collect(self) -> None:
        """Collect; log the error if the object store is unavailable."""
        try:
            await self.collect()
        except WonderError as problem:
            _log.warning("memory_objects_removal_deferred", problem=str(problem))

    def schedule_collection(self) -> None:
        """Start `try_collect` in the background."""
        task = asyncio.create_task(self.try_collect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop collecting. The next start removes the remaining objects."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _collect(self) -> int:
        marked = [key for key in await self._maintenance.unreferenced() if key not in self._reserved]
        for key in marked:
            self._being_collected[key] = asyncio.Event()
        try:
            # Read again: a commit may have referred to one before it was marked. None can from here on.
            unreferenced = set(await self._maintenance.unreferenced()) & set(marked) if marked else set()
            for key in unreferenced:
                await self._blobs.delete(key)
            if unreferenced:
                await self._maintenance.remove_unreferenced(sorted(unreferenced))
            return len(unreferenced)
        finally:
            for key in marked:
                self._being_collected.pop(key).set()

    async def _put(self, content: bytes, slots: asyncio.Semaphore) -> None:
        async with slots:
            await self._blobs.put(content)

    async def _load_one(self, memory: Memory, slots: asyncio.Semaphore) -> Memory:
        if not memory.content_ref or memory.content:
            return memory
        async with slots:
            content = await self._blobs.get(memory.content_ref)
        if content is None:
            _log.error("memory_object_missing", memory=memory.id, object=memory.content_ref)
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The content of memory {memory.id} is missing in the object store. Restore a backup.",
            )
        return dataclasses.replace(memory, content=content[len(_object_header(memory.agent_id)) :].decode())


async def _gather_all(*works: Coroutine[object, None, T]) -> list[T]:
    """Return all results after all have finished. Raise the first error; nothing runs any more then."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)


def _encode_object(agent_id: str, content: str) -> bytes:
    """Return the object for a content; empty if it fits into a row."""
    encoded = content.encode()
    return b"" if len(encoded) <= MAX_INLINE_BYTES else _object_header(agent_id) + encoded


def _object_header(agent_id: str) -> bytes:
    return f"memory of {agent_id}\n".encode()
