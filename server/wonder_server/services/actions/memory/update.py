"""``memory.update``: changes a memory of the agent (features E1, E6).

Omitted fields stay unchanged. The step's key makes it repeatable."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.records import Change
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.common import (
    DRAFT,
    ID,
    MEMORY_SCHEMA,
    OF_USER,
    as_json,
    check_of_user,
    idempotency_key,
    memory_owner,
)

_CHANGEABLE = ("content", "type", "significance", "metadata", "contradicts_ids", "subject")


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    await check_of_user(call)
    contradicts, archived = given.get("contradicts_ids"), given.get("archived")
    change = Change(
        type=given.get("type"),
        content=given.get("content"),
        significance=float(given["significance"]) if "significance" in given else None,
        metadata=dict(given["metadata"]) if "metadata" in given else None,
        contradicts_ids=None if contradicts is None else tuple(contradicts),
        subject=given.get("subject"),
        archived_ms=None if archived is None else call.services.clock.now_ms() * archived,
    )
    memory = await call.services.memory.update(
        memory_owner(call), given["id"], change, request=idempotency_key(call)
    )
    return as_json(memory)


MEMORY_UPDATE = ActionKind(
    name="memory.update",
    description="Changes a memory of the task's agent.",
    input_schema={
        "type": "object",
        "properties": {
            "id": ID,
            **OF_USER,
            **{name: DRAFT[name] for name in _CHANGEABLE},
            "archived": {
                "type": "boolean",
                "description": "True to archive the memory: excluded from search, still readable by id.",
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    run=_run,
)
