"""Check of the catalog's store: seals, and the newest revision of each definition."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from pathlib import Path

from wonder_server.adapters.sqlite.catalog.store import SEALED_TABLES, catalog_key
from wonder_server.adapters.sqlite.connection import Columns
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, columns_of, rows_of
from wonder_server.codec.seals import Seals
from wonder_server.core.errors import WonderError


def check_catalog(path: Path) -> CheckResult:
    """Check ``catalog.db``."""
    return check_store(path, path.name, _catalog)


def _catalog(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    for table in SEALED_TABLES:
        if not columns_of(connection, table):  # A store of an earlier version.
            continue
        for _, row in rows_of(connection, found, seals.store, table, "1"):
            if table == "agents":
                found.known_agents.add(str(row["id"]))
            elif table == "files":
                _add_objects(found, row)
            key, content = catalog_key(table, row)
            try:
                seals.check(table, key, content, row["seal"], 1)
            except WonderError as problem:
                found.add_problem(problem)
    _check_objects(connection, seals, found)
    lacking = (
        "SELECT library || '/' || name FROM definitions WHERE NOT EXISTS"
        " (SELECT 1 FROM revisions WHERE definition_id = id AND revision = version)"
    )
    for (lacking_name,) in connection.execute(lacking).fetchall():
        found.add_problem(f"{seals.store}: the newest revision of {lacking_name} is missing")


def _check_objects(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    """Compare the list of objects, which garbage collection obeys, with the files."""
    if "key" not in columns_of(connection, "file_objects"):  # A store that is older than files.
        return
    listed = {str(key) for (key,) in connection.execute("SELECT DISTINCT key FROM file_objects")}
    for key in sorted(found.objects.keys() - listed):
        found.add_problem(f"{seals.store}: the object {key} of {found.objects[key]} is not listed")


def _add_objects(found: CheckResult, row: Columns) -> None:
    """Add the objects of a file. A row that cannot be read is reported by its seal."""
    with suppress(ValueError, KeyError, TypeError):
        for key in json.loads(str(row["body"]))["objects"]:
            found.objects.setdefault(str(key), f"file {row['id']}")
