"""A timer that writes batches which stay in memory for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from wonder_server.actors.runtime.actor import Actor, Batch
from wonder_server.actors.runtime.monotonic import monotonic_s

RECHECK_AFTER_S = 0.05
"""Pause before a batch is offered again that ``on_due`` did not accept."""


class FlushTimer:
    """Batches that are not due. All wait equally long, so one queue and one timer serve them.

    ``on_due(actor, batch)`` receives each batch after ``flush_after_s``, also one that was written
    meanwhile. If it returns False, it receives the batch again later.
    """

    def __init__(self, on_due: Callable[[Actor, Batch], bool], flush_after_s: float) -> None:
        self._on_due = on_due
        self._flush_after_s = flush_after_s
        self._queue: deque[tuple[float, Actor, Batch]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, actor: Actor, batch: Batch) -> None:
        """Add a batch that was just opened."""
        self._queue.append((monotonic_s() + self._flush_after_s, actor, batch))
        if self._timer is None:
            self._set_timer(self._flush_after_s)

    def close(self) -> None:
        """Remove all batches and cancel the timer."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = monotonic_s()
        while self._queue and self._queue[0][0] <= now:
            _, actor, batch = self._queue[0]
            if not self._on_due(actor, batch):
                self._set_timer(RECHECK_AFTER_S)
                return
            self._queue.popleft()
        if self._queue:
            self._set_timer(self._queue[0][0] - now)
