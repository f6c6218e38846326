"""``memory.block.append``: adds a line to a memory block (feature M13).

The step's key makes it repeatable."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.block import (
    BLOCK_SCHEMA,
    WHICH,
    as_json,
    author_of,
    blocks_of,
    key_from_input,
)
from wonder_server.services.actions.memory.common import idempotency_key


async def _run(call: ActionCall) -> JsonDict:
    text, request = call.input["text"], idempotency_key(call)
    return as_json(await blocks_of(call).append(key_from_input(call), text, author_of(call), request))


MEMORY_BLOCK_APPEND = ActionKind(
    name="memory.block.append",
    description="Adds a line to a memory block of the task's agent. Creates a block about the user.",
    input_schema={
        "type": "object",
        "properties": {**WHICH, "text": {"type": "string", "minLength": 1, "description": "Text to add."}},
        "required": ["label", "text"],
        "additionalProperties": False,
    },
    output_schema=BLOCK_SCHEMA,
    run=_run,
)
