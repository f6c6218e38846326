"""Port: numbers about the stores, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from wonder_server.ports.metrics import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseNumbers:
    """Numbers of one kind of database: of all its files.

    ``commits`` are the durations of its commits since the start, with those that wait for the disk.
    ``log_bytes`` is the size of the write-ahead logs.
    """

    commits: tuple[Histogram, ...]
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNumbers:
    """Numbers of all stores. ``databases`` are by name: shards, catalog, memory."""

    databases: Mapping[str, DatabaseNumbers]
    pending_gates: int


class StoreStatistics(Protocol):
    """The numbers of the open stores."""

    async def read(self) -> StoreNumbers:
        """Return the numbers of this moment. Errors: STORAGE_UNAVAILABLE."""
        ...
