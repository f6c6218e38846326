"""A change of embedder and an unavailable embedder: search finds the memories throughout (feature E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.memory.embeddings import SqliteReembedding
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import Reason, error
from wonder_server.core.memory.records import EVERYTHING, Change, Draft, Memory
from wonder_server.services.memory import reembedding
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.reembedding import Reembedder
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MemoryService


class UnreliableEmbedder(HashingEmbedder):
    """An embedder that can be unavailable, wait for an event, and reject texts."""

    def __init__(self, dimensions: int = 384) -> None:
        super().__init__(dimensions)
        self.down = False
        self.calls = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.calls += 1
        await self.go_on.wait()
        if self.down:
            raise error(Reason.MODEL_UNAVAILABLE, "It is down.", transient=True)
        if any("forbidden" in text for text in texts):
            raise error(Reason.MODEL_FAILED, "It does not like this text.", kind="refused")
        return await super().embed(texts)


class Clock:
    def now_ms(self) -> int:
        return 1_000_000


class ReembeddingStack:
    """A memory service over a folder, with one embedder."""

    def __init__(self, store: SqliteMemories, embedder: UnreliableEmbedder, blobs: MemoryBlobs) -> None:
        self.store, self.embedder = store, embedder
        self.vectors = FaissVectors(store, embedder.name, embedder.dimensions)
        self.overflow = LargeContents(blobs, SqliteMemoryMaintenance(store))
        self.reembedder = Reembedder(
            store=SqliteReembedding(store),
            large_contents=self.overflow,
            vectors=self.vectors,
            embedder=embedder,
        )
        self.service = MemoryService(
            memories=store,
            large_contents=self.overflow,
            index=SemanticIndex(
                vectors=self.vectors,
                source=store,
                embedder=embedder,
                on_missing_vectors=self.reembedder.wake,
            ),
            clock=Clock(),
        )

    @classmethod
    async def open(cls, folder: Path, embedder: UnreliableEmbedder, blobs: MemoryBlobs) -> ReembeddingStack:
        return cls(await SqliteMemories.open(folder / "memory.db"), embedder, blobs)

    async def close(self) -> None:
        await self.reembedder.close()
        await self.overflow.close()
        await self.vectors.close()
        await self.store.close()

    async def write(self, *contents: str) -> list[Memory]:
        return await self.service.write_all("ada", [Draft(type="fact", content=each) for each in contents])

    async def first(self, query: str) -> str:
        hits = await self.service.search("ada", query)
        return hits[0].memory.content if hits else ""

    async def count(self, embedder: UnreliableEmbedder | None = None) -> int:
        return len(await self.store.keys("ada", (embedder or self.embedder).name, EVERYTHING))


LONG = "kubernetes cluster upgrade planning " * 400


async def test_a_change_of_embedder_goes_on_in_the_background_while_search_goes_on(tmp_path: Path) -> None:
    blobs, old, new = MemoryBlobs(), UnreliableEmbedder(), UnreliableEmbedder(512)
    stack = await ReembeddingStack.open(tmp_path, old, blobs)
    await stack.write("Anna likes green tea", LONG, *(f"note {n}" for n in range(200)))
    before = await stack.count()
    await stack.close()

    stack = await ReembeddingStack.open(tmp_path, new, blobs)
    new.go_on.clear()
    stack.reembedder.start()
    new.go_on.set()
    assert await stack.first("green tea") == "Anna likes green tea"
    [written] = await stack.write("written meanwhile")
    await stack.service.update("ada", written.id, Change(content="changed meanwhile"))
    async with asyncio.timeout(60):
        await stack.reembedder.wait_until_idle()
    assert await stack.count() == before + 1
    assert await stack.count(old) == 0
    assert await stack.first("kubernets clustrs upgrad planing") == LONG, "misspelt: by the new vectors only"
    calls = new.calls
    stack.reembedder.wake()
    await stack.reembedder.wait_until_idle()
    assert new.calls == calls, "nothing is left to do"
    await stack.close()


async def test_a_memory_written_without_the_embedder_is_found_by_words_and_later_by_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reembedding, "_INITIAL_PAUSE_S", 0.01)
    embedder = UnreliableEmbedder()
    stack = await ReembeddingStack.open(tmp_path, embedder, MemoryBlobs())
    stack.reembedder.start()
    await stack.reembedder.wait_until_idle()
    embedder.down = True
    await stack.write("Anna likes green tea")
    assert await stack.first("tea") == "Anna likes green tea"
    assert await stack.count() == 0
    embedder.down = False
    async with asyncio.timeout(60):
        await stack.reembedder.wait_until_idle()
    assert await stack.count() == 1
    assert await stack.first("gren") == "Anna likes green tea"
    await stack.close()


async def test_a_text_that_the_embedder_refuses_keeps_no_other_from_its_vectors(tmp_path: Path) -> None:
    stack = await ReembeddingStack.open(tmp_path, UnreliableEmbedder(), MemoryBlobs())
    await stack.write("forbidden words", *(f"note {n}" for n in range(70)))
    assert await stack.count() == 0
    stack.reembedder.start()
    async with asyncio.timeout(60):
        await stack.reembedder.wait_until_idle()
    assert await stack.count() == 70
    assert await stack.first("forbidden") == "forbidden words"
    await stack.close()


async def test_a_memory_deleted_or_changed_meanwhile_gets_no_old_vectors(tmp_path: Path) -> None:
    stack = await ReembeddingStack.open(tmp_path, UnreliableEmbedder(), MemoryBlobs())
    gone, changed = await stack.write("to be forgotten", "to be changed")
    store = SqliteReembedding(stack.store)
    await stack.service.delete("ada", gone.id)
    await stack.service.update("ada", changed.id, Change(content="changed"))
    [vector] = await HashingEmbedder().embed(["x"])
    assert await store.embed(gone, "other", [vector]) == ()
    assert await store.embed(changed, "other", [vector]) == ()
    assert await stack.count() == 1
    await stack.close()


async def test_a_node_embeds_the_memories_of_its_own_agents_only(tmp_path: Path) -> None:
    embedder = UnreliableEmbedder()
    stack = await ReembeddingStack.open(tmp_path, embedder, MemoryBlobs())
    embedder.down = True
    await stack.write("Anna likes green tea")
    embedder.down = False
    for owns, count in ((lambda key: key != "ada", 0), (lambda key: key == "ada", 1)):
        reembedder = Reembedder(
            store=SqliteReembedding(stack.store),
            large_contents=stack.overflow,
            vectors=stack.vectors,
            embedder=embedder,
            owns=owns,
        )
        assert await reembedder.embed_pending() == count
        assert await stack.count() == count
    await stack.close()
