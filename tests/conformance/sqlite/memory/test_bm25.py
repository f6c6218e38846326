"""Ranking of memories: the cached postings always agree with the index on disk."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wonder_server.adapters.sqlite.memory.bm25 import Bm25Ranker, QueryScores
from wonder_server.adapters.sqlite.memory.stemming import Stemmer
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import WonderError
from wonder_server.core.memory.queries import MemoryQuery, read_query
from wonder_server.core.memory.records import AGENT, USER, Draft, Filter, Memory, Role, Source
from wonder_server.ports.memories import Entry, Stored, StoredText

NOW = 1_000_000
WORDS = ["tea", "teas", "running", "runs", "ran", "anna", "the", "deploy", "deployment", "café", "日本", "x1"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteMemories]:
    opened = await SqliteMemories.open(tmp_path / "memory.db")
    yield opened
    await opened.close()


DAY = 24 * 3600 * 1000


def entry(
    number: int, content: str, speaker: str = "", ordinal: int = 0, role: Role = "", **more: object
) -> Entry:
    conversation_id = "conv_1" if ordinal else ""
    source = Source(conversation_id=conversation_id, speaker=speaker, ordinal=ordinal, role=role)
    draft = Draft(type="fact", content=content, source=source, **more)  # type: ignore[arg-type]
    return Entry(id=f"mem_{number:04}", draft=draft, text=StoredText(content=content, vectors=()))


async def add(store: SqliteMemories, *entries: Entry, agent: str = "ada") -> list[Stored]:
    return await store.add(agent, entries, "e", NOW)


async def found(store: SqliteMemories, query: str, agent: str = "ada", limit: int = 500) -> dict[str, float]:
    hits = await store.recall(agent, MemoryQuery(query), {}, Filter(), limit)
    return {hit.id: hit.text for hit in hits}


async def best(store: SqliteMemories, query: str) -> str:
    scores = await found(store, query)
    return max(scores, key=scores.__getitem__)


async def anew(store: SqliteMemories, query: str) -> dict[str, float]:
    """Return the result of a server that has just started."""
    fresh = Bm25Ranker()

    def work(connection: object) -> dict[str, float]:
        scored: QueryScores = fresh.score(connection, "ada", MemoryQuery(query))  # type: ignore[arg-type]
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


async def test_words_of_neighbours_two_away_count(store: SqliteMemories) -> None:
    said = ("Shall we go to the lake?", "Hm.", "Gladly!", "Fine.")
    await add(store, *(entry(number, text, "", number) for number, text in enumerate(said, 1)))
    assert (await found(store, "lake")).keys() == {"mem_0001", "mem_0002", "mem_0003"}


async def test_a_name_that_is_seldom_said_counts_for_more_than_its_speakers_share(
    store: SqliteMemories,
) -> None:
    others = [entry(number, f"note {number}", "Bob" if number % 2 else "Anna", 0) for number in range(200)]
    await add(store, *others, entry(900, "Anna came by", "Bob"))
    scores = await found(store, "Anna")
    assert (
        scores["mem_0900"] > 0.3
    )  # Among the texts of two speakers its name alone would weigh next to nothing.
    assert scores["mem_0000"] > 0.2


async def test_a_query_that_names_a_time_finds_what_was_said_then(store: SqliteMemories) -> None:
    now = 400 * DAY
    week_ago = [entry(number, f"we ate dish {number}", said_ms=now - 7 * DAY) for number in range(3)]
    today = [entry(number, f"we ate dish {number}", said_ms=now) for number in range(3, 200)]
    await add(store, *week_ago, *today, entry(900, "the dog slept", said_ms=now - 7 * DAY))
    asked = read_query("what dish did we eat a week ago", now)
    scores = {hit.id: hit.text for hit in await store.recall("ada", asked, {}, Filter(), 500)}
    best = sorted(scores, key=lambda id: -scores[id])
    assert set(best[:3]) == {"mem_0000", "mem_0001", "mem_0002"}
    assert "mem_0900" in best[:4]  # The time alone finds it: it shares no word.


async def test_a_new_time_of_a_memory_counts_at_once(store: SqliteMemories) -> None:
    now = 400 * DAY
    [stored, *_] = await add(store, *(entry(n, "we ate soup", said_ms=now) for n in range(300)))
    asked = read_query("what did we eat a week ago", now)
    await store.recall("ada", asked, {}, Filter(), 500)
    changed = Memory(**{**_fields(stored.memory), "said_ms": now - 7 * DAY, "version": 2})
    await store.replace(changed, 1, None, "e")
    hits = await store.recall("ada", asked, {}, Filter(), 500)
    assert max(hits, key=lambda hit: hit.text).id == stored.memory.id


async def test_a_query_can_ask_for_the_words_of_one_side(store: SqliteMemories) -> None:
    await add(
        store,
        entry(1, "the red bicycle in the shop", role=USER),
        entry(2, "the red bicycle in the shop", role=AGENT),
    )
    for text, expected in (
        ("what did you say about the bicycle", "mem_0002"),
        ("what did I say about the bicycle", "mem_0001"),
    ):
        hits = await store.recall("ada", read_query(text, NOW), {}, Filter(), 9)
        assert max(hits, key=lambda hit: hit.text).id == expected


async def test_a_long_text_counts_less_than_a_shorter_one_with_the_same_words(store: SqliteMemories) -> None:
    words = " ".join(f"filler{number}" for number in range(1200))
    others = [entry(number, words) for number in range(10, 60)]  # So that the average length is high.
    await add(store, entry(1, f"kayak {words}"), entry(2, f"kayak {words[: len(words) // 4]}"), *others)
    scores = await found(store, "kayak")
    assert scores["mem_0001"] < 0.9 * scores["mem_0002"]


async def test_scores_are_shares_of_the_query_and_compare_between_queries(store: SqliteMemories) -> None:
    await add(store, *(entry(number, f"note{number} about the garden") for number in range(200)))
    await add(store, entry(900, "Anna adopted a greyhound"))
    complete = (await found(store, "Anna adopted a greyhound"))["mem_0900"]
    half = (await found(store, "Anna adopted two wolfhounds quickly"))["mem_0900"]
    little = (await found(store, "which greyhound won the race in Dublin on that rainy summer evening"))[
        "mem_0900"
    ]
    assert 0.7 < complete < 1.3
    assert little < half < 0.7 * complete


async def test_a_damaged_time_affects_one_memory_only(store: SqliteMemories) -> None:
    await add(store, entry(1, "tea"), entry(2, "tea time"))
    await store.database.write(
        lambda connection: (
            connection.execute("UPDATE memories SET said_ms = 'x' WHERE id = 'mem_0001'") and None
        )
    )
    assert (await found(store, "tea time")).keys() == {"mem_0001", "mem_0002"}


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
    hits = await store.recall("ada", MemoryQuery("tea"), {}, Filter(types=("note",)), 10)
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
            assert postings.score(connection, agent, MemoryQuery("tea")).count == 1  # type: ignore[arg-type]
            held.append(postings.agents)
        return held

    assert (await store.database.read(work))[-1] == ("ada", "cyd")
    assert postings.size <= 1_000


def test_stems_are_those_of_the_index() -> None:
    stems = Stemmer()
    assert stems.of("running") == stems.of("runs") == ("run",)
    assert stems.of("café") == stems.of("cafe")
    assert stems.of("deployments") == stems.of("deployment")
