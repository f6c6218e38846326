"""Contents that are too long for a row, stored as objects of their agent (feature E2). `ObjectReservations`
has the order of writes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.memory.records import Memory
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs
from wonder_server.ports.memories import MemoryMaintenance
from wonder_server.ports.placement import OwnsKey, owns_everything
from wonder_server.services.object_reservations import MAX_CONCURRENT, ObjectReservations, gather_all

_log = logger("memory")

MAX_INLINE_BYTES: Final = 4096
"""Longer contents are stored as objects."""
_MAX_SKIPPED: Final = 10_000
"""Maximum number of memories with a damaged object that the log names."""


class LargeContents:
    """The objects of memories, over an object store and the record of unreferenced keys."""

    def __init__(self, blobs: Blobs, maintenance: MemoryMaintenance, owns: OwnsKey = owns_everything) -> None:
        """``owns`` returns True for the agents whose objects this node writes and collects. Reservations are
        in the memory of the node that writes."""
        self._blobs = blobs
        self._objects = ObjectReservations(blobs, maintenance, owns)
        self._skipped: set[str] = set()
        """Memories that searches omitted since their object is damaged. The log names each once."""

    def reserve(self, agent_id: str, contents: Sequence[str]) -> AbstractAsyncContextManager[list[str]]:
        """Write objects for ``contents``, and yield their keys ("" for contents that fit into a row).

        The objects exist until the end of the block, within which the caller commits the rows. Raises
        STORAGE_UNAVAILABLE."""
        return self._objects.reserve(agent_id, [_encode_object(agent_id, content) for content in contents])

    async def load(self, memories: Sequence[Memory], *, lenient: bool = False) -> list[Memory]:
        """Return the memories with their contents, from row or object. Raises STORAGE_UNAVAILABLE.

        With ``lenient``, memories whose object is damaged or missing are omitted and logged once.
        """
        if not any(memory.content_ref and not memory.content for memory in memories):
            return list(memories)
        slots = asyncio.Semaphore(MAX_CONCURRENT)
        load = self._load_intact if lenient else self._load_one
        found = await gather_all(*(load(memory, slots) for memory in memories))
        return [memory for memory in found if memory is not None]

    async def _load_intact(self, memory: Memory, slots: asyncio.Semaphore) -> Memory | None:
        try:
            return await self._load_one(memory, slots)
        except WonderError as problem:
            if problem.fault.transient:
                raise
            if memory.id not in self._skipped and len(self._skipped) < _MAX_SKIPPED:
                self._skipped.add(memory.id)
                _log.error("damaged_record_skipped", problem=str(problem))
            return None

    async def collect(self) -> int:
        """See `ObjectReservations.collect`."""
        return await self._objects.collect()

    async def try_collect(self) -> None:
        """See `ObjectReservations.try_collect`."""
        await self._objects.try_collect()

    def schedule_collection(self) -> None:
        """See `ObjectReservations.schedule_collection`."""
        self._objects.schedule_collection()

    async def close(self) -> None:
        """Stop collecting. The next start removes the remaining objects."""
        await self._objects.close()

    async def _load_one(self, memory: Memory, slots: asyncio.Semaphore) -> Memory:
        if not memory.content_ref or memory.content:
            return memory
        async with slots:
            content = await self._blobs.get(memory.content_ref)
        if content is None:
            if memory.id not in self._skipped:
                _log.error("memory_object_missing", memory=memory.id, object=memory.content_ref)
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The content of memory {memory.id} is missing in the object store. Restore a backup.",
            )
        return dataclasses.replace(memory, content=content[len(_object_header(memory.agent_id)) :].decode())


def _encode_object(agent_id: str, content: str) -> bytes:
    """Return the object for a content; empty if it fits into a row."""
    encoded = content.encode()
    return b"" if len(encoded) <= MAX_INLINE_BYTES else _object_header(agent_id) + encoded


def _object_header(agent_id: str) -> bytes:
    return f"memory of {agent_id}\n".encode()
