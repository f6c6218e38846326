"""What stays in memory for a while, and is to be written when it has.

All wait equally long, so they stand in one line with one timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from wonder_server.actors.runtime.actor import Actor, Batch

FLUSH_AFTER_S = 0.2
"""A volatile run that goes on for longer is written. Most end in a few milliseconds."""


RECHECK_AFTER_S = 0.05


class FlushTimer:
    """Batches that nothing has made due yet. ``on_old`` is told of each when it is old, also of those that
    were written meanwhile; if it says False, it is told again later."""

    def __init__(self, on_due: Callable[[Actor, Batch], bool]) -> None:
        self._on_due = on_due
        self._queue: deque[tuple[float, Actor, Batch]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, actor: Actor, batch: Batch) -> None:
        """A batch that has just begun."""
        self._queue.append((monotonic() + FLUSH_AFTER_S, actor, batch))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._on_timer)

    def close(self) -> None:
        """Tell of nothing more."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        now = monotonic()
        while self._queue and self._queue[0][0] <= now:
            _, actor, batch = self._queue[0]
            if not self._on_due(actor, batch):
                self._timer = asyncio.get_running_loop().call_later(RECHECK_AFTER_S, self._on_timer)
                return
            self._queue.popleft()
        if self._queue:
            self._timer = asyncio.get_running_loop().call_later(self._queue[0][0] - now, self._on_timer)
