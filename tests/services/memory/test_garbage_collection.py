"""Memories of deleted agents, with failures between the two stores."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.services.memory.memory_kit import MemoryHouse, memory_house
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.records import EVERYTHING, Draft
from wonder_server.services.memory.garbage_collection import BATCH, MemoryGarbageCollector
from wonder_server.services.paging import PageRequest

LONG = "pineapple " * 1000


class Clock:
    def now_ms(self) -> int:
        return 1_000_000


class Catalog:
    """A catalog of agents' ids."""

    def __init__(self, *ids: str) -> None:
        self.ids = set(ids)

    async def agent(self, key: str) -> Agent | None:
        return an_agent(key) if key in self.ids else None


def an_agent(agent_id: str) -> Agent:
    return Agent(id=agent_id, name=agent_id, project_ids=("proj_1",))


def fact(content: str, **more: Any) -> Draft:
    return Draft(type="fact", content=content, **more)


def garbage_collector(house: MemoryHouse, catalog: Catalog) -> MemoryGarbageCollector:
    return MemoryGarbageCollector(
        maintenance=house.maintenance,
        index_residue=house.maintenance,
        large_contents=house.large_contents,
        vectors=house.vectors,
        agents=catalog,
    )


async def listed(house: MemoryHouse, agent: str) -> int:
    count, token = 0, ""
    while True:
        page = await house.service.page(agent, PageRequest(size=500, token=token), EVERYTHING)
        count, token = count + len(page.items), page.next_page_token
        if not token:
            return count


async def remaining(house: MemoryHouse) -> dict[str, int]:
    """Rows of every table that is about memories."""
    tables = ("memories", "embeddings", "fields", "contradictions", "overflow_words", "requests",
              "memories_text_docsize", "loose_objects")  # fmt: skip
    return await house.store.database.read(
        lambda c: {name: c.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    )


async def filled(house: MemoryHouse, agent: str, count: int) -> None:
    drafts = [fact(f"number {number}", metadata={"n": number}) for number in range(count)]
    for start in range(0, count, 500):
        await house.service.write_all(agent, drafts[start : start + 500])
    one = await house.service.write(agent, fact(LONG))
    await house.service.write(agent, fact("the contrary", contradicts_ids=(one.id,)))


async def test_with_an_agent_all_that_it_remembers_goes(tmp_path: Path) -> None:
    async with memory_house(tmp_path, Clock(), faiss=True) as house:
        await filled(house, "ada", BATCH + 10)
        await filled(house, "bob", 3)
        assert await house.service.search("ada", "number")
        keeper, catalog = garbage_collector(house, Catalog("ada", "bob")), an_agent("ada")
        await keeper.before_delete(catalog)
        await keeper.after_delete(catalog)
        with pytest.raises(WonderError) as caught:
            await house.service.write("ada", fact("late"))
        assert caught.value.fault.reason is Reason.AGENT_NOT_FOUND
        await asyncio.gather(*keeper._tasks)
        assert await listed(house, "ada") == 0
        assert await house.service.search("ada", "number") == []
        assert {hit.memory.agent_id for hit in await house.service.search("bob", "number")} == {"bob"}
        counts = await remaining(house)
        assert (counts["memories"], counts["memories_text_docsize"], counts["overflow_words"]) == (5, 5, 1)
        assert (counts["contradictions"], counts["fields"], counts["loose_objects"]) == (2, 3, 0)
        assert len(house.blobs.contents) == 1
        await keeper.stop()


@pytest.mark.parametrize("is_there", [True, False], ids=["the catalog kept it", "the catalog dropped it"])
async def test_a_crash_between_the_stores_is_settled_by_the_catalog(tmp_path: Path, is_there: bool) -> None:
    async with memory_house(tmp_path, Clock()) as house:
        await filled(house, "ada", 5)
        await garbage_collector(house, Catalog("ada")).before_delete(an_agent("ada"))
        await house.service.write("ada", fact("it is not deleted yet"))
    async with memory_house(tmp_path, Clock(), blobs=house.blobs) as house:
        keeper = garbage_collector(house, Catalog("ada") if is_there else Catalog())
        await keeper.sweep()
        assert await listed(house, "ada") == (8 if is_there else 0)
        assert bool(house.blobs.contents) == is_there
        assert await house.maintenance.tombstones() == {}
        await keeper.stop()


async def test_a_crash_while_forgetting_is_taken_up_by_the_next_start(tmp_path: Path) -> None:
    async with memory_house(tmp_path, Clock()) as house:
        await filled(house, "ada", 20)
        await house.maintenance.add_tombstone("ada", "leaving")
        await house.maintenance.add_tombstone("ada", "deleted")
        await house.maintenance.delete_agent_memories("ada", 7)
    async with memory_house(tmp_path, Clock(), blobs=house.blobs) as house:
        await garbage_collector(house, Catalog()).sweep()
        assert (await remaining(house))["memories"] == 0
        assert house.blobs.contents == {}


async def test_a_lost_catalog_takes_no_memories_along(tmp_path: Path) -> None:
    async with memory_house(tmp_path, Clock()) as house:
        await filled(house, "ada", 3)
        await garbage_collector(house, Catalog()).sweep()
        assert await listed(house, "ada") == 5


async def test_after_erasing_the_index_has_no_word_left_of_what_was_forgotten(tmp_path: Path) -> None:
    async with memory_house(tmp_path, Clock()) as house:
        secret = await house.service.write("ada", fact("zzyzx is a road"))
        for number in range(30):
            await house.service.write("ada", fact(f"number {number}"))
        await house.service.delete("ada", secret.id)
        keeper = garbage_collector(house, Catalog("ada"))
        await keeper.purge_residue()

        def blocks(connection: sqlite3.Connection) -> list[bytes]:
            return [row[0] for row in connection.execute("SELECT block FROM memories_text_data")]

        assert not any(b"zyzx" in block for block in await house.store.database.read(blocks))
        assert len(await house.service.search("ada", "number", limit=100)) == 30
        assert not await house.maintenance.purge(), "nothing was forgotten since"
