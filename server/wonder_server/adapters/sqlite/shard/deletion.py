"""Removing what was written of actors: their rows, journal, events, answered requests and parts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.shard.schema import ROW_TABLES
from wonder_server.ports.journal import DELETIONS

TABLES: Final = (*ROW_TABLES, "entries", "events")
"""What belongs to an actor by the column of that name. Answered requests do too, but may outlive it."""


def delete_record(connection: sqlite3.Connection, actor: str, children: Sequence[str]) -> None:
    """Everything of the actor but its line in ``actors``, and ``children`` wholly."""
    for each in (actor, *children):
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE actor = ?", (each,))
        connection.execute("DELETE FROM requests_answered WHERE actor = ? AND scope <> ?", (each, DELETIONS))
    for child in children:
        connection.execute("DELETE FROM actors WHERE id = ?", (child,))
    _delete_parts(connection, actor)


def delete_root(connection: sqlite3.Connection, root: str) -> None:
    """Everything whose root this is, itself included. Requests that were answered by its removal stay."""
    sql = "SELECT id FROM actors WHERE root = ? AND root <> id"
    rooted = [row[0] for row in connection.execute(sql, (root,)).fetchall()]
    for each in (root, *rooted):
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE actor = ?", (each,))
        connection.execute("DELETE FROM actors WHERE id = ?", (each,))
    for each in rooted:
        connection.execute("DELETE FROM requests_answered WHERE actor = ?", (each,))
    _delete_parts(connection, root)


def _delete_parts(connection: sqlite3.Connection, root: str) -> None:
    """The parts of a root that nobody else hangs on."""
    connection.execute(
        "DELETE FROM parts WHERE root = :root"
        " AND NOT EXISTS (SELECT 1 FROM actors WHERE root = :root AND root <> id)",
        {"root": root},
    )
