"""Large FAISS indexes: lists built in the background, verified files, and rows as the authority."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from wonder_server.adapters.faiss import index as index_module
from wonder_server.adapters.faiss.snapshots import Snapshots
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.core.memory.records import EVERYTHING, Filter
from wonder_server.ports.vectors import NO_LIMIT, Vector

EMBEDDER = "test-8"
DIMENSIONS = 8
MANY = 240


class Rows:
    """A `VectorSource` in a dict."""

    def __init__(self, agents: Sequence[str] = ("ada",), many: int = MANY) -> None:
        self.chance = random.Random(5)
        self.rows: dict[str, dict[int, bytes]] = {agent: {} for agent in agents}
        self.last = 0
        for agent in agents:
            for _ in range(many):
                self.put(agent)

    def put(self, agent: str) -> Vector:
        self.last += 1
        self.rows[agent][self.last] = self.vector()
        return self.last, self.rows[agent][self.last]

    def vector(self) -> bytes:
        values = [self.chance.gauss(0, 1) for _ in range(DIMENSIONS)]
        length = sum(value * value for value in values) ** 0.5
        return array("f", [value / length for value in values]).tobytes()

    async def vectors(
        self, agent_id: str, embedder: str, after: int = 0, limit: int = NO_LIMIT
    ) -> list[Vector]:
        return [pair for pair in sorted(self.rows[agent_id].items()) if pair[0] > after][:limit]

    async def keys(self, agent_id: str, embedder: str, wanted: Filter) -> list[int]:
        assert wanted == EVERYTHING
        return sorted(self.rows[agent_id])


@pytest.fixture(autouse=True)
def small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build lists from 200 vectors on and search all of them: results are exact and comparable."""
    monkeypatch.setattr(index_module, "LARGE", 200)
    monkeypatch.setattr(index_module, "_LISTS", 4)
    monkeypatch.setattr(index_module, "_PROBED_LISTS", 4)


async def agree(vectors: FaissVectors, rows: Rows, agent: str = "ada") -> None:
    """Assert that every search gives the result of comparing with every row."""
    plain = PlainVectors(rows, EMBEDDER)
    for among in (None, [*rows.rows[agent]][::3]):
        asked = rows.vector()
        expected = await plain.nearest(agent, asked, 10, among)
        found = await vectors.nearest(agent, asked, 10, among)
        assert [key for key, _ in found] == [key for key, _ in expected]
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)


async def opened(rows: Rows, folder: Path, embedder: str = EMBEDDER) -> FaissVectors:
    """Open vectors with the agent's index in memory, with lists, and saved."""
    vectors = FaissVectors(rows, embedder, DIMENSIONS, folder=folder)
    await vectors.nearest("ada", rows.vector(), 1)
    await vectors.wait_until_idle()
    return vectors


def files(folder: Path) -> list[Path]:
    return list(folder.glob("*.index"))


def saved(folder: Path) -> Path:
    [path] = files(folder)
    return path


async def test_changes_during_the_building_of_lists_are_included(tmp_path: Path) -> None:
    rows = Rows()
    vectors = FaissVectors(rows, EMBEDDER, DIMENSIONS, folder=tmp_path)
    await vectors.nearest("ada", rows.vector(), 1)
    for _ in range(50):
        await vectors.add("ada", [rows.put("ada")])
        gone = rows.chance.choice([*rows.rows["ada"]])
        del rows.rows["ada"][gone]
        await vectors.remove("ada", [gone, gone])
        await agree(vectors, rows)
    await vectors.wait_until_idle()
    await agree(vectors, rows)
    await vectors.close()


async def test_a_saved_index_is_read_and_updated_to_the_rows(tmp_path: Path) -> None:
    rows = Rows()
    await (await opened(rows, tmp_path)).close()
    before = saved(tmp_path).stat().st_mtime_ns
    for _ in range(20):
        rows.put("ada")
        del rows.rows["ada"][rows.chance.choice([*rows.rows["ada"]])]
    again = FaissVectors(rows, EMBEDDER, DIMENSIONS, folder=tmp_path)
    await agree(again, rows)
    assert saved(tmp_path).stat().st_mtime_ns == before, "the file was read, not rebuilt"
    await again.close()


@pytest.mark.parametrize("seed", range(4))
async def test_damaged_index_files_are_rebuilt_and_give_no_wrong_results(tmp_path: Path, seed: int) -> None:
    """The four seeds together make 200 bit flips and truncations, over all parts of the file."""
    rows, chance = Rows(), random.Random(seed)
    await (await opened(rows, tmp_path)).close()
    path = saved(tmp_path)
    whole = path.read_bytes()
    for round_ in range(50):
        damaged = bytearray(whole)
        if round_ % 5 == 4:
            damaged = damaged[: chance.randrange(len(whole))]
        else:
            # A third of them in the first 200 bytes, which contain magic, checksum and head.
            place = chance.randrange(200 if round_ % 3 == 0 else len(whole))
            damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        assert Snapshots(tmp_path, EMBEDDER, DIMENSIONS).load("ada") is None
        assert not path.exists()
        path.write_bytes(damaged)
        vectors = FaissVectors(rows, EMBEDDER, DIMENSIONS, folder=tmp_path)
        await agree(vectors, rows)
        await vectors.close()


async def test_another_agents_or_embedders_file_is_not_used(tmp_path: Path) -> None:
    rows = Rows(("ada", "bob"))
    vectors = await opened(rows, tmp_path)
    await vectors.close()
    snapshots = Snapshots(tmp_path, EMBEDDER, DIMENSIONS)
    content = saved(tmp_path).read_bytes()
    snapshots.path("bob").write_bytes(content)
    assert snapshots.load("bob") is None
    assert Snapshots(tmp_path, "other", DIMENSIONS).load("ada") is None
    assert not snapshots.path("ada").exists()


async def test_a_removed_vector_does_not_stay_in_a_file(tmp_path: Path) -> None:
    rows = Rows()
    vectors = await opened(rows, tmp_path)
    key, vector = next(iter(rows.rows["ada"].items()))
    assert vector in saved(tmp_path).read_bytes()
    del rows.rows["ada"][key]
    await vectors.remove("ada", [key])
    assert not files(tmp_path)
    await vectors.close()
    assert vector not in saved(tmp_path).read_bytes()
    unloaded = FaissVectors(rows, EMBEDDER, DIMENSIONS, folder=tmp_path)
    await unloaded.remove("ada", [key + 1])
    assert not files(tmp_path)
    await unloaded.close()


async def test_a_full_disk_prevents_saving_but_not_searching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Snapshots, "save", full)
    rows = Rows()
    vectors = await opened(rows, tmp_path)
    await agree(vectors, rows)
    await vectors.close()


async def test_evicted_large_indexes_are_saved_and_read_again(tmp_path: Path) -> None:
    agents = ("ada", "bob", "cyd")
    rows = Rows(agents)
    vectors = FaissVectors(rows, EMBEDDER, DIMENSIONS, max_bytes=MANY * 130, folder=tmp_path)
    for agent in (*agents, *agents):
        await agree(vectors, rows, agent)
        await vectors.wait_until_idle()
        await vectors.add(agent, [rows.put(agent)])
        await agree(vectors, rows, agent)
        assert len(vectors.loaded) <= 2
    await asyncio.gather(*(agree(vectors, rows, agent) for agent in agents))
    await vectors.close()
