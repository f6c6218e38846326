"""Subscriptions: the bounded queue of one reader. See `wonder_server.actors.streaming.hub`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection

from wonder_server.actors.streaming.items import Closed, Delta, Item, NodeProgress, PartKind, size_bytes

MAX_LAG_BYTES = 256 * 1024
"""Bytes that may wait for a reader without a time limit, and maximum size of one `take`."""
MAX_LAG_S = 2.0
"""Time that more than `MAX_LAG_BYTES` may wait, so that a burst does not close the subscription."""


class Subscription:
    """The queue of one reader. `take` empties it; `wait` waits until it has items.

    ``kinds`` are the kinds of parts that the reader gets beside the text of messages.
    """

    __slots__ = (
        "_bytes",
        "_items",
        "_lag_timer",
        "_limit_bytes",
        "_limit_items",
        "_loop",
        "_max_lag_bytes",
        "_waiter",
        "closed",
        "kinds",
        "wants_progress",
    )

    def __init__(
        self,
        limit_items: int,
        limit_bytes: int,
        *,
        wants_progress: bool = False,
        kinds: Collection[PartKind] = (),
    ) -> None:
        self.wants_progress = wants_progress
        self.kinds = frozenset(kinds)
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._lag_timer: asyncio.TimerHandle | None = None
        self._max_lag_bytes = min(MAX_LAG_BYTES, limit_bytes)
        self._limit_items = limit_items
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def has_items(self) -> bool:
        """True if the queue has items."""
        return bool(self._items)

    def take(self) -> deque[Item]:
        """Remove and return the queued items, up to about `MAX_LAG_BYTES`."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
            self._lag_timer = None
        if self._bytes > self._max_lag_bytes:
            return self._take_some()
        items, self._items, self._bytes = self._items, deque(), 0
        return items

    def wait(self) -> asyncio.Future[None]:
        """Return a future that completes when the queue has items. Only one reader may wait."""
        self._waiter = self._loop.create_future()
        if self._items:
            self._waiter.set_result(None)
        return self._waiter

    def push(self, item: Item, known_bytes: int | None = None) -> None:
        """Add an item. Merge deltas, or close the subscription, if the reader is too slow.

        ``known_bytes`` is the item's size, if known.
        """
        if self.closed:
            return
        if self._items and isinstance(item, Delta) and self._merge(item):
            return
        self._items.append(item)
        self._bytes += size_bytes(item) if known_bytes is None else known_bytes
        if len(self._items) > self._limit_items or self._bytes > self._max_lag_bytes:
            self._check_lag()
        self._notify()

    def close(self, reason: str) -> None:
        """Close the subscription with a reason. The backlog of a slow reader is dropped: it resumes by
        cursor."""
        if self.closed:
            return
        self.closed = True
        if reason == "slow":
            self._items.clear()
            self._bytes = 0
        self._items.append(Closed(reason))
        self._notify()

    def _take_some(self) -> deque[Item]:
        items: deque[Item] = deque()
        size = 0
        while self._items and size <= self._max_lag_bytes:
            items.append(self._items.popleft())
            size += size_bytes(items[-1])
        self._bytes = sum(map(size_bytes, self._items))
        if self._bytes > self._max_lag_bytes:
            self._check_lag()
        return items

    def _check_lag(self) -> None:
        """Close the subscription above a hard limit, or start the lag timer above `MAX_LAG_BYTES`."""
        if len(self._items) > self._limit_items or self._bytes > self._limit_bytes:
            self._shed_backlog(self._limit_bytes)
        elif self._lag_timer is None:
            self._lag_timer = self._loop.call_later(MAX_LAG_S, self._shed_backlog, self._max_lag_bytes)

    def _shed_backlog(self, limit_bytes: int) -> None:
        """Drop progress items. Close the subscription if the backlog still exceeds the limit."""
        self._lag_timer = None
        remaining: deque[Item] = deque(item for item in self._items if not isinstance(item, NodeProgress))
        if len(remaining) == len(self._items):
            self.close("slow")
            return
        self._items, self._bytes = remaining, sum(map(size_bytes, remaining))
        if len(remaining) > self._limit_items or self._bytes > limit_bytes:
            self.close("slow")

    def _merge(self, delta: Delta) -> bool:
        """Append the delta to the last queued one, if both belong to the same message and part."""
        last = self._items[-1] if self._items else None
        if not isinstance(last, Delta) or last.message_id != delta.message_id or delta.restarted:
            return False
        if last.part is not delta.part:  # A message has one object for each of its parts.
            return False
        self._items[-1] = Delta(
            last.turn_id, last.message_id, last.offset, last.text + delta.text, last.attempt, None, last.part
        )
        self._bytes += len(delta.text)
        if self._bytes > self._max_lag_bytes:
            self._check_lag()
        return True

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
