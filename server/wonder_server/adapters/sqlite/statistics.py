"""Numbers about the databases, for metrics. Implements the port `wonder_server.ports.statistics`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence

from wonder_server.adapters.sqlite.database import Database
from wonder_server.ports.statistics import DatabaseNumbers, StoreNumbers


class SqliteStatistics:
    """The numbers of the open databases. ``shards`` are those with gates."""

    def __init__(self, shards: Sequence[Database], others: Mapping[str, Database]) -> None:
        self._shards = shards
        self._others = others

    async def read(self) -> StoreNumbers:
        counts = await asyncio.gather(*(each.read_between_commits(_pending_gates) for each in self._shards))
        return StoreNumbers(
            databases={
                "shards": _numbers(self._shards),
                **{name: _numbers([database]) for name, database in self._others.items()},
            },
            pending_gates=sum(counts),
        )


def _numbers(databases: Sequence[Database]) -> DatabaseNumbers:
    return DatabaseNumbers(
        commits=tuple(each.commit_times for each in databases),
        log_bytes=sum(each.log_bytes() for each in databases),
    )


def _pending_gates(connection: sqlite3.Connection) -> int:
    """Count the rows of the index ``gates_open``."""
    found = connection.execute("SELECT count(*) FROM gates WHERE status IN ('pending')").fetchone()
    return int(found[0])
