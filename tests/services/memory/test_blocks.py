"""The use cases of memory blocks: edits by tools, limits, bad input (feature M13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.memory.memory_kit import ZeroClock, open_memory_stack
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import own_key
from wonder_server.core.memory.blocks import Author, BlockKey, MemoryBlock
from wonder_server.services.memory.blocks import MemoryBlockService
from wonder_server.services.paging import PageRequest

OWN, MIAS = BlockKey(agent_id="ada", label="notes"), BlockKey(agent_id="ada", label="human", subject="mia")
AGENT = Author(principal="anonymous", turn_id="turn_1")


@pytest.fixture
async def blocks(tmp_path: Path) -> AsyncIterator[MemoryBlockService]:
    async with open_memory_stack(tmp_path, ZeroClock()) as stack:
        yield stack.blocks


async def fault(work: Any) -> tuple[Reason, str]:
    with pytest.raises(WonderError) as caught:
        await work
    return caught.value.fault.reason, caught.value.fault.message


async def test_an_edit_replaces_a_text_that_the_block_has_once(blocks: MemoryBlockService) -> None:
    await blocks.set(MemoryBlock(key=OWN, content="tea, tea\nRome"), AGENT)
    assert (await blocks.replace(OWN, ("Rome", "Bern"), AGENT)).content == "tea, tea\nBern"
    reason, message = await fault(blocks.replace(OWN, ("Rome", "Oslo"), AGENT))
    assert reason is Reason.FIELD_INVALID and 'is now: "tea, tea\\nBern"' in message
    assert "2 times" in (await fault(blocks.replace(OWN, ("tea", "x"), AGENT)))[1]
    assert "must not be empty" in (await fault(blocks.replace(OWN, ("", "x"), AGENT)))[1]
    await blocks.replace(OWN, ("tea, tea\nBern", ""), AGENT)
    assert (await blocks.replace(OWN, ("", "new"), AGENT)).content == "new"
    assert (await blocks.append(OWN, "line", AGENT)).content == "new\nline"
    first = await blocks.changes(OWN, PageRequest(size=2, token=""))
    second = await blocks.changes(OWN, PageRequest(size=9, token=first.next_page_token))
    assert [each.kind for each in (*first.items, *second.items)] == [
        *("append", "replace", "replace", "replace", "set")
    ]


async def test_two_turns_at_once_do_not_overwrite_each_other(blocks: MemoryBlockService) -> None:
    await blocks.set(MemoryBlock(key=OWN, content="city: Rome, tea: green"), AGENT)
    results = await asyncio.gather(
        blocks.replace(OWN, ("Rome", "Bern"), AGENT),
        blocks.replace(OWN, ("Rome", "Oslo"), AGENT),
        blocks.replace(OWN, ("green", "black"), AGENT),
        blocks.append(OWN, "cat: yes", AGENT),
        blocks.append(OWN, "dog: no", AGENT),
        return_exceptions=True,
    )
    [lost] = [each for each in results if isinstance(each, WonderError)]
    assert "does not contain old_text" in str(lost) and "Bern" in str(lost)
    assert (await blocks.get(OWN)).content == "city: Bern, tea: black\ncat: yes\ndog: no"


async def test_a_repeated_step_edits_once(blocks: MemoryBlockService) -> None:
    await blocks.set(MemoryBlock(key=OWN, content="a"), AGENT)
    for _ in range(2):
        assert (await blocks.replace(OWN, ("a", "b"), AGENT, own_key("step", "one"))).content == "b"
    for _ in range(2):
        assert (await blocks.append(OWN, "c", AGENT, own_key("step", "two"))).content == "b\nc"


async def test_a_block_about_a_user_begins_with_its_first_line_and_an_own_one_does_not(
    blocks: MemoryBlockService,
) -> None:
    assert (await blocks.append(MIAS, "likes tea", AGENT)).content == "likes tea"
    for work in (blocks.append(OWN, "x", AGENT), blocks.replace(MIAS, ("", "x"), AGENT)):
        assert (await fault(work))[0] in (Reason.MEMORY_NOT_FOUND, Reason.FIELD_INVALID)
    _, message = await fault(blocks.append(OWN, "x", AGENT))
    assert "memory_block_append" in message and "wonder memory" not in message
    assert (await fault(blocks.get(OWN)))[0] is Reason.MEMORY_NOT_FOUND


async def test_a_read_only_block_and_a_full_one_are_not_edited(blocks: MemoryBlockService) -> None:
    await blocks.set(MemoryBlock(key=OWN, content="a", read_only=True), AGENT)
    assert (await fault(blocks.append(OWN, "x", AGENT)))[0] is Reason.PERMISSION_DENIED
    await blocks.set(MemoryBlock(key=OWN, content="12345", max_characters=5), AGENT)
    reason, message = await fault(blocks.append(OWN, "6", AGENT))
    assert reason is Reason.FIELD_INVALID and "7 characters; the maximum is 5" in message


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"key": BlockKey(agent_id="ada", label="")}, "label"),
        ({"key": BlockKey(agent_id="ada", label="No\nline")}, "label"),
        ({"key": BlockKey(agent_id="ada", label="a" * 65)}, "label"),
        ({"key": BlockKey(agent_id="ada", label="a", subject="x" * 129)}, "subject"),
        ({"max_characters": 0}, "max_characters"),
        ({"max_characters": 10_001}, "max_characters"),
        ({"content": "x" * 2_001}, "content"),
        ({"content": "\ud800"}, "content"),
        ({"description": "x" * 501}, "description"),
    ],
)
async def test_bad_input_is_refused(blocks: MemoryBlockService, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(WonderError) as caught:
        await blocks.set(MemoryBlock(**{"key": OWN, **changes}), AGENT)
    assert (caught.value.fault.reason, caught.value.fault.field) == (Reason.FIELD_INVALID, field)


async def test_lists_have_pages_over_hostile_subjects(blocks: MemoryBlockService) -> None:
    keys = [
        BlockKey(agent_id="ada", label=label, subject=subject)
        for subject in ("", "a\nb", "mia", "\n")
        for label in ("one", "two")
    ]
    for key in keys:
        await blocks.set(MemoryBlock(key=key), AGENT)
    found: list[BlockKey] = []
    request = PageRequest(size=3, token="")
    while True:
        page = await blocks.page("ada", request)
        found += [block.key for block in page.items]
        if not page.next_page_token:
            break
        request = PageRequest(size=3, token=page.next_page_token)
    assert found == sorted(keys, key=lambda key: (key.subject, key.label))


async def test_blocks_about_one_user_have_pages(blocks: MemoryBlockService) -> None:
    for subject in ("", "mia", "bob"):
        for label in ("one", "three", "two"):
            await blocks.set(MemoryBlock(key=BlockKey(agent_id="ada", label=label, subject=subject)), AGENT)
    first = await blocks.page("ada", PageRequest(size=2), "mia")
    assert [block.key.label for block in first.items] == ["one", "three"]
    rest = PageRequest(size=2, token=first.next_page_token)
    last = await blocks.page("ada", rest, "mia")
    assert [(block.key.subject, block.key.label) for block in last.items] == [("mia", "two")]
    assert not last.next_page_token
    for other in (None, "", "bob"):
        with pytest.raises(WonderError) as caught:
            await blocks.page("ada", rest, other)
        assert caught.value.fault.reason is Reason.PAGE_TOKEN_INVALID
    with pytest.raises(WonderError) as caught:
        await blocks.page("ada", PageRequest(size=-1), "mia")
    assert caught.value.fault.field == "page_size"
