"""Vectors: one suite for all adapters over one source. Results are exact, per agent, and follow the
commits."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncIterator, Callable

import pytest

from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.core.memory.records import Filter
from wonder_server.ports.vectors import NO_LIMIT, Vector, Vectors

EMBEDDER = "test-4"


class Rows:
    """A `VectorSource` in a dict, whose reads can be delayed."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, bytes]] = {}
        self.reads = 0
        self.reading = asyncio.Event()
        self.resume = asyncio.Event()
        self.resume.set()

    async def vectors(
        self, agent_id: str, embedder: str, after: int = 0, limit: int = NO_LIMIT
    ) -> list[Vector]:
        assert embedder == EMBEDDER
        self.reads += 1
        read = [pair for pair in sorted(self.rows.get(agent_id, {}).items()) if pair[0] > after][:limit]
        self.reading.set()
        await self.resume.wait()
        return read

    async def keys(self, agent_id: str, embedder: str, wanted: Filter) -> list[int]:
        return sorted(self.rows.get(agent_id, {}))

    def put(self, agent_id: str, key: int, *values: float) -> Vector:
        self.rows.setdefault(agent_id, {})[key] = unit(*values)
        return key, unit(*values)


def unit(*values: float) -> bytes:
    length = sum(value * value for value in values) ** 0.5
    return array("f", [value / length for value in values]).tobytes()


@pytest.fixture
def rows() -> Rows:
    return Rows()


MAKERS: dict[str, Callable[[Rows], Vectors]] = {
    "faiss": lambda rows: FaissVectors(rows, EMBEDDER, 4),
    "plain": lambda rows: PlainVectors(rows, EMBEDDER),
}


@pytest.fixture(params=list(MAKERS))
async def vectors(request: pytest.FixtureRequest, rows: Rows) -> AsyncIterator[Vectors]:
    made = MAKERS[request.param](rows)
    yield made
    await made.close()


async def test_the_nearest_come_best_first_with_their_cosine(vectors: Vectors, rows: Rows) -> None:
    rows.put("ada", 1, 1, 0, 0, 0)
    rows.put("ada", 2, 1, 1, 0, 0)
    rows.put("ada", 3, 0, 0, 1, 0)
    found = await vectors.nearest("ada", unit(1, 0.1, 0, 0), 2)
    assert [key for key, _ in found] == [1, 2]
    assert found[0][1] == pytest.approx(0.995, abs=1e-3)


async def test_an_agent_without_vectors_finds_nothing(vectors: Vectors) -> None:
    assert await vectors.nearest("unknown", unit(1, 0, 0, 0), 5) == []


async def test_a_limit_above_the_count_returns_all_vectors(vectors: Vectors, rows: Rows) -> None:
    rows.put("ada", 7, 1, 0, 0, 0)
    assert [key for key, _ in await vectors.nearest("ada", unit(1, 0, 0, 0), 50)] == [7]


async def test_only_keys_of_the_given_set_are_returned(vectors: Vectors, rows: Rows) -> None:
    for key in range(1, 20):
        rows.put("ada", key, 1, key / 20, 0, 0)
    found = await vectors.nearest("ada", unit(1, 0, 0, 0), 5, among=[12, 15, 900])
    assert [key for key, _ in found] == [12, 15]
    assert await vectors.nearest("ada", unit(1, 0, 0, 0), 5, among=[]) == []


async def test_added_and_removed_vectors_affect_the_next_search(vectors: Vectors, rows: Rows) -> None:
    rows.put("ada", 1, 1, 0, 0, 0)
    await vectors.nearest("ada", unit(1, 0, 0, 0), 5)
    await vectors.add("ada", [rows.put("ada", 2, 1, 0.1, 0, 0)])
    assert [key for key, _ in await vectors.nearest("ada", unit(1, 0, 0, 0), 5)] == [1, 2]
    del rows.rows["ada"][1]
    await vectors.remove("ada", [1])
    await vectors.remove("ada", [1])
    assert [key for key, _ in await vectors.nearest("ada", unit(1, 0, 0, 0), 5)] == [2]


async def test_a_vector_committed_while_the_index_is_read_is_found_once(vectors: Vectors, rows: Rows) -> None:
    """Cover a commit before the read began, and one after."""
    added = [rows.put("ada", 1, 1, 0, 0, 0)]
    rows.resume.clear()
    search = asyncio.create_task(vectors.nearest("ada", unit(1, 0, 0, 0), 5))
    await rows.reading.wait()
    added.append(rows.put("ada", 2, 1, 0.1, 0, 0))
    adding = asyncio.create_task(vectors.add("ada", added))
    await asyncio.sleep(0)
    rows.resume.set()
    await asyncio.gather(search, adding)
    assert [key for key, _ in await vectors.nearest("ada", unit(1, 0, 0, 0), 5)] == [1, 2]


async def test_a_search_never_returns_keys_of_another_agent(vectors: Vectors, rows: Rows) -> None:
    chance = random.Random(7)
    owner: dict[int, str] = {}
    for key in range(1, 400):
        agent = chance.choice(["ada", "bob", "cyd"])
        owner[key] = agent
        await vectors.add(agent, [rows.put(agent, key, *(chance.random() for _ in range(4)))])
        asker = chance.choice(["ada", "bob", "cyd"])
        among = chance.choice([None, list(range(1, key))])
        for found, _ in await vectors.nearest(asker, unit(1, 1, 0, 0), 10, among):
            assert owner[found] == asker


# --- faiss alone ---------------------------------------------------------------------------------


async def test_an_index_is_read_once_and_only_when_needed(rows: Rows) -> None:
    vectors = FaissVectors(rows, EMBEDDER, 4)
    await vectors.add("ada", [rows.put("ada", 1, 1, 0, 0, 0)])
    assert rows.reads == 0
    searches = (vectors.nearest("ada", unit(1, 0, 0, 0), 5) for _ in range(10))
    assert {tuple(found) for found in await asyncio.gather(*searches)} == {((1, 1.0),)}
    assert rows.reads == 1
    await vectors.close()


async def test_the_least_recently_used_index_is_evicted(rows: Rows) -> None:
    for agent in ("ada", "bob", "cyd"):
        rows.put(agent, 1, 1, 0, 0, 0)
    vectors = FaissVectors(rows, EMBEDDER, 4, max_bytes=2 * 32)
    for agent in ("ada", "bob", "ada", "cyd"):
        await vectors.nearest(agent, unit(1, 0, 0, 0), 1)
    assert vectors.loaded == ("ada", "cyd")
    assert await vectors.nearest("bob", unit(1, 0, 0, 0), 1) == [(1, 1.0)]
    await vectors.close()


async def test_a_search_cancelled_while_the_index_is_read_does_not_affect_others(rows: Rows) -> None:
    rows.put("ada", 1, 1, 0, 0, 0)
    rows.resume.clear()
    vectors = FaissVectors(rows, EMBEDDER, 4)
    impatient = asyncio.create_task(vectors.nearest("ada", unit(1, 0, 0, 0), 1))
    patient = asyncio.create_task(vectors.nearest("ada", unit(1, 0, 0, 0), 1))
    await rows.reading.wait()
    impatient.cancel()
    await asyncio.sleep(0)
    rows.resume.set()
    assert await patient == [(1, 1.0)]
    await vectors.close()
