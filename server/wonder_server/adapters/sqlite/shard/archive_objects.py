"""The registry of a shard file: objects that archiving writes, until a conversation names them or they are
removed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from wonder_server.adapters.sqlite.connection import Row
from wonder_server.codec.seals import Seals, seal
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.archives import RegisteredObject

TABLE: Final = "archive_objects"

_log = logger("storage")

_COLUMNS: Final = "key, epoch, conversation, archived_ms, registered_ms, seal"


def insert(connection: sqlite3.Connection, registered: RegisteredObject) -> None:
    """Write a registration in place of an earlier one."""
    row = _row(registered)
    sql = f"INSERT OR REPLACE INTO {TABLE} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(sql, (*row, seal((TABLE, *row), b"")))


def delete(connection: sqlite3.Connection, registered: RegisteredObject) -> None:
    """Remove a registration, unless it was replaced."""
    connection.execute(
        f"DELETE FROM {TABLE} WHERE key = ? AND epoch = ? AND registered_ms = ?",
        (registered.key, registered.epoch, registered.registered_ms),
    )


def intact(connection: sqlite3.Connection, seals: Seals, conversation_id: str = "") -> list[RegisteredObject]:
    """Return the intact registrations of a conversation, or of all. Log the damaged ones."""
    found: list[RegisteredObject] = []
    for registered, problem in verified(connection, seals):
        if problem is not None:
            _log.error("archive_object_unreadable", problem=str(problem))
        elif conversation_id in ("", registered.conversation_id):
            found.append(registered)
    return found


def verified(
    connection: sqlite3.Connection, seals: Seals
) -> Iterator[tuple[RegisteredObject, WonderError | None]]:
    """Yield every registration, with an error if it is damaged."""
    for *row, stored in connection.execute(f"SELECT {_COLUMNS} FROM {TABLE} ORDER BY key, epoch").fetchall():
        key, epoch, conversation_id, archived_ms, registered_ms = row
        registered = RegisteredObject(
            key=key,
            epoch=epoch,
            conversation_id=conversation_id,
            archived_ms=archived_ms,
            registered_ms=registered_ms,
        )
        try:
            seals.check(TABLE, tuple(row), b"", stored, 0)
        except WonderError as problem:
            yield registered, problem
        else:
            yield registered, None


def _row(registered: RegisteredObject) -> Row:
    return (
        registered.key,
        registered.epoch,
        registered.conversation_id,
        registered.archived_ms,
        registered.registered_ms,
    )
