"""``memory.delete``: deletes a memory of the agent (features D4, E6).

The step's key makes it repeatable. A memory that does not exist is an error, so that a wrong id is
noticed."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import (
    ID,
    OF_USER,
    check_of_user,
    idempotency_key,
    memory_owner,
)


async def _run(call: ActionCall) -> JsonDict:
    memory_id = call.input["id"]
    memory = await check_of_user(call)
    await call.services.memory.delete(memory_owner(call), memory_id, request=idempotency_key(call))
    return {"id": memory_id, "content": "" if memory is None else memory.content}


MEMORY_DELETE = ActionKind(
    name="memory.delete",
    description="Deletes a memory of the task's agent, with its vectors and the links to it.",
    input_schema={
        "type": "object",
        "properties": {"id": ID, **OF_USER},
        "required": ["id"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "content": {
                "type": "string",
                "description": "Content of the deleted memory; empty without `of_user`, and if an earlier "
                "attempt of the step deleted it.",
            },
        },
    },
    run=_run,
)
