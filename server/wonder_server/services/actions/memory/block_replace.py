"""``memory.block.replace``: replaces a text in a memory block (feature M13).

The text to replace must occur exactly once, so an edit never overwrites that of another turn. The step's key
makes it repeatable."""

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
    texts = call.input["old_text"], call.input["new_text"]
    request = idempotency_key(call)
    return as_json(await blocks_of(call).replace(key_from_input(call), texts, author_of(call), request))


MEMORY_BLOCK_REPLACE = ActionKind(
    name="memory.block.replace",
    description="Replaces a text in a memory block of the task's agent.",
    input_schema={
        "type": "object",
        "properties": {
            **WHICH,
            "old_text": {
                "type": "string",
                "description": "Text that the block contains exactly once. Empty only for an empty block.",
            },
            "new_text": {"type": "string", "description": "Text in its place."},
        },
        "required": ["label", "old_text", "new_text"],
        "additionalProperties": False,
    },
    output_schema=BLOCK_SCHEMA,
    run=_run,
)
