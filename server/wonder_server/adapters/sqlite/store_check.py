"""Reading a store of a stopped server whole, to find every damaged record: what all stores have in common.

Nothing is changed: a store of an older version is read as it is, and what has no seal is counted as
unchecked. Each problem is one line; a table that cannot be read to its end is a problem of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.sqlite.connection import UNREADABLE, any_text
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.core.errors import WonderError

_MOST_PROBLEMS: Final = 100
"""Of one file, that SQLite itself is asked for."""


@dataclass(slots=True)
class CheckResult:
    """The result for one store."""

    records: int = 0
    unchecked: int = 0
    """Records from before there were seals."""
    problems: list[str] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)
    """Objects that records refer to, each with one of those records."""
    agents: dict[str, str] = field(default_factory=dict)
    """Agents that conversations have, each with one of those conversations."""
    known_agents: set[str] = field(default_factory=set)
    """Agents that are there, or were deleted."""

    def add_problem(self, problem: WonderError | str) -> None:
        self.problems.append(problem if isinstance(problem, str) else problem.fault.message.split(". ")[0])


def check_store(
    path: Path, name: str, check_records: Callable[[sqlite3.Connection, Seals, CheckResult], None]
) -> CheckResult:
    """Check the file at ``path``: its pages, its foreign keys, and its records with ``look``."""
    found = CheckResult()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.text_factory = any_text
            for row in connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})"):
                if row[0] != "ok":
                    found.add_problem(f"{name}: {' '.join(row[0].split())}")
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
            for table, row_id, parent, _ in broken[:_MOST_PROBLEMS]:
                found.add_problem(
                    f"{name}: row {row_id} of {table} refers to a row of {parent} that is missing"
                )
            sealed = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unsealed'"
            is_sealed = connection.execute(sealed).fetchone() is not None
            seals = Seals.load(connection, name) if is_sealed else Seals(name, _AllRows())
            check_records(connection, seals, found)
    except UNREADABLE as failure:
        found.add_problem(f"{name}: it cannot be read: {failure}")
    return found


class _AllRows(dict[str, int]):
    """The places of a store that is older than seals."""

    def get(self, _key: object, _default: object = None) -> Any:
        return 1 << 63


def rows_of(
    connection: sqlite3.Connection, found: CheckResult, name: str, table: str, place: str = "rowid"
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row of a table with its place. Add a problem to ``found`` where a row cannot be read."""
    try:
        rows = connection.execute(f"SELECT {place}, * FROM {table}")
        names = [column[0] for column in rows.description[1:]]
        for at, *values in rows:
            row = {"seal": None, **dict(zip(names, values, strict=True))}
            found.records += 1
            found.unchecked += row["seal"] is None and table != "parts"
            yield at, row
    except UNREADABLE as failure:
        found.add_problem(f"{name}: table {table} cannot be read to its end: {failure}")


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of the columns of ``table``; an empty set if there is no such table."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
