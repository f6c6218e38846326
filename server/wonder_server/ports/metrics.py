"""Port: metrics, as the server counts them and reads them for one scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


class Histogram:
    """Durations in seconds, counted by upper bound. The last count is of those above every bound."""

    __slots__ = ("bounds", "counts", "total_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds

    @classmethod
    def sum(cls, parts: Sequence[Histogram]) -> Histogram:
        """Return the sum of histograms with the same bounds; an empty one without bounds for none."""
        found = cls(parts[0].bounds if parts else ())
        for part in parts:
            found.counts = [one + more for one, more in zip(found.counts, part.counts, strict=True)]
            found.total_s += part.total_s
        return found

    def cumulative(self) -> list[tuple[float, int]]:
        """Return for each bound, infinity last, the number of durations up to it."""
        found, count = [], 0
        for bound, each in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += each
            found.append((bound, count))
        return found


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples, each with its label values; ``()`` in a family without labels.

    ``name`` has no suffix: those of counters and histograms follow from ``kind``. Labels never hold ids or
    names that callers choose, so their number is bounded.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    samples: Iterable[tuple[tuple[str, ...], float | Histogram]] = ()
