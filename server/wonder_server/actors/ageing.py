"""What stays in memory for a while, and is to be written when it has.

All wait equally long, so they stand in one line with one timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from wonder_server.actors.actor import Actor, Batch

OLD_AFTER_S = 0.2
"""A volatile run that goes on for longer is written. Most end in a few milliseconds."""


AGAIN_AFTER_S = 0.05


class Ageing:
    """Batches that nothing has made due yet. ``on_old`` is told of each when it is old, also of those that
    were written meanwhile; if it says False, it is told again later."""

    def __init__(self, on_old: Callable[[Actor, Batch], bool]) -> None:
        self._on_old = on_old
        self._line: deque[tuple[float, Actor, Batch]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, actor: Actor, batch: Batch) -> None:
        """A batch that has just begun."""
        self._line.append((monotonic() + OLD_AFTER_S, actor, batch))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(OLD_AFTER_S, self._ring)

    def close(self) -> None:
        """Tell of nothing more."""
        self._line.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now = monotonic()
        while self._line and self._line[0][0] <= now:
            _, actor, batch = self._line[0]
            if not self._on_old(actor, batch):
                self._timer = asyncio.get_running_loop().call_later(AGAIN_AFTER_S, self._ring)
                return
            self._line.popleft()
        if self._line:
            self._timer = asyncio.get_running_loop().call_later(self._line[0][0] - now, self._ring)
