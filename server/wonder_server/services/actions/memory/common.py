"""Parts of the ``memory.*`` actions: schemas, owner, JSON form of memories."""

from __future__ import annotations

from dataclasses import fields

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey, own_key
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.records import Draft, Filter, Memory, Source
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.actions.memory.attribution import TEXTS, texts

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
                "message_id": {"type": "string"},
                "move_id": {"type": "string"},
                "run_id": {"type": "string"},
                "speaker": {"type": "string"},
                "speaker_id": {"type": "string"},
                "ordinal": {"type": "integer"},
                "role": {"type": "string", "enum": ["user", "agent"]},
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
        "said_ms": {
            "type": "integer",
            "description": "Time at which it was said, in milliseconds since 1970.",
        },
        "subject": {"type": "string", "description": "Id of the user whom it is about, or empty."},
    },
}

MEMORY_TEXT_SCHEMA: JsonDict = {"type": "object", "properties": {**MEMORY_SCHEMA["properties"], **TEXTS}}
"""A memory that a list, a search or a read returns."""

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
    "speaker_id": {
        "type": "string",
        "description": "Id of that participant. Default, without `speaker` and "
        "`role`: the user whose message started the turn.",
    },
    "role": {"type": "string", "enum": ["user", "agent"], "description": "Role of that participant."},
    "subject": {"type": "string", "description": "Id of the user whom it is about. Default: none."},
    "about_user": {
        "type": "boolean",
        "description": "Without `subject`: it is about the user whose message started the turn.",
    },
    "said_ms": {
        "type": "integer",
        "description": "Time at which it was said, in milliseconds since 1970. Default: now.",
    },
    "ordinal": {
        "type": "integer",
        "minimum": 0,
        "description": "Number of its message in the conversation, from 1.",
    },
    "message_id": {"type": "string", "description": "Id of the message that it comes from."},
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
    "subject": {"type": "string", "description": "Filter by the user whom it is about, by id."},
    "start_ms": {
        "type": "integer",
        "description": "Filter by creation time, from this one, in milliseconds since 1970.",
    },
    "end_ms": {
        "type": "integer",
        "description": "Filter by creation time, before this one, in milliseconds since 1970.",
    },
    "said_start_ms": {
        "type": "integer",
        "description": "Filter by the time at which it was said, from this one, in ms since 1970.",
    },
    "said_end_ms": {
        "type": "integer",
        "description": "Filter by the time at which it was said, before this one, in ms since 1970.",
    },
    "include_superseded": {"type": "boolean", "description": "Include superseded and archived memories."},
}


OF_USER: JsonDict = {
    "of_user": {
        "type": "boolean",
        "description": "Refuse a memory about another user than the one whose message started the turn, with "
        "PERMISSION_DENIED. Default: false.",
    },
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
            message_id=given.get("message_id", ""),
            move_id=given.get("move_id", "") or context.move_id,
            run_id=context.run_id,
            speaker=given.get("speaker", ""),
            speaker_id=given.get("speaker_id", "") or _default_speaker_id(call),
            ordinal=int(given.get("ordinal", 0)),
            role=given.get("role", ""),
        ),
        contradicts_ids=tuple(given.get("contradicts_ids", ())),
        archives_ids=tuple(given.get("archives_ids", ())),
        idempotency_key=context.key,
        unless_known=given.get("unless_known", False),
        said_ms=to_int(given.get("said_ms")),
        subject=given.get("subject", "") or (context.user_id if given.get("about_user", False) else ""),
    )


def _default_speaker_id(call: ActionCall) -> str:
    """Return the user whose message started the turn, unless the input names another speaker."""
    given = call.input
    return "" if given.get("speaker") or given.get("role") else call.context.user_id


async def check_of_user(call: ActionCall) -> Memory | None:
    """Return the memory that the input names, if it has ``of_user``. Raises PERMISSION_DENIED for a memory
    about another user.

    None without ``of_user``, and if the memory does not exist: an earlier attempt of the step may have
    deleted it.
    """
    if not call.input.get("of_user", False):
        return None
    try:
        memory = await call.services.memory.get(memory_owner(call), call.input["id"])
    except WonderError as problem:
        if problem.fault.reason is not Reason.MEMORY_NOT_FOUND:
            raise
        return None
    if memory.subject not in ("", call.context.user_id):
        raise error(
            Reason.PERMISSION_DENIED,
            f"Memory {memory.id} is about another user. It can be changed only in a turn of that user.",
            field="id",
        )
    return memory


def idempotency_key(call: ActionCall) -> IdempotencyKey | None:
    """Return the idempotency key of the step, so that a repeated step changes nothing."""
    return own_key("step", call.context.key) if call.context.key else None


def filter_from_input(call: ActionCall) -> Filter:
    """Return the filter of an input with the fields of `FILTER`."""
    given = call.input
    return Filter(
        types=tuple(given.get("types", ())),
        metadata=dict(given.get("metadata", {})),
        conversation_id=given.get("conversation_id", ""),
        turn_id=given.get("turn_id", ""),
        start_ms=to_int(given.get("start_ms")),
        end_ms=to_int(given.get("end_ms")),
        said_start_ms=to_int(given.get("said_start_ms")),
        said_end_ms=to_int(given.get("said_end_ms")),
        set_aside=given.get("include_superseded", False),
        subject=given.get("subject", ""),
    )


def to_int(value: float | None) -> int | None:
    """Return an integer that JSON may have as a float."""
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
        "said_ms": memory.said_ms,
        "subject": memory.subject,
    }


def as_text_json(memory: Memory, call: ActionCall) -> JsonDict:
    """Return a memory with its `TEXTS`."""
    speakers, name_user = call.input.get("speakers", ()), call.input.get("name_user", False)
    return as_json(memory) | texts(memory, call.context, speakers, name_user=name_user)
