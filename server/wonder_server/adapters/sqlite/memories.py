"""Memory records, full text and embeddings in memory.db: the ports `Memories` and `VectorSource`."""

from __future__ import annotations

import asyncio
import heapq
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.sqlite import memory_text
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.memory_schema import MIGRATIONS
from wonder_server.core.errors import Reason, error
from wonder_server.core.memory import Candidate, Memory, Source, fingerprint
from wonder_server.ports.memories import Entry, Stored
from wonder_server.ports.vectors import Vector

_OFF_LOOP_CHARACTERS: Final = 20_000

_FIELDS: Final = (
    "id, agent_id, type, content, significance, metadata, "
    "conversation_id, turn_id, move_id, run_id, created_ms, updated_ms, version"
)

# A list of any length is one bound parameter, a JSON array; an empty list of types means all.
_OF_TYPES: Final = "(:types = '[]' OR type IN (SELECT value FROM json_each(:types)))"

_INSERT: Final = """
    INSERT INTO memories (
        id, agent_id, type, content, significance, metadata, conversation_id, turn_id, move_id, run_id,
        idempotency_key, fingerprint, created_ms, updated_ms, version
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
"""
_EMBED: Final = "INSERT INTO embeddings (memory_key, agent_id, embedder, vector) VALUES (?, ?, ?, ?)"

_BY_REQUEST: Final = f"SELECT {_FIELDS} FROM memories WHERE agent_id = ? AND idempotency_key = ?"
_KNOWN: Final = f"""
    SELECT {_FIELDS} FROM memories WHERE agent_id = ? AND fingerprint = ? ORDER BY key LIMIT 1
"""
_GET: Final = f"""
    SELECT {_FIELDS} FROM memories
    WHERE agent_id = ? AND id IN (SELECT value FROM json_each(?))
"""
_PAGE: Final = f"""
    SELECT {_FIELDS} FROM memories
    WHERE agent_id = :agent AND (:before = '' OR id < :before) AND {_OF_TYPES}
    ORDER BY id DESC LIMIT :limit
"""
_ALLOWED: Final = f"SELECT key FROM memories WHERE agent_id = :agent AND {_OF_TYPES}"
# The + keeps SQLite from walking all of the agent's memories by an index on agent_id, where it should
# look up the few keys: 11 ms against 0.1 at 1,000 memories.
_FOUND: Final = """
    SELECT key, id, significance, updated_ms FROM memories
    WHERE key IN (SELECT value FROM json_each(:keys)) AND +agent_id = :agent
"""
_NEAR: Final = f"""
    SELECT embeddings.key, memories.key
    FROM embeddings CROSS JOIN memories ON memories.key = embeddings.memory_key
    WHERE embeddings.key IN (SELECT value FROM json_each(:keys))
      AND +memories.agent_id = :agent AND {_OF_TYPES}
"""
_CHANGE: Final = """
    UPDATE memories SET type = ?, content = ?, significance = ?, metadata = ?, fingerprint = ?,
        updated_ms = ?, version = ?
    WHERE key = ?
"""
_VECTORS: Final = "SELECT key, vector FROM embeddings WHERE agent_id = ? AND embedder = ? ORDER BY key"
_KEYS: Final = f"""
    SELECT embeddings.key FROM memories JOIN embeddings ON embeddings.memory_key = memories.key
    WHERE memories.agent_id = :agent AND embedder = :embedder AND {_OF_TYPES}
"""


class SqliteMemories:
    """`Memories` and `VectorSource` over one `Database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, path: Path | str) -> SqliteMemories:
        """Open or create memory.db. Errors as `Database.open`."""
        return cls(await Database.open(path, MIGRATIONS))

    @property
    def commits(self) -> int:
        """Commits so far, each one fsync."""
        return self._database.commits

    async def close(self) -> None:
        await self._database.close()

    # --- records ------------------------------------------------------------------------------

    async def add(self, agent_id: str, entries: Sequence[Entry], embedder: str, now_ms: int) -> list[Stored]:
        words = await _indexed(agent_id, [entry.draft.content for entry in entries])

        def work(connection: sqlite3.Connection) -> list[Stored]:
            return [
                _add(connection, agent_id, entry, text, embedder, now_ms)
                for entry, text in zip(entries, words, strict=True)
            ]

        return await self._database.write(work)

    async def get(self, agent_id: str, ids: Sequence[str]) -> list[Memory]:
        def work(connection: sqlite3.Connection) -> list[Memory]:
            rows = connection.execute(_GET, (agent_id, json.dumps(ids)))
            found = {row[0]: _memory(row) for row in rows}
            return [found[memory_id] for memory_id in ids if memory_id in found]

        return await self._database.read(work)

    async def page(self, agent_id: str, types: Sequence[str], before_id: str, limit: int) -> list[Memory]:
        parameters = {"agent": agent_id, "types": json.dumps(types), "before": before_id, "limit": limit}
        return await self._database.read(
            lambda connection: [_memory(row) for row in connection.execute(_PAGE, parameters)]
        )

    async def replace(
        self, memory: Memory, expected_version: int, vector: bytes | None, embedder: str
    ) -> tuple[int | None, list[int]]:
        [words] = await _indexed(memory.agent_id, [memory.content])

        def work(connection: sqlite3.Connection) -> tuple[int | None, list[int]]:
            key = _locate(connection, memory.agent_id, memory.id, expected_version)
            _unindex(connection, memory.agent_id, key)
            memory_text.index(connection, key, memory.agent_id, words)
            connection.execute(
                _CHANGE,
                (
                    memory.type,
                    memory.content,
                    memory.significance,
                    json.dumps(memory.metadata),
                    fingerprint(memory.type, memory.content),
                    memory.updated_ms,
                    memory.version,
                    key,
                ),
            )
            if vector is None:
                return None, []
            gone = _vector_keys(connection, key)
            connection.execute("DELETE FROM embeddings WHERE memory_key = ?", (key,))
            return connection.execute(_EMBED, (key, memory.agent_id, embedder, vector)).lastrowid, gone

        return await self._database.write(work)

    async def remove(self, agent_id: str, memory_id: str, expected_version: int | None) -> list[int]:
        def work(connection: sqlite3.Connection) -> list[int]:
            key = _locate(connection, agent_id, memory_id, expected_version)
            gone = _vector_keys(connection, key)
            _unindex(connection, agent_id, key)
            connection.execute("DELETE FROM memories WHERE key = ?", (key,))
            return gone

        return await self._database.write(work)

    # --- finding ------------------------------------------------------------------------------

    async def recall(
        self, agent_id: str, query: str, near: Mapping[int, float], types: Sequence[str], limit: int
    ) -> list[Candidate]:
        words = memory_text.query_words(agent_id, query)
        parameters = {"agent": agent_id, "types": json.dumps(types), "keys": json.dumps(list(near))}

        def work(connection: sqlite3.Connection) -> list[Candidate]:
            text = memory_text.scores(connection, agent_id, words)
            if types:
                allowed = {row[0] for row in connection.execute(_ALLOWED, parameters)}
                text = {key: score for key, score in text.items() if key in allowed}
            cosines: dict[int, float] = {}
            for vector_key, key in connection.execute(_NEAR, parameters):
                cosines[key] = max(cosines.get(key, 0.0), near[vector_key])
            keys = {*heapq.nlargest(limit, text, key=text.__getitem__), *cosines}
            rows = connection.execute(_FOUND, {"agent": agent_id, "keys": json.dumps(list(keys))})
            return [
                Candidate(
                    id=memory_id,
                    significance=significance,
                    updated_ms=updated_ms,
                    text=text.get(key, 0.0),
                    vector=cosines.get(key, 0.0),
                )
                for key, memory_id, significance, updated_ms in rows
            ]

        return await self._database.read(work)

    async def vectors(self, agent_id: str, embedder: str) -> list[Vector]:
        return await self._database.read(
            lambda connection: connection.execute(_VECTORS, (agent_id, embedder)).fetchall()
        )

    async def keys(self, agent_id: str, embedder: str, types: Sequence[str]) -> list[int]:
        parameters = {"agent": agent_id, "embedder": embedder, "types": json.dumps(types)}
        return await self._database.read(
            lambda connection: [row[0] for row in connection.execute(_KEYS, parameters)]
        )


async def _indexed(agent_id: str, contents: Sequence[str]) -> list[str]:
    """What the text index gets of each content; neither the loop nor the writer waits for long ones."""

    def work() -> list[str]:
        return [memory_text.indexed(agent_id, content) for content in contents]

    if sum(map(len, contents)) <= _OFF_LOOP_CHARACTERS:
        return work()
    return await asyncio.to_thread(work)


def _unindex(connection: sqlite3.Connection, agent_id: str, key: int) -> None:
    [content] = connection.execute("SELECT content FROM memories WHERE key = ?", (key,)).fetchone()
    memory_text.unindex(connection, key, agent_id, memory_text.indexed(agent_id, content))


def _add(
    connection: sqlite3.Connection, agent_id: str, entry: Entry, words: str, embedder: str, now_ms: int
) -> Stored:
    draft = entry.draft
    mark = fingerprint(draft.type, draft.content)
    row = None
    if draft.idempotency_key:
        row = connection.execute(_BY_REQUEST, (agent_id, draft.idempotency_key)).fetchone()
    if row is None and draft.unless_known:
        row = connection.execute(_KNOWN, (agent_id, mark)).fetchone()
    if row is not None:
        return Stored(memory=_memory(row), vector_key=None)
    source = draft.source
    key = connection.execute(
        _INSERT,
        (
            entry.id,
            agent_id,
            draft.type,
            draft.content,
            draft.significance,
            json.dumps(draft.metadata),
            source.conversation_id,
            source.turn_id,
            source.move_id,
            source.run_id,
            draft.idempotency_key or None,
            mark,
            now_ms,
            now_ms,
        ),
    ).lastrowid
    assert key is not None
    memory_text.index(connection, key, agent_id, words)
    vector_key = connection.execute(_EMBED, (key, agent_id, embedder, entry.vector)).lastrowid
    memory = Memory(
        id=entry.id,
        agent_id=agent_id,
        type=draft.type,
        content=draft.content,
        significance=draft.significance,
        metadata=draft.metadata,
        source=source,
        created_ms=now_ms,
        updated_ms=now_ms,
        version=1,
    )
    return Stored(memory=memory, vector_key=vector_key)


def _locate(connection: sqlite3.Connection, agent_id: str, memory_id: str, version: int | None) -> int:
    row = connection.execute(
        "SELECT key, version FROM memories WHERE agent_id = ? AND id = ?", (agent_id, memory_id)
    ).fetchone()
    if row is None:
        raise error(Reason.MEMORY_NOT_FOUND, "The agent has no memory with this id.", field="id")
    if version is not None and row[1] != version:
        raise error(Reason.ETAG_MISMATCH, "The memory has changed since; read it again.", field="etag")
    return int(row[0])


def _vector_keys(connection: sqlite3.Connection, memory_key: int) -> list[int]:
    rows = connection.execute("SELECT key FROM embeddings WHERE memory_key = ?", (memory_key,))
    return [row[0] for row in rows]


def _memory(row: tuple[Any, ...]) -> Memory:
    return Memory(
        id=row[0],
        agent_id=row[1],
        type=row[2],
        content=row[3],
        significance=row[4],
        metadata=json.loads(row[5]),
        source=Source(conversation_id=row[6], turn_id=row[7], move_id=row[8], run_id=row[9]),
        created_ms=row[10],
        updated_ms=row[11],
        version=row[12],
    )
