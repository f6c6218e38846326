"""Copies of databases that serve meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.sqlite.copying import CopyStoppedError, Cut, DatabaseCopy
from wonder_server.adapters.sqlite.database import Database

MIGRATIONS = (("0001", "CREATE TABLE numbers (n INTEGER PRIMARY KEY, filling BLOB);"),)


@pytest_asyncio.fixture
async def databases(tmp_path: Path) -> AsyncIterator[list[Database]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in ("a", "b", "c"):
            found.append(await Database.open(tmp_path / f"{name}.db", MIGRATIONS))
            stack.push_async_callback(found[-1].close)
        yield found


async def add(database: Database, number: int, size: int = 50) -> None:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (?, zeroblob(?))", (number, size))

    await database.write(write)


async def copy_all(databases: list[Database], folder: Path) -> list[Path]:
    cut, loop = Cut(len(databases)), asyncio.get_running_loop()
    targets = [folder / f"{each.path.stem}.copy" for each in databases]
    try:
        async with asyncio.TaskGroup() as group:
            for database, target in zip(databases, targets, strict=True):
                arrived = asyncio.Event()
                copy = DatabaseCopy(target, cut, partial(loop.call_soon_threadsafe, arrived.set))
                group.create_task(database.copy(copy))
                await arrived.wait()
    finally:
        cut.stop()
    return targets


def numbers(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [row[0] for row in connection.execute("SELECT n FROM numbers ORDER BY n")]
    finally:
        connection.close()


async def test_copies_are_of_one_instant_while_all_databases_are_written(
    databases: list[Database], tmp_path: Path
) -> None:
    """Each number goes to the databases in order, so a later one never has a number that an earlier lacks."""
    for database in databases:
        await add(database, 0, 3_000_000)
    written, begun = 0, asyncio.Event()

    async def write_forever() -> None:
        nonlocal written
        while True:
            for database in databases:
                await add(database, written + 1)
            written += 1
            if written == 5:
                begun.set()

    writing = asyncio.create_task(write_forever())
    await begun.wait()
    before = written
    copies = await copy_all(databases, tmp_path)
    assert written > before, "the databases were written during the copies"
    writing.cancel()
    found = [numbers(path) for path in copies]
    for each in found:
        assert each == [*range(len(each))]
    sizes = [len(each) for each in found]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1, sizes
    assert sizes[-1] > before


async def test_a_small_database_waits_for_the_others(databases: list[Database], tmp_path: Path) -> None:
    await add(databases[-1], 7)
    assert [numbers(path) for path in await copy_all(databases, tmp_path)] == [[], [], [7]]


async def test_a_failed_copy_ends_the_others_and_leaves_the_databases_working(
    databases: list[Database], tmp_path: Path
) -> None:
    (tmp_path / "c.copy").mkdir()
    with pytest.raises(ExceptionGroup):
        await copy_all(databases, tmp_path)
    for database in databases:
        await add(database, 1)


async def test_a_database_that_closes_gives_its_copy_up(databases: list[Database], tmp_path: Path) -> None:
    arrived, loop, cut = asyncio.Event(), asyncio.get_running_loop(), Cut(2)
    copy = DatabaseCopy(tmp_path / "x.copy", cut, lambda: loop.call_soon_threadsafe(arrived.set))
    copying = asyncio.create_task(databases[0].copy(copy))
    await arrived.wait()
    await add(databases[0], 1)
    await databases[0].close()
    with pytest.raises(CopyStoppedError):
        await copying
