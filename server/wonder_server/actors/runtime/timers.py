"""Timers of operations: deadlines, waits, and the pauses between attempts.

They are not stored on their own: each live operation's row says when it wants to be woken, so a restart
sets them again. All of them are one heap and one call of the event loop, no task and no thread; what is set
and forgotten again, as most are, costs a place in the heap until that is cleaned up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from wonder_server.ports.clock import Clock

MAX_WAIT_S = 30.0
"""The clock is looked at at least as often, so that it is noticed when the machine was suspended."""

_STALE_LIMIT = 1000
"""Entries of the heap that may be of what is forgotten, beside as many as there are others."""


class Timers:
    """Calls ``wake(actor_id, operation_id)`` when its time has come; never early, once."""

    def __init__(self, clock: Clock, on_timer: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._on_timer = on_timer
        self._heap: list[tuple[int, str, str]] = []
        self._timers: dict[str, dict[str, int]] = {}
        """Actor -> operation -> when; what else the heap holds is forgotten."""
        self._count = 0
        self._handle: asyncio.TimerHandle | None = None
        self._next_check_ms = 0

    def __len__(self) -> int:
        return self._count

    def set(self, actor_id: str, operation_id: str, at_ms: int) -> None:
        """Wake at ``at_ms`` (milliseconds since 1970) instead of when it was; 0 forgets."""
        operations = self._timers.get(actor_id)
        if operations is not None:
            self._count -= operations.pop(operation_id, None) is not None
            if not operations and not at_ms:
                del self._timers[actor_id]
        if not at_ms:
            return
        self._timers.setdefault(actor_id, {})[operation_id] = at_ms
        self._count += 1
        heappush(self._heap, (at_ms, actor_id, operation_id))
        if len(self._heap) > 2 * self._count + _STALE_LIMIT:
            self._heap = [
                (at, actor, operation)
                for actor, operations in self._timers.items()
                for operation, at in operations.items()
            ]
            heapify(self._heap)
        # Time that passed while the machine was suspended does not count for the event loop's timer.
        is_late = self._clock.now_ms() > self._next_check_ms
        if self._handle is None or is_late or self._heap[0][0] < self._next_check_ms:
            self._schedule_check()

    def cancel_all(self, actor_id: str) -> None:
        """Forget all of an actor's."""
        self._count -= len(self._timers.pop(actor_id, ()))

    def close(self) -> None:
        """Forget everything."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._heap.clear()
        self._timers.clear()
        self._count = 0

    def _schedule_check(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        now = self._clock.now_ms()
        delay_s = min(max(0.0, (self._heap[0][0] - now) / 1000), MAX_WAIT_S)
        self._next_check_ms = now + int(delay_s * 1000)
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._check)

    def _check(self) -> None:
        """Wake what is due, and look again when the next is."""
        self._handle = None
        now = self._clock.now_ms()
        due: list[tuple[str, str]] = []
        while self._heap and (self._heap[0][0] <= now or self._is_stale(self._heap[0])):
            entry = heappop(self._heap)
            if not self._is_stale(entry):
                due.append(entry[1:])
                self.set(*entry[1:], 0)
        for key in due:
            self._on_timer(*key)
        if self._heap and self._handle is None:
            self._schedule_check()

    def _is_stale(self, entry: tuple[int, str, str]) -> bool:
        at_ms, actor_id, operation_id = entry
        return self._timers.get(actor_id, {}).get(operation_id) != at_ms
