"""Memories, full text and embeddings in memory.db. Implements the ports `Memories` and `VectorSource`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from wonder_server.adapters.sqlite.connection import Row, load_seals
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.memory import metadata_index, search, text_index, tokenizer, writes
from wonder_server.adapters.sqlite.memory.bm25 import Bm25Ranker
from wonder_server.adapters.sqlite.memory.filter import conditions
from wonder_server.adapters.sqlite.memory.rows import FIELDS, STORE, locate, memory_of, recoverable
from wonder_server.adapters.sqlite.memory.schema import MIGRATIONS
from wonder_server.adapters.sqlite.memory.writes import IndexedText
from wonder_server.codec.seals import Seals
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.ranking import Candidate
from wonder_server.core.memory.records import EVERYTHING, Filter, Memory
from wonder_server.logs import logger
from wonder_server.ports.memories import AnsweredRequest, Entry, Stored, StoredText
from wonder_server.ports.vectors import NO_LIMIT, Vector

_log = logger("memory")

_OFF_LOOP_CHARACTERS: Final = 20_000
"""Texts of more characters are tokenized in a thread."""
_MAX_EMPTY_AGENTS: Final = 100_000
"""Maximum number of agents in the cache of those without memories. A full cache is cleared."""

_MAX_SKIPPED: Final = 10_000
"""Maximum number of damaged records that the log names."""

_GET: Final = f"""
    SELECT {FIELDS} FROM memories
    WHERE agent_id = ? AND id IN (SELECT value FROM json_each(?))
"""
_ANY: Final = "SELECT 1 FROM memories WHERE agent_id = ? LIMIT 1"
_VECTORS: Final = """
    SELECT key, memory_key, agent_id, embedder, passage, CAST(vector AS BLOB), seal
    FROM embeddings WHERE agent_id = ? AND embedder = ? AND key > ? ORDER BY key LIMIT ?
"""
_KEYS: Final = "SELECT key FROM embeddings WHERE agent_id = ? AND embedder = ? ORDER BY key"


class SqliteMemories:
    """Implements `Memories` and `VectorSource` over one `Database`."""

    def __init__(self, database: Database, ranker: Bm25Ranker, seals: Seals) -> None:
        self._database = database
        self._seals = seals
        self.on_lost_vectors: Callable[[], object] = lambda: None
        """Called after damaged vectors were deleted, so that their memories get new ones."""
        self._ranker = ranker
        self.removal_count = 0
        """Increases with every removal from the index."""
        self._add_count = 0
        """Increases with every write of new memories, before the write is queued."""
        self._empty_agents: set[str] = set()
        """Agents without memories and without queued writes of new ones."""
        self._skipped: set[str] = set()
        """Messages about damaged records that searches omitted, which are in the log. Only the writer thread
        uses them."""

    @classmethod
    async def open(cls, path: Path | str, *, must_exist: bool = False) -> SqliteMemories:
        """Open or create memory.db. Errors: as for `Database.open`."""
        database, ranker = await Database.open(path, MIGRATIONS, must_exist=must_exist), Bm25Ranker()
        await database.read(lambda connection: text_index.install_functions(connection, ranker.mark_changed))
        await database.write(_rebuild_outdated)
        seals = await database.read(lambda connection: load_seals(connection, STORE))
        return cls(database, ranker, seals)

    @property
    def commits(self) -> int:
        """Return the number of commits, each one fsync."""
        return self._database.commits

    @property
    def database(self) -> Database:
        """Return the database, for maintenance and re-embedding."""
        return self._database

    async def close(self) -> None:
        await self._database.close()

    # --- records ------------------------------------------------------------------------------

    async def answered(self, request: IdempotencyKey) -> AnsweredRequest | None:
        return await self._database.read(partial(writes.answered_request, request=request))

    async def add(
        self,
        agent_id: str,
        entries: Sequence[Entry],
        embedder: str,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> list[Stored]:
        words = await _indexed_texts(agent_id, [entry.text for entry in entries])

        def work(connection: sqlite3.Connection) -> list[Stored]:
            earlier = writes.find_request(connection, agent_id, request)
            if earlier is not None and len(entries) == 1:
                key = locate(connection, agent_id, earlier, None)
                return [Stored(memory=writes.read(connection, key), written=False)]
            paired = list(zip(entries, words, strict=True))
            stored = writes.add(connection, agent_id, paired, embedder, now_ms)
            if earlier is None:
                written_ids = " ".join(item.memory.id for item in stored)
                writes.record_request(connection, agent_id, request, written_ids, now_ms)
            return stored

        self._add_count += 1
        self._empty_agents.discard(agent_id)
        return await self._database.write(work)

    async def get(self, agent_id: str, ids: Sequence[str], *, lenient: bool = False) -> list[Memory]:
        def work(connection: sqlite3.Connection) -> list[Memory]:
            rows = connection.execute(_GET, (agent_id, json.dumps(ids)))
            found = self._intact(rows) if lenient else {row[0]: memory_of(row) for row in rows}
            return [found[memory_id] for memory_id in ids if memory_id in found]

        return await self._database.read(work)

    async def page(self, agent_id: str, wanted: Filter, before_id: str, limit: int) -> list[Memory]:
        where, parameters = conditions(agent_id, wanted)
        page = f"""
            SELECT {FIELDS} FROM memories WHERE {where} AND (:before = '' OR id < :before)
            ORDER BY id DESC LIMIT :limit
        """
        parameters |= {"before": before_id, "limit": limit}
        return await self._database.read(
            lambda connection: [memory_of(row) for row in connection.execute(page, parameters)]
        )

    async def replace(
        self,
        memory: Memory,
        expected_version: int,
        text: StoredText | None,
        embedder: str,
        request: IdempotencyKey | None = None,
    ) -> Stored:
        [words] = await _indexed_texts(memory.agent_id, [text]) if text else [None]
        self.removal_count += text is not None

        def work(connection: sqlite3.Connection) -> Stored:
            agent_id = memory.agent_id
            earlier = writes.find_request(connection, agent_id, request)
            if earlier is not None:
                key = locate(connection, agent_id, earlier, None)
                return Stored(memory=writes.read(connection, key), written=False)
            stored = writes.change(connection, memory, expected_version, text, words, embedder)
            writes.record_request(connection, agent_id, request, memory.id, memory.updated_ms)
            return stored

        return await self._database.write(work)

    async def remove(
        self,
        agent_id: str,
        memory_id: str,
        expected_version: int | None,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> Stored | None:
        def work(connection: sqlite3.Connection) -> Stored | None:
            if writes.find_request(connection, agent_id, request) is not None:
                return None
            key = locate(connection, agent_id, memory_id, expected_version)
            memory = recoverable(connection, key)
            removed = writes.delete(connection, key, now_ms)
            writes.record_request(connection, agent_id, request, "", now_ms)
            return Stored(memory=memory, removed_keys=tuple(removed))

        self.removal_count += 1
        return await self._database.write(work, frees_space=True)

    # --- search -------------------------------------------------------------------------------

    async def recall(
        self,
        agent_id: str,
        query: MemoryQuery,
        near: Mapping[int, float],
        wanted: Filter,
        limit: int,
        read: Callable[[Sequence[Candidate]], Collection[str]] | None = None,
    ) -> list[Candidate]:
        has_memories = True
        asked = search.RecallQuery(agent_id, query, near, wanted, limit)

        def work(connection: sqlite3.Connection) -> list[Candidate]:
            nonlocal has_memories
            found = search.recall(connection, self._ranker, asked)
            has_memories = bool(found) or connection.execute(_ANY, (agent_id,)).fetchone() is not None
            if read is None:
                return found
            rows = connection.execute(_GET, (agent_id, json.dumps(list(read(found)))))
            memories = self._intact(rows)
            return [
                dataclasses.replace(each, memory=memories[each.id]) if each.id in memories else each
                for each in found
            ]

        count_before = self._add_count
        found = await self._database.read(work)
        # The read saw all writes queued before it. Writes queued since then may have added memories.
        if not has_memories and count_before == self._add_count:
            if len(self._empty_agents) >= _MAX_EMPTY_AGENTS:
                self._empty_agents.clear()
            self._empty_agents.add(agent_id)
        return found

    def _intact(self, rows: Iterable[Row]) -> dict[str, Memory]:
        """Return the memories of the rows that are not damaged, by id. Log each damaged one once."""
        found: dict[str, Memory] = {}
        for row in rows:
            try:
                found[row[0]] = memory_of(row)
            except WonderError as problem:
                if str(problem) not in self._skipped and len(self._skipped) < _MAX_SKIPPED:
                    self._skipped.add(str(problem))
                    _log.error("damaged_record_skipped", problem=str(problem))
        return found

    def is_empty(self, agent_id: str) -> bool:
        return agent_id in self._empty_agents

    async def vectors(
        self, agent_id: str, embedder: str, after: int = 0, limit: int = NO_LIMIT
    ) -> list[Vector]:
        def read(connection: sqlite3.Connection) -> tuple[list[Vector], set[int]]:
            found: list[Vector] = []
            damaged: set[int] = set()
            rows = connection.execute(_VECTORS, (agent_id, embedder, after, limit)).fetchall()
            for key, *owner, vector, seal in rows:
                try:
                    found.append((key, self._seals.check("embeddings", tuple(owner), vector, seal, key)))
                except WonderError:
                    damaged.add(owner[0])
            return found, damaged

        while True:
            found, damaged = await self._database.read(read)
            if not damaged:
                return found
            # Vectors follow from the contents, so the server can compute them again.
            _log.error("damaged_vectors_dropped", agent=agent_id, memories=len(damaged))
            await self._database.write(partial(writes.delete_vectors, keys=damaged), frees_space=True)
            self.on_lost_vectors()

    async def keys(self, agent_id: str, embedder: str, wanted: Filter) -> list[int]:
        if wanted == EVERYTHING:
            return await self._database.read(
                lambda connection: [row[0] for row in connection.execute(_KEYS, (agent_id, embedder))]
            )
        where, parameters = conditions(agent_id, wanted)
        keys = f"""
            SELECT embeddings.key FROM embeddings
            WHERE embedder = :embedder AND memory_key IN (SELECT key FROM memories WHERE {where})
        """
        parameters["embedder"] = embedder
        return await self._database.read(
            lambda connection: [row[0] for row in connection.execute(keys, parameters)]
        )


async def _indexed_texts(agent_id: str, texts: Sequence[StoredText]) -> list[IndexedText]:
    """Tokenize texts for the index. Long ones are tokenized in a thread, so that neither loop nor writer
    waits."""

    def work() -> list[IndexedText]:
        return [
            IndexedText(
                tokenizer.index_text(agent_id, text.content),
                text_index.pack(text.content) if text.content_ref else None,
            )
            for text in texts
        ]

    if sum(len(text.content) for text in texts) <= _OFF_LOOP_CHARACTERS:
        return work()
    return await asyncio.to_thread(work)


def _rebuild_outdated(connection: sqlite3.Connection) -> None:
    """Rebuild derived tables that are in another format than the current one."""
    formats = dict(connection.execute("SELECT name, format FROM formats"))
    for name, module in (("text", text_index), ("fields", metadata_index)):
        if formats.get(name) != module.FORMAT:
            module.rebuild(connection)
            connection.execute("INSERT OR REPLACE INTO formats VALUES (?, ?)", (name, module.FORMAT))
