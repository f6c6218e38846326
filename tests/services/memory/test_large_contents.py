"""Long contents of memories: their objects, an unavailable object store, and removal."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.services.memory.memory_kit import FailingBlobs, MemoryStack, open_memory_stack
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.sqlite.unreferenced_objects import MAX_OBJECTS
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.records import EVERYTHING, Change, Draft
from wonder_server.ports.blobs import key_of
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.paging import PageRequest

LONG = "pineapple " * 1000


class Clock:
    def now_ms(self) -> int:
        return 1_000_000


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[MemoryStack]:
    async with open_memory_stack(tmp_path, Clock()) as opened:
        yield opened


def fact(content: str, **more: Any) -> Draft:
    return Draft(type="fact", content=content, **more)


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(WonderError) as caught:
        await work
    return caught.value.fault.reason


async def listed(stack: MemoryStack, agent: str = "ada") -> list[str]:
    return [memory.content for memory in (await stack.service.page(agent, PageRequest(), EVERYTHING)).items]


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 100_000, 1 << 20])
@pytest.mark.parametrize("letter", ["x", "é", "\x00", "🍵"], ids=["ascii", "two bytes", "null", "emoji"])
async def test_every_size_is_read_as_it_was_written(stack: MemoryStack, size: int, letter: str) -> None:
    count = size // len(letter.encode())
    content = letter * count + "x" * (size - count * len(letter.encode()))
    assert len(content.encode()) == size
    written = await stack.service.write("ada", fact(content))
    assert (written.content, written.size_bytes) == (content, size)
    assert await stack.service.get("ada", written.id) == written
    assert await listed(stack) == [content]
    assert len(stack.blobs.contents) == (size > 4096)
    [row] = await stack.store.get("ada", [written.id])
    assert bool(row.content) == (size <= 4096)


async def test_too_much_is_refused_and_leaves_nothing(stack: MemoryStack) -> None:
    assert await refused(stack.service.write("ada", fact("x" * (10 << 20)))) is Reason.PAYLOAD_TOO_LARGE
    assert await refused(stack.service.write("ada", fact(""))) is Reason.FIELD_INVALID
    assert (stack.blobs.contents, await listed(stack)) == ({}, [])


async def test_long_contents_are_found_by_all_their_words(stack: MemoryStack) -> None:
    await stack.service.write("ada", fact(LONG + " and at the very end a quokka"))
    [hit] = await stack.service.search("ada", "quokkas")
    assert hit.memory.content.endswith("quokka")


async def test_a_write_fails_completely_while_the_store_is_unavailable(
    stack: MemoryStack,
) -> None:
    kept = await stack.service.write("ada", fact("short"))
    stack.blobs.down = True
    drafts = [fact("also short"), fact(LONG)]
    for work in (
        stack.service.write("ada", fact(LONG)),
        stack.service.write_all("ada", drafts),
        stack.service.update("ada", kept.id, Change(content=LONG)),
        stack.service.supersede("ada", kept.id, fact(LONG)),
    ):
        assert await refused(work) is Reason.STORAGE_UNAVAILABLE
    assert await stack.service.write("ada", fact("another")), "what is short needs no object"
    assert sorted(await listed(stack)) == ["another", "short"]
    assert await stack.service.get("ada", kept.id) == kept
    stack.blobs.down = False
    await stack.service.write_all("ada", drafts)
    assert sorted(await listed(stack)) == sorted(["another", "short", "also short", LONG])


async def test_a_read_fails_while_the_store_is_unavailable_and_then_succeeds(stack: MemoryStack) -> None:
    long = await stack.service.write("ada", fact(LONG))
    short = await stack.service.write("ada", fact("short"))
    stack.blobs.down = True
    assert await refused(stack.service.get("ada", long.id)) is Reason.STORAGE_UNAVAILABLE
    assert await refused(stack.service.page("ada", PageRequest())) is Reason.STORAGE_UNAVAILABLE
    assert await refused(stack.service.search("ada", "pineapple")) is Reason.STORAGE_UNAVAILABLE
    assert await stack.service.get("ada", short.id) == short
    stack.blobs.down = False
    assert await stack.service.get("ada", long.id) == long


async def test_an_object_is_removed_when_the_store_is_available_again(stack: MemoryStack) -> None:
    long = await stack.service.write("ada", fact(LONG))
    stack.blobs.down = True
    await stack.service.delete("ada", long.id)
    assert await refused(stack.service.get("ada", long.id)) is Reason.MEMORY_NOT_FOUND
    assert await stack.service.search("ada", "pineapple") == []
    assert len(stack.blobs.contents) == 1
    stack.blobs.down = False
    assert await stack.large_contents.collect() == 1
    assert stack.blobs.contents == {}


async def test_an_object_goes_with_the_last_memory_that_has_it(stack: MemoryStack) -> None:
    one, two = await stack.service.write_all("ada", [fact(LONG), fact(LONG)])
    theirs = await stack.service.write("bob", fact(LONG))
    assert len(stack.blobs.contents) == 2, "agents share nothing"
    await stack.service.delete("ada", one.id)
    assert (await stack.service.get("ada", two.id)).content == LONG
    await stack.service.delete("ada", two.id)
    assert len(stack.blobs.contents) == 1
    assert (await stack.service.get("bob", theirs.id)).content == LONG


async def test_an_object_goes_when_the_content_does(stack: MemoryStack) -> None:
    memory = await stack.service.write("ada", fact(LONG))
    other = await stack.service.update("ada", memory.id, Change(content=LONG * 2))
    assert (len(stack.blobs.contents), other.content) == (1, LONG * 2)
    await stack.service.update("ada", memory.id, Change(significance=0.9))
    assert (await stack.service.update("ada", memory.id, Change(content="short"))).content == "short"
    assert stack.blobs.contents == {}
    assert (await stack.service.update("ada", memory.id, Change(content=LONG))).content == LONG


async def test_a_known_content_leaves_no_object(stack: MemoryStack) -> None:
    await stack.service.write("ada", fact(LONG, unless_known=True))
    known = await stack.service.write("ada", fact(LONG.upper(), unless_known=True))
    assert known.content == LONG
    await stack.large_contents.collect()
    assert len(stack.blobs.contents) == 1


async def test_another_thing_in_the_store_with_the_same_text_is_not_a_memorys(stack: MemoryStack) -> None:
    key = await stack.blobs.put(LONG.encode())
    memory = await stack.service.write("ada", fact(LONG))
    await stack.service.delete("ada", memory.id)
    assert set(stack.blobs.contents) == {key} == {key_of(LONG.encode())}


class Slow(FailingBlobs):
    """An object store whose operations wait for an event."""

    async def put(self, content: bytes) -> str:
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        return await super().put(content)

    async def delete(self, key: str) -> None:
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        await super().delete(key)


async def test_writing_and_forgetting_the_same_at_once_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    contents = [LONG + letter for letter in "abc"]
    async with open_memory_stack(tmp_path, Clock(), blobs=Slow()) as stack:

        async def some(_worker: int) -> None:
            for _ in range(15):
                memory = await stack.service.write("ada", fact(chance.choice(contents)))
                assert (await stack.service.get("ada", memory.id)).content in contents
                if chance.random() < 0.9:
                    await stack.service.delete("ada", memory.id)

        await asyncio.gather(*(some(worker) for worker in range(8)))
        left = await listed(stack)
        assert left
        await stack.large_contents.collect()
        assert len(stack.blobs.contents) == len(set(left))
        for memory in (await stack.service.page("ada", PageRequest())).items:
            await stack.service.delete("ada", memory.id)
        assert stack.blobs.contents == {}


async def test_the_next_start_collects_the_objects_of_a_crash(tmp_path: Path) -> None:
    """Three cases: recorded and written without a row, recorded and not written, deleted and still
    present."""
    blobs = FailingBlobs()
    async with open_memory_stack(tmp_path, Clock(), blobs=blobs) as stack:
        gone = await stack.service.write("ada", fact(LONG))
        kept = await stack.service.write("ada", fact(LONG + "kept"))
        orphan = await blobs.put(b"memory of ada\n" + b"x" * 5000)
        await stack.maintenance.add_unreferenced("ada", [orphan, key_of(b"never put")])
        await stack.store.remove("ada", gone.id, None, 1)
    async with open_memory_stack(tmp_path, Clock(), blobs=blobs) as stack:
        assert len(blobs.contents) == 3
        assert await stack.large_contents.collect() == 3
        assert len(blobs.contents) == 1
        assert (await stack.service.get("ada", kept.id)).content == LONG + "kept"
        assert await stack.maintenance.unreferenced() == []


async def test_a_lost_or_damaged_object_is_an_error_and_its_memory_can_be_deleted(stack: MemoryStack) -> None:
    lost = await stack.service.write("ada", fact(LONG))
    damaged = await stack.service.write("ada", fact(LONG + "!"))
    [row] = await stack.store.get("ada", [damaged.id])
    for key in list(stack.blobs.contents):
        if key == row.content_ref:
            stack.blobs.contents[key] = b"something else"
        else:
            del stack.blobs.contents[key]
    for memory in (lost, damaged):
        assert await refused(stack.service.get("ada", memory.id)) is Reason.STORAGE_UNAVAILABLE
        await stack.service.delete("ada", memory.id)
    assert await listed(stack) == []
    assert await stack.service.search("ada", "pineapple") == []


async def test_a_search_omits_a_hit_whose_object_is_damaged_or_lost_and_logs_it_once(
    stack: MemoryStack,
) -> None:
    kept = await stack.service.write("ada", fact(LONG + "kept"))
    lost = await stack.service.write("ada", fact(LONG + "lost"))
    damaged = await stack.service.write("ada", fact(LONG + "damaged"))
    rows = await stack.store.get("ada", [lost.id, damaged.id])
    del stack.blobs.contents[rows[0].content_ref]
    stack.blobs.contents[rows[1].content_ref] = b"memory of ada\nsomething else"
    with capture_logs() as logs:
        for agents in (["ada"], ["ada", "bob"]):
            for _ in range(2):
                hits = await stack.service.search_all(agents, "pineapple")
                assert [hit.memory.id for hit in hits] == [kept.id]
    skipped = [line["problem"] for line in logs if line["event"] == "damaged_record_skipped"]
    assert len(skipped) == 2 and any(lost.id in each for each in skipped)
    stack.blobs.down = True
    assert await refused(stack.service.search_all(["ada"], "pineapple")) is Reason.STORAGE_UNAVAILABLE


async def test_lists_end_early_where_contents_are_long(stack: MemoryStack) -> None:
    big = "x" * (300 << 10)
    for number in range(7):
        await stack.service.write("ada", fact(f"{number}{big[1:]}"))
    token = ""
    pages: list[list[str]] = []
    while True:
        page = await stack.service.page("ada", PageRequest(size=100, token=token))
        pages.append([memory.content[0] for memory in page.items])
        token = page.next_page_token
        if not token:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(letter for page in pages for letter in page) == list("0123456")


async def test_the_folder_of_objects_away_is_an_error_that_passes(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    async with open_memory_stack(tmp_path, Clock()) as stack:
        folder = tmp_path / "blobs"
        overflow = LargeContents(await FileBlobs.open(folder), stack.maintenance)
        service = stack.service
        service._large_contents = overflow
        written = await service.write("ada", fact(LONG))
        folder.rename(tmp_path / "away")
        folder.write_text("no folder")
        assert await refused(service.write("ada", fact(LONG + "2"))) is Reason.STORAGE_UNAVAILABLE
        assert await refused(service.get("ada", written.id)) is Reason.STORAGE_UNAVAILABLE
        folder.unlink()
        (tmp_path / "away").rename(folder)
        assert (await service.get("ada", written.id)).content == LONG
        await service.write("ada", fact(LONG + "2"))
        await overflow.close()


async def test_a_node_collects_the_objects_of_its_own_agents_only(tmp_path: Path) -> None:
    """Also where the first page of unreferenced objects belongs to others, and those of earlier versions."""
    blobs = FailingBlobs()
    async with open_memory_stack(tmp_path, Clock(), blobs=blobs) as stack:
        others = [f"{number:064x}" for number in range(MAX_OBJECTS + 20)]
        await stack.maintenance.add_unreferenced("bob", others)
        own = await blobs.put(b"memory of ada" + b"x" * 5000)
        await stack.maintenance.add_unreferenced("ada", [own])
        await stack.maintenance.add_unreferenced("", ["f" * 64])
        ada = LargeContents(blobs, stack.maintenance, lambda agent_id: agent_id == "ada")
        assert await ada.collect() == 1
        assert own not in blobs.contents
        rest = LargeContents(blobs, stack.maintenance, lambda agent_id: agent_id != "ada")
        assert await rest.collect() == len(others) + 1
        assert await stack.maintenance.unreferenced() == []
