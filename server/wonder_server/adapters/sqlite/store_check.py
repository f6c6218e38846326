"""Checks that all stores share: read every record of a stopped server's store and list the damaged ones.

A check changes nothing. It reads a store of an older version as it is and counts records without a seal as
unchecked. Each problem is one line. A table that cannot be read to its end is a problem of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wonder_server.adapters.sqlite.connection import UNREADABLE, Columns, any_text, load_seals
from wonder_server.codec.seals import Seals
from wonder_server.core.errors import WonderError

_HIDDEN: Final = "a damaged page may hide further records"

_MAX_PROBLEMS: Final = 100
"""Maximum number of problems that SQLite reports for one file."""


@dataclass(slots=True)
class CheckResult:
    """Result of checking one store."""

    records: int = 0
    unchecked: int = 0
    """Number of records that are older than seals."""
    problems: list[str] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)
    """Referenced objects, each with one record that refers to it."""
    agents: dict[str, str] = field(default_factory=dict)
    """Agents of conversations, each with one of these conversations."""
    known_agents: set[str] = field(default_factory=set)
    """Agents that exist or were deleted."""

    unreadable: set[str] = field(default_factory=set)
    """Tables that were not read whole: what they lack may be hidden by a damaged page."""

    def add_problem(self, problem: WonderError | str) -> None:
        self.problems.append(problem if isinstance(problem, str) else problem.fault.message.split(". ")[0])


def check_store(
    path: Path, name: str, check_records: Callable[[sqlite3.Connection, Seals, CheckResult], None]
) -> CheckResult:
    """Check the file at ``path``: its pages, its foreign keys, and its records with ``check_records``."""
    found = CheckResult()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.text_factory = any_text
            with reading(found, name, "its pages"):
                for row in connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})"):
                    if row[0] != "ok":
                        found.add_problem(f"{name}: {' '.join(row[0].split())}")
            with reading(found, name, "its foreign keys"):
                broken = connection.execute("PRAGMA foreign_key_check").fetchall()
                for table, row_id, parent, _ in broken[:_MAX_PROBLEMS]:
                    found.add_problem(f"{name}: row {row_id} of {table} refers to a missing row of {parent}")
            sealed = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unsealed'"
            is_sealed = connection.execute(sealed).fetchone() is not None
            seals = load_seals(connection, name) if is_sealed else Seals(name, _AllRows())
            check_records(connection, seals, found)
    except UNREADABLE as failure:
        found.add_problem(f"{name}: the file cannot be read: {failure}")
    return found


@contextmanager
def reading(found: CheckResult, name: str, what: str) -> Iterator[None]:
    """Add a problem if ``what`` of the file ``name`` cannot be read, so that the check goes on."""
    try:
        yield
    except UNREADABLE as failure:
        found.add_problem(f"{name}: {what} cannot be read: {failure}; {_HIDDEN}")


class _AllRows(dict[str, int]):
    """Limits of unsealed rows for a store that is older than seals: any row may lack a seal."""

    def get(self, _key: object, _default: object = None) -> int:
        return 1 << 63


def rows_of(
    connection: sqlite3.Connection, found: CheckResult, name: str, table: str, place: str = "rowid"
) -> Iterator[tuple[int, Columns]]:
    """Yield each row of a table with its rowid. Add a problem to ``found`` if a row cannot be read.

    In a table with rowids, the rows behind an unreadable place are read from the end of the table backwards.
    """
    last: int | None = None
    try:
        for last, row in _selected(connection, f"SELECT {place}, * FROM {table}", found, table):
            yield last, row
        return
    except UNREADABLE as failure:
        found.unreadable.add(table)
        found.add_problem(f"{name}: table {table} cannot be read to its end: {failure}; {_HIDDEN}")
    if place == "1":
        return
    rest = (
        f"SELECT {place}, * FROM {table} WHERE {place} > {-1 if last is None else last} ORDER BY {place} DESC"
    )
    with suppress(*UNREADABLE):  # The unreadable place, from behind.
        yield from _selected(connection, rest, found, table)


def _selected(
    connection: sqlite3.Connection, query: str, found: CheckResult, table: str
) -> Iterator[tuple[int, Columns]]:
    rows = connection.execute(query)
    names = [column[0] for column in rows.description[1:]]
    for row_id, *values in rows:
        row: Columns = {"seal": None, **dict(zip(names, values, strict=True))}
        found.records += 1
        found.unchecked += row["seal"] is None and table != "parts"
        yield row_id, row


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the column names of ``table``; an empty set if the table does not exist."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
