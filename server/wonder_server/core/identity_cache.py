"""A cache for values that follow from a recurring object, such as a pinned definition.

A definition is pinned once, and a thousand runs use the same object. Comparing two pins would be costly, so
the cache uses the identity of the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

CACHE_SIZE: Final = 512
"""Maximum number of entries of each function. A full cache is cleared."""

T = TypeVar("T")
R = TypeVar("R")


def cache_by_identity(function: Callable[[T], R]) -> Callable[[T], R]:
    """Return ``function`` with a cache by the identity of its argument, which must never change."""
    entries: dict[int, tuple[T, R]] = {}

    def cached(value: T) -> R:
        # An id is unique only while its object exists, so the entry holds the object and compares it.
        entry = entries.get(id(value))
        if entry is None or entry[0] is not value:
            if len(entries) >= CACHE_SIZE:
                entries.clear()
            entry = entries[id(value)] = value, function(value)
        return entry[1]

    cached.__doc__ = function.__doc__
    return cached
