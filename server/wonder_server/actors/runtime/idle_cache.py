"""Actors that rest in memory, so that who speaks again need not wait for the disk: the last ones, up to a
number and up to a weight."""

from __future__ import annotations

from collections import OrderedDict


class IdleCache:
    """Ids by how long they have been idle. ``limit`` is how many, ``limit_bytes`` how heavy all may be."""

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def add(self, actor_id: str, size_bytes: int) -> list[str]:
        """It is idle from now on. Returns who leaves for it, which may be itself."""
        self._sizes[actor_id] = size_bytes
        self._bytes += size_bytes
        evicted = []
        while len(self._sizes) > self._limit or self._bytes > self._limit_bytes:
            oldest, freed = self._sizes.popitem(last=False)
            self._bytes -= freed
            evicted.append(oldest)
        return evicted

    def discard(self, actor_id: str) -> None:
        """It is not idle any more, if it was."""
        self._bytes -= self._sizes.pop(actor_id, 0)
