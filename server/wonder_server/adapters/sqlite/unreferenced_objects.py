"""Lists of objects that no row refers to, until their collection: one for memories, one for files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.sqlite.database import Database
from wonder_server.ports.blobs import UnreferencedObject

MAX_OBJECTS: Final = 500
"""Maximum number of unreferenced objects per call."""


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The table of a list. ``owner`` is its column of owners, and ``references`` the query that returns a row
    if one refers to the object ``key`` of the table. All are constants of the code.
    """

    table: str
    owner: str
    references: str

    @property
    def remove(self) -> str:
        """The statement that removes the keys of a JSON list."""
        return f"DELETE FROM {self.table} WHERE key IN (SELECT value FROM json_each(?))"


class SqliteUnreferencedObjects:
    """Implements the port ``UnreferencedObjects``."""

    def __init__(self, database: Database, objects: ObjectList) -> None:
        self._database = database
        self._remove = objects.remove
        table, owner = objects.table, objects.owner
        self._add = f"INSERT OR IGNORE INTO {table} (key, {owner}) SELECT value, ? FROM json_each(?)"
        # The deletion of a row lists its objects even while another row refers to them.
        self._drop_referenced = f"DELETE FROM {table} WHERE EXISTS ({objects.references})"
        self._list = f"SELECT key, {owner} FROM {table} WHERE key > ? ORDER BY key LIMIT ?"

    async def add_unreferenced(self, owner_id: str, keys: Sequence[str]) -> None:
        parameters = owner_id, json.dumps(keys)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(self._add, parameters)

        await self._database.write(work)

    async def unreferenced(self, after: str = "") -> list[UnreferencedObject]:
        def work(connection: sqlite3.Connection) -> list[UnreferencedObject]:
            connection.execute(self._drop_referenced)
            found = connection.execute(self._list, (after, MAX_OBJECTS))
            return [UnreferencedObject(*row) for row in found]

        return await self._database.write(work, frees_space=True)

    async def remove_unreferenced(self, keys: Sequence[str]) -> None:
        parameters = (json.dumps(keys),)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(self._remove, parameters)

        await self._database.write(work, frees_space=True)
