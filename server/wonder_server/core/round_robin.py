"""A queue that serves its callers in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def _accept(_name: str) -> bool:
    return True


class RoundRobin(Generic[T]):
    """Items of several callers. Each `popleft` serves the next caller; a caller's items keep their order."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}
        """Items by caller, the next caller first. No line is empty."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def append(self, item: T, name: str) -> None:
        """Add an item at the end of the caller's line."""
        self._lines.setdefault(name, deque()).append(item)

    def popleft(self) -> T:
        """Remove and return the next item. IndexError if there is none."""
        found = self.pop_for(_accept)
        if found is None:
            raise IndexError("the queue is empty")
        return found[1]

    def pop_for(self, may: Callable[[str], bool]) -> tuple[str, T] | None:
        """Remove and return the next caller for whom ``may`` is True, with its first item; None without one.

        Skipped callers keep their places.
        """
        name = next((name for name in self._lines if may(name)), None)
        if name is None:
            return None
        line = self._lines.pop(name)
        item = line.popleft()
        if line:
            self._lines[name] = line
        return name, item

    def remove(self, item: T, name: str) -> None:
        """Remove an item that still waits. ValueError if it does not."""
        line = self._lines.get(name, deque())
        line.remove(item)
        if not line:
            del self._lines[name]
