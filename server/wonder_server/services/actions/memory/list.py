"""``memory.list``: lists the agent's memories, newest first (features D7, E1, E7)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.memory.attribution import SPEAKERS
from wonder_server.services.actions.memory.common import (
    FILTER,
    MEMORY_TEXT_SCHEMA,
    as_text_json,
    filter_from_input,
    memory_owner,
)
from wonder_server.services.paging import PageRequest


async def _run(call: ActionCall) -> JsonDict:
    request = PageRequest(size=int(call.input.get("limit", 0)), token=call.input.get("page_token", ""))
    page = await call.services.memory.page(memory_owner(call), request, filter_from_input(call))
    return {
        "memories": [as_text_json(memory, call) for memory in page.items],
        "next_page_token": page.next_page_token,
    }


MEMORY_LIST = ActionKind(
    name="memory.list",
    description="Lists memories of the task's agent, newest first, in pages.",
    input_schema={
        "type": "object",
        "properties": {
            "limit": {
                "type": "integer",
                "minimum": 0,
                "maximum": 500,
                "description": "Maximum number on a page. 0 means 50.",
            },
            "page_token": {"type": "string", "description": "next_page_token of the previous page."},
            **FILTER,
            **SPEAKERS,
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "memories": {"type": "array", "items": MEMORY_TEXT_SCHEMA},
            "next_page_token": {"type": "string", "description": "Empty on the last page."},
        },
    },
    run=_run,
)
