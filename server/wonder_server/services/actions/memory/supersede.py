"""``memory.supersede``: writes a memory that replaces another (feature E6).

The old memory stays readable by id and is excluded from search. The step's key makes it repeatable."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import (
    DRAFT,
    ID,
    MEMORY_SCHEMA,
    as_json,
    draft_from_input,
    idempotency_key,
    memory_owner,
)


async def _run(call: ActionCall) -> JsonDict:
    new, _ = await call.services.memory.supersede(
        memory_owner(call), call.input["id"], draft_from_input(call, kind=""), request=idempotency_key(call)
    )
    return as_json(new)


MEMORY_SUPERSEDE = ActionKind(
    name="memory.supersede",
    description="Stores a memory that replaces another. Default type: that of the other.",
    input_schema={
        "type": "object",
        "properties": {"id": ID, **DRAFT},
        "required": ["id", "content"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    run=_run,
)
