"""Maintenance of memory.db: unreferenced objects, deleted agents, index residue."""

from __future__ import annotations

import sqlite3
from typing import Final

from wonder_server.adapters.sqlite.memory import blocks, text_index, writes
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.unreferenced_objects import ObjectList, SqliteUnreferencedObjects
from wonder_server.ports.memories import TombstoneStatus

MAX_REBUILT: Final = 20_000
"""Maximum number of memories whose index is rebuilt while the server runs: writes wait 0.1 ms for each."""

REQUEST_TTL_MS: Final = 25 * 3600 * 1000
"""Time that the requests of a deleted agent stay at least. The contract promises 24 hours."""

_UNREFERENCED: Final = ObjectList(
    table="loose_objects",
    owner="agent_id",
    references="SELECT 1 FROM memories WHERE content_ref = loose_objects.key",
)
_OF_AGENT: Final = "SELECT key FROM memories WHERE agent_id = ? ORDER BY key LIMIT ?"
_ADD_TOMBSTONE: Final = """
    INSERT INTO deleted_agents (agent_id, is_sure) VALUES (?, ?)
    ON CONFLICT (agent_id) DO UPDATE SET is_sure = max(is_sure, excluded.is_sure)
"""
_REMOVE_TOMBSTONE: Final = "DELETE FROM deleted_agents WHERE agent_id = ? AND NOT is_sure"
# Requests answer their repetitions after the agent was deleted. The newest request tells the time.
_DROP_REQUESTS: Final = """
    DELETE FROM requests
    WHERE agent_id IN (SELECT agent_id FROM deleted_agents WHERE is_sure)
        AND created_ms < (SELECT max(created_ms) FROM requests) - ?
"""
_TOMBSTONES: Final = """
    SELECT agent_id, is_sure FROM deleted_agents
    WHERE NOT is_sure OR EXISTS (SELECT 1 FROM memories WHERE memories.agent_id = deleted_agents.agent_id)
        OR EXISTS (
            SELECT 1 FROM memory_block_changes WHERE memory_block_changes.agent_id = deleted_agents.agent_id
        )
"""


class SqliteMemoryMaintenance(SqliteUnreferencedObjects):
    """Implements the ports `MemoryMaintenance` and `IndexResidue` over an open store."""

    def __init__(self, memories: SqliteMemories) -> None:
        super().__init__(memories.database, _UNREFERENCED)
        self._memories = memories
        self._merged = -1
        """`SqliteMemories.removal_count` at the start of the last index merge; -1 before the first."""
        self._merging = False

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
                blocks.delete_blocks(connection, agent_id)
                connection.execute(_DROP_REQUESTS, (REQUEST_TTL_MS,))
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
