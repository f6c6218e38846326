"""What the two hooks of a turn receive and return: the contracts of documents 1 and 4.

Context assembly gets the conversation as it stands and returns ``{request, sources}``; memory
extraction gets the transcript of moves and may return ``{memory_operations: [...]}`` (feature D4).
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.context.window import covered_ordinal, summary_of
from wonder_server.core.conversation.model.history_entry import HistoryEntry, history_entry
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import HistoryTruncation, Move, Role, ToolResult, Turn
from wonder_server.core.definitions.specs import PinnedAgent

MAX_MEMORY_OPERATIONS = 100

HISTORY_BYTES = 1 << 20
"""History that an assembly is given at most: a few very long turns must not keep the next from starting."""

EXCERPT = 2000
"""Characters that are shown of another active turn's input."""


def assembly_input(
    state: ConversationState, turn: Turn, agent: PinnedAgent, truncation: HistoryTruncation | None = None
) -> dict[str, Any]:
    """The input of a context-assembly run for ``turn``; ``cut`` is what is left out of the history."""
    first = truncation.first if truncation is not None else covered_ordinal(state, agent) + 1
    recent = _recent_turns(state, turn, agent.persona.recent_turns_limit, first)
    summary, facts = summary_of(state, agent), resolve_agent(agent)
    return {
        "conversation_id": turn.conversation_id,
        "turn_id": turn.id,
        "agent": facts.agent,
        "persona": _persona(state, agent),
        "user_message": turn.input,
        "reply_to": _reply_to(state, turn),
        "recent_turns": [told.turn for told in recent],
        "history": [message for told in recent for message in told.history],
        "summary": summary.text if summary is not None else None,
        "left_out": 0 if truncation is None or truncation.summarized else truncation.omitted_messages,
        "model_profile": facts.profile,
        "tool_definitions": facts.tools,
        "indices": facts.indices,
        "active_turns": _active_turns(state, turn),
    }


def extraction_input(state: ConversationState, turn: Turn, agent: PinnedAgent) -> dict[str, Any]:
    """The input of a memory-extraction run for a completed ``turn``."""
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
    """The last ``limit`` turns before this one, oldest first, as far back as `HISTORY_BYTES` and the
    message with the ordinal ``first`` reach."""
    after, known = _last_reset_ordinal(state), state.history_cache
    recent: dict[str, HistoryEntry] = {}
    room = HISTORY_BYTES
    for other in reversed(state.turns.values()):
        said = state.messages.get(other.id)
        if not said or not after < other.ordinal < turn.ordinal:
            continue
        if limit <= 0:
            break
        limit -= 1
        cached = known.get(other.id)
        if cached is None or not cached.is_current(other, said, first):
            cached = history_entry(other, said, first)
        if cached is None:
            continue
        room -= cached.size_bytes
        if room < 0:
            break
        recent[other.id] = cached
    # For the next assembly, which is told most of it again.
    state.history_cache = recent
    return list(recent.values())[::-1]


def _last_reset_ordinal(state: ConversationState) -> int:
    """Ordinal of the last turn that agents do not see any more, as the conversation began anew after it."""
    return state.conversation.reset_ordinal if state.conversation is not None else 0


def _persona(state: ConversationState, agent: PinnedAgent) -> dict[str, Any]:
    """What the agent is told of itself: as its persona has it, or as it was when the conversation began."""
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


def _active_turns(state: ConversationState, turn: Turn) -> list[dict[str, Any]]:
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


def _transcript_entry(move: Move) -> dict[str, Any]:
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


def _error(result: ToolResult) -> dict[str, Any]:
    # A word, not the member of an enum that it is here: only plain JSON is a payload.
    return {"code": None if result.code is None else result.code.value, "message": result.message}
