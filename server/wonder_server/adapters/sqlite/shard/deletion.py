"""Deletion of what a shard stores for actors: rows, journal, events, completed requests and parts."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

from wonder_server.codec.tables import ROW_TABLES
from wonder_server.ports.record_store import Erasure

TABLES: Final = (*ROW_TABLES, "entries", "events")
"""Tables whose rows belong to the actor in the column ``actor``. Completed requests do too, but may outlive
it."""


def delete_record(connection: sqlite3.Connection, erasure: Erasure) -> None:
    """Delete the record of an actor except its row in ``actors``, and delete the children completely."""
    actor, children, kept = erasure.actor_id, erasure.children, erasure.kept_scopes
    for moved in erasure.moved:
        connection.execute(
            "UPDATE requests_answered SET actor = ?, seal = ? WHERE scope = ? AND id = ?",
            (actor, moved.seal, moved.scope, moved.id),
        )
    requests = f"DELETE FROM requests_answered WHERE actor = ? AND scope NOT IN ({placeholders(kept)})"
    for each in (actor, *children):
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE actor = ?", (each,))
        connection.execute(requests, (each, *kept))
    for child in children:
        connection.execute("DELETE FROM actors WHERE id = ?", (child,))
    _delete_parts(connection, actor)


def delete_root(connection: sqlite3.Connection, root: str) -> None:
    """Delete a root and all actors below it. Requests of `KEPT` stay."""
    sql = "SELECT id FROM actors WHERE root = ? AND root <> id"
    descendants = [row[0] for row in connection.execute(sql, (root,)).fetchall()]
    for each in (root, *descendants):
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE actor = ?", (each,))
        connection.execute("DELETE FROM actors WHERE id = ?", (each,))
    for each in descendants:
        connection.execute("DELETE FROM requests_answered WHERE actor = ?", (each,))
    _delete_parts(connection, root)


def placeholders(values: Collection[object]) -> str:
    """Return a question mark for each value, separated by commas."""
    return ", ".join("?" * len(values))


def _delete_parts(connection: sqlite3.Connection, root: str) -> None:
    """Delete the parts of a root that no other actor uses."""
    connection.execute(
        "DELETE FROM parts WHERE root = :root"
        " AND NOT EXISTS (SELECT 1 FROM actors WHERE root = :root AND root <> id)",
        {"root": root},
    )
