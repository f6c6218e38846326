"""Memories of deleted agents, with failures between the two stores."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.services.memory.memory_kit import MemoryStack, open_memory_stack
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.records import EVERYTHING, Draft
from wonder_server.ports.placement import OwnsKey, owns_everything
from wonder_server.services.memory.garbage_collection import BATCH, MemoryGarbageCollector
from wonder_server.services.paging import PageRequest

LONG = "pineapple " * 1000


class Clock:
    def now_ms(self) -> int:
        return 1_000_000


class Catalog:
    """A catalog that has only the ids of agents."""

    def __init__(self, *ids: str) -> None:
        self.ids = set(ids)

    async def agent(self, key: str) -> Agent | None:
        return an_agent(key) if key in self.ids else None


def an_agent(agent_id: str) -> Agent:
    return Agent(id=agent_id, name=agent_id, project_ids=("proj_1",))


def fact(content: str, **more: Any) -> Draft:
    return Draft(type="fact", content=content, **more)


def garbage_collector(
    stack: MemoryStack, catalog: Catalog, owns: OwnsKey = owns_everything
) -> MemoryGarbageCollector:
    return MemoryGarbageCollector(
        maintenance=stack.maintenance,
        index_residue=stack.maintenance,
        large_contents=stack.large_contents,
        vectors=stack.vectors,
        agents=catalog,
        owns=owns,
    )


async def listed(stack: MemoryStack, agent: str) -> int:
    count, token = 0, ""
    while True:
        page = await stack.service.page(agent, PageRequest(size=500, token=token), EVERYTHING)
        count, token = count + len(page.items), page.next_page_token
        if not token:
            return count


async def remaining(stack: MemoryStack) -> dict[str, int]:
    """Return the number of rows in every table of memories."""
    tables = ("memories", "embeddings", "fields", "contradictions", "overflow_words", "requests",
              "memories_text_docsize", "loose_objects")  # fmt: skip
    return await stack.store.database.read(
        lambda c: {name: c.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    )


async def filled(stack: MemoryStack, agent: str, count: int) -> None:
    drafts = [fact(f"number {number}", metadata={"n": number}) for number in range(count)]
    for start in range(0, count, 500):
        await stack.service.write_all(agent, drafts[start : start + 500])
    one = await stack.service.write(agent, fact(LONG))
    await stack.service.write(agent, fact("the contrary", contradicts_ids=(one.id,)))


async def test_the_memories_of_a_deleted_agent_are_deleted(tmp_path: Path) -> None:
    async with open_memory_stack(tmp_path, Clock(), faiss=True) as stack:
        await filled(stack, "ada", BATCH + 10)
        await filled(stack, "bob", 3)
        assert await stack.service.search("ada", "number")
        keeper, catalog = garbage_collector(stack, Catalog("ada", "bob")), an_agent("ada")
        await keeper.before_delete(catalog)
        await keeper.after_delete(catalog)
        with pytest.raises(WonderError) as caught:
            await stack.service.write("ada", fact("late"))
        assert caught.value.fault.reason is Reason.AGENT_NOT_FOUND
        assert caught.value.fault.message.startswith("There is no agent 'ada': it was deleted. ")
        await keeper.wait_idle()
        assert await listed(stack, "ada") == 0
        assert await stack.service.search("ada", "number") == []
        assert {hit.memory.agent_id for hit in await stack.service.search("bob", "number")} == {"bob"}
        counts = await remaining(stack)
        assert (counts["memories"], counts["memories_text_docsize"], counts["overflow_words"]) == (5, 5, 1)
        assert (counts["contradictions"], counts["fields"], counts["loose_objects"]) == (2, 3, 0)
        assert len(stack.blobs.contents) == 1
        await keeper.stop()


@pytest.mark.parametrize("is_there", [True, False], ids=["the catalog kept it", "the catalog dropped it"])
async def test_a_crash_between_the_stores_is_settled_by_the_catalog(tmp_path: Path, is_there: bool) -> None:
    async with open_memory_stack(tmp_path, Clock()) as stack:
        await filled(stack, "ada", 5)
        await garbage_collector(stack, Catalog("ada")).before_delete(an_agent("ada"))
        await stack.service.write("ada", fact("it is not deleted yet"))
    async with open_memory_stack(tmp_path, Clock(), blobs=stack.blobs) as stack:
        keeper = garbage_collector(stack, Catalog("ada") if is_there else Catalog())
        await keeper.sweep()
        assert await listed(stack, "ada") == (8 if is_there else 0)
        assert bool(stack.blobs.contents) == is_there
        assert await stack.maintenance.tombstones() == {}
        await keeper.stop()


async def test_the_next_start_resumes_an_interrupted_deletion(tmp_path: Path) -> None:
    async with open_memory_stack(tmp_path, Clock()) as stack:
        await filled(stack, "ada", 20)
        await stack.maintenance.add_tombstone("ada", "leaving")
        await stack.maintenance.add_tombstone("ada", "deleted")
        await stack.maintenance.delete_agent_memories("ada", 7)
    async with open_memory_stack(tmp_path, Clock(), blobs=stack.blobs) as stack:
        await garbage_collector(stack, Catalog()).sweep()
        assert (await remaining(stack))["memories"] == 0
        assert stack.blobs.contents == {}


async def test_a_lost_catalog_deletes_no_memories(tmp_path: Path) -> None:
    async with open_memory_stack(tmp_path, Clock()) as stack:
        await filled(stack, "ada", 3)
        await garbage_collector(stack, Catalog()).sweep()
        assert await listed(stack, "ada") == 5


async def test_a_purged_index_contains_no_word_of_deleted_memories(tmp_path: Path) -> None:
    async with open_memory_stack(tmp_path, Clock()) as stack:
        secret = await stack.service.write("ada", fact("zzyzx is a road"))
        for number in range(30):
            await stack.service.write("ada", fact(f"number {number}"))
        await stack.service.delete("ada", secret.id)
        keeper = garbage_collector(stack, Catalog("ada"))
        await keeper.purge_residue()

        def blocks(connection: sqlite3.Connection) -> list[bytes]:
            return [row[0] for row in connection.execute("SELECT block FROM memories_text_data")]

        assert not any(b"zyzx" in block for block in await stack.store.database.read(blocks))
        assert len(await stack.service.search("ada", "number", limit=100)) == 30
        assert not await stack.maintenance.purge(), "nothing was forgotten since"


async def test_a_node_removes_the_memories_of_its_own_agents_only(tmp_path: Path) -> None:
    async with open_memory_stack(tmp_path, Clock()) as stack:
        for agent in ("ada", "bob"):
            await filled(stack, agent, 1)
            await stack.maintenance.add_tombstone(agent, "deleted")
        await garbage_collector(stack, Catalog(), lambda key: key == "ada").sweep()
        assert (await listed(stack, "ada"), await listed(stack, "bob")) == (0, 3)
        await garbage_collector(stack, Catalog(), lambda key: key == "bob").sweep()
        assert await listed(stack, "bob") == 0


async def test_the_residue_of_the_store_has_one_owner(tmp_path: Path) -> None:
    class Residue:
        purged = 0

        async def purge(self) -> bool:
            self.purged += 1
            return False

    async with open_memory_stack(tmp_path, Clock()) as stack:
        residue = Residue()
        for owns in (lambda key: key != "", owns_everything):
            keeper = MemoryGarbageCollector(
                maintenance=stack.maintenance,
                index_residue=residue,
                large_contents=stack.large_contents,
                vectors=stack.vectors,
                agents=Catalog(),
                owns=owns,
            )
            await keeper.purge_residue()
        assert residue.purged == 1
