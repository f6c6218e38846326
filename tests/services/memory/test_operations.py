"""Memory operations of an extraction: each applied once, to the agent's own memory (D4, E6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.memory.memory_kit import MemoryStack, open_memory_stack
from tests.views import ForAll
from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.memory.records import EVERYTHING
from wonder_server.services.memory.operations import MemoryOperations
from wonder_server.services.paging import PageRequest


class Clock:
    def now_ms(self) -> int:
        return 1_000_000


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[MemoryStack]:
    async with open_memory_stack(tmp_path, Clock()) as opened:
        yield opened


async def apply(stack: MemoryStack, key: str, agent: str = "ada", **operation: JsonValue) -> str:
    """Apply an operation twice, as after a crash. Return the memory's id."""
    scope = Scope(agent_id=agent, conversation_id="conv_1", turn_id="turn_1", run_id="run_1", key=key)
    operations = MemoryOperations(ForAll(stack.service), Clock())
    first = await operations.apply(operation, scope)
    assert await operations.apply(operation, scope) == first
    return str(first["id"])


async def contents(stack: MemoryStack, *, everything: bool = False) -> set[str]:
    page = await stack.service.page("ada", PageRequest(), EVERYTHING if everything else None)
    return {memory.content for memory in page.items}


async def test_each_operation_is_applied_once(stack: MemoryStack) -> None:
    tea = await apply(stack, "1", content="tea", speaker="Anna", ordinal=2, metadata={"a": 1})
    memory = await stack.service.get("ada", tea)
    assert (memory.type, memory.source.speaker, memory.source.run_id) == ("fact", "Anna", "run_1")
    milk = await apply(stack, "2", op="supersede", id=tea, content="milk")
    assert await contents(stack) == {"milk"}
    assert await apply(stack, "3", op="update", id=milk, significance=1, metadata={"b": 2}) == milk
    memory = await stack.service.get("ada", milk)
    assert (memory.content, memory.significance, memory.metadata) == ("milk", 1.0, {"b": 2})
    await apply(stack, "4", op="archive", id=milk)
    assert await contents(stack) == set()
    assert await contents(stack, everything=True) == {"tea", "milk"}
    both = await apply(stack, "5", content="both", type="summary", archives_ids=[])
    await apply(stack, "6", op="delete", id=both)
    await apply(stack, "7", op="delete", id="mem_never")
    assert await contents(stack, everything=True) == {"tea", "milk"}


async def test_a_replaced_memory_is_replaced_at_its_latest_replacement(stack: MemoryStack) -> None:
    one = await apply(stack, "1", content="one")
    two = await apply(stack, "2", op="supersede", id=one, content="two")
    three = await apply(stack, "3", op="supersede", id=one, content="three")
    assert (await stack.service.get("ada", two)).superseded_by_id == three
    assert await contents(stack) == {"three"}
    await stack.service.delete("ada", three)
    await apply(stack, "4", op="supersede", id=three, content="four")
    assert await contents(stack) == {"four"}


async def test_no_operation_reaches_another_agents_memory(stack: MemoryStack) -> None:
    mine = await apply(stack, "1", content="mine")
    for number, op in enumerate(("update", "archive")):
        with pytest.raises(WonderError) as caught:
            await apply(stack, f"b{number}", "bob", op=op, id=mine, content="theirs")
        assert caught.value.fault.reason is Reason.MEMORY_NOT_FOUND
    await apply(stack, "b3", "bob", op="delete", id=mine)
    await apply(stack, "b4", "bob", op="supersede", id=mine, content="bob's own")
    memory = await stack.service.get("ada", mine)
    assert (memory.content, memory.version, memory.superseded_by_id) == ("mine", 1, "")


@pytest.mark.parametrize(
    ("operation", "place"),
    [
        ({"op": "explode"}, "op"),
        ({"op": ["write"]}, "op"),
        ({}, "content"),
        ({"content": 7}, "content"),
        ({"content": "x", "significance": True}, "significance"),
        ({"content": "x", "metadata": []}, "metadata"),
        ({"content": "x", "contradicts_ids": "mem_1"}, "contradicts_ids"),
        ({"content": "x", "archives_ids": [1]}, "archives_ids"),
        ({"content": "x", "ordinal": "first"}, "ordinal"),
        ({"op": "update"}, "id"),
        ({"op": "delete", "id": 7}, "id"),
        ({"op": "supersede", "id": "mem_1"}, "content"),
    ],
    ids=str,
)
async def test_an_invalid_operation_is_rejected_with_its_field(
    stack: MemoryStack, operation: JsonDict, place: str
) -> None:
    with pytest.raises(WonderError) as caught:
        await apply(stack, "1", **operation)
    fault = caught.value.fault
    assert (fault.reason, fault.field) == (Reason.FIELD_INVALID, f"memory_operations.{place}")
