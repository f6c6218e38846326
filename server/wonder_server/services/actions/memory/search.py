"""``memory.search``: finds memories that match a query, best first (feature E3)."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.ranking import Hit
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind, InlineNotPossibleError
from wonder_server.services.actions.memory.attribution import SPEAKERS
from wonder_server.services.actions.memory.common import (
    FILTER,
    MEMORY_TEXT_SCHEMA,
    as_text_json,
    filter_from_input,
    memory_owner,
    to_int,
)


async def _run(call: ActionCall) -> JsonDict:
    query = call.input["query"]
    if not query.strip():
        return _hits_as_json(call, [])
    memory, agent_id = call.services.memory, memory_owner(call)
    now_ms = to_int(call.input.get("now_ms"))
    hits = await memory.search(
        agent_id, query, limit=_limit(call), wanted=filter_from_input(call), now_ms=now_ms
    )
    return _hits_as_json(call, hits)


def _run_inline(call: ActionCall) -> JsonDict:
    query = call.input["query"]
    if not query.strip():
        return _hits_as_json(call, [])
    memory, agent_id = call.services.memory, memory_owner(call)
    hits = memory.search_inline(agent_id, query, limit=_limit(call), wanted=filter_from_input(call))
    if hits is None:
        raise InlineNotPossibleError
    return _hits_as_json(call, hits)


def _limit(call: ActionCall) -> int:
    return int(call.input.get("limit", 0))


def _hits_as_json(call: ActionCall, hits: Sequence[Hit]) -> JsonDict:
    least = call.input.get("min_relevance", 0.0)
    kept = [hit for hit in hits if hit.relevance >= least]
    return {
        "memories": [
            as_text_json(hit.memory, call) | {"score": hit.score, "relevance": hit.relevance} for hit in kept
        ],
        "omitted": len(hits) - len(kept),
    }


MEMORY_SEARCH = ActionKind(
    name="memory.search",
    description="Finds memories of the task's agent, best first, each with its score and relevance.",
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
            "min_relevance": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Minimum relevance of a result. Others are omitted. Default: 0.",
            },
            "now_ms": {
                "type": "integer",
                "description": "Time that dates in the query are relative to, in milliseconds since 1970. "
                "Default: now.",
            },
            **FILTER,
            **SPEAKERS,
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "memories": {"type": "array", "items": MEMORY_TEXT_SCHEMA},
            "omitted": {"type": "integer", "description": "Results below min_relevance."},
        },
    },
    run=_run,
    run_inline=_run_inline,
)
