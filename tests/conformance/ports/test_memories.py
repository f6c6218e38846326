"""Memory stores: one transaction for record, text and vector; agents are separate."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.memory.tokenizer import MAX_QUERY_WORDS, query_words
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.ids import encode
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.records import EVERYTHING, Draft, Filter, Source
from wonder_server.ports.memories import Entry, Stored, StoredText

EMBEDDER = "test-1"
ONE, ZERO = b"\0\0\x80\x3f", b"\0\0\0\0"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteMemories]:
    opened = await SqliteMemories.open(tmp_path / "memory.db")
    yield opened
    await opened.close()


class Writer:
    """Write memories with consecutive ids."""

    def __init__(self, store: SqliteMemories) -> None:
        self.store = store
        self.count = 0

    def entry(self, draft: Draft) -> Entry:
        self.count += 1
        text = StoredText(content=draft.content, vectors=(ONE,))
        return Entry(id=f"mem_{encode(self.count, 0)}", draft=draft, text=text)

    async def add(self, agent: str, *drafts: Draft | str) -> list[Stored]:
        entries = [
            self.entry(Draft(type="fact", content=draft) if isinstance(draft, str) else draft)
            for draft in drafts
        ]
        return await self.store.add(agent, entries, EMBEDDER, 1000)


@pytest.fixture
def writer(store: SqliteMemories) -> Writer:
    return Writer(store)


async def found(store: SqliteMemories, agent: str, query: str, *types: str) -> list[str]:
    candidates = await store.recall(agent, MemoryQuery(query), {}, Filter(types=types), 50)
    memories = await store.get(agent, [candidate.id for candidate in candidates])
    return sorted(memory.content for memory in memories)


async def test_a_memory_is_read_as_it_was_written(store: SqliteMemories, writer: Writer) -> None:
    draft = Draft(
        type="décision",
        content="Tea 🍵 with\x00nulls\nand lines",
        significance=0.25,
        metadata={"a": [1, 2.5, None, {"b": True}], "ключ": "✓"},
        source=Source(conversation_id="conv_1", turn_id="turn_1", move_id="move_1", run_id="run_1"),
    )
    [stored] = await writer.add("ada", draft)
    [read] = await store.get("ada", [stored.memory.id])
    assert read == stored.memory
    assert (read.content, read.metadata, read.source) == (draft.content, draft.metadata, draft.source)
    assert (read.created_ms, read.version, read.etag) == (1000, 1, "1")


async def test_an_agent_reads_no_memories_of_another(store: SqliteMemories, writer: Writer) -> None:
    [mine] = await writer.add("ada", "the secret word is plum")
    [theirs] = await writer.add("bob", "the secret word is pear")
    assert await store.get("ada", [theirs.memory.id]) == []
    assert [memory.id for memory in await store.page("ada", Filter(), "", 10)] == [mine.memory.id]
    assert await found(store, "ada", "secret pear plum") == ["the secret word is plum"]
    near = {mine.vector_keys[0]: 0.5, theirs.vector_keys[0]: 0.9}
    assert [c.id for c in await store.recall("ada", MemoryQuery(""), near, EVERYTHING, 10)] == [
        mine.memory.id
    ]
    assert [key for key, _ in await store.vectors("ada", EMBEDDER)] == [*mine.vector_keys]
    with pytest.raises(WonderError) as caught:
        await store.remove("ada", theirs.memory.id, None, 2000)
    assert caught.value.fault.reason is Reason.MEMORY_NOT_FOUND
    with pytest.raises(WonderError):
        await store.replace(dataclasses.replace(theirs.memory, agent_id="ada"), 1, None, EMBEDDER)


async def test_an_empty_agent_is_known_from_a_search_until_its_first_memory(
    store: SqliteMemories, writer: Writer
) -> None:
    assert not store.is_empty("ada"), "no search has run"
    await writer.add("bob", "tea")
    assert await found(store, "ada", "tea") == []
    assert await found(store, "bob", "coffee") == [], "bob has another memory"
    assert (store.is_empty("ada"), store.is_empty("bob")) == (True, False)
    [[stored], known] = await asyncio.gather(writer.add("ada", "tea"), is_empty_soon(store, "ada"))
    assert not known, "a write is queued"
    assert not store.is_empty("ada")
    assert await found(store, "ada", "tea") == ["tea"]
    await store.remove("ada", stored.memory.id, None, 2000)
    assert await found(store, "ada", "tea") == []
    assert store.is_empty("ada")


async def is_empty_soon(store: SqliteMemories, agent: str) -> bool:
    return store.is_empty(agent)


@pytest.mark.parametrize("first", ["look", "write"])
async def test_a_search_overtaken_by_a_write_does_not_mark_the_agent_as_empty(
    store: SqliteMemories, writer: Writer, first: str
) -> None:
    for number in range(20):
        agent = f"agent {number}"
        look = store.recall(agent, MemoryQuery("tea"), {}, Filter(), 10)
        both = [look, writer.add(agent, "tea")]
        await asyncio.gather(*(both if first == "look" else reversed(both)))
        assert not store.is_empty(agent)
        assert await found(store, agent, "tea") == ["tea"]


async def test_a_failed_write_stores_nothing(store: SqliteMemories, writer: Writer) -> None:
    wrong = Draft(type="fact", content="tea", contradicts_ids=("mem_unknown",))
    write = asyncio.create_task(writer.add("ada", wrong))
    looks = [await found(store, "ada", "tea") for _ in range(3)]
    with pytest.raises(WonderError):
        await write
    assert looks == [[], [], []] and await found(store, "ada", "tea") == []
    assert store.is_empty("ada")


async def test_an_idempotency_key_returns_the_first_memory_of_the_agent(
    store: SqliteMemories, writer: Writer
) -> None:
    [first] = await writer.add("ada", Draft(type="fact", content="one", idempotency_key="op_1"))
    [again] = await writer.add("ada", Draft(type="fact", content="two", idempotency_key="op_1"))
    [other] = await writer.add("bob", Draft(type="fact", content="two", idempotency_key="op_1"))
    assert again.memory == first.memory
    assert (again.vector_keys, again.written) == ((), False)
    assert other.memory.content == "two"
    assert len(await store.page("ada", Filter(), "", 10)) == 1


async def test_concurrent_writes_with_one_idempotency_key_store_one_memory(
    store: SqliteMemories, writer: Writer
) -> None:
    draft = Draft(type="fact", content="one", idempotency_key="op_1")
    results = await asyncio.gather(*(writer.add("ada", draft) for _ in range(20)))
    assert len({result[0].memory.id for result in results}) == 1
    assert len(await store.vectors("ada", EMBEDDER)) == 1


async def test_a_known_memory_is_not_stored_twice_if_unless_known_is_set(
    store: SqliteMemories, writer: Writer
) -> None:
    def draft(content: str, kind: str = "fact") -> Draft:
        return Draft(type=kind, content=content, unless_known=True)

    first, same, other_type, other = await writer.add(
        "ada",
        draft("Anna likes tea"),
        draft(" anna  LIKES\ntea "),
        draft("Anna likes tea", "taste"),
        draft("Anna"),
    )
    assert same.memory == first.memory
    assert len({first.memory.id, other_type.memory.id, other.memory.id}) == 3
    [elsewhere] = await writer.add("bob", draft("Anna likes tea"))
    assert elsewhere.memory.id != first.memory.id
    [twice] = await writer.add("ada", "Anna likes tea")
    assert twice.written, "a plain write always stores"


async def test_pages_go_from_new_to_old_and_keep_to_their_types(
    store: SqliteMemories, writer: Writer
) -> None:
    await writer.add("ada", *(Draft(type=f"t{i % 3}", content=f"n{i}") for i in range(9)))
    first = await store.page("ada", Filter(), "", 4)
    rest = await store.page("ada", Filter(), first[-1].id, 100)
    assert [memory.content for memory in [*first, *rest]] == [f"n{i}" for i in reversed(range(9))]
    assert [memory.content for memory in await store.page("ada", Filter(types=("t0", "t1")), "", 3)] == [
        "n7",
        "n6",
        "n4",
    ]


async def test_words_are_found_by_their_stem_without_accents_and_by_type(
    store: SqliteMemories, writer: Writer
) -> None:
    await writer.add(
        "ada", "We deployed to Zürich", Draft(type="plan", content="deploy again"), "nothing here"
    )
    assert await found(store, "ada", "deploying") == ["We deployed to Zürich", "deploy again"]
    assert await found(store, "ada", "ZURICH") == ["We deployed to Zürich"]
    assert await found(store, "ada", "deploy", "plan") == ["deploy again"]


@pytest.mark.parametrize(
    "query",
    [
        *(
            'NEAR("a" b, 5)',
            "a AND",
            "NOT",
            '"',
            '""" OR',
            "scope:ada",
            "content : x",
            "^a",
            "a*",
            "(((",
            "-a",
        ),
        *("{scope content} : a", "'; DROP TABLE memories; --", "\x00", "!?", "", "🍵"),
        *("a" * 100_000, "w1 w2 " * 9000, " ".join(f"word{i}" for i in range(5000))),
    ],
    ids=lambda query: query[:20].encode("unicode_escape").decode(),
)
async def test_a_query_is_words_and_never_syntax(store: SqliteMemories, writer: Writer, query: str) -> None:
    await writer.add("ada", "tea")
    await writer.add("bob", "ada a b x drop table memories word1 not near or and")
    await found(store, "ada", query)
    assert await found(store, "ada", f"tea {query[:50]}") == ["tea"]


async def test_a_huge_query_is_cut_to_its_longest_words() -> None:
    words = query_words("ada", " ".join([*(f"w{i}" for i in range(500)), "extraordinarily"]))
    assert len(words) == MAX_QUERY_WORDS
    assert any("extraordinarily" in word for word in words)


async def test_memories_of_others_do_not_change_an_agents_ranking(
    store: SqliteMemories, writer: Writer
) -> None:
    """Words that are common for this agent stay common, however rare they are for others."""
    await writer.add("ada", *(f"she said that it is the thing number {i}" for i in range(30)), "drink tea")

    async def order() -> list[str]:
        candidates = await store.recall(
            "ada", MemoryQuery("what is the drink that she said"), {}, Filter(), 50
        )
        return [c.id for c in sorted(candidates, key=lambda c: (-c.text, c.id))]

    alone = await order()
    [best] = await store.get("ada", alone[:1])
    assert best.content == "drink tea"
    await writer.add("bob", *(f"drink water and more of it, number {i}" for i in range(300)))
    assert await order() == alone


async def test_a_change_updates_text_and_vector(store: SqliteMemories, writer: Writer) -> None:
    [stored] = await writer.add("ada", "Anna likes tea")
    new = dataclasses.replace(stored.memory, content="Anna likes coffee", version=2, updated_ms=2000)
    new = dataclasses.replace(new, size_bytes=len(new.content))
    text = StoredText(content=new.content, vectors=(ZERO, ONE))
    changed = await store.replace(new, 1, text, EMBEDDER)
    assert changed.removed_keys == stored.vector_keys
    assert await store.vectors("ada", EMBEDDER) == list(zip(changed.vector_keys, (ZERO, ONE), strict=True))
    assert await found(store, "ada", "tea") == []
    assert await found(store, "ada", "coffee") == ["Anna likes coffee"]
    assert await store.get("ada", [new.id]) == [new]
    with pytest.raises(WonderError) as caught:
        await store.replace(new, 1, None, EMBEDDER)
    assert caught.value.fault.reason is Reason.ETAG_MISMATCH


async def test_a_deleted_memory_is_removed_everywhere(store: SqliteMemories, writer: Writer) -> None:
    [stored, kept] = await writer.add("ada", "Anna likes tea", "Bo likes tea")
    with pytest.raises(WonderError) as caught:
        await store.remove("ada", stored.memory.id, 7, 2000)
    assert caught.value.fault.reason is Reason.ETAG_MISMATCH
    removed = await store.remove("ada", stored.memory.id, 1, 2000)
    assert removed is not None
    assert (removed.memory, removed.removed_keys) == (stored.memory, stored.vector_keys)
    assert await found(store, "ada", "tea anna") == ["Bo likes tea"]
    assert await store.get("ada", [stored.memory.id]) == []
    assert [key for key, _ in await store.vectors("ada", EMBEDDER)] == [*kept.vector_keys]


async def test_entries_are_stored_together_or_not_at_all(store: SqliteMemories, writer: Writer) -> None:
    good, bad = (writer.entry(Draft(type="fact", content=f"n{i}")) for i in range(2))
    with pytest.raises(Exception, match="UNIQUE"):
        await store.add("ada", [good, bad, dataclasses.replace(bad)], EMBEDDER, 1000)
    assert await store.page("ada", Filter(), "", 10) == []
    assert await found(store, "ada", "n0 n1") == []


async def test_keys_are_filtered_by_type(store: SqliteMemories, writer: Writer) -> None:
    fact, plan = await writer.add("ada", "one", Draft(type="plan", content="two"))
    assert await store.keys("ada", EMBEDDER, Filter(types=("plan",))) == [*plan.vector_keys]
    assert await store.keys("ada", EMBEDDER, Filter(types=("plan", "fact"))) == [
        *fact.vector_keys,
        *plan.vector_keys,
    ]
    assert await store.keys("ada", "another", Filter(types=("plan",))) == []


async def test_a_reopened_store_has_all_memories(tmp_path: Path) -> None:
    first = await SqliteMemories.open(tmp_path / "memory.db")
    [stored] = await Writer(first).add("ada", "Anna likes tea")
    await first.close()
    second = await SqliteMemories.open(tmp_path / "memory.db")
    assert await second.get("ada", [stored.memory.id]) == [stored.memory]
    assert await found(second, "ada", "tea") == ["Anna likes tea"]
    await second.close()
