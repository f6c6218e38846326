"""``memory.write``: the agent remembers something (features D4, E1, E6).

The step's key makes it repeatable: written once however often it runs.
"""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import (
    DRAFT,
    MEMORY_SCHEMA,
    as_json,
    draft_from_input,
    memory_owner,
)

DEFAULT_TYPE = "fact"


async def _run(call: ActionCall) -> dict[str, Any]:
    draft = draft_from_input(call, kind=DEFAULT_TYPE)
    return as_json(await call.services.memory.write(memory_owner(call), draft))


MEMORY_WRITE = ActionKind(
    name="memory.write",
    description="Stores a memory of the agent in whose name the task runs; its type is 'fact' if left out.",
    input_schema={
        "type": "object",
        "properties": {
            **DRAFT,
            "archives_ids": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Memories that it stands for from now on: archived as it is written.",
            },
            "unless_known": {
                "type": "boolean",
                "description": "Answer with the memory that says the same already, if there is one.",
            },
        },
        "required": ["content"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    run=_run,
)
