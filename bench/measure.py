"""Shared code of the benchmarks: a number beside its floor, and ways to measure one."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One measured number. ``floor``: the same work with nothing of Wonder in it, from the same run.

    ``aim`` bounds the ratio where there is a floor, else the value itself; None: only reported. With
    ``aim_is`` it says itself which of the two it bounds.
    """

    name: str
    value: float
    unit: str
    floor: float | None = None
    floor_is: str = ""
    better: Better = "less"
    aim: float | None = None
    aim_is: Literal["ratio", "value"] = "ratio"

    @property
    def ratio(self) -> float | None:
        """Multiple of the floor's cost; above 1 is more expensive, whichever way the number counts."""
        if not self.floor or not self.value:
            return None
        return self.value / self.floor if self.better == "less" else self.floor / self.value

    @property
    def bounds_ratio(self) -> bool:
        """True if the goal is one for the ratio."""
        return self.aim_is == "ratio" and self.ratio is not None

    @property
    def reached(self) -> bool | None:
        """True if the goal is reached; None without a goal."""
        if self.aim is None:
            return None
        if self.bounds_ratio:
            assert self.ratio is not None
            return self.ratio <= self.aim
        return self.value <= self.aim if self.better == "less" else self.value >= self.aim


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Duration of a measurement: ``seconds`` for a window of a steady state, ``rounds`` for repeated work."""

    seconds: float
    rounds: int
    quick: bool


FULL = Effort(seconds=5.0, rounds=20, quick=False)
QUICK = Effort(seconds=1.5, rounds=4, quick=True)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all threads, user and system, to the nanosecond.

    ``/proc/<pid>/stat`` has the same number in steps of 10 ms. This is the clock that
    clock_getcpuclockid(3) names.
    """
    return time.clock_gettime((~pid << 3) | 2)


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Result of work done many at once."""

    count: int
    seconds: float
    cpu: float
    latencies: tuple[float, ...]

    @property
    def per_second(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Server CPU per piece of work."""
        return self.cpu / self.count * 1000

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.latencies) * 1000

    @property
    def p99_ms(self) -> float:
        return percentile(self.latencies, 0.99) * 1000


async def load(pid: int, at_once: int, each: int, work: Callable[[int], Awaitable[float]]) -> Load:
    """``at_once`` workers, each doing ``work(worker)`` ``each`` times, one after the other.

    ``work`` returns the latency to record, in seconds. ``pid`` is the server whose CPU counts.
    """

    async def worker(index: int) -> list[float]:
        return [await work(index) for _ in range(each)]

    cpu, began = cpu_seconds(pid), time.perf_counter()
    latencies = await asyncio.gather(*(worker(index) for index in range(at_once)))
    seconds = time.perf_counter() - began
    return Load(
        count=at_once * each,
        seconds=seconds,
        cpu=cpu_seconds(pid) - cpu,
        latencies=tuple(latency for found in latencies for latency in found),
    )
