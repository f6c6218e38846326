"""Inputs of a turn's hooks (the contracts of the specification).

Context assembly receives the conversation and returns ``{request, sources}``. Memory extraction receives
the transcript of moves and may return ``{memory_operations: [...]}`` (feature D4).
"""

from __future__ import annotations

from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.context.window import covered_ordinal, summary_of
from wonder_server.core.conversation.model.history_entry import HistoryEntry, history_entry
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import HistoryTruncation, Move, Role, ToolResult, Turn
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.json_types import JsonDict

MAX_MEMORY_OPERATIONS = 100
"""Maximum number of memory operations of one extraction; further ones are ignored."""

HISTORY_BYTES = 1 << 20
"""Maximum size of the history for an assembly. Without it a few very long turns would block the next one."""

EXCERPT = 2000
"""Number of characters of another active turn's input."""


def assembly_input(
    state: ConversationState, turn: Turn, agent: PinnedAgent, truncation: HistoryTruncation | None = None
) -> JsonDict:
    """Return the input of the context-assembly run of ``turn``. ``truncation`` is the omitted part of the
    history.
    """
    first = truncation.first if truncation is not None else covered_ordinal(state, agent) + 1
    recent = _recent_turns(state, turn, agent.persona.recent_turns_limit, first)
    summary, resolved = summary_of(state, agent), resolve_agent(agent)
    return {
        "conversation_id": turn.conversation_id,
        "turn_id": turn.id,
        "agent": resolved.agent,
        "persona": _persona(state, agent),
        "user_message": turn.input,
        "reply_to": _reply_to(state, turn),
        "recent_turns": [entry.turn for entry in recent],
        "history": [message for entry in recent for message in entry.history],
        "summary": summary.text if summary is not None else None,
        "left_out": 0 if truncation is None or truncation.summarized else truncation.omitted_messages,
        "model_profile": resolved.profile,
        "tool_definitions": resolved.tools,
        "indices": resolved.indices,
        "active_turns": _active_turns(state, turn),
    }


def extraction_input(state: ConversationState, turn: Turn, agent: PinnedAgent) -> JsonDict:
    """Return the input of the memory-extraction run of a completed ``turn``."""
    answers = [message.content for message in state.messages.get(turn.id, ()) if message.role is Role.AGENT]
    return {
        "agent_id": turn.agent_id,
        "conversation_id": turn.conversation_id,
        "turn_id": turn.id,
        "user_message": turn.input,
        "answer": "\n\n".join(answers),
        "transcript": [_transcript_entry(move) for move in state.moves.get(turn.id, ())],
        "model_profile": resolve_agent(agent).side_profile,
    }


def _recent_turns(state: ConversationState, turn: Turn, limit: int, first: int) -> list[HistoryEntry]:
    """Return the last ``limit`` turns before this one, oldest first.

    The list reaches back to the message with the ordinal ``first``, or until it has `HISTORY_BYTES`.
    """
    after, cache = _last_reset_ordinal(state), state.history_cache
    recent: dict[str, HistoryEntry] = {}
    remaining_bytes = HISTORY_BYTES
    for other in reversed(state.turns.values()):
        messages = state.messages.get(other.id)
        if not messages or not after < other.ordinal < turn.ordinal:
            continue
        if limit <= 0:
            break
        limit -= 1
        entry = cache.get(other.id)
        if entry is None or not entry.is_current(other, messages, first):
            entry = history_entry(other, messages, first)
        if entry is None:
            continue
        remaining_bytes -= entry.size_bytes
        if remaining_bytes < 0:
            break
        recent[other.id] = entry
    # The next assembly reuses most of these entries.
    state.history_cache = recent
    return list(recent.values())[::-1]


def _last_reset_ordinal(state: ConversationState) -> int:
    """Return the ordinal of the last turn before the newest reset, which agents no longer see."""
    return state.conversation.reset_ordinal if state.conversation is not None else 0


def _persona(state: ConversationState, agent: PinnedAgent) -> JsonDict:
    """Return the agent's system message: its persona's, or the snapshot of the newest reset."""
    for kept in state.conversation.prompts if state.conversation is not None else ():
        if kept.agent_id == agent.agent_id:
            return {"system_prompt": kept.system_prompt, "instructions": list(kept.instructions)}
    return resolve_agent(agent).persona


def _reply_to(state: ConversationState, turn: Turn) -> str | None:
    if not turn.reply_to_message_id:
        return None
    for turn_id, messages in state.messages.items():
        seen = turn_id in state.turns and state.turns[turn_id].ordinal > _last_reset_ordinal(state)
        for message in messages if seen else ():
            if message.id == turn.reply_to_message_id:
                return message.content
    return None


def _active_turns(state: ConversationState, turn: Turn) -> list[JsonDict]:
    return [
        {
            "turn_id": other.id,
            "input": other.input[:EXCERPT],
            "pending": [
                {
                    "operation_id": op.id,
                    "kind": op.kind.value,
                    "tool_name": op.tool_name,
                    "async": op.is_async,
                }
                for op in state.pending(other.id)
            ],
        }
        for other in state.active_turns()
        if other.id != turn.id
    ]


def _transcript_entry(move: Move) -> JsonDict:
    return {
        "sequence": move.sequence,
        "reasoning": move.reasoning,
        "tool_calls": [
            {"id": entry.call.id, "name": entry.call.name, "input": entry.call.arguments}
            for entry in move.invocations
        ],
        "tool_results": [
            {
                "tool_call_id": entry.result.tool_call_id,
                "success": entry.result.success,
                "result": entry.result.result,
                "error": None if entry.result.success else _error(entry.result),
            }
            for entry in move.invocations
            if entry.result is not None
        ],
    }


def _error(result: ToolResult) -> JsonDict:
    # A payload is plain JSON, so it holds the enum's value.
    return {"code": None if result.code is None else result.code.value, "message": result.message}
