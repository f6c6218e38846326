"""Damage in the memory store: the server finds it, can delete it, and rebuilds what follows from contents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.conformance.ports.test_memories import EMBEDDER, ONE, Writer, found
from wonder_server.adapters.sqlite.memory.check import check_memory
from wonder_server.adapters.sqlite.memory.embeddings import SqliteReembedding
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.ranking import Candidate
from wonder_server.core.memory.records import Draft, Filter, Source


@contextmanager
def inside(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the file while no server uses it."""
    with closing(sqlite3.connect(folder / "memory.db")) as connection:
        yield connection
        connection.commit()


@contextmanager
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


async def opened(folder: Path) -> SqliteMemories:
    return await SqliteMemories.open(folder / "memory.db")


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Create three memories of one conversation. The second one superseded a fourth."""
    store = await opened(tmp_path)
    writer = Writer(store)
    said = ("apples are red", "bananas are yellow", "cherries are sweet")
    for ordinal, content in enumerate(said, 1):
        source = Source(conversation_id="conv_1", ordinal=ordinal)
        await writer.add("ada", Draft(type="fact", content=content, source=source, metadata={"n": ordinal}))
    await store.close()
    return tmp_path


async def ids(store: SqliteMemories) -> list[str]:
    return await store.database.read(
        lambda connection: [row[0] for row in connection.execute("SELECT id FROM memories ORDER BY key")]
    )


async def index_is_whole(store: SqliteMemories) -> None:
    """Assert that the index contains exactly the words of the rows."""

    def words(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
        vocabulary = (
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.seen USING fts5vocab(main, memories_text, 'instance')"
        )
        connection.execute(vocabulary)
        return sorted(connection.execute("SELECT term, doc, col, offset FROM temp.seen").fetchall())

    held = await store.database.read(words)
    await store.database.write(
        lambda connection: connection.execute("UPDATE formats SET format = 0").rowcount
    )
    notes = SqliteMemoryMaintenance(store)
    await notes.purge()
    assert await store.database.read(words) == held


@pytest.mark.parametrize(
    "change",
    [
        "version = 7",
        "archived_ms = 5",
        "superseded_by_id = 'mem_x'",
        "supersedes_id = 'mem_x'",
        "updated_ms = 3",
        "created_ms = 3",
        "idempotency_key = 'another'",
        "fingerprint = x'00'",
        "content = x'ff' || content",
        "metadata = '{}'",
        "subject = 'mia'",
        "message_id = 'msg_1'",
        "speaker_id = 'mia'",
        "seal = NULL",
    ],
)
async def test_every_column_of_a_memory_is_checked(folder: Path, change: str) -> None:
    with inside(folder) as connection:
        [damaged] = connection.execute("SELECT id FROM memories WHERE key = 2").fetchone()
        connection.execute(f"UPDATE memories SET {change} WHERE key = 2")
    store = await opened(folder)
    with pytest.raises(WonderError, match=f"{damaged} in table memories") as refused:
        await store.get("ada", [damaged])
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    await store.close()
    assert [line for line in check_memory(folder / "memory.db").problems if damaged in line]


async def test_a_search_omits_a_damaged_memory_and_logs_it_once(folder: Path) -> None:
    with inside(folder) as connection:
        [damaged] = connection.execute("SELECT id FROM memories WHERE key = 2").fetchone()
        connection.execute("UPDATE memories SET content = 'bananas are yallow' WHERE key = 2")
    store = await opened(folder)
    intact = set(await ids(store)) - {damaged}

    def everything(found: Sequence[Candidate]) -> list[str]:
        return [each.id for each in found]

    with capture_logs() as logs:
        for _ in range(2):
            candidates = await store.recall("ada", MemoryQuery("are"), {}, Filter(), 50, everything)
            assert {each.id for each in candidates if each.memory is not None} == intact
            found = await store.get("ada", [damaged, *intact], lenient=True)
            assert {each.id for each in found} == intact
    [line] = [line for line in logs if line["event"] == "damaged_record_skipped"]
    assert damaged in line["problem"]
    await store.close()


async def test_a_superseded_archived_linked_and_changed_memory_is_intact(folder: Path) -> None:
    store = await opened(folder)
    writer = Writer(store)
    writer.count = 10
    first, second, third = await ids(store)
    entry = writer.entry(Draft(type="fact", content="apples are green", contradicts_ids=(third,)))
    object.__setattr__(entry, "supersedes_id", first)
    await store.add("ada", [entry], EMBEDDER, 2000)
    await writer.add("ada", Draft(type="summary", content="fruit", archives_ids=(second,)))
    await store.remove("ada", entry.id, None, 3000)
    everything = await store.get("ada", await ids(store))
    assert [memory.version for memory in everything] == [3, 2, 3, 1]
    await store.close()
    assert check_memory(folder / "memory.db").problems == []


@pytest.mark.parametrize(
    "change",
    [
        "content = 'bananas are yallow'",
        "content = x'ff' || content",
        "content = 5",
        "metadata = '{'",
        "metadata = x'ff'",
        "around = 'other words'",
        "version = 9",
        "content_ref = 'no key'",
        "seal = 1",
        "indexed = NULL, content = 'other'",
    ],
)
async def test_deleting_a_damaged_memory_removes_everything_of_it(folder: Path, change: str) -> None:
    with inside(folder) as connection:
        connection.execute(f"UPDATE memories SET {change} WHERE key = 2")
    store = await opened(folder)
    _first, second, _third = await ids(store)
    with quiet():
        gone = await store.remove("ada", second, None, 2000)
    assert gone is not None
    assert (gone.memory.id, gone.removed_keys) == (second, (2,))
    assert await found(store, "ada", "apples red bananas yellow cherries") == [
        "apples are red",
        "cherries are sweet",
    ]
    with quiet():
        await SqliteMemoryMaintenance(store).purge()
    assert await found(store, "ada", "yellow") == []
    await index_is_whole(store)
    await store.close()
    assert check_memory(folder / "memory.db").problems == []


async def test_deleting_a_neighbour_of_a_damaged_memory_keeps_the_index_correct(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE memories SET content = x'ff' || content, around = 'x' WHERE key = 2")
    store = await opened(folder)
    first, second, _third = await ids(store)
    with quiet():
        await store.remove("ada", first, None, 2000)
        await SqliteMemoryMaintenance(store).purge()
        await store.remove("ada", second, None, 2000)
        await SqliteMemoryMaintenance(store).purge()
    await index_is_whole(store)
    assert await found(store, "ada", "cherries") == ["cherries are sweet"]
    await store.close()


async def test_deleting_an_agents_memories_deletes_damaged_ones(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE memories SET content = x'ff', metadata = '{' WHERE key < 3")
    store = await opened(folder)
    upkeep = SqliteMemoryMaintenance(store)
    with quiet():
        assert await upkeep.delete_agent_memories("ada", 10) == (3, [1, 2, 3])
        await upkeep.purge()
    assert await ids(store) == []
    await index_is_whole(store)
    await store.close()
    assert check_memory(folder / "memory.db").problems == []


async def test_a_store_with_a_damaged_memory_opens_and_rebuilds_its_index(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("UPDATE memories SET content = x'ff', metadata = '{' WHERE key = 2")
        connection.execute("UPDATE formats SET format = 0")
    store = await opened(folder)
    assert await found(store, "ada", "apples cherries") == ["apples are red", "cherries are sweet"]
    _, second, _ = await ids(store)
    with quiet():
        await store.remove("ada", second, None, 2000)
    await index_is_whole(store)
    await store.close()


@pytest.mark.parametrize("change", ["vector = x'0000803e'", "passage = 1", "seal = NULL", "vector = 'text'"])
async def test_a_damaged_vector_is_deleted_and_its_memory_gets_a_new_one(folder: Path, change: str) -> None:
    with inside(folder) as connection:
        connection.execute(f"UPDATE embeddings SET {change} WHERE key = 2")
    assert len(check_memory(folder / "memory.db").problems) == 1
    store = await opened(folder)
    lost: list[bool] = []
    store.on_lost_vectors = lambda: lost.append(True)
    with capture_logs() as said:
        assert await store.vectors("ada", EMBEDDER, limit=2) == [(1, ONE), (3, ONE)]
    assert [line["event"] for line in said] == ["damaged_vectors_dropped"]
    assert lost == [True]
    pending, _ = await SqliteReembedding(store).pending(EMBEDDER, 0)
    assert [memory.content for memory in pending] == ["bananas are yellow"]
    await SqliteReembedding(store).embed(pending[0], EMBEDDER, [ONE])
    assert await store.vectors("ada", EMBEDDER) == [(1, ONE), (3, ONE), (4, ONE)]
    await store.close()
    assert check_memory(folder / "memory.db").problems == []


async def test_a_damaged_memory_does_not_block_the_embedding_of_others(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("DELETE FROM embeddings")
        connection.execute("UPDATE memories SET content = 'other' WHERE key = 1")
    store = await opened(folder)
    with quiet():
        pending, _ = await SqliteReembedding(store).pending(EMBEDDER, 0)
    assert len(pending) == 2
    await store.close()


async def test_the_check_finds_lost_metadata_terms(folder: Path) -> None:
    with inside(folder) as connection:
        connection.execute("DELETE FROM fields WHERE memory_key = 2")
    [problem] = check_memory(folder / "memory.db").problems
    assert "metadata" in problem
    store = await opened(folder)
    assert await store.page("ada", Filter(metadata={"n": 2}), "", 10) == []
    await store.close()


@pytest.mark.parametrize("column", ["turn_id", "type", "metadata", "speaker", "id"])
async def test_the_check_names_the_memory_with_an_invalid_column(folder: Path, column: str) -> None:
    with inside(folder) as connection:
        [(named,)] = connection.execute("SELECT id FROM memories WHERE key = 2").fetchall()
        connection.execute(f"UPDATE memories SET {column} = CAST(x'61FF' AS TEXT) WHERE key = 2")
    named = named if column != "id" else "a\N{REPLACEMENT CHARACTER}"
    problems = check_memory(folder / "memory.db").problems
    assert any(named in problem for problem in problems), problems
    store = await opened(folder)
    with pytest.raises(WonderError) as refused:
        await store.page("ada", Filter(), "", 10)
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert f"record {named} in table memories" in refused.value.fault.message
    await store.close()


async def test_damage_with_an_undecodable_sqlite_message_is_one_problem(folder: Path) -> None:
    path = folder / "memory.db"
    path.write_bytes(
        path.read_bytes()
        .replace(b"INDEX memories_by_agent ", b"INDEY memories_by_agent ")
        .replace(b"indexmemories_by_agentmem", b"indexmemories_by_a\xff\xfentmem")
    )
    problems = check_memory(path).problems
    assert problems
    assert all(problem.startswith("memory.db: ") for problem in problems)
