"""Ranking of memories: the cached postings always agree with the index on disk."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wonder_server.adapters.sqlite.memory.ranking import Bm25Ranker, QueryScores
from wonder_server.adapters.sqlite.memory.stemming import Stemmer
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import WonderError
from wonder_server.core.memory.records import Draft, Filter, Memory, Source
from wonder_server.ports.memories import Entry, Stored, StoredText

NOW = 1_000_000
WORDS = ["tea", "teas", "running", "runs", "ran", "anna", "the", "deploy", "deployment", "café", "日本", "x1"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteMemories]:
    opened = await SqliteMemories.open(tmp_path / "memory.db")
    yield opened
    await opened.close()


def entry(number: int, content: str, speaker: str = "", ordinal: int = 0, **more: object) -> Entry:
    source = Source(conversation_id="conv_1" if ordinal else "", speaker=speaker, ordinal=ordinal)
    draft = Draft(type="fact", content=content, source=source, **more)  # type: ignore[arg-type]
    return Entry(id=f"mem_{number:04}", draft=draft, text=StoredText(content=content, vectors=()))


async def add(store: SqliteMemories, *entries: Entry, agent: str = "ada") -> list[Stored]:
    return await store.add(agent, entries, "e", NOW)


async def found(store: SqliteMemories, query: str, agent: str = "ada", limit: int = 500) -> dict[str, float]:
    hits = await store.recall(agent, query, {}, Filter(), limit)
    return {hit.id: hit.text for hit in hits}


async def best(store: SqliteMemories, query: str) -> str:
    scores = await found(store, query)
    return max(scores, key=scores.__getitem__)


async def anew(store: SqliteMemories, query: str) -> dict[str, float]:
    """Return the result of a server that has just started."""
    fresh = Bm25Ranker()

    def work(connection: object) -> dict[str, float]:
        scored: QueryScores = fresh.score(connection, "ada", query)  # type: ignore[arg-type]
        keys = scored.top(1000)
        ids = dict(connection.execute("SELECT key, id FROM memories"))  # type: ignore[attr-defined]
        return {ids[key]: score for key, (score, _) in zip(keys, scored.scores_of(keys), strict=True)}

    return await store.database.read(work)


async def test_cached_postings_agree_with_the_index_after_every_write(store: SqliteMemories) -> None:
    chance = random.Random(11)
    there: dict[str, Memory] = {}
    for step in range(300):
        content = " ".join(chance.choices(WORDS, k=chance.randint(1, 9)))
        act = chance.random()
        if act < 0.6 or not there:
            [stored] = await add(
                store, entry(step, content, chance.choice(["Anna", "Bob", ""]), chance.choice([0, step + 1]))
            )
            there[stored.memory.id] = stored.memory
        elif act < 0.8:
            memory = there[chance.choice(sorted(there))]
            text = StoredText(content=content, vectors=())
            new = Memory(**{**_fields(memory), "content": content, "version": memory.version + 1})
            there[memory.id] = (await store.replace(new, memory.version, text, "e")).memory
        elif act < 0.9:
            await store.remove("ada", there.pop(chance.choice(sorted(there))).id, None, NOW)
        else:
            broken = [entry(step, content), entry(9000 + step, content, contradicts_ids=("mem_none",))]
            with pytest.raises(WonderError):
                await add(store, *broken)
        query = " ".join(chance.choices(WORDS, k=3))
        kept, fresh = await found(store, query), await anew(store, query)
        assert kept.keys() == fresh.keys(), query
        if step % 50 == 49:
            order = sorted(fresh, key=lambda id: -fresh[id])[:5]
            for memory_id in order:
                assert kept[memory_id] == pytest.approx(fresh[memory_id], rel=0.25)


def _fields(memory: Memory) -> dict[str, object]:
    return {name: getattr(memory, name) for name in memory.__dataclass_fields__}


async def test_a_rare_word_counts_for_more_than_a_common_one(store: SqliteMemories) -> None:
    await add(store, entry(1, "we talked about what they think"), entry(2, "the kubernetes cluster"))
    assert await best(store, "what do they think about kubernetes") == "mem_0002"


async def test_words_of_neighbours_count_a_little(store: SqliteMemories) -> None:
    await add(
        store,
        entry(1, "Shall we go to the lake on Sunday?", "Anna", 1),
        entry(2, "Yes, gladly!", "Bob", 2),
        entry(3, "Something else altogether", "Anna", 30),
    )
    scores = await found(store, "lake Sunday")
    assert scores["mem_0001"] > scores["mem_0002"] > 0
    assert "mem_0003" not in scores


async def test_the_speaker_counts_if_the_query_names_the_speaker(store: SqliteMemories) -> None:
    await add(
        store,
        entry(1, "I adopted a puppy from the shelter", "Caroline", 1),
        entry(2, "I adopted a kitten from the shelter", "Melanie", 9),
    )
    assert await best(store, "What did Melanie adopt from the shelter?") == "mem_0002"
    assert await best(store, "What did Caroline adopt from the shelter?") == "mem_0001"


async def test_a_filter_that_excludes_the_best_finds_the_others(store: SqliteMemories) -> None:
    await add(store, *(entry(number, "tea " * (1 + number % 3)) for number in range(400)))
    await store.add(
        "ada",
        [
            Entry(
                id="mem_x",
                draft=Draft(type="note", content="a cup of tea"),
                text=StoredText(content="a cup of tea", vectors=()),
            )
        ],
        "e",
        NOW,
    )
    hits = await store.recall("ada", "tea", {}, Filter(types=("note",)), 10)
    assert [hit.id for hit in hits] == ["mem_x"]


async def test_postings_of_unused_agents_are_evicted(store: SqliteMemories) -> None:
    for agent in ("ada", "bob", "cyd"):
        await store.add(
            agent,
            [
                Entry(
                    id=f"mem_{agent}",
                    draft=Draft(type="t", content="tea"),
                    text=StoredText(content="tea", vectors=()),
                )
            ],
            "e",
            NOW,
        )
    postings = Bm25Ranker(max_bytes=1_000)

    def work(connection: object) -> list[tuple[str, ...]]:
        held = []
        for agent in ("ada", "bob", "ada", "cyd"):
            assert postings.score(connection, agent, "tea").count == 1  # type: ignore[arg-type]
            held.append(postings.agents)
        return held

    assert (await store.database.read(work))[-1] == ("ada", "cyd")
    assert postings.size <= 1_000


def test_stems_are_those_of_the_index() -> None:
    stems = Stemmer()
    assert stems.of("running") == stems.of("runs") == ("run",)
    assert stems.of("café") == stems.of("cafe")
    assert stems.of("deployments") == stems.of("deployment")
