"""Timers of operations: deadlines, waits, and delays between attempts.

The row of each live operation stores its wake-up time, so a restart sets the timers again. All timers share
one heap and one call of the event loop. A cancelled timer, as most are, stays in the heap until the next
cleanup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from wonder_server.ports.clock import Clock

MAX_WAIT_S = 30.0
"""Longest delay between two readings of the clock, so that a suspension of the machine is noticed."""

_STALE_LIMIT = 1000
"""Number of cancelled entries above which, with as many live ones, the heap is rebuilt."""


class ActorClocks:
    """The leads of actors' times over the server's, for the life of this process.

    The lead is positive if the clock was set back over a restart. The actor's time then continues at the end
    of its record, so a timer waits for its remaining duration and not for the clock to catch up.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets_ms: dict[str, int] = {}

    def offset_ms(self, actor_id: str, committed_ms: int) -> int:
        """Return the lead of an actor whose last commit was at ``committed_ms``."""
        offset_ms = max(self._offsets_ms.get(actor_id, 0), committed_ms - self._clock.now_ms())
        if offset_ms > 0:
            self._offsets_ms[actor_id] = offset_ms
        return max(0, offset_ms)

    def now_ms(self, actor_id: str, committed_ms: int) -> int:
        """Return the actor's time now."""
        return self._clock.now_ms() + self.offset_ms(actor_id, committed_ms)

    def server_time_ms(self, actor_id: str, committed_ms: int, at_ms: int) -> int:
        """Return the server time of ``at_ms``, a time of the actor. 0 means never and stays 0."""
        return max(1, at_ms - self.offset_ms(actor_id, committed_ms)) if at_ms else 0


class Timers:
    """Calls ``on_timer(actor_id, operation_id)`` once, at or after the operation's time."""

    def __init__(self, clock: Clock, on_timer: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._on_timer = on_timer
        self._heap: list[tuple[int, str, str]] = []
        self._timers: dict[str, dict[str, int]] = {}
        """Time by actor and operation. Other entries of the heap are cancelled."""
        self._count = 0
        self._handle: asyncio.TimerHandle | None = None
        self._next_check_ms = 0

    def __len__(self) -> int:
        return self._count

    def set(self, actor_id: str, operation_id: str, at_ms: int) -> None:
        """Set or move an operation's timer to ``at_ms`` (milliseconds since 1970). 0 cancels it."""
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
        # The event loop's timer does not count the time of a suspension.
        is_late = self._clock.now_ms() > self._next_check_ms
        if self._handle is None or is_late or self._heap[0][0] < self._next_check_ms:
            self._schedule_check()

    def cancel_all(self, actor_id: str) -> None:
        """Cancel all timers of an actor."""
        self._count -= len(self._timers.pop(actor_id, ()))

    def close(self) -> None:
        """Cancel all timers."""
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
        """Fire the due timers and schedule the next check."""
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
