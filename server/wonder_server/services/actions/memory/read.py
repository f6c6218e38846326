"""``memory.read``: reads one memory of the agent, by id (features D7, E1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import ID, MEMORY_SCHEMA, as_json, memory_owner


async def _run(call: ActionCall) -> JsonDict:
    return as_json(await call.services.memory.get(memory_owner(call), call.input["id"]))


MEMORY_READ = ActionKind(
    name="memory.read",
    description="Reads one memory of the task's agent.",
    input_schema={
        "type": "object",
        "properties": {"id": ID},
        "required": ["id"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    run=_run,
)
