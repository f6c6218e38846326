"""Timers of operations: deadlines and the waits between attempts.

They are not stored on their own: each live operation's row says when it wants to be woken, so a restart
sets them again. One call of the event loop per operation, no task and no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wonder_server.ports.clock import Clock

LONGEST_S = 3600.0
"""Waits longer than this are taken in pieces, so that a clock that jumps is noticed."""


class Wakes:
    """Calls ``wake(actor_id, operation_id)`` when its time has come; never early, once."""

    def __init__(self, clock: Clock, wake: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._handles: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def set(self, actor_id: str, operation_id: str, at_ms: int) -> None:
        """Wake at ``at_ms`` (milliseconds since 1970) instead of when it was; 0 forgets."""
        key = (actor_id, operation_id)
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()
        if at_ms:
            self._arm(key, at_ms)

    def forget(self, actor_id: str) -> None:
        """Forget all of an actor's."""
        for key in [key for key in self._handles if key[0] == actor_id]:
            self._handles.pop(key).cancel()

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _arm(self, key: tuple[str, str], at_ms: int) -> None:
        wait = max(0.0, (at_ms - self._clock.now_ms()) / 1000)
        loop = asyncio.get_running_loop()
        self._handles[key] = loop.call_later(min(wait, LONGEST_S), self._ring, key, at_ms)

    def _ring(self, key: tuple[str, str], at_ms: int) -> None:
        if self._clock.now_ms() < at_ms:
            self._arm(key, at_ms)
            return
        del self._handles[key]
        self._wake(*key)
