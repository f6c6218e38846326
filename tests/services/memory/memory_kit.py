"""The memory service over SQLite and the built-in embedder, with an object store that can fail."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.in_memory.memory_blocks import InMemoryBlocks
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.adapters.sqlite.memory.blocks import SqliteMemoryBlocks
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import Reason, error
from wonder_server.ports.clock import Clock
from wonder_server.ports.vectors import Vectors
from wonder_server.services.memory.blocks import MemoryBlockService
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MemoryService


class FailingBlobs(MemoryBlobs):
    """An object store in memory. While ``down``, every operation fails."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False

    async def put(self, content: bytes) -> str:
        self._check()
        return await super().put(content)

    async def get(self, key: str) -> bytes | None:
        self._check()
        return await super().get(key)

    async def delete(self, key: str) -> None:
        self._check()
        await super().delete(key)

    def _check(self) -> None:
        if self.down:
            raise error(Reason.STORAGE_UNAVAILABLE, "The object store does not answer.", transient=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStack:
    """The memory service with its stores."""

    service: MemoryService
    store: SqliteMemories
    maintenance: SqliteMemoryMaintenance
    blobs: FailingBlobs
    large_contents: LargeContents
    vectors: Vectors
    blocks: MemoryBlockService


def no_blocks() -> MemoryBlockService:
    """Return a service without memory blocks."""
    return MemoryBlockService(InMemoryBlocks(), ZeroClock())


class ZeroClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 0


@contextlib.asynccontextmanager
async def open_memory_stack(
    folder: Path,
    clock: Clock,
    *,
    blobs: FailingBlobs | None = None,
    faiss: bool = False,
    embedder: HashingEmbedder | None = None,
) -> AsyncIterator[MemoryStack]:
    """Open a memory service over ``folder``/memory.db. Opened again, it has the same memories."""
    store, embedder = await SqliteMemories.open(folder / "memory.db"), embedder or HashingEmbedder()
    vectors: Any = (
        FaissVectors(store, embedder.name, embedder.dimensions)
        if faiss
        else PlainVectors(store, embedder.name)
    )
    blobs, maintenance = blobs or FailingBlobs(), SqliteMemoryMaintenance(store)
    large_contents = LargeContents(blobs, maintenance)
    service = MemoryService(
        memories=store,
        large_contents=large_contents,
        index=SemanticIndex(vectors=vectors, source=store, embedder=embedder),
        clock=clock,
    )
    yield MemoryStack(
        service=service,
        store=store,
        maintenance=maintenance,
        blobs=blobs,
        large_contents=large_contents,
        vectors=vectors,
        blocks=MemoryBlockService(SqliteMemoryBlocks(store.database), clock),
    )
    await large_contents.close()
    await vectors.close()
    await store.close()
