"""Objects of records, written before the records that refer to them.

An object's key is first recorded as unreferenced, then the object is written. The commit of a record that
refers to the object removes the key from the list. The commit that removes the reference adds it again. So
every object that a crash or an unavailable store leaves behind is in the list, and `collect` removes it.
`reserve` excludes collection of an object for a writer that needs it, and waits for a collection in progress.

An object contains the id of its owner (an agent or a project), so two owners never share one, and no other
object in the store has its key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Final, TypeVar, cast

from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs, UnreferencedObjects, key_of
from wonder_server.ports.placement import OwnsKey, owns_everything

_log = logger("store")

T = TypeVar("T")

MAX_CONCURRENT: Final = 8
"""Objects that are read or written concurrently for one caller."""


class ObjectReservations:
    """The objects of one kind of record, over an object store and the list of unreferenced keys."""

    def __init__(
        self, blobs: Blobs, unreferenced: UnreferencedObjects, owns: OwnsKey = owns_everything
    ) -> None:
        """``owns`` returns True for the owners whose objects this node writes and collects. Reservations are
        in the memory of the node that writes."""
        self._owns = owns
        self._blobs = blobs
        self._unreferenced = unreferenced
        self._reserved: Counter[str] = Counter()
        self._being_collected: dict[str, asyncio.Event] = {}
        self._collecting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False

    @contextlib.asynccontextmanager
    async def reserve(self, owner_id: str, objects: Sequence[bytes]) -> AsyncIterator[list[str]]:
        """Write ``objects`` and yield their keys ("" for an empty one, which is not written).

        The objects exist until the end of the block, within which the caller commits the records. Raises
        STORAGE_UNAVAILABLE."""
        keys = [key_of(each) if each else "" for each in objects]
        wanted = {key: each for key, each in zip(keys, objects, strict=True) if each}
        if not wanted:
            yield keys
            return
        while in_progress := [self._being_collected[key] for key in wanted if key in self._being_collected]:
            await in_progress[0].wait()
        self._reserved.update(wanted.keys())
        try:
            await self._unreferenced.add_unreferenced(owner_id, list(wanted))
            slots = asyncio.Semaphore(MAX_CONCURRENT)
            await gather_all(*(self._put(each, slots) for each in wanted.values()))
            del objects
            wanted = dict.fromkeys(wanted, b"")
            yield keys
        except BaseException:
            self.schedule_collection()
            raise
        finally:
            self._reserved.subtract(wanted.keys())
            self._reserved += Counter()  # Removes keys with a count of zero.

    async def collect(self) -> int:
        """Remove unreferenced objects and return their number. Raises STORAGE_UNAVAILABLE; the remaining
        objects stay recorded."""
        count = 0
        async with self._collecting:
            after = ""
            while found := await self._unreferenced.unreferenced(after):
                own = [each.key for each in found if self._owns(each.owner_id)]
                count += await self._collect(own, after)
                after = found[-1].key
        return count

    async def try_collect(self) -> None:
        """Collect; log the error if the object store is unavailable."""
        try:
            await self.collect()
        except WonderError as problem:
            _log.warning("unreferenced_objects_kept", problem=str(problem))

    def schedule_collection(self) -> None:
        """Start `try_collect` in the background, unless one is about to start."""
        if self._is_scheduled:
            return
        self._is_scheduled = True

        async def collect() -> None:
            self._is_scheduled = False
            await self.try_collect()

        task = asyncio.create_task(collect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop collecting. The next start removes the remaining objects."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _collect(self, keys: Sequence[str], after: str) -> int:
        """Remove those of the objects ``keys``, read after ``after``, that no writer needs, and return their
        number."""
        marked = [key for key in keys if key not in self._reserved]
        for key in marked:
            self._being_collected[key] = asyncio.Event()
        try:
            # Read again: a commit may have referred to one before it was marked. None can from here on.
            again = await self._unreferenced.unreferenced(after) if marked else ()
            unreferenced = {each.key for each in again} & set(marked)
            for key in unreferenced:
                await self._blobs.delete(key)
            if unreferenced:
                await self._unreferenced.remove_unreferenced(sorted(unreferenced))
            return len(unreferenced)
        finally:
            for key in marked:
                self._being_collected.pop(key).set()

    async def _put(self, content: bytes, slots: asyncio.Semaphore) -> None:
        async with slots:
            await self._blobs.put(content)


async def gather_all(*works: Coroutine[object, None, T]) -> list[T]:
    """Return all results after all have finished. Raise the first error; nothing runs any more then."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)
