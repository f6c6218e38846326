"""``memory.delete``: the agent forgets something, everywhere (features D4, E6).

The step's key makes it repeatable. What is not there is an error, so that a wrong id does not pass.
"""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import ID, idempotency_key, memory_owner


async def _run(call: ActionCall) -> dict[str, Any]:
    memory_id = call.input["id"]
    await call.services.memory.delete(memory_owner(call), memory_id, request=idempotency_key(call))
    return {"id": memory_id}


MEMORY_DELETE = ActionKind(
    name="memory.delete",
    description="Forgets a memory of the agent in whose name the task runs: text, vector and links to it.",
    input_schema={
        "type": "object",
        "properties": {"id": ID},
        "required": ["id"],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "properties": {"id": {"type": "string"}}},
    run=_run,
)
