"""The server's clock: wall time at the start, then the steady clock of the machine.

A wall clock can be set to any time while the server runs: by an operator, by NTP after a boot with a wrong
clock, or when a virtual machine resumes. Timers, leases and the order of records must not follow such a step.
The server therefore reads the wall clock once and then counts with the steady clock::

    server time = wall time at the start + steady time since + correction

The correction moves server time toward the wall clock by at most one part in `MAX_CORRECTION_DIVISOR` of the
elapsed time (1 %, 36 s in an hour). Server time therefore never goes backwards and never jumps, and a
duration is right to 1 % whatever happens to the wall clock. The steady clock is ``CLOCK_BOOTTIME`` where the
system has it, which also counts while the machine is suspended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wonder_server.logs import logger

_log = logger("server")

MAX_CORRECTION_DIVISOR: Final = 100
"""Server time moves toward the wall clock by at most one part in this number of the elapsed time."""

READ_INTERVAL_NS: Final = 1_000_000_000
"""Minimum time between two reads of the wall clock, in nanoseconds of the steady clock."""

EARLIEST_NS: Final = 1_000_000_000_000
"""Earliest accepted wall time, a quarter of an hour into 1970. A time of 0 means "never" in the record."""

MIN_STEP_NS: Final = 2_000_000_000
"""Minimum change of the offset between two reads that counts as a step of the wall clock, and is logged."""


def steady_ns() -> int:
    """Return the nanoseconds of a clock that never goes backwards and counts suspensions of the machine."""
    return time.clock_gettime_ns(_STEADY)


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The server time and the steady time at one read of the wall clock.

    ``offset_ns`` is how far the wall clock was ahead of server time.
    """

    server_ns: int
    steady_ns: int
    offset_ns: int

    def at(self, steady_ns: int) -> int:
        """Return the server time at a later steady time."""
        passed = max(0, steady_ns - self.steady_ns)
        correction = min(passed // MAX_CORRECTION_DIVISOR, abs(self.offset_ns))
        return self.server_ns + passed + (correction if self.offset_ns > 0 else -correction)


class SystemClock:
    """The port ``Clock`` over two sources of nanoseconds: ``wall`` and ``steady``."""

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
