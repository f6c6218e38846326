"""Long contents of memories: where they lie, what if their store is down, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.services.memory.memory_kit import FailingBlobs, MemoryHouse, memory_house
from wonder_server.adapters.files.blobs import FileBlobs
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
async def house(tmp_path: Path) -> AsyncIterator[MemoryHouse]:
    async with memory_house(tmp_path, Clock()) as opened:
        yield opened


def fact(content: str, **more: Any) -> Draft:
    return Draft(type="fact", content=content, **more)


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(WonderError) as caught:
        await work
    return caught.value.fault.reason


async def listed(house: MemoryHouse, agent: str = "ada") -> list[str]:
    return [memory.content for memory in (await house.service.page(agent, PageRequest(), EVERYTHING)).items]


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 100_000, 1 << 20])
@pytest.mark.parametrize("letter", ["x", "é", "\x00", "🍵"], ids=["ascii", "two bytes", "null", "emoji"])
async def test_every_size_is_read_as_it_was_written(house: MemoryHouse, size: int, letter: str) -> None:
    count = size // len(letter.encode())
    content = letter * count + "x" * (size - count * len(letter.encode()))
    assert len(content.encode()) == size
    written = await house.service.write("ada", fact(content))
    assert (written.content, written.size_bytes) == (content, size)
    assert await house.service.get("ada", written.id) == written
    assert await listed(house) == [content]
    assert len(house.blobs.contents) == (size > 4096)
    [row] = await house.store.get("ada", [written.id])
    assert bool(row.content) == (size <= 4096)


async def test_too_much_is_refused_and_leaves_nothing(house: MemoryHouse) -> None:
    assert await refused(house.service.write("ada", fact("x" * (10 << 20)))) is Reason.PAYLOAD_TOO_LARGE
    assert await refused(house.service.write("ada", fact(""))) is Reason.FIELD_INVALID
    assert (house.blobs.contents, await listed(house)) == ({}, [])


async def test_long_contents_are_found_by_all_their_words(house: MemoryHouse) -> None:
    await house.service.write("ada", fact(LONG + " and at the very end a quokka"))
    [hit] = await house.service.search("ada", "quokkas")
    assert hit.memory.content.endswith("quokka")


async def test_a_write_fails_completely_while_the_store_is_unavailable(
    house: MemoryHouse,
) -> None:
    kept = await house.service.write("ada", fact("short"))
    house.blobs.down = True
    drafts = [fact("also short"), fact(LONG)]
    for work in (
        house.service.write("ada", fact(LONG)),
        house.service.write_all("ada", drafts),
        house.service.update("ada", kept.id, Change(content=LONG)),
        house.service.supersede("ada", kept.id, fact(LONG)),
    ):
        assert await refused(work) is Reason.STORAGE_UNAVAILABLE
    assert await house.service.write("ada", fact("another")), "what is short needs no object"
    assert sorted(await listed(house)) == ["another", "short"]
    assert await house.service.get("ada", kept.id) == kept
    house.blobs.down = False
    await house.service.write_all("ada", drafts)
    assert sorted(await listed(house)) == sorted(["another", "short", "also short", LONG])


async def test_a_read_fails_while_the_store_is_unavailable_and_then_succeeds(house: MemoryHouse) -> None:
    long = await house.service.write("ada", fact(LONG))
    short = await house.service.write("ada", fact("short"))
    house.blobs.down = True
    assert await refused(house.service.get("ada", long.id)) is Reason.STORAGE_UNAVAILABLE
    assert await refused(house.service.page("ada", PageRequest())) is Reason.STORAGE_UNAVAILABLE
    assert await refused(house.service.search("ada", "pineapple")) is Reason.STORAGE_UNAVAILABLE
    assert await house.service.get("ada", short.id) == short
    house.blobs.down = False
    assert await house.service.get("ada", long.id) == long


async def test_forgetting_while_the_store_is_down_is_made_good_when_it_is_back(house: MemoryHouse) -> None:
    long = await house.service.write("ada", fact(LONG))
    house.blobs.down = True
    await house.service.delete("ada", long.id)
    assert await refused(house.service.get("ada", long.id)) is Reason.MEMORY_NOT_FOUND
    assert await house.service.search("ada", "pineapple") == []
    assert len(house.blobs.contents) == 1
    house.blobs.down = False
    assert await house.large_contents.collect() == 1
    assert house.blobs.contents == {}


async def test_an_object_goes_with_the_last_memory_that_has_it(house: MemoryHouse) -> None:
    one, two = await house.service.write_all("ada", [fact(LONG), fact(LONG)])
    theirs = await house.service.write("bob", fact(LONG))
    assert len(house.blobs.contents) == 2, "agents share nothing"
    await house.service.delete("ada", one.id)
    assert (await house.service.get("ada", two.id)).content == LONG
    await house.service.delete("ada", two.id)
    assert len(house.blobs.contents) == 1
    assert (await house.service.get("bob", theirs.id)).content == LONG


async def test_an_object_goes_when_the_content_does(house: MemoryHouse) -> None:
    memory = await house.service.write("ada", fact(LONG))
    other = await house.service.update("ada", memory.id, Change(content=LONG * 2))
    assert (len(house.blobs.contents), other.content) == (1, LONG * 2)
    await house.service.update("ada", memory.id, Change(significance=0.9))
    assert (await house.service.update("ada", memory.id, Change(content="short"))).content == "short"
    assert house.blobs.contents == {}
    assert (await house.service.update("ada", memory.id, Change(content=LONG))).content == LONG


async def test_what_is_known_already_leaves_no_object_behind(house: MemoryHouse) -> None:
    await house.service.write("ada", fact(LONG, unless_known=True))
    known = await house.service.write("ada", fact(LONG.upper(), unless_known=True))
    assert known.content == LONG
    await house.large_contents.collect()
    assert len(house.blobs.contents) == 1


async def test_another_thing_in_the_store_with_the_same_text_is_not_a_memorys(house: MemoryHouse) -> None:
    key = await house.blobs.put(LONG.encode())
    memory = await house.service.write("ada", fact(LONG))
    await house.service.delete("ada", memory.id)
    assert set(house.blobs.contents) == {key} == {key_of(LONG.encode())}


class Slow(FailingBlobs):
    """Objects that take their time."""

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
    async with memory_house(tmp_path, Clock(), blobs=Slow()) as house:

        async def some(_worker: int) -> None:
            for _ in range(15):
                memory = await house.service.write("ada", fact(chance.choice(contents)))
                assert (await house.service.get("ada", memory.id)).content in contents
                if chance.random() < 0.9:
                    await house.service.delete("ada", memory.id)

        await asyncio.gather(*(some(worker) for worker in range(8)))
        left = await listed(house)
        assert left
        await house.large_contents.collect()
        assert len(house.blobs.contents) == len(set(left))
        for memory in (await house.service.page("ada", PageRequest())).items:
            await house.service.delete("ada", memory.id)
        assert house.blobs.contents == {}


async def test_what_a_crash_leaves_is_collected_by_the_next_start(tmp_path: Path) -> None:
    """Noted and put, and no row; noted and not even put; forgotten, and still there."""
    blobs = FailingBlobs()
    async with memory_house(tmp_path, Clock(), blobs=blobs) as house:
        gone = await house.service.write("ada", fact(LONG))
        kept = await house.service.write("ada", fact(LONG + "kept"))
        orphan = await blobs.put(b"memory of ada\n" + b"x" * 5000)
        await house.maintenance.add_unreferenced([orphan, key_of(b"never put")])
        await house.store.remove("ada", gone.id, None, 1)
    async with memory_house(tmp_path, Clock(), blobs=blobs) as house:
        assert len(blobs.contents) == 3
        assert await house.large_contents.collect() == 3
        assert len(blobs.contents) == 1
        assert (await house.service.get("ada", kept.id)).content == LONG + "kept"
        assert await house.maintenance.unreferenced() == []


async def test_a_lost_or_damaged_object_is_an_error_and_its_memory_can_be_deleted(house: MemoryHouse) -> None:
    lost = await house.service.write("ada", fact(LONG))
    damaged = await house.service.write("ada", fact(LONG + "!"))
    [row] = await house.store.get("ada", [damaged.id])
    for key in list(house.blobs.contents):
        if key == row.content_ref:
            house.blobs.contents[key] = b"something else"
        else:
            del house.blobs.contents[key]
    for memory in (lost, damaged):
        assert await refused(house.service.get("ada", memory.id)) is Reason.STORAGE_UNAVAILABLE
        await house.service.delete("ada", memory.id)
    assert await listed(house) == []
    assert await house.service.search("ada", "pineapple") == []


async def test_lists_end_early_where_contents_are_long(house: MemoryHouse) -> None:
    big = "x" * (300 << 10)
    for number in range(7):
        await house.service.write("ada", fact(f"{number}{big[1:]}"))
    token = ""
    pages: list[list[str]] = []
    while True:
        page = await house.service.page("ada", PageRequest(size=100, token=token))
        pages.append([memory.content[0] for memory in page.items])
        token = page.next_page_token
        if not token:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(letter for page in pages for letter in page) == list("0123456")


async def test_the_folder_of_objects_away_is_an_error_that_passes(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    async with memory_house(tmp_path, Clock()) as house:
        folder = tmp_path / "blobs"
        overflow = LargeContents(await FileBlobs.open(folder), house.maintenance)
        service = house.service
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
