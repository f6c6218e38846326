"""What the ``memory.*`` actions share: how a memory looks as JSON, and whose it is."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.core.memory.records import Draft, Filter, Memory, Source
from wonder_server.ports.memories import Request
from wonder_server.services.actions.contract.kind import ActionCall

MEMORY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"type": "string"},
        "content": {"type": "string"},
        "significance": {"type": "number"},
        "metadata": {"type": "object"},
        "source": {
            "type": "object",
            "description": "Where it came from; what is not known is left out.",
            "properties": {
                "conversation_id": {"type": "string"},
                "turn_id": {"type": "string"},
                "move_id": {"type": "string"},
                "run_id": {"type": "string"},
                "speaker": {"type": "string"},
                "ordinal": {"type": "integer"},
            },
        },
        "supersedes_id": {"type": "string", "description": "What it replaced; empty: nothing."},
        "superseded_by_id": {"type": "string", "description": "What replaced it; empty: nothing."},
        "contradicts_ids": {"type": "array", "items": {"type": "string"}},
        "archived_ms": {"type": "integer", "description": "Milliseconds since 1970; 0: it is not archived."},
        "created_ms": {"type": "integer", "description": "Milliseconds since 1970."},
        "updated_ms": {"type": "integer", "description": "Milliseconds since 1970."},
    },
}

_SOURCE = tuple(field.name for field in fields(Source))

ID: dict[str, Any] = {"type": "string", "description": "The memory's id, as search shows it."}

DRAFT: dict[str, Any] = {
    "content": {"type": "string", "minLength": 1, "description": "What to remember."},
    "type": {"type": "string", "description": "The library's own word."},
    "significance": {"type": "number", "minimum": 0, "maximum": 1},
    "metadata": {"type": "object"},
    "contradicts_ids": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Memories of the agent that say the contrary.",
    },
    "speaker": {"type": "string", "description": "Who said it, by name."},
    "ordinal": {
        "type": "integer",
        "minimum": 0,
        "description": "Its place among what was said in the conversation, from 1.",
    },
    "move_id": {
        "type": "string",
        "description": "The move it came from; left out, the one whose tool call led here.",
    },
}

FILTER: dict[str, Any] = {
    "types": {"type": "array", "items": {"type": "string"}, "description": "Only these; empty: all."},
    "metadata": {"type": "object", "description": "Only those whose metadata has all of these values."},
    "conversation_id": {"type": "string", "description": "Only those that came from this conversation."},
    "turn_id": {"type": "string", "description": "Only those that came from this turn."},
    "start_ms": {"type": "integer", "description": "Only those written then or later; since 1970."},
    "end_ms": {"type": "integer", "description": "Only those written before."},
    "include_superseded": {"type": "boolean", "description": "Superseded and archived ones too."},
}


def memory_owner(call: ActionCall) -> str:
    """The agent whose memory is touched: always the context's, never the input's (feature E5)."""
    if not call.context.agent_id:
        raise error(Reason.NO_AGENT, "There is no agent here whose memory could be used.")
    return call.context.agent_id


def draft_from_input(call: ActionCall, *, kind: str) -> Draft:
    """The memory that an input of `DRAFT` says, with where it came from; ``kind`` where it names none."""
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
    """The step's key: whatever it changes, it changes once."""
    return Request(id=f"step/{call.context.key}", fingerprint="") if call.context.key else None


def filter_from_input(call: ActionCall) -> Filter:
    """What an input of `FILTER` says."""
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


def as_json(memory: Memory) -> dict[str, Any]:
    """A memory, as `MEMORY_SCHEMA` describes it."""
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
