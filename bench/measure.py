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
    """One measured number.

    ``floor`` is the same work without Wonder, from the same run. ``aim`` bounds the ratio to the floor, or
    the value itself if there is no floor or ``aim_is`` is "value". None: the number is only reported.
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
        """Cost as a multiple of the floor's. Above 1 is more expensive, for rates too."""
        if not self.floor or not self.value:
            return None
        return self.value / self.floor if self.better == "less" else self.floor / self.value

    @property
    def bounds_ratio(self) -> bool:
        """Return True if the goal bounds the ratio."""
        return self.aim_is == "ratio" and self.ratio is not None

    @property
    def reached(self) -> bool | None:
        """Return True if the goal is reached, and None without a goal."""
        if self.aim is None:
            return None
        if self.bounds_ratio:
            assert self.ratio is not None
            return self.ratio <= self.aim
        return self.value <= self.aim if self.better == "less" else self.value >= self.aim


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Duration of a measurement: ``seconds`` of a steady state, ``rounds`` of repeated work."""

    seconds: float
    rounds: int
    quick: bool


FULL = Effort(seconds=5.0, rounds=20, quick=False)
QUICK = Effort(seconds=1.5, rounds=4, quick=True)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, user and system, in seconds.

    ``/proc/<pid>/stat`` has the same number in steps of 10 ms. This is the clock of clock_getcpuclockid(3).
    """
    return time.clock_gettime((~pid << 3) | 2)


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Result of concurrent work."""

    count: int
    seconds: float
    cpu: float
    latencies: tuple[float, ...]

    @property
    def per_second(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU of the server for one unit of work, in milliseconds."""
        return self.cpu / self.count * 1000

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.latencies) * 1000

    @property
    def p99_ms(self) -> float:
        return percentile(self.latencies, 0.99) * 1000


async def load(pid: int, at_once: int, each: int, work: Callable[[int], Awaitable[float]]) -> Load:
    """Run ``at_once`` workers that each await ``work(worker)`` ``each`` times.

    ``work`` returns the latency in seconds. ``pid`` is the server whose CPU is measured.
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
