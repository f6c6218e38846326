"""Parts of the ``memory.*`` actions: schemas, owner, JSON form of memories."""

from __future__ import annotations

from dataclasses import fields

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.records import Draft, Filter, Memory, Source
from wonder_server.ports.memories import Request
from wonder_server.services.actions.contract.kind import ActionCall

MEMORY_SCHEMA: JsonDict = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"type": "string"},
        "content": {"type": "string"},
        "significance": {"type": "number"},
        "metadata": {"type": "object"},
        "source": {
            "type": "object",
            "description": "Origin of the memory. Unknown fields are omitted.",
            "properties": {
                "conversation_id": {"type": "string"},
                "turn_id": {"type": "string"},
                "move_id": {"type": "string"},
                "run_id": {"type": "string"},
                "speaker": {"type": "string"},
                "ordinal": {"type": "integer"},
            },
        },
        "supersedes_id": {"type": "string", "description": "Id of the memory that it replaced, or empty."},
        "superseded_by_id": {"type": "string", "description": "Id of the memory that replaced it, or empty."},
        "contradicts_ids": {"type": "array", "items": {"type": "string"}},
        "archived_ms": {
            "type": "integer",
            "description": "Milliseconds since 1970; 0 if it is not archived.",
        },
        "created_ms": {"type": "integer", "description": "Milliseconds since 1970."},
        "updated_ms": {"type": "integer", "description": "Milliseconds since 1970."},
    },
}

_SOURCE = tuple(field.name for field in fields(Source))

ID: JsonDict = {"type": "string", "description": "Id of the memory, from a search."}

DRAFT: JsonDict = {
    "content": {"type": "string", "minLength": 1, "description": "Text of the memory."},
    "type": {"type": "string", "description": "Type of the memory, defined by the library."},
    "significance": {"type": "number", "minimum": 0, "maximum": 1},
    "metadata": {"type": "object"},
    "contradicts_ids": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Ids of the agent's memories that it contradicts.",
    },
    "speaker": {"type": "string", "description": "Name of the participant who said it."},
    "ordinal": {
        "type": "integer",
        "minimum": 0,
        "description": "Number of its message in the conversation, from 1.",
    },
    "move_id": {
        "type": "string",
        "description": "Id of the move that it comes from. Default: the move that made this tool call.",
    },
}

FILTER: JsonDict = {
    "types": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Filter by type. Empty means all.",
    },
    "metadata": {"type": "object", "description": "Filter by metadata: all of these values."},
    "conversation_id": {"type": "string", "description": "Filter by conversation."},
    "turn_id": {"type": "string", "description": "Filter by turn."},
    "start_ms": {
        "type": "integer",
        "description": "Filter by creation time, from this one, in milliseconds since 1970.",
    },
    "end_ms": {
        "type": "integer",
        "description": "Filter by creation time, before this one, in milliseconds since 1970.",
    },
    "include_superseded": {"type": "boolean", "description": "Include superseded and archived memories."},
}


def memory_owner(call: ActionCall) -> str:
    """Return the agent whose memory the action uses: always the context's, never the input's (feature E5).
    Raises NO_AGENT."""
    if not call.context.agent_id:
        raise error(
            Reason.NO_AGENT, "The task runs without an agent, so it has no memory. Set `context.agent_id`."
        )
    return call.context.agent_id


def draft_from_input(call: ActionCall, *, kind: str) -> Draft:
    """Return the memory of an input with the fields of `DRAFT`, with its source. ``kind`` is the default
    type."""
    given, context = call.input, call.context
    return Draft(
        type=given.get("type", kind),
        content=given["content"],
        significance=float(given.get("significance", 0.5)),
        metadata=dict(given.get("metadata", {})),
        source=Source(
            conversation_id=context.conversation_id,
            turn_id=context.turn_id,
            move_id=given.get("move_id", "") or context.move_id,
            run_id=context.run_id,
            speaker=given.get("speaker", ""),
            ordinal=int(given.get("ordinal", 0)),
        ),
        contradicts_ids=tuple(given.get("contradicts_ids", ())),
        archives_ids=tuple(given.get("archives_ids", ())),
        idempotency_key=context.key,
        unless_known=given.get("unless_known", False),
    )


def idempotency_key(call: ActionCall) -> Request | None:
    """Return the idempotency key of the step, so that a repeated step changes nothing."""
    return Request(id=f"step/{call.context.key}", fingerprint="") if call.context.key else None


def filter_from_input(call: ActionCall) -> Filter:
    """Return the filter of an input with the fields of `FILTER`."""
    given = call.input
    return Filter(
        types=tuple(given.get("types", ())),
        metadata=dict(given.get("metadata", {})),
        conversation_id=given.get("conversation_id", ""),
        turn_id=given.get("turn_id", ""),
        start_ms=_to_int(given.get("start_ms")),
        end_ms=_to_int(given.get("end_ms")),
        set_aside=given.get("include_superseded", False),
    )


def _to_int(value: float | None) -> int | None:
    return None if value is None else int(value)


def as_json(memory: Memory) -> JsonDict:
    """Return a memory as `MEMORY_SCHEMA` describes it."""
    return {
        "id": memory.id,
        "type": memory.type,
        "content": memory.content,
        "significance": memory.significance,
        "metadata": memory.metadata,
        "source": {name: value for name in _SOURCE if (value := getattr(memory.source, name))},
        "supersedes_id": memory.supersedes_id,
        "superseded_by_id": memory.superseded_by_id,
        "contradicts_ids": list(memory.contradicts_ids),
        "archived_ms": memory.archived_ms,
        "created_ms": memory.created_ms,
        "updated_ms": memory.updated_ms,
    }
