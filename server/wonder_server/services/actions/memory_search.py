"""``memory.search``: what the agent remembers that fits a question, best first (feature E3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonder_server.core.memory import Hit
from wonder_server.services.actions.kind import ActionCall, ActionKind, MustWaitError
from wonder_server.services.actions.memories import FILTER, MEMORY_SCHEMA, as_json, remembering_agent, wanted


async def _run(call: ActionCall) -> dict[str, Any]:
    query = call.input["query"]
    if not query.strip():
        return _told([])
    memory, agent_id = call.services.memory, remembering_agent(call)
    return _told(await memory.search(agent_id, query, limit=_limit(call), wanted=wanted(call)))


def _run_at_once(call: ActionCall) -> dict[str, Any]:
    query = call.input["query"]
    if not query.strip():
        return _told([])
    memory, agent_id = call.services.memory, remembering_agent(call)
    hits = memory.search_at_once(agent_id, query, limit=_limit(call), wanted=wanted(call))
    if hits is None:
        raise MustWaitError
    return _told(hits)


def _limit(call: ActionCall) -> int:
    return int(call.input.get("limit", 0))


def _told(hits: Sequence[Hit]) -> dict[str, Any]:
    return {"memories": [as_json(hit.memory) | {"score": hit.score} for hit in hits]}


MEMORY_SEARCH = ActionKind(
    name="memory.search",
    description="Finds memories of the agent in whose name the task runs, best first, each with a score.",
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Plain text; an empty one finds nothing."},
            "limit": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "description": "At most this many; 0 means 10.",
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
    repeatable=True,
    run=_run,
    quick=_run_at_once,
)
