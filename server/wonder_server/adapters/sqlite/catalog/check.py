"""Check of the catalog's store: seals, and the newest revision of each definition."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from wonder_server.adapters.sqlite.catalog.store import SEALED_TABLES, catalog_key
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, rows_of
from wonder_server.core.errors import WonderError


def check_catalog(path: Path) -> CheckResult:
    """Check ``catalog.db``."""
    return check_store(path, path.name, _catalog)


def _catalog(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    for table in SEALED_TABLES:
        for _, row in rows_of(connection, found, seals.store, table, "1"):
            if table == "agents":
                found.known_agents.add(str(row["id"]))
            key, content = catalog_key(table, row)
            try:
                seals.check(table, key, content, row["seal"], 1)
            except WonderError as problem:
                found.add_problem(problem)
    lacking = (
        "SELECT library || '/' || name FROM definitions WHERE NOT EXISTS"
        " (SELECT 1 FROM revisions WHERE definition_id = id AND revision = version)"
    )
    for (name,) in connection.execute(lacking).fetchall():
        found.add_problem(f"{seals.store}: the newest revision of {name} is missing")
