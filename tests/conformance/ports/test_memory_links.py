"""Memory stores: neighbours, filters, links, long contents."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wonder_server.adapters.sqlite.memory import schema, text_index
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.memory.text_index import MAX_UPDATED_NEIGHBOURS
from wonder_server.adapters.sqlite.memory.tokenizer import query_words
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import IdempotencyKey, own_key
from wonder_server.core.ids import encode
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.records import EVERYTHING, Draft, Filter, Memory, Source
from wonder_server.ports.memories import Entry, Stored, StoredText

EMBEDDER = "test-1"
VECTOR = b"\0\0\x80\x3f"


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

    def entry(self, content: str, *, reference: str = "", supersedes: str = "", **more: Any) -> Entry:
        self.count += 1
        role = more.pop("source_role", "")
        places = ("conversation_id", "ordinal", "message_id", "speaker_id")
        place = {name: more.pop(name) for name in places if name in more}
        source = Source(**place, role=role)
        return Entry(
            id=f"mem_{encode(self.count, 0)}",
            draft=Draft(type="fact", content=content, source=source, **more),
            text=StoredText(content=content, vectors=(VECTOR,), content_ref=reference),
            supersedes_id=supersedes,
        )

    async def write(self, content: str, agent: str = "ada", **more: Any) -> Memory:
        [stored] = await self.store.add(agent, [self.entry(content, **more)], EMBEDDER, 1000)
        return stored.memory

    async def say(self, *contents: str, first: int = 1, together: bool = False) -> list[Memory]:
        """Write a conversation, message by message."""
        entries = [
            self.entry(content, conversation_id="conv_1", ordinal=ordinal)
            for ordinal, content in enumerate(contents, first)
        ]
        batches = [entries] if together else [[entry] for entry in entries]
        stored = [each for batch in batches for each in await self.store.add("ada", batch, EMBEDDER, 1000)]
        return [each.memory for each in stored]


@pytest.fixture
def writer(store: SqliteMemories) -> Writer:
    return Writer(store)


async def holding(store: SqliteMemories, column: str, word: str, agent: str = "ada") -> list[int]:
    """Return the rows of the index with a word in this column."""
    [quoted] = query_words(agent, word)

    def work(connection: sqlite3.Connection) -> list[int]:
        return [
            row[0]
            for row in connection.execute(
                "SELECT rowid FROM memories_text WHERE memories_text MATCH ?", (f"{column} : {quoted}",)
            )
        ]

    return await store.database.read(work)


async def contents(store: SqliteMemories, wanted: Filter = EVERYTHING, agent: str = "ada") -> list[str]:
    return sorted(memory.content for memory in await store.page(agent, wanted, "", 100))


async def whole(store: SqliteMemories) -> None:
    """Assert that the index contains exactly the words of the rows."""

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO memories_text (memories_text) VALUES ('integrity-check')")
        kept = connection.execute("SELECT count(*), ifnull(sum(length(sz)), 0) FROM memories_text_docsize")
        [rows, _] = kept.fetchone()
        assert rows == connection.execute("SELECT count(*) FROM memories").fetchone()[0]
        assert rows == connection.execute("SELECT memories FROM counts WHERE agent_id = ''").fetchone()[0]
        assert not connection.execute("PRAGMA foreign_key_check").fetchall()

    await store.database.write(work)


async def refused(work: Any) -> Reason:
    with pytest.raises(WonderError) as caught:
        await work
    return caught.value.fault.reason


# --- neighbours -----------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one by one"])
async def test_neighbours_are_indexed_in_a_second_column(
    store: SqliteMemories, writer: Writer, together: bool
) -> None:
    await writer.say("apples", "bananas", "cherries", "dates", "figs", together=together)
    await writer.write("elderberries", conversation_id="conv_2", ordinal=2)
    assert await holding(store, "words", "bananas") == [2]
    assert await holding(store, "around", "bananas") == [1, 3, 4]
    assert await holding(store, "around", "figs") == [3, 4]
    assert await holding(store, "around", "elderberries") == []
    await whole(store)


async def test_a_memory_inserted_between_two_becomes_a_neighbour_of_both(
    store: SqliteMemories, writer: Writer
) -> None:
    await writer.say("apples")
    await writer.say("cherries", first=3)
    await writer.say("bananas", first=2)
    assert await holding(store, "around", "bananas") == [1, 2]
    assert await holding(store, "around", "cherries") == [1, 3]
    await whole(store)


async def test_neighbours_lose_text_that_is_deleted_or_changed(store: SqliteMemories, writer: Writer) -> None:
    _, middle, last = await writer.say("apples", "bananas", "cherries")
    new = dataclasses.replace(last, content="plums", version=2)
    await store.replace(new, 1, StoredText(content="plums", vectors=()), EMBEDDER)
    assert await holding(store, "around", "cherries") == []
    assert await holding(store, "around", "plums") == [1, 2]
    await store.remove("ada", middle.id, None, 2000)
    assert await holding(store, "around", "bananas") == []
    await whole(store)


async def test_a_memory_has_the_words_of_its_four_nearest_neighbours_and_a_deleted_one_leaves_all(
    store: SqliteMemories, writer: Writer
) -> None:
    count = MAX_UPDATED_NEIGHBOURS + 2
    first = await writer.write("quinces", conversation_id="conv_1", ordinal=1)
    for number in range(count):
        await writer.write(f"pear{number}", conversation_id="conv_1", ordinal=2)
    await writer.write("figs", conversation_id="conv_1", ordinal=3)
    assert await holding(store, "around", "pear3") == [1, count + 2]
    assert await holding(store, "around", "pear4") == []
    assert len(await holding(store, "around", "quinces")) == count
    await store.remove("ada", first.id, None, 2000)
    assert await holding(store, "around", "quinces") == []
    await whole(store)


async def test_a_store_of_the_previous_index_format_is_indexed_again(
    store: SqliteMemories, writer: Writer, tmp_path: Path
) -> None:
    await writer.say("apples", "bananas", "cherries")

    def age(connection: sqlite3.Connection) -> None:
        """Leave the index as format 1 had it: neighbours at a distance of one."""
        for key, around in ((1, "bananas"), (3, "bananas")):
            text_index.remove(connection, key)
            connection.execute("UPDATE memories SET around = ? WHERE key = ?", (around, key))
            text_index.add(connection, key)
        connection.execute("UPDATE formats SET format = 1 WHERE name = 'text'")

    await store.database.write(age)
    assert await holding(store, "around", "cherries") == [2]
    await store.close()
    again = await SqliteMemories.open(tmp_path / "memory.db")
    assert await holding(again, "around", "cherries") == [1, 2]
    await whole(again)
    await again.close()


async def test_a_memory_about_a_user_is_found_by_the_user(store: SqliteMemories, writer: Writer) -> None:
    mine = await writer.write("I like tea.", subject="mia", message_id="msg_1", speaker_id="bob")
    other = await writer.write("I like tea.", subject="bob", unless_known=True)
    plain = await writer.write("I like tea.", unless_known=True)
    assert len({mine.id, other.id, plain.id}) == 3
    assert (mine.subject, mine.source.message_id, mine.source.speaker_id) == ("mia", "msg_1", "bob")
    again = await writer.write("I like  TEA.", subject="mia", unless_known=True)
    assert again == mine

    async def about(subject: str) -> list[str]:
        return [memory.id for memory in await store.page("ada", Filter(subject=subject), "", 9)]

    assert [await about(each) for each in ("mia", "bob", "eve")] == [[mine.id], [other.id], []]
    assert len(await about("")) == 3
    asked = MemoryQuery("tea")
    assert [hit.id for hit in await store.recall("ada", asked, {}, Filter(subject="bob"), 9)] == [other.id]
    changed = dataclasses.replace(plain, subject="eve", version=2)
    assert (await store.replace(changed, 1, None, EMBEDDER)).memory.subject == "eve"
    assert await about("eve") == [plain.id]
    await whole(store)


async def test_a_memory_without_a_time_was_said_when_it_was_written(
    store: SqliteMemories, writer: Writer
) -> None:
    plain = await writer.write("apples")
    said = await writer.write("bananas", said_ms=-5, source_role="agent")
    assert (plain.said_ms, said.said_ms) == (1000, -5)
    assert [plain.source.role, said.source.role] == ["", "agent"]
    assert await contents(store, Filter(said_end_ms=0)) == ["bananas"]
    assert await contents(store, Filter(said_start_ms=0)) == ["apples"]
    changed = dataclasses.replace(plain, said_ms=7, version=2)
    assert (await store.replace(changed, 1, None, EMBEDDER)).memory.said_ms == 7
    assert await contents(store, Filter(said_start_ms=7, said_end_ms=8)) == ["apples"]


async def test_a_changed_time_or_side_of_a_row_is_damage(store: SqliteMemories, writer: Writer) -> None:
    for column, value in (("said_ms", 7), ("speaker_role", "user")):
        memory = await writer.write(f"apples {column}")
        await store.database.write(
            lambda connection, sql=f"UPDATE memories SET {column} = ? WHERE id = ?", row=(value, memory.id): (
                connection.execute(sql, row) and None
            )
        )
        assert await refused(store.get("ada", [memory.id])) is Reason.STORAGE_UNAVAILABLE


async def test_long_neighbours_are_cut_and_agents_are_separate(store: SqliteMemories, writer: Writer) -> None:
    await writer.say(" ".join(f"word{i}" for i in range(500)), "short")
    await writer.write("theirs", agent="bob", conversation_id="conv_1", ordinal=1)
    assert await holding(store, "around", "word3") == [2]
    assert await holding(store, "around", "word300") == []
    assert await holding(store, "around", "theirs") == []


async def test_an_older_store_is_migrated_completely(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    [name, script] = schema.MIGRATIONS[0]
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE migrations (position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)")
        old.executescript(script)
        old.execute("INSERT INTO migrations (name) VALUES (?)", (name,))
        for key, content in enumerate(("Anna likes tea", "x" * 5000 + " tea"), 1):
            old.execute(
                "INSERT INTO memories VALUES "
                "(?, ?, 'ada', 'fact', ?, 0.5, ?, '', '', '', '', NULL, x'00', 1, 1, 1)",
                (key, f"mem_{key}", content, json.dumps({"topic": "tea"})),
            )
    old.close()
    store = await SqliteMemories.open(path)
    assert await holding(store, "words", "tea") == [1, 2]
    assert len(await contents(store, Filter(metadata={"topic": "tea"}))) == 2
    assert [memory.size_bytes for memory in await store.get("ada", ["mem_1", "mem_2"])] == [14, 5004]
    await store.remove("ada", "mem_2", None, 1)
    await whole(store)
    await store.close()


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"topic": "tea"}, ["a", "b"]),
        ({"topic": "tea", "n": 1}, ["a"]),
        ({"n": 1.0}, ["a"]),
        ({"n": True}, ["b"]),
        ({"who": {"name": "Anna"}}, ["a"]),
        ({"who": {}}, ["a", "b"]),
        ({"who": {"name": "Anna", "age": None}}, ["a"]),
        ({"tags": ["x", 2]}, ["b"]),
        ({"tags": ["x"]}, []),
        ({'it"s $.[0]': "' OR 1=1 --"}, ["b"]),
        ({"topic": "' OR 1=1 --"}, []),
        ({"name": "Anna"}, []),
        ({"who.name": "Anna"}, []),
    ],
    ids=str,
)
async def test_metadata_filters_require_every_value(
    store: SqliteMemories, writer: Writer, metadata: dict[str, Any], found: list[str]
) -> None:
    await writer.write("a", metadata={"topic": "tea", "n": 1, "who": {"name": "Anna", "age": None}})
    await writer.write(
        "b",
        metadata={"topic": "tea", "n": True, "who": {}, "tags": ["x", 2.0], 'it"s $.[0]': "' OR 1=1 --"},
    )
    await writer.write("c")
    await writer.write("d", agent="bob", metadata={"topic": "tea", "n": 1})
    assert await contents(store, Filter(metadata=metadata)) == found


async def test_filters_follow_changes_of_metadata(store: SqliteMemories, writer: Writer) -> None:
    memory = await writer.write("a", metadata={"topic": "tea"})
    await store.replace(dataclasses.replace(memory, metadata={"topic": "milk"}, version=2), 1, None, EMBEDDER)
    assert await contents(store, Filter(metadata={"topic": "tea"})) == []
    assert await contents(store, Filter(metadata={"topic": "milk"})) == ["a"]
    await store.remove("ada", memory.id, None, 1)
    left = await store.database.read(lambda c: c.execute("SELECT count(*) FROM fields").fetchone()[0])
    assert left == 0


async def test_filters_on_place_and_time_narrow_lists_searches_and_keys(
    store: SqliteMemories, writer: Writer
) -> None:
    one = writer.entry("tea one", conversation_id="conv_1")
    two = writer.entry("tea two", conversation_id="conv_2")
    [first] = await store.add("ada", [one], EMBEDDER, 1000)
    [second] = await store.add("ada", [two], EMBEDDER, 2000)
    for wanted, found in (
        (Filter(conversation_id="conv_1"), first),
        (Filter(end_ms=2000), first),
        (Filter(start_ms=2000), second),
        (Filter(start_ms=1001, end_ms=2001), second),
    ):
        assert await contents(store, wanted) == [found.memory.content]
        assert await store.keys("ada", EMBEDDER, wanted) == [*found.vector_keys]
        near = {key: 0.5 for stored in (first, second) for key in stored.vector_keys}
        for query in ("tea", ""):
            candidates = await store.recall("ada", MemoryQuery(query), near, wanted, 10)
            assert [candidate.id for candidate in candidates] == [found.memory.id]
    assert await contents(store, Filter(turn_id="turn_1")) == []


# --- links ----------------------------------------------------------------------------------------


async def test_a_superseded_memory_can_be_read_but_not_found(store: SqliteMemories, writer: Writer) -> None:
    old = await writer.write("Anna likes tea")
    new = await writer.write("Anna likes coffee", supersedes=old.id)
    [old, new] = await store.get("ada", [old.id, new.id])
    assert (old.superseded_by_id, new.supersedes_id, old.version) == (new.id, old.id, 2)
    assert await contents(store, Filter()) == ["Anna likes coffee"]
    found = [candidate.id for candidate in await store.recall("ada", MemoryQuery("anna"), {}, Filter(), 10)]
    assert found == [new.id]
    found = [candidate.id for candidate in await store.recall("ada", MemoryQuery("anna"), {}, EVERYTHING, 10)]
    assert sorted(found) == [old.id, new.id]
    assert await refused(writer.write("Anna likes water", supersedes=old.id)) is Reason.FIELD_INVALID
    assert await refused(writer.write("x", supersedes="mem_none")) is Reason.MEMORY_NOT_FOUND
    assert await refused(writer.write("x", agent="bob", supersedes=new.id)) is Reason.MEMORY_NOT_FOUND


async def test_a_superseded_memory_may_be_stated_again(store: SqliteMemories, writer: Writer) -> None:
    old = await writer.write("Anna likes tea", unless_known=True)
    await writer.write("Anna likes coffee", supersedes=old.id)
    again = await writer.write("anna likes tea", unless_known=True)
    assert again.id != old.id


async def test_contradictions_are_listed_on_both_sides(store: SqliteMemories, writer: Writer) -> None:
    one, two = await writer.write("yes"), await writer.write("no")
    three = await writer.write("perhaps", contradicts_ids=(one.id, two.id))
    assert three.contradicts_ids == (one.id, two.id)
    [one] = await store.get("ada", [one.id])
    assert (one.contradicts_ids, one.version) == ((three.id,), 2)
    changed = dataclasses.replace(three, contradicts_ids=(two.id,), version=2)
    assert (await store.replace(changed, 1, None, EMBEDDER)).memory.contradicts_ids == (two.id,)
    [one] = await store.get("ada", [one.id])
    assert (one.contradicts_ids, one.version) == ((), 3)
    await store.remove("ada", three.id, None, 1)
    [two] = await store.get("ada", [two.id])
    assert two.contradicts_ids == ()
    await whole(store)


async def test_only_other_memories_of_the_agent_are_contradicted(
    store: SqliteMemories, writer: Writer
) -> None:
    mine, theirs = await writer.write("mine"), await writer.write("theirs", agent="bob")
    for wrong in (theirs.id, "mem_none"):
        assert await refused(writer.write("x", contradicts_ids=(wrong,))) is Reason.FIELD_INVALID
        changed = dataclasses.replace(mine, contradicts_ids=(wrong,), version=2)
        assert await refused(store.replace(changed, 1, None, EMBEDDER)) is Reason.FIELD_INVALID
    itself = dataclasses.replace(mine, contradicts_ids=(mine.id,), version=2)
    assert await refused(store.replace(itself, 1, None, EMBEDDER)) is Reason.FIELD_INVALID
    assert await contents(store) == ["mine"]


async def test_deleting_a_memory_does_not_bring_back_the_superseded_one(
    store: SqliteMemories, writer: Writer
) -> None:
    one = await writer.write("one")
    two = await writer.write("two", supersedes=one.id)
    three = await writer.write("three", supersedes=two.id)
    await store.remove("ada", two.id, None, 5000)
    [one, three] = await store.get("ada", [one.id, three.id])
    assert (one.superseded_by_id, three.supersedes_id) == (three.id, one.id)
    await store.remove("ada", three.id, None, 5000)
    [one] = await store.get("ada", [one.id])
    assert (one.superseded_by_id, one.archived_ms) == ("", 5000)
    assert await contents(store, Filter()) == []


# --- objects, requests, agents --------------------------------------------------------------------


async def test_long_contents_stay_out_of_the_row_and_are_found(store: SqliteMemories, writer: Writer) -> None:
    memory = await writer.write("pineapple " * 500, reference="f" * 64)
    assert (memory.content, memory.content_ref, memory.size_bytes) == ("", "f" * 64, 5000)
    assert [c.id for c in await store.recall("ada", MemoryQuery("pineapples"), {}, Filter(), 10)] == [
        memory.id
    ]
    new = dataclasses.replace(memory, content="plum " * 1000, version=2)
    text = StoredText(content=new.content, vectors=(), content_ref="e" * 64)
    await store.replace(new, 1, text, EMBEDDER)
    assert await holding(store, "words", "pineapple") == []
    short = dataclasses.replace(new, content="cherry", version=3)
    stored = await store.replace(short, 2, StoredText(content="cherry", vectors=()), EMBEDDER)
    assert (stored.memory.content, stored.memory.content_ref) == ("cherry", "")
    assert await holding(store, "words", "plum") == []
    await store.remove("ada", memory.id, None, 1)
    await whole(store)


async def test_the_requests_of_a_token_never_meet_those_of_the_servers_own_work(
    store: SqliteMemories, writer: Writer
) -> None:
    memory = await writer.write("one")
    tokens, own = IdempotencyKey("step", "op_1/n/s", "f"), own_key("step", "op_1/n/s")
    replaced = dataclasses.replace(memory, significance=0.5, version=2)
    assert (await store.replace(replaced, 1, None, EMBEDDER, tokens)).written
    assert (await store.remove("ada", memory.id, 2, 1, own)) is not None
    assert (await store.remove("ada", memory.id, 2, 1, own)) is None


async def test_the_servers_own_work_finds_the_ids_of_earlier_versions(
    store: SqliteMemories, writer: Writer
) -> None:
    memory = await writer.write("one")
    earlier = IdempotencyKey("operation", "op_1", "")
    assert await store.remove("ada", memory.id, None, 1, earlier) is not None
    assert await store.remove("ada", memory.id, None, 1, own_key("operation", "op_1")) is None


async def test_a_request_is_executed_once(store: SqliteMemories, writer: Writer) -> None:
    memory = await writer.write("one")
    request = IdempotencyKey("ann", "r1", "f1")

    async def change(asked: IdempotencyKey, content: str) -> Stored:
        new = dataclasses.replace(memory, content=content, version=2)
        return await store.replace(new, 1, StoredText(content=content, vectors=(VECTOR,)), EMBEDDER, asked)

    assert (await change(request, "two")).memory.content == "two"
    assert (await change(request, "two")).memory.version == 2
    assert await refused(change(IdempotencyKey("ann", "r1", "f2"), "three")) is Reason.REQUEST_ID_REUSED
    gone = IdempotencyKey("ann", "r2", "f")
    assert await store.remove("ada", memory.id, 2, 1, gone)
    assert await store.remove("ada", memory.id, 2, 1, gone) is None
    assert await refused(store.remove("ada", memory.id, 2, 1)) is Reason.MEMORY_NOT_FOUND
