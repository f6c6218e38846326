"""What is worked out once for each value that recurs, such as a pinned definition.

A definition is pinned once and run a thousand times, always the same object. Whether two pins are equal would
be costly to find out, so what follows from one is kept by its identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

CACHE_SIZE: Final = 512
"""Values kept at hand by each function, and so kept alive; then it begins anew."""

T = TypeVar("T")
R = TypeVar("R")


def cache_by_identity(function: Callable[[T], R]) -> Callable[[T], R]:
    """``function``, called once for each object as long as it is remembered. Objects must never change."""
    known: dict[int, tuple[T, R]] = {}

    def remembered(value: T) -> R:
        # An id is only good while its object lives: it is kept beside the answer, and looked at.
        entry = known.get(id(value))
        if entry is None or entry[0] is not value:
            if len(known) >= CACHE_SIZE:
                known.clear()
            entry = known[id(value)] = value, function(value)
        return entry[1]

    remembered.__doc__ = function.__doc__
    return remembered
