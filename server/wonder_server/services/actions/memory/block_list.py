"""``memory.block.list``: the memory blocks that stand in a request (feature M13)."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.blocks import MemoryBlock
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind, InlineNotPossibleError
from wonder_server.services.actions.memory.attribution import SPEAKERS
from wonder_server.services.actions.memory.block import BLOCK_SCHEMA, as_json, subjects_of
from wonder_server.services.actions.memory.common import memory_owner


async def _run(call: ActionCall) -> JsonDict:
    agent_id, blocks = memory_owner(call), call.services.memory_blocks
    return _as_json(call, [] if blocks is None else await blocks.of(agent_id, subjects_of(call)))


def _run_inline(call: ActionCall) -> JsonDict:
    agent_id, blocks = memory_owner(call), call.services.memory_blocks
    found = [] if blocks is None else blocks.known(agent_id, subjects_of(call))
    if found is None:
        raise InlineNotPossibleError
    return _as_json(call, found)


def _as_json(call: ActionCall, found: Sequence[MemoryBlock]) -> JsonDict:
    speakers, name_user = call.input.get("speakers", ()), call.input.get("name_user", False)
    return {"blocks": [as_json(block, speakers, name_user=name_user) for block in found]}


MEMORY_BLOCK_LIST = ActionKind(
    name="memory.block.list",
    description="Lists the memory blocks of the task's agent, and those about the user of the turn.",
    input_schema={"type": "object", "properties": SPEAKERS, "additionalProperties": False},
    output_schema={
        "type": "object",
        "properties": {"blocks": {"type": "array", "items": BLOCK_SCHEMA}},
    },
    run=_run,
    run_inline=_run_inline,
)
