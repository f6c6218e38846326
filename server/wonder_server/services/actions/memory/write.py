"""``memory.write``: stores a memory of the agent (features D4, E1, E6).

The step's key makes it repeatable: a repeated step stores nothing new."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import (
    DRAFT,
    MEMORY_SCHEMA,
    as_json,
    draft_from_input,
    memory_owner,
)

DEFAULT_TYPE = "fact"


async def _run(call: ActionCall) -> JsonDict:
    draft = draft_from_input(call, kind=DEFAULT_TYPE)
    return as_json(await call.services.memory.write(memory_owner(call), draft))


MEMORY_WRITE = ActionKind(
    name="memory.write",
    description="Stores a memory of the task's agent. Default type: fact.",
    input_schema={
        "type": "object",
        "properties": {
            **DRAFT,
            "archives_ids": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Ids of memories that it summarizes. They are archived in the same commit.",
            },
            "unless_known": {
                "type": "boolean",
                "description": "Return an existing memory with the same content instead, if there is one.",
            },
        },
        "required": ["content"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    run=_run,
)
