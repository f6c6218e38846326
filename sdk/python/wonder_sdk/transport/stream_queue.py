"""A queue from the one task that reads a stream to those who iterate."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class StreamQueue(Generic[T]):
    """Items in, items out, then an end or an error, which every later `get` meets again.

    Safe to abandon: a `get` that is cancelled loses nothing.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._problem: BaseException | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Add an item. Returns False if it comes after the end, and is left out."""
        if not self._ended:
            self._items.append(item)
            self._changed.set()
        return not self._ended

    def end(self, problem: BaseException | None = None) -> None:
        """No more comes. What is there can still be got; then `get` raises ``problem`` or stops."""
        if not self._ended:
            self._ended, self._problem = True, problem
            self._changed.set()

    async def get(self) -> T:
        """The next item. Raises `StopAsyncIteration` after the last, or what `end` was given."""
        while not self._items:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._items.popleft()
