"""The server's clock: wall time at the start, then the steady clock of the machine.

A wall clock can be set to any time while the server runs: by an operator, by NTP after a boot with a wrong
clock, by the resume of a virtual machine. Timers, leases and the order of records must not follow such a
step. So the wall clock is read once, and from then on time passes as the steady clock counts it::

    server time = wall time at the start + steady time since + correction

The correction brings server time back to the wall clock by at most `FOLLOW` of the time that passes (1 %, 36
s in an hour). Server time therefore never goes backwards and never jumps, and a duration is right to 1 %
whatever happens to the wall clock. The steady clock is ``CLOCK_BOOTTIME`` where the system has it, which
also counts while the machine is suspended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wonder_server.logs import logger

_log = logger("server")

MAX_CORRECTION_DIVISOR: Final = 100
"""Server time follows the wall clock by at most one part in this many of the time that passes."""

READ_INTERVAL_NS: Final = 1_000_000_000
"""The wall clock is read at most once in so many nanoseconds of the steady clock."""

EARLIEST_NS: Final = 1_000_000_000_000
"""No wall clock is believed that is before this (a quarter of an hour into 1970): a time of 0 or less means
"never" in the record."""

MIN_STEP_NS: Final = 2_000_000_000
"""A difference that changes by more than this between two looks is a step of the wall clock, and is
logged."""


def steady_ns() -> int:
    """Nanoseconds of a clock that only ever runs forward, suspensions of the machine included."""
    return time.clock_gettime_ns(_STEADY)


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The server time and the steady time of one look at the wall clock, and how far the wall clock was
    ahead."""

    server_ns: int
    steady_ns: int
    offset_ns: int

    def at(self, steady_ns: int) -> int:
        """The server time at a later steady time."""
        passed = max(0, steady_ns - self.steady_ns)
        correction = min(passed // MAX_CORRECTION_DIVISOR, abs(self.offset_ns))
        return self.server_ns + passed + (correction if self.offset_ns > 0 else -correction)


class SystemClock:
    """Implements the port ``Clock``. ``wall`` and ``steady`` are its hands, in nanoseconds."""

    def __init__(self, wall: Callable[[], int] | None = None, steady: Callable[[], int] = steady_ns) -> None:
        self._read_wall = wall or time.time_ns
        self._steady = steady
        self._reading = _Reading(self._wall(), steady(), 0)

    def _wall(self) -> int:
        return max(self._read_wall(), EARLIEST_NS)

    def now_ms(self) -> int:
        steady, reading = self._steady(), self._reading
        if steady - reading.steady_ns >= READ_INTERVAL_NS:
            reading = self._reading = self._read(reading, steady)
        return reading.at(steady) // 1_000_000

    def _read(self, last: _Reading, steady: int) -> _Reading:
        server = last.at(steady)
        offset = self._wall() - server
        if abs(offset - last.offset_ns) > MIN_STEP_NS + (steady - last.steady_ns) // MAX_CORRECTION_DIVISOR:
            _log.warning(
                "clock_stepped",
                ahead_s=round(offset / 1e9, 1),
                follows_within_s=abs(offset) * MAX_CORRECTION_DIVISOR // 10**9,
            )
        return _Reading(server, steady, offset)
