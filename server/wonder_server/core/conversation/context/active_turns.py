"""Work in progress: other active turns of a conversation, for context assembly (feature C5)."""

from __future__ import annotations

import json
from typing import Final

from wonder_server.core.conversation.model.speakers import AGENT, Speakers, caller_key
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, Turn
from wonder_server.core.expressions.times import utc_text
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue

INPUT_CHARS: Final = 2000
"""Number of characters of a turn's input."""

QUESTION_CHARS: Final = 120
"""Maximum length of a turn's question, which is its input as one line."""

ARGUMENTS_CHARS: Final = 300
"""Maximum length of an operation's arguments as text."""

_MAX_ITEMS: Final = 20
_MAX_NESTING: Final = 4


def active_turns(state: ConversationState, turn: Turn, speakers: Speakers) -> list[JsonDict]:
    """Return the active turns other than ``turn``, each with its pending operations.

    Each operation has the question that it serves, so that a workflow can list the operations of all turns.
    """
    return [
        {
            "turn_id": other.id,
            "input": other.input[:INPUT_CHARS],
            "pending": _pending(state, other, speakers),
        }
        for other in state.active_turns()
        if other.id != turn.id
    ]


def _pending(state: ConversationState, turn: Turn, speakers: Speakers) -> list[JsonDict]:
    operations = state.pending(turn.id)
    arguments = _arguments(state, turn) if any(each.tool_call_id for each in operations) else {}
    question = _cut(" ".join(turn.input[:INPUT_CHARS].split()), QUESTION_CHARS)
    speaker = speakers.get(caller_key(turn.caller))
    agent = speakers.get((AGENT, turn.agent_id), turn.agent_name)
    return [
        {
            "operation_id": operation.id,
            "kind": operation.kind.value,
            "tool_name": operation.tool_name,
            "async": operation.is_async,
            "arguments": _text_of(operation, arguments),
            "since": utc_text(operation.created_ms),
            "question": question,
            "speaker": speaker,
            "agent": agent,
        }
        for operation in operations
    ]


def _arguments(state: ConversationState, turn: Turn) -> dict[str, JsonObject | None]:
    """Return the arguments of the turn's calls without a result, by operation id."""
    return {
        entry.operation_id: entry.call.arguments
        for move in state.moves.get(turn.id, ())
        for entry in move.invocations
        if entry.result is None
    }


def _text_of(operation: Operation, arguments: dict[str, JsonObject | None]) -> str:
    """Return the arguments of an operation's call as one line of JSON; "" if it is no tool call."""
    if operation.id not in arguments:
        return ""
    text = json.dumps(_brief(dict(arguments[operation.id] or {})), ensure_ascii=False)
    # JSON may contain line breaks of Unicode, such as U+2028.
    return _cut(" ".join(text.split()), ARGUMENTS_CHARS)


def _brief(value: JsonValue, nesting: int = 0) -> JsonValue:
    """Return the beginning of a value, since its arguments may have a megabyte."""
    if isinstance(value, str):
        return _cut(value, ARGUMENTS_CHARS)
    if isinstance(value, dict):
        items = list(value.items())[:_MAX_ITEMS] if nesting < _MAX_NESTING else []
        return {_cut(key, ARGUMENTS_CHARS): _brief(item, nesting + 1) for key, item in items}
    if isinstance(value, list):
        return [_brief(item, nesting + 1) for item in value[:_MAX_ITEMS]] if nesting < _MAX_NESTING else []
    return value


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
