"""``memory.read``: reads one memory of the agent, by id (features D7, E1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.attribution import SPEAKERS
from wonder_server.services.actions.memory.common import ID, MEMORY_TEXT_SCHEMA, as_text_json, memory_owner


async def _run(call: ActionCall) -> JsonDict:
    return as_text_json(await call.services.memory.get(memory_owner(call), call.input["id"]), call)


MEMORY_READ = ActionKind(
    name="memory.read",
    description="Reads one memory of the task's agent.",
    input_schema={
        "type": "object",
        "properties": {"id": ID, **SPEAKERS},
        "required": ["id"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_TEXT_SCHEMA,
    run=_run,
)
