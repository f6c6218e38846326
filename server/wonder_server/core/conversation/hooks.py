"""What the two hooks of a turn receive and return: the contracts of documents 1 and 4.

Context assembly gets the conversation as it stands and returns ``{request, sources}``; memory
extraction gets the transcript of moves and may return ``{memory_operations: [...]}`` (feature D4).
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.conversation.agent_tools import offered_schema
from wonder_server.core.conversation.permissions import forbidden_action, kinds_of
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import Cut, Move, Role, Turn, TurnStatus
from wonder_server.core.conversation.window import covered_ordinal, summary_of
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.tokens import byte_size

MAX_MEMORY_OPERATIONS = 100

HISTORY_BYTES = 1 << 20
"""History that an assembly is given at most: a few very long turns must not keep the next from starting."""

EXCERPT = 2000
"""Characters that are shown of another active turn's input."""

_FETCHING = {
    **dict.fromkeys(("memory.list", "memory.read", "memory.search"), "memory"),
    **dict.fromkeys(("artifact.list", "artifact.read", "artifact.search"), "artifact"),
    **dict.fromkeys(("repo.read", "repo.search", "repo.tree"), "repository"),
}
"""Kinds of action that fetch, and what they fetch."""


def assembly_input(
    state: ConversationState, turn: Turn, agent: PinnedAgent, cut: Cut | None = None
) -> dict[str, Any]:
    """The input of a context-assembly run for ``turn``; ``cut`` is what is left out of the history."""
    first = cut.first if cut is not None else covered_ordinal(state, agent) + 1
    recent = _recent_turns(state, turn, agent.persona.recent_turns_limit, first)
    summary = summary_of(state, agent)
    return {
        "conversation_id": turn.conversation_id,
        "turn_id": turn.id,
        "agent": {"id": agent.agent_id, "name": agent.name},
        "persona": _persona(state, agent),
        "user_message": turn.input,
        "reply_to": _reply_to(state, turn),
        "recent_turns": recent,
        "history": [
            {**message, "turn_id": entry["turn_id"]} for entry in recent for message in entry["messages"]
        ],
        "summary": summary.text if summary is not None else None,
        "left_out": 0 if cut is None or cut.summarized else cut.left_out,
        "model_profile": profile_of(agent),
        "tool_definitions": [
            {
                "id": tool.pin.definition_id,
                "name": tool.spec.name,
                "description": tool.spec.description,
                "input_schema": offered_schema(tool),
                "target_type": tool.spec.target_type,
                "async": tool.spec.is_async,
            }
            for tool in agent.tools
        ],
        "indices": _indices(agent),
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
        "model_profile": profile_of(agent),
    }


def _recent_turns(state: ConversationState, turn: Turn, limit: int, first: int) -> list[dict[str, Any]]:
    """The last ``limit`` turns before this one, oldest first, as far back as `HISTORY_BYTES` and the
    message with the ordinal ``first`` reach."""
    after = _forgotten(state)
    earlier = [
        other
        for other in state.turns.values()
        if after < other.ordinal < turn.ordinal and state.messages.get(other.id)
    ]
    recent: list[dict[str, Any]] = []
    room = HISTORY_BYTES
    for other in reversed(earlier[-limit:] if limit > 0 else []):
        messages = [message for message in state.messages[other.id] if message.ordinal >= first]
        if not messages:
            continue
        room -= sum([byte_size(message.content) for message in messages])
        if room < 0:
            break
        recent.append(
            {
                "turn_id": other.id,
                "status": other.status.value,
                "messages": [
                    {"role": message.role.value, "content": message.content, "author": message.author}
                    for message in messages
                ],
            }
        )
    return recent[::-1]


def _forgotten(state: ConversationState) -> int:
    """Ordinal of the last turn that agents do not see any more, as the conversation began anew after it."""
    return state.conversation.reset_ordinal if state.conversation is not None else 0


def _persona(state: ConversationState, agent: PinnedAgent) -> dict[str, Any]:
    """What the agent is told of itself: as its persona has it, or as it was when the conversation began."""
    prompts = state.conversation.prompts if state.conversation is not None else ()
    kept = next((prompt for prompt in prompts if prompt.agent_id == agent.agent_id), None)
    said = kept or agent.persona
    return {"system_prompt": said.system_prompt, "instructions": list(said.instructions)}


def _reply_to(state: ConversationState, turn: Turn) -> str | None:
    for turn_id, messages in state.messages.items():
        seen = turn_id in state.turns and state.turns[turn_id].ordinal > _forgotten(state)
        for message in messages if seen else ():
            if message.id == turn.reply_to_message_id:
                return message.content
    return None


def _indices(agent: PinnedAgent) -> dict[str, list[str]]:
    """Of what kinds the agent can fetch the details of what it is pointed to, with the names of the tools
    that fetch them (feature D7)."""
    found: dict[str, list[str]] = {}
    for tool in agent.tools:
        indexed = dict.fromkeys(_FETCHING[kind] for kind in kinds_of(tool) if kind in _FETCHING)
        if indexed and not forbidden_action(tool, agent.persona.constraints.allowed_actions):
            for name in indexed:
                found.setdefault(name, []).append(tool.spec.name)
    return found


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
        for other in state.turns.values()
        if other.status is TurnStatus.ACTIVE and other.id != turn.id
    ]


def profile_of(agent: PinnedAgent) -> dict[str, Any]:
    profile = agent.profile.spec
    return {
        "provider": profile.provider,
        "model": profile.model,
        "format": profile.format,
        "parameters": profile.parameters,
        "context_window_tokens": profile.context_window_tokens,
    }


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
                "error": {"code": entry.result.code, "message": entry.result.message}
                if not entry.result.success
                else None,
            }
            for entry in move.invocations
            if entry.result is not None
        ],
    }
