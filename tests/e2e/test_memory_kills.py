"""kill -9 while agents write, change, replace and forget: nothing half there; search says what rows say."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.depth import by_depth
from tests.e2e.client import Client
from tests.e2e.process import Server
from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

POINTS = [
    "memory-in-commit", "memory-committed",
    "before-object", "after-object", "before-object-goes", "after-object-goes",
    "before-vectors", "after-vectors", "before-vectors-go", "after-vectors-go",
]  # fmt: skip
FOLDERS = by_depth(2, 4)
DEATHS = by_depth(8, 50)
"""In each folder; a folder's deaths come one after the other."""


class Story:
    """An agent's memories as they should be, and changes of them that may have to be sent again."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rows: dict[str, str] = {}
        self.gone: set[str] = set()
        self.count = 0
        self.asked: tuple[str, Any, str] | None = None

    async def go_on(self, client: Client) -> None:
        """Make the next change, or repeat the one whose outcome is unknown."""
        if self.asked is None:
            self.asked = self._next()
        method, request, forgotten = self.asked
        answer = await getattr(client.memory, method)(request)
        if forgotten:
            self.gone.add(self.rows.pop(forgotten))
        for memory in [*getattr(answer, "memories", ()), *self._one(answer)]:
            self.rows[memory.id] = memory.content
        self.asked = None

    def _one(self, answer: Any) -> list[Any]:
        return [answer.memory] if getattr(answer, "memory", None) is not None else []

    def _next(self) -> tuple[str, Any, str]:
        self.count += 1
        mark = {"agent_id": "assistant", "request_id": f"request {self.count}"}
        old = self.chance.choice(sorted(self.rows)) if self.rows else ""
        what = self.chance.choice(["write", "write", "batch", "update", "supersede", "delete", "delete"])
        if what == "batch":
            memories = [self._memory() for _ in range(3)]
            return "BatchWriteMemories", pb.BatchWriteMemoriesRequest(memories=memories, **mark), ""
        if what == "write" or not old:
            return "WriteMemory", pb.WriteMemoryRequest(memory=self._memory(), **mark), ""
        if what == "delete":
            return "DeleteMemory", pb.DeleteMemoryRequest(memory_id=old, **mark), old
        if what == "supersede":
            # What was replaced stays, and may be replaced once: it is forgotten by its successor's side.
            self.gone.add(self.rows.pop(old))
            request = pb.SupersedeMemoryRequest(memory_id=old, memory=self._memory(), **mark)
            return "SupersedeMemory", request, ""
        self.gone.add(self.rows[old])
        memory = self._memory()
        memory.id = old
        return "UpdateMemory", pb.UpdateMemoryRequest(memory=memory, **mark), ""

    def _memory(self) -> memory_pb2.Memory:
        words = ["".join(self.chance.choices("abcdefghijklmnopqrstuvwxyz", k=16)) for _ in range(4)]
        rest = " and so on" * self.chance.choice([1, 1, 600])
        return memory_pb2.Memory(type="fact", content=" ".join(words) + rest)

    async def check(self, client: Client) -> None:
        """Check that every method returns the expected memories."""
        listed, token = {}, ""
        while True:
            page = await client.memory.ListMemories(
                pb.ListMemoriesRequest(agent_id="assistant", page_size=500, page_token=token)
            )
            listed.update((memory.id, memory.content) for memory in page.memories)
            token = page.next_page_token
            if not token:
                break
        assert listed == self.rows
        for memory_id, content in self.chance.sample(sorted(self.rows.items()), min(len(self.rows), 15)):
            # By full text, and misspelt: by vector.
            words = content.split()[:4]
            for query in (words[0], " ".join(word[:7] + word[8:] for word in words)):
                found = await self._found(client, query)
                assert memory_id in found, (query, content[:40])
        for content in self.chance.sample(sorted(self.gone), min(len(self.gone), 15)):
            assert content not in (await self._found(client, content.split()[0])).values()

    async def _found(self, client: Client, query: str) -> dict[str, str]:
        request = pb.SearchMemoriesRequest(agent_id="assistant", query=query, limit=100)
        hits = (await client.memory.SearchMemories(request)).hits
        found = {hit.memory.id: hit.memory.content for hit in hits}
        assert found.items() <= self.rows.items(), "what is found is what is there"
        return found


async def through(data: Path, story: Story, doom: str) -> bool:
    """One server's life: look at what the one before it left, go on until it dies; whether it did."""
    server = Server(data, doom=doom)
    await server.begin()
    try:
        if await server.is_ready():
            async with server.client() as client:
                if story.asked is None or story.asked[0] != "SupersedeMemory":
                    if story.asked is not None:
                        await story.go_on(client)
                    await story.check(client)
                for _ in range(40):
                    await story.go_on(client)
        with contextlib.suppress(ProcessLookupError):  # It dies just now.
            server.terminate()
    except aio.AioRpcError as problem:
        assert problem.code() is grpc.StatusCode.UNAVAILABLE, problem
    code = await server.ended()
    assert code in (0, -9), server.log[-3:]
    return code == -9


async def survive(data: Path, seed: int) -> None:
    story, chance, deaths = Story(seed), random.Random(seed + 100), 0
    while deaths < DEATHS:
        deaths += await through(data, story, f"{chance.choice(POINTS)}:{chance.randint(1, 4)}")
    server = await Server(data).start()
    async with server.client() as client:
        if story.asked is not None:
            await story.go_on(client)
        await story.check(client)
    assert await server.stop() == 0
    with sqlite3.connect(data / "memory.db") as rows:
        wanted = {row[0] for row in rows.execute("SELECT content_ref FROM memories") if row[0]}
        noted = {row[0] for row in rows.execute("SELECT key FROM loose_objects")}
        rows.execute("INSERT INTO memories_text (memories_text) VALUES ('integrity-check')")
    rows.close()
    there = {path.name for path in (data / "blobs").glob("??/*")}
    assert wanted <= there, "no memory without its content"
    assert there <= wanted | noted, "no object without a record"


async def test_many_kills_leave_nothing_half_done(tmp_path: Path) -> None:
    await asyncio.gather(*(survive(tmp_path / f"{seed}", seed) for seed in range(FOLDERS)))
