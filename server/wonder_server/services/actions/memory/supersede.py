"""``memory.supersede``: writes a memory that replaces another (feature E6).

The old memory stays readable by id and is excluded from search. The step's key makes it repeatable."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import (
    DRAFT,
    ID,
    MEMORY_SCHEMA,
    OF_USER,
    as_json,
    check_of_user,
    draft_from_input,
    idempotency_key,
    memory_owner,
)


async def _run(call: ActionCall) -> JsonDict:
    await check_of_user(call)
    new, _ = await call.services.memory.supersede(
        memory_owner(call), call.input["id"], draft_from_input(call, kind=""), request=idempotency_key(call)
    )
    return as_json(new)


MEMORY_SUPERSEDE = ActionKind(
    name="memory.supersede",
    description="Stores a memory that replaces another. Default of type and subject: those of the other.",
    input_schema={
        "type": "object",
        "properties": {"id": ID, **DRAFT, **OF_USER},
        "required": ["id", "content"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    run=_run,
)
