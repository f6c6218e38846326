"""Maintenance of memory.db: unreferenced objects, deleted agents, index residue."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.memory import text_index, writes
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.ports.memories import TombstoneStatus

MAX_OBJECTS: Final = 500
"""Maximum number of unreferenced objects per call."""

MAX_REBUILT: Final = 20_000
"""Maximum number of memories whose index is rebuilt while the server runs: writes wait 0.1 ms for each."""

_ADD_UNREFERENCED: Final = "INSERT OR IGNORE INTO loose_objects (key) SELECT value FROM json_each(?)"
_REMOVE_UNREFERENCED: Final = "DELETE FROM loose_objects WHERE key IN (SELECT value FROM json_each(?))"
# A deleted memory records its object as unreferenced even while another memory refers to it.
_DROP_REFERENCED: Final = """
    DELETE FROM loose_objects
    WHERE EXISTS (SELECT 1 FROM memories WHERE content_ref = loose_objects.key)
"""
_UNREFERENCED: Final = "SELECT key FROM loose_objects ORDER BY key LIMIT ?"
_OF_AGENT: Final = "SELECT key FROM memories WHERE agent_id = ? ORDER BY key LIMIT ?"
_ADD_TOMBSTONE: Final = """
    INSERT INTO deleted_agents (agent_id, is_sure) VALUES (?, ?)
    ON CONFLICT (agent_id) DO UPDATE SET is_sure = max(is_sure, excluded.is_sure)
"""
_REMOVE_TOMBSTONE: Final = "DELETE FROM deleted_agents WHERE agent_id = ? AND NOT is_sure"
_TOMBSTONES: Final = """
    SELECT agent_id, is_sure FROM deleted_agents
    WHERE NOT is_sure OR EXISTS (SELECT 1 FROM memories WHERE memories.agent_id = deleted_agents.agent_id)
"""


class SqliteMemoryMaintenance:
    """Implements the ports `MemoryMaintenance` and `IndexResidue` over an open store."""

    def __init__(self, memories: SqliteMemories) -> None:
        self._database = memories.database
        self._memories = memories
        self._merged = -1
        """`SqliteMemories.removal_count` at the start of the last index merge; -1 before the first."""
        self._merging = False

    async def add_unreferenced(self, keys: Sequence[str]) -> None:
        await self._database.write(lambda connection: _run(connection, _ADD_UNREFERENCED, json.dumps(keys)))

    async def unreferenced(self) -> list[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            connection.execute(_DROP_REFERENCED)
            return [row[0] for row in connection.execute(_UNREFERENCED, (MAX_OBJECTS,))]

        return await self._database.write(work, frees_space=True)

    async def remove_unreferenced(self, keys: Sequence[str]) -> None:
        await self._database.write(
            lambda connection: _run(connection, _REMOVE_UNREFERENCED, json.dumps(keys)), frees_space=True
        )

    async def add_tombstone(self, agent_id: str, status: TombstoneStatus) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if status == "kept":
                connection.execute(_REMOVE_TOMBSTONE, (agent_id,))
            else:
                connection.execute(_ADD_TOMBSTONE, (agent_id, status == "deleted"))

        await self._database.write(work, frees_space=True)

    async def tombstones(self) -> dict[str, TombstoneStatus]:
        def work(connection: sqlite3.Connection) -> dict[str, TombstoneStatus]:
            return {row[0]: "deleted" if row[1] else "leaving" for row in connection.execute(_TOMBSTONES)}

        return await self._database.read(work)

    async def delete_agent_memories(self, agent_id: str, limit: int) -> tuple[int, list[int]]:
        def work(connection: sqlite3.Connection) -> tuple[int, list[int]]:
            keys = [row[0] for row in connection.execute(_OF_AGENT, (agent_id, limit))]
            gone = [vector for key in keys for vector in writes.delete(connection, key, 0, alone=False)]
            if len(keys) < limit:
                connection.execute("DELETE FROM requests WHERE agent_id = ?", (agent_id,))
                connection.execute("DELETE FROM counts WHERE agent_id = ? AND memories = 0", (agent_id,))
            return len(keys), gone

        self._memories.removal_count += 1
        return await self._database.write(work, frees_space=True)

    async def purge(self) -> bool:
        await self._rebuild_index()
        if not self._merging:
            if self._merged == self._memories.removal_count:
                return False
            self._merged = self._memories.removal_count
        first, self._merging = not self._merging, True
        more = await self._database.write(
            lambda connection: text_index.merge(connection, first=first), frees_space=True
        )
        self._merging = more
        return more

    async def _rebuild_index(self) -> None:
        """Rebuild a stale index of at most `MAX_REBUILT` memories. Larger ones are rebuilt at the next
        start."""

        def work(connection: sqlite3.Connection) -> None:
            [count] = connection.execute("SELECT count(*) FROM memories").fetchone()
            if count <= MAX_REBUILT:
                text_index.renew(connection)

        if await self._database.read(text_index.is_stale):
            self._memories.removal_count += 1
            await self._database.write(work)


def _run(connection: sqlite3.Connection, statement: str, value: str) -> None:
    connection.execute(statement, (value,))
