"""Memories that lack vectors of an embedder. Implements the port `Reembedding`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.memory import writes
from wonder_server.adapters.sqlite.memory.rows import FIELDS, locate, memory_of
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import WonderError
from wonder_server.core.memory.records import Memory
from wonder_server.logs import logger

_log = logger("memory")

_ROWS_PER_READ: Final = 1_000
"""Rows per read, so that other requests wait at most a few milliseconds."""

_UNEMBEDDED: Final = f"""
    SELECT {FIELDS} FROM memories WHERE key > :after AND key <= :upto AND NOT EXISTS (
        SELECT 1 FROM embeddings WHERE embeddings.memory_key = memories.key AND embedder = :embedder
    )
    ORDER BY key
"""


class SqliteReembedding:
    """Implements `Reembedding` over the memory store."""

    def __init__(self, memories: SqliteMemories) -> None:
        self._database = memories.database

    async def pending(self, embedder: str, after: int) -> tuple[list[Memory], int | None]:
        def work(connection: sqlite3.Connection) -> tuple[list[Memory], int | None]:
            [last] = connection.execute("SELECT coalesce(max(key), 0) FROM memories").fetchone()
            parameters = {"after": after, "upto": after + _ROWS_PER_READ, "embedder": embedder}
            found = []
            for row in connection.execute(_UNEMBEDDED, parameters):
                try:
                    found.append(memory_of(row))
                except WonderError as problem:  # A damaged memory must not block the others.
                    _log.error("damaged_record_skipped", problem=str(problem))
            return found, after + _ROWS_PER_READ if after + _ROWS_PER_READ < last else None

        return await self._database.read(work)

    async def embed(self, memory: Memory, embedder: str, vectors: Sequence[bytes]) -> tuple[int, ...]:
        def work(connection: sqlite3.Connection) -> tuple[int, ...]:
            try:
                key = locate(connection, memory.agent_id, memory.id, memory.version)
            except WonderError:
                return ()
            connection.execute("DELETE FROM embeddings WHERE memory_key = ?", (key,))
            return writes.embed(connection, memory.agent_id, key, embedder, vectors)

        return await self._database.write(work)
