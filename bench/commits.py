"""Durable writes through the writer with group commit, beside SQLite alone.

Every write is one row of 200 bytes and is on disk (``synchronous=FULL``) when it returns. The floors are
plain SQLite on one thread, with the same pragmas: a commit for each write, and a commit for one write of each
writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import Effort, Number

from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.database import Database
from wonder_server.compose.interpreter import SWITCH_INTERVAL_S

MIGRATIONS = (("0001", "CREATE TABLE rows (id INTEGER PRIMARY KEY, data TEXT NOT NULL)"),)
INSERT = "INSERT INTO rows (data) VALUES (?)"
ROW = ("x" * 200,)


async def measure(effort: Effort) -> list[Number]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # As in the server.
    try:
        return [number for writers in (1, 64, 256) for number in await _at(writers, effort)]
    finally:
        sys.setswitchinterval(before)


async def _at(writers: int, effort: Effort) -> list[Number]:
    each = effort.rounds * (5 if writers == 1 else 2)
    rate, commits = await grouped(writers, each)
    floor = _raw(writers, each)
    at = f"{writers} writer{'s' if writers > 1 else ''}"
    return [
        Number(name=f"writes per second, {at}", value=rate, unit="/s", floor=floor,
               floor_is=f"SQLite, {writers} to a commit", better="more"),
        Number(name=f"writes per commit, {at}", value=writers * each / commits, unit=""),
    ]  # fmt: skip


async def grouped(writers: int, each: int) -> tuple[float, int]:
    """Return the writes per second of ``writers`` with ``each`` writes, and the number of commits."""
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as folder:
        database = await Database.open(Path(folder) / "rows.db", MIGRATIONS)
        write: Callable[[sqlite3.Connection], None] = lambda connection: _insert(connection)  # noqa: E731

        async def writer() -> None:
            for _ in range(each):
                await database.write(write)

        began = time.perf_counter()
        await asyncio.gather(*(writer() for _ in range(writers)))
        seconds = time.perf_counter() - began
        commits = database.commits
        await database.close()
        return writers * each / seconds, commits


def _insert(connection: sqlite3.Connection) -> None:
    connection.execute(INSERT, ROW)


def _raw(to_a_commit: int, commits: int) -> float:
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as folder:
        connection = connect(Path(folder) / "rows.db", MIGRATIONS)
        began = time.perf_counter()
        for _ in range(commits):
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(to_a_commit):
                connection.execute(INSERT, ROW)
            connection.execute("COMMIT")
        seconds = time.perf_counter() - began
        connection.close()
        return to_a_commit * commits / seconds
