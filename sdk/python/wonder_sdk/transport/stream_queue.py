"""A queue from the task that reads a stream to the iterators of its items."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class StreamQueue(Generic[T]):
    """A queue of items with an end or an error. Every `get` after the end raises the same error.

    A cancelled `get` loses no item.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._problem: BaseException | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Add an item. Return False, without adding it, after the end."""
        if not self._ended:
            self._items.append(item)
            self._changed.set()
        return not self._ended

    def end(self, problem: BaseException | None = None) -> None:
        """End the queue. After the remaining items, `get` raises ``problem`` or StopAsyncIteration."""
        if not self._ended:
            self._ended, self._problem = True, problem
            self._changed.set()

    async def get(self) -> T:
        """Wait for the next item and return it. Raises the error of `end`, or StopAsyncIteration."""
        while not self._items:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._items.popleft()
