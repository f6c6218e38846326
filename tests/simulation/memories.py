"""The memories of a node: the server's own service and SQL, over a database that survives the node.

`MemoryDisk` holds an SQLite database in memory. A node opens `NodeDatabase` on it, which runs each function
of the store in one callback, so a write is durable as a whole or not at all. Writes and reads run in the
order of the calls, as in the writer thread. They delay and fail like the journal, and a node may die before
and after each write.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from tests.simulation.archives import NodeBlobs
from tests.simulation.disk import NodeStores
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.adapters.sqlite.connection import connect, load_seals
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.memory import text_index
from wonder_server.adapters.sqlite.memory.bm25 import Bm25Ranker
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.rows import STORE
from wonder_server.adapters.sqlite.memory.schema import MIGRATIONS
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.ports.clock import Clock
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MemoryService

T = TypeVar("T")

EMBEDDER = HashingEmbedder(8)


@cache
def _empty_database() -> bytes:
    """Return the file of a database without memories."""
    with connect(Path(":memory:"), MIGRATIONS) as connection:
        return connection.serialize()


class MemoryDisk:
    """The durable memories of a history. `close` it at the end."""

    def __init__(self) -> None:
        self.connection = connect(Path(":memory:"), ())
        self.connection.deserialize(_empty_database())
        self.seals = load_seals(self.connection, STORE)
        self.rankers: list[Bm25Ranker] = []
        """The rankers of all nodes: each learns of every change."""
        text_index.install_functions(self.connection, self._mark_changed)

    def _mark_changed(self, agent_id: str, key: int) -> None:
        for ranker in self.rankers:
            ranker.mark_changed(agent_id, key)

    def contents(self) -> Counter[tuple[str, str]]:
        """Return how often each agent has each content. Long contents are objects, and left out."""
        return Counter(
            self.connection.execute("SELECT agent_id, content FROM memories WHERE content_ref IS NULL")
        )

    def objects(self) -> set[str]:
        """Return the objects that a memory refers to, or that are recorded as unreferenced."""
        tables = "SELECT content_ref FROM memories UNION SELECT key FROM loose_objects"
        return {row[0] for row in self.connection.execute(tables)}

    def close(self) -> None:
        self.connection.close()


class NodeDatabase:
    """The database of one node: the part of `Database` that the store of memories uses."""

    def __init__(self, disk: MemoryDisk, stores: NodeStores) -> None:
        self._connection = disk.connection
        self._stores = stores
        self._order = asyncio.Lock()

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, frees_space: bool = False) -> T:
        async def commit() -> T:
            with self._connection:
                self._connection.execute("BEGIN")
                return fn(self._connection)

        async with self._order:
            return await self._stores.change(commit)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        async with self._order:
            await self._stores.wait_for_read()
            return fn(self._connection)


Memories = Callable[[Database, Bm25Ranker, NodeStores], SqliteMemories]
"""Opens the store of memories of a node."""


def open_memories(database: Database, ranker: Bm25Ranker, stores: NodeStores) -> SqliteMemories:
    """Open the server's own store."""
    return SqliteMemories(database, ranker, memory_disk(stores).seals)


def memory_disk(stores: NodeStores) -> MemoryDisk:
    """Return the memories of the disk, which the first node makes."""
    if stores.disk.memories is None:
        stores.disk.memories = MemoryDisk()
    return cast(MemoryDisk, stores.disk.memories)


def open_memory_service(stores: NodeStores, clock: Clock, open_store: Memories) -> MemoryService:
    """Return the service of a node's memories."""
    disk, ranker = memory_disk(stores), Bm25Ranker()
    disk.rankers.append(ranker)
    memories = open_store(cast(Database, NodeDatabase(disk, stores)), ranker, stores)
    vectors = PlainVectors(memories, EMBEDDER.name)
    return MemoryService(
        memories=memories,
        large_contents=LargeContents(NodeBlobs(stores), SqliteMemoryMaintenance(memories)),
        index=SemanticIndex(vectors=vectors, source=memories, embedder=EMBEDDER),
        clock=clock,
    )
