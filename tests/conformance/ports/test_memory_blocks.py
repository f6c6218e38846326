"""Stores of memory blocks: versions, limits, requests, changes, and what is known unread (feature M13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wonder_server.adapters.in_memory.memory_blocks import InMemoryBlocks
from wonder_server.adapters.sqlite.memory.blocks import SqliteMemoryBlocks
from wonder_server.adapters.sqlite.memory.check import check_memory
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey, own_key
from wonder_server.core.memory.blocks import MAX_BLOCKS, MAX_CHANGES, Author, BlockKey, MemoryBlock
from wonder_server.ports.memory_blocks import MemoryBlocks

OWN = BlockKey(agent_id="ada", label="persona")
MIAS = BlockKey(agent_id="ada", label="human", subject="mia")
ANN = Author(principal="token:ann", turn_id="turn_1", user_id="mia")


@pytest.fixture(params=["sqlite", "in memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryBlocks]:
    if request.param == "in memory":
        yield InMemoryBlocks()
        return
    memories = await SqliteMemories.open(tmp_path / "memory.db")
    yield SqliteMemoryBlocks(memories.database)
    await memories.close()


async def put(
    store: MemoryBlocks,
    key: BlockKey,
    content: str,
    version: int | None = None,
    request: IdempotencyKey | None = None,
) -> MemoryBlock:
    block = MemoryBlock(key=key, content=content)
    return await store.change(key, lambda _: block, version, ("set", ANN), 1_000, request)


async def refused(work: Any) -> Reason:
    with pytest.raises(WonderError) as caught:
        await work
    return caught.value.fault.reason


async def test_a_block_is_stored_changed_and_deleted_with_a_record(store: MemoryBlocks) -> None:
    first = await put(store, OWN, "one")
    assert first == MemoryBlock(key=OWN, content="one", version=1, created_ms=1_000, updated_ms=1_000)
    edited = await store.change(
        OWN,
        lambda block: replace(block, content=f"{block.content} two"),
        None,
        ("append", ANN),
        2_000,  # type: ignore[type-var, union-attr]
    )
    assert (edited.content, edited.version, edited.created_ms, edited.updated_ms) == (
        "one two",
        2,
        1_000,
        2_000,
    )
    await put(store, MIAS, "likes tea")
    assert [block.content for block in await store.of("ada", ["", "mia", "bob"])] == ["one two", "likes tea"]
    assert await store.of("bob", ["", "mia"]) == []
    assert [(each.version, each.kind, each.content) for each in await store.changes(OWN, 9)] == [
        (2, "append", "one two"),
        (1, "set", "one"),
    ]
    assert (await store.changes(OWN, 1))[0].author == ANN
    await store.remove(OWN, None, Author(principal="token:bob"), 3_000)
    assert [block.key for block in await store.of("ada", ["", "mia"])] == [MIAS]
    assert [(each.kind, each.content) for each in await store.changes(OWN, 9)] == [
        ("delete", ""),
        ("append", ""),
        ("set", ""),
    ]
    # A new block of this name has no etag that an earlier one had.
    assert (await put(store, OWN, "again")).version == 4
    assert await refused(store.remove(replace(OWN, label="x"), None, ANN, 1)) is Reason.MEMORY_NOT_FOUND


async def test_a_change_needs_the_version_that_it_names(store: MemoryBlocks) -> None:
    await put(store, OWN, "one", 0)
    for version in (0, 2, -1):
        assert await refused(put(store, OWN, "two", version)) is Reason.ETAG_MISMATCH
        assert await refused(store.remove(OWN, version, ANN, 1)) is Reason.ETAG_MISMATCH
    assert (await put(store, OWN, "two", 1)).version == 2
    await store.remove(OWN, 2, ANN, 1)


async def test_a_request_is_executed_once(store: MemoryBlocks) -> None:
    key = IdempotencyKey("ann", "r1", "f1")
    assert (await put(store, OWN, "one", request=key)).version == 1
    assert (await put(store, OWN, "one", request=key)).version == 1
    assert (
        await refused(put(store, OWN, "x", request=IdempotencyKey("ann", "r1", "f2")))
        is Reason.REQUEST_ID_REUSED
    )
    gone = own_key("step", "op_1")
    for _ in range(2):
        await store.remove(OWN, None, ANN, 1, gone)
    assert await store.of("ada", [""]) == []


async def test_an_edit_that_raises_changes_nothing(store: MemoryBlocks) -> None:
    await put(store, OWN, "one")

    def fails(block: MemoryBlock | None) -> MemoryBlock:
        raise error(Reason.FIELD_INVALID, "No.")

    assert await refused(store.change(OWN, fails, None, ("replace", ANN), 1)) is Reason.FIELD_INVALID
    assert [block.version for block in await store.of("ada", [""])] == [1]
    assert len(await store.changes(OWN, 9)) == 1


async def test_the_number_of_blocks_and_of_their_changes_is_limited(store: MemoryBlocks) -> None:
    for number in range(MAX_BLOCKS):
        await put(store, replace(OWN, label=f"b{number}"), "x")
        await put(store, replace(MIAS, label=f"b{number}"), "x")
    for key in (OWN, MIAS):
        assert await refused(put(store, key, "x")) is Reason.LIMIT_EXCEEDED
    await put(store, replace(OWN, label="b1"), "y")
    for number in range(MAX_CHANGES + 5):
        await put(store, replace(OWN, label="b0"), str(number))
    changes = await store.changes(replace(OWN, label="b0"), 999)
    assert len(changes) == MAX_CHANGES and changes[0].content == str(MAX_CHANGES + 4)
    keys = [(block.key.subject, block.key.label) for block in await store.page("ada", ("", "b8"), 3)]
    assert keys == [("", "b9"), ("mia", "b0"), ("mia", "b1")]


async def test_what_was_read_is_known_until_it_changes(tmp_path: Path) -> None:
    memories = await SqliteMemories.open(tmp_path / "memory.db")
    store = SqliteMemoryBlocks(memories.database)
    assert store.known("ada", [""]) is None
    assert await store.of("ada", ["", "mia"]) == []
    assert store.known("ada", ["", "mia"]) == [] and store.known("ada", ["bob"]) is None
    block = await put(store, MIAS, "x")
    assert store.known("ada", ["", "mia"]) is None
    assert await store.of("ada", ["mia"]) == [block] == store.known("ada", ["mia"])
    # A read that began before a change does not become known after it.
    read, write = asyncio.create_task(store.of("ada", ["mia"])), asyncio.create_task(put(store, MIAS, "y"))
    await asyncio.gather(read, write)
    assert store.known("ada", ["mia"]) in (None, [write.result()])
    await store.remove(MIAS, None, ANN, 1)
    assert await store.of("ada", ["mia"]) == []
    await memories.close()


async def test_the_blocks_of_a_deleted_agent_are_deleted_and_none_are_written(tmp_path: Path) -> None:
    memories = await SqliteMemories.open(tmp_path / "memory.db")
    store, maintenance = SqliteMemoryBlocks(memories.database), SqliteMemoryMaintenance(memories)
    await put(store, OWN, "x")
    await put(store, replace(OWN, agent_id="bob"), "y")
    await maintenance.add_tombstone("ada", "deleted")
    assert await maintenance.tombstones() == {"ada": "deleted"}
    assert await refused(put(store, OWN, "z")) is Reason.AGENT_NOT_FOUND
    assert await maintenance.delete_agent_memories("ada", 10) == (0, [])
    assert await maintenance.tombstones() == {}
    assert await store.changes(OWN, 9) == [] and await store.page("ada", ("", ""), 9) == []
    assert len(await store.of("bob", [""])) == 1
    await memories.close()


@pytest.mark.parametrize("table", ["memory_blocks", "memory_block_changes"])
async def test_a_damaged_block_is_reported_and_can_be_deleted(tmp_path: Path, table: str) -> None:
    memories = await SqliteMemories.open(tmp_path / "memory.db")
    store = SqliteMemoryBlocks(memories.database)
    await put(store, OWN, "x")
    await memories.database.write(
        lambda connection: connection.execute(f"UPDATE {table} SET content = 'y'").rowcount
    )
    read = store.of("ada", [""]) if table == "memory_blocks" else store.changes(OWN, 9)
    assert await refused(read) is Reason.STORAGE_UNAVAILABLE
    await memories.close()
    assert len(check_memory(tmp_path / "memory.db").problems) == 1
    memories = await SqliteMemories.open(tmp_path / "memory.db")
    store = SqliteMemoryBlocks(memories.database)
    await store.remove(OWN, None, ANN, 1)
    assert await store.of("ada", [""]) == [] and (await store.changes(OWN, 9))[0].kind == "delete"
    await memories.close()
    assert check_memory(tmp_path / "memory.db").problems == []
