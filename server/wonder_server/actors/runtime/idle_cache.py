"""An LRU cache of idle actors, limited by count and size."""

from __future__ import annotations

from collections import OrderedDict


class IdleCache:
    """Ids of idle actors, the longest idle first.

    ``limit`` is the maximum number of actors, ``limit_bytes`` their maximum total size.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def add(self, actor_id: str, size_bytes: int) -> list[str]:
        """Add an idle actor. Return the ids of the actors to evict, which may include it."""
        self._sizes[actor_id] = size_bytes
        self._bytes += size_bytes
        evicted = []
        while len(self._sizes) > self._limit or self._bytes > self._limit_bytes:
            oldest, freed = self._sizes.popitem(last=False)
            self._bytes -= freed
            evicted.append(oldest)
        return evicted

    def discard(self, actor_id: str) -> None:
        """Remove an actor that is no longer idle, if it is in the cache."""
        self._bytes -= self._sizes.pop(actor_id, 0)
