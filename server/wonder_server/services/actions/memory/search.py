"""``memory.search``: finds memories that match a query, best first (feature E3)."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.records import Hit
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind, InlineNotPossibleError
from wonder_server.services.actions.memory.common import (
    FILTER,
    MEMORY_SCHEMA,
    as_json,
    filter_from_input,
    memory_owner,
)


async def _run(call: ActionCall) -> JsonDict:
    query = call.input["query"]
    if not query.strip():
        return _hits_as_json([])
    memory, agent_id = call.services.memory, memory_owner(call)
    return _hits_as_json(
        await memory.search(agent_id, query, limit=_limit(call), wanted=filter_from_input(call))
    )


def _run_inline(call: ActionCall) -> JsonDict:
    query = call.input["query"]
    if not query.strip():
        return _hits_as_json([])
    memory, agent_id = call.services.memory, memory_owner(call)
    hits = memory.search_inline(agent_id, query, limit=_limit(call), wanted=filter_from_input(call))
    if hits is None:
        raise InlineNotPossibleError
    return _hits_as_json(hits)


def _limit(call: ActionCall) -> int:
    return int(call.input.get("limit", 0))


def _hits_as_json(hits: Sequence[Hit]) -> JsonDict:
    return {"memories": [as_json(hit.memory) | {"score": hit.score} for hit in hits]}


MEMORY_SEARCH = ActionKind(
    name="memory.search",
    description="Finds memories of the task's agent, best first, each with a score.",
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Plain text. An empty query finds nothing."},
            "limit": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "description": "Maximum number of results. 0 means 10.",
            },
            **FILTER,
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"memories": {"type": "array", "items": MEMORY_SCHEMA}},
    },
    run=_run,
    run_inline=_run_inline,
)
