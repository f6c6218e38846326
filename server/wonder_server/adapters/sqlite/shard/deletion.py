"""Deletion of what a shard stores for actors: rows, journal, events, completed requests and parts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.shard.schema import ROW_TABLES
from wonder_server.ports.journal import DELETIONS

TABLES: Final = (*ROW_TABLES, "entries", "events")
"""Tables whose rows belong to the actor in the column ``actor``. Completed requests do too, but may outlive
it."""


def delete_record(connection: sqlite3.Connection, actor: str, children: Sequence[str]) -> None:
    """Delete the record of an actor except its row in ``actors``, and delete ``children`` completely."""
    for each in (actor, *children):
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE actor = ?", (each,))
        connection.execute("DELETE FROM requests_answered WHERE actor = ? AND scope <> ?", (each, DELETIONS))
    for child in children:
        connection.execute("DELETE FROM actors WHERE id = ?", (child,))
    _delete_parts(connection, actor)


def delete_root(connection: sqlite3.Connection, root: str) -> None:
    """Delete a root and all actors below it. Requests that its deletion completed stay."""
    sql = "SELECT id FROM actors WHERE root = ? AND root <> id"
    descendants = [row[0] for row in connection.execute(sql, (root,)).fetchall()]
    for each in (root, *descendants):
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE actor = ?", (each,))
        connection.execute("DELETE FROM actors WHERE id = ?", (each,))
    for each in descendants:
        connection.execute("DELETE FROM requests_answered WHERE actor = ?", (each,))
    _delete_parts(connection, root)


def _delete_parts(connection: sqlite3.Connection, root: str) -> None:
    """Delete the parts of a root that no other actor uses."""
    connection.execute(
        "DELETE FROM parts WHERE root = :root"
        " AND NOT EXISTS (SELECT 1 FROM actors WHERE root = :root AND root <> id)",
        {"root": root},
    )
