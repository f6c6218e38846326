"""The notes about deleted projects, in the catalog's file."""

from __future__ import annotations

import sqlite3

from wonder_server.adapters.sqlite.database import Database


class SqliteRemovedProjects:
    """Implements the port ``RemovedProjects``. The store of the catalog writes the notes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def removed_projects(self) -> list[str]:
        sql = "SELECT id FROM removed_projects ORDER BY id"
        rows = await self._database.read(lambda connection: connection.execute(sql).fetchall())
        return [str(project_id) for (project_id,) in rows]

    async def forget_removed(self, project_id: str) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM removed_projects WHERE id = ?", (project_id,))

        await self._database.write(write, frees_space=True)
