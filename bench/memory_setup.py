"""A memory service in this process, over a folder, and texts to search."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.compose.interpreter import SWITCH_INTERVAL_S
from wonder_server.core.memory.records import Draft
from wonder_server.ports.memories import Entry, StoredText
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MAX_BATCH, MemoryService


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


class MemorySetup:
    """Store, vectors, embedder and service, connected as in a server."""

    def __init__(self, store: SqliteMemories, folder: Path) -> None:
        self.store = store
        self.embedder = HashingEmbedder()
        self.vectors = FaissVectors(
            store, self.embedder.name, self.embedder.dimensions, folder=folder / "vectors"
        )
        self.overflow = LargeContents(MemoryBlobs(), SqliteMemoryMaintenance(store))
        self.service = MemoryService(
            memories=store,
            large_contents=self.overflow,
            index=SemanticIndex(vectors=self.vectors, source=store, embedder=self.embedder),
            clock=Clock(),
        )

    @classmethod
    async def open(cls, folder: Path) -> MemorySetup:
        sys.setswitchinterval(SWITCH_INTERVAL_S)  # As in the server.
        return cls(await SqliteMemories.open(folder / "memory.db"), folder)

    async def write(self, agent: str, contents: Sequence[str]) -> None:
        for start in range(0, len(contents), MAX_BATCH):
            drafts = [Draft(type="fact", content=each) for each in contents[start : start + MAX_BATCH]]
            await self.service.write_all(agent, drafts)

    async def put(self, agent: str, contents: Sequence[str], vectors: Sequence[bytes]) -> None:
        """Store texts with known vectors in one batch."""
        entries = [
            Entry(
                id=f"mem_{agent}{number:06}",
                draft=Draft(type="fact", content=content),
                text=StoredText(content=content, vectors=(vector,)),
            )
            for number, (content, vector) in enumerate(zip(contents, vectors, strict=True))
        ]
        await self.store.add(agent, entries, self.embedder.name, 1)

    async def close(self) -> None:
        await self.overflow.close()
        await self.vectors.close()
        await self.store.close()


def sentences(count: int, words: int, seed: int = 7) -> list[str]:
    """Return sentences of twelve words, the same in every run.

    They use ``words`` words: the second half as often as the first, and so on (Zipf's law).
    """
    chance = random.Random(seed)
    known = ["".join(chance.choices("abdegiklmnoprstu", k=chance.randint(2, 9))) for _ in range(words)]
    frequencies = [1 / rank for rank in range(1, words + 1)]
    return [" ".join(chance.choices(known, frequencies, k=12)) for _ in range(count)]


def questions(contents: Sequence[str], count: int) -> list[str]:
    """Return questions: seven consecutive words of random sentences."""
    chance = random.Random(8)
    return [" ".join(chance.choice(contents).split()[2:9]) for _ in range(count)]


def full_text(contents: Sequence[str]) -> sqlite3.Connection:
    """Return an FTS5 table of the texts, as a floor."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (content, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO texts (content) VALUES (?)", ((content,) for content in contents))
    return connection


def full_text_search(connection: sqlite3.Connection, question: str, limit: int) -> None:
    any_word = " OR ".join(f'"{word}"' for word in question.split())
    connection.execute(
        "SELECT rowid, content FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?", (any_word, limit)
    ).fetchall()
