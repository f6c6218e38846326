"""What keeps memory.db in order, besides its users: the port `MemoryUpkeep`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite import memory_index, memory_writes
from wonder_server.adapters.sqlite.memories import SqliteMemories
from wonder_server.ports.memories import Mark

AT_ONCE: Final = 500
"""Objects that are looked at in one go."""

MOST_RENEWED: Final = 20_000
"""Memories whose index is made anew while the server runs: the store waits 0.1 ms for each."""

_LOOSEN: Final = "INSERT OR IGNORE INTO loose_objects (key) SELECT value FROM json_each(?)"
_TIGHTEN: Final = "DELETE FROM loose_objects WHERE key IN (SELECT value FROM json_each(?))"
# Noted when one memory let go of it, while another has it.
_SETTLE: Final = """
    DELETE FROM loose_objects
    WHERE EXISTS (SELECT 1 FROM memories WHERE content_ref = loose_objects.key)
"""
_LOOSE: Final = "SELECT key FROM loose_objects ORDER BY key LIMIT ?"
_OF_AGENT: Final = "SELECT key FROM memories WHERE agent_id = ? ORDER BY key LIMIT ?"
_MARK: Final = """
    INSERT INTO deleted_agents (agent_id, is_sure) VALUES (?, ?)
    ON CONFLICT (agent_id) DO UPDATE SET is_sure = max(is_sure, excluded.is_sure)
"""
_KEEP: Final = "DELETE FROM deleted_agents WHERE agent_id = ? AND NOT is_sure"
_MARKED: Final = """
    SELECT agent_id, is_sure FROM deleted_agents
    WHERE NOT is_sure OR EXISTS (SELECT 1 FROM memories WHERE memories.agent_id = deleted_agents.agent_id)
"""


class SqliteMemoryUpkeep:
    """`MemoryUpkeep` and `Traces` over an open store."""

    def __init__(self, memories: SqliteMemories) -> None:
        self._database = memories.database
        self._memories = memories
        self._merged = -1
        """How much had been forgotten when the last merge of the index began; -1 before the first."""
        self._merging = False

    async def loosen(self, keys: Sequence[str]) -> None:
        await self._database.write(lambda connection: _run(connection, _LOOSEN, json.dumps(keys)))

    async def loose(self) -> list[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            connection.execute(_SETTLE)
            return [row[0] for row in connection.execute(_LOOSE, (AT_ONCE,))]

        return await self._database.write(work, frees=True)

    async def tighten(self, keys: Sequence[str]) -> None:
        await self._database.write(
            lambda connection: _run(connection, _TIGHTEN, json.dumps(keys)), frees=True
        )

    async def mark_agent(self, agent_id: str, mark: Mark) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if mark == "kept":
                connection.execute(_KEEP, (agent_id,))
            else:
                connection.execute(_MARK, (agent_id, mark == "deleted"))

        await self._database.write(work, frees=True)

    async def marked_agents(self) -> dict[str, Mark]:
        def work(connection: sqlite3.Connection) -> dict[str, Mark]:
            return {row[0]: "deleted" if row[1] else "leaving" for row in connection.execute(_MARKED)}

        return await self._database.read(work)

    async def purge(self, agent_id: str, limit: int) -> tuple[int, list[int]]:
        def work(connection: sqlite3.Connection) -> tuple[int, list[int]]:
            keys = [row[0] for row in connection.execute(_OF_AGENT, (agent_id, limit))]
            gone = [
                vector for key in keys for vector in memory_writes.forget(connection, key, 0, alone=False)
            ]
            if len(keys) < limit:
                connection.execute("DELETE FROM requests WHERE agent_id = ?", (agent_id,))
                connection.execute("DELETE FROM counts WHERE agent_id = ? AND memories = 0", (agent_id,))
            return len(keys), gone

        self._memories.forgotten += 1
        return await self._database.write(work, frees=True)

    async def erase_some(self) -> bool:
        await self._renew_index()
        if not self._merging:
            if self._merged == self._memories.forgotten:
                return False
            self._merged = self._memories.forgotten
        first, self._merging = not self._merging, True
        more = await self._database.write(
            lambda connection: memory_index.merge(connection, first=first), frees=True
        )
        self._merging = more
        return more

    async def _renew_index(self) -> None:
        """Make a stale index anew, if that is quickly done; that of a large store, at the next start."""

        def work(connection: sqlite3.Connection) -> None:
            [count] = connection.execute("SELECT count(*) FROM memories").fetchone()
            if count <= MOST_RENEWED:
                memory_index.renew(connection)

        if await self._database.read(memory_index.is_stale):
            self._memories.forgotten += 1
            await self._database.write(work)


def _run(connection: sqlite3.Connection, statement: str, value: str) -> None:
    connection.execute(statement, (value,))
