"""Inputs of a turn's hooks.

Context assembly receives the conversation and returns ``{request, sources}``. Memory extraction receives
the transcript of moves and may return ``{memory_operations: [...]}`` (feature D4).
"""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.content.parts import Parts, neutral_content, readable
from wonder_server.core.conversation.context.active_turns import active_turns
from wonder_server.core.conversation.context.dialects import result_text
from wonder_server.core.conversation.context.history import HISTORY_BYTES, history_entries
from wonder_server.core.conversation.context.meanwhile import said_since
from wonder_server.core.conversation.context.permissions import may_decline
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.context.window import (
    covered_ordinal,
    last_known,
    summary_of,
    turns_of_earlier_builds,
)
from wonder_server.core.conversation.model.event_payloads import HistoryTruncation
from wonder_server.core.conversation.model.history_entry import HistoryEntry, history_entry
from wonder_server.core.conversation.model.speakers import (
    AGENT,
    Key,
    Speakers,
    author_key,
    author_name,
    caller_key,
    speakers_of,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Move, Role, ToolResult, Turn
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.expressions.times import utc_text
from wonder_server.core.json_types import JsonDict, JsonValue

MAX_MEMORY_OPERATIONS = 100
"""Maximum number of memory operations of one extraction; further ones are ignored."""


def assembly_input(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    now_ms: int,
    truncation: HistoryTruncation | None = None,
    through: int = 0,
) -> JsonDict:
    """Return the input of the context-assembly run of ``turn`` at ``now_ms``. ``truncation`` is the omitted
    part of the history, ``through`` that of the operation.
    """
    first = truncation.first if truncation is not None else covered_ordinal(state, agent) + 1
    speakers = _speakers(state)
    work = state.turn_work.get(turn.id)
    if work is None or work.rules:
        shown = truncation or HistoryTruncation(first=first)
        recent, several = history_entries(state, turn, agent, speakers, shown)
        left_out = shown.omitted_messages - shown.summarized_messages
    else:
        recent = _recent_turns(state, turn, agent.persona.recent_turns_limit, first, speakers)
        several = _is_multi_party(turn, agent, recent, speakers)
        left_out = 0 if truncation is None or truncation.summarized else truncation.omitted_messages
    summary, resolved = summary_of(state, agent), resolve_agent(agent)
    conversation = state.conversation
    quote = turn.quote
    own = state.messages.get(turn.id)
    return {
        "conversation_id": turn.conversation_id,
        "title": conversation.title if conversation is not None else "",
        "metadata": conversation.metadata if conversation is not None else {},
        "turn_id": turn.id,
        "now": utc_text(now_ms),
        "agent": resolved.agent,
        "persona": _persona(state, agent, turn),
        "participants": speakers.participants,
        "caller": speakers.get(caller_key(turn.caller)),
        "multi_party": several,
        **message_input(turn.input, own[0].parts if own else ()),
        "reply_to": quote.text if quote is not None else None,
        "reply_to_speaker": speakers.get((quote.kind, quote.author), quote.name)
        if quote is not None
        else None,
        "recent_turns": [entry.turn for entry in recent],
        "history": [message for entry in recent for message in entry.history],
        "summary": summary.text if summary is not None else None,
        "left_out": left_out,
        "model_profile": resolved.profile,
        "tool_definitions": resolved.tools_and_decline if may_decline(state, turn, agent) else resolved.tools,
        "indices": resolved.indices,
        "active_turns": active_turns(state, turn, speakers),
        "transcript": [_transcript_entry(move) for move in state.moves.get(turn.id, ())] if through else [],
        "meanwhile": _meanwhile(state, turn, agent, through),
    }


def message_input(content: str, parts: Parts) -> JsonDict:
    """Return the inputs of a context assembly that hold the message of the turn."""
    message: JsonDict = {"user_message": readable(content, parts)}
    return {**message, "user_parts": neutral_content(content, parts)} if parts else message


def extraction_input(state: ConversationState, turn: Turn, agent: PinnedAgent) -> JsonDict:
    """Return the input of the memory-extraction run of a completed ``turn``."""
    messages = state.messages.get(turn.id, ())
    answers = [readable(message.content, message.parts) for message in messages if message.role is Role.AGENT]
    return {
        "agent_id": turn.agent_id,
        "conversation_id": turn.conversation_id,
        "turn_id": turn.id,
        "agent": resolve_agent(agent).agent,
        "caller": _speakers(state).get(caller_key(turn.caller)),
        "participants": _speakers(state).participants,
        "messages": [_transcript_message(state, message) for message in messages],
        "message_id": next((message.id for message in messages if message.role is Role.USER), ""),
        "user_message": next(
            (readable(each.content, each.parts) for each in messages if each.role is Role.USER), turn.input
        ),
        "answer": "\n\n".join(answers),
        "transcript": [_transcript_entry(move) for move in state.moves.get(turn.id, ())],
        "model_profile": resolve_agent(agent).extraction_profile,
    }


def _speakers(state: ConversationState) -> Speakers:
    return speakers_of(state.conversation.participants if state.conversation is not None else ())


def _is_multi_party(
    turn: Turn, agent: PinnedAgent, recent: Sequence[HistoryEntry], speakers: Speakers
) -> bool:
    """Return True if the agent has several other participants or speakers, or another agent has answered."""
    own = {(AGENT, agent.agent_id)}
    authors = set[Key]().union(*[entry.authors for entry in recent]) - own
    others = (speakers.others(agent.agent_id) | authors | {caller_key(turn.caller)}) - own
    return len(others) > 1 or any(kind == AGENT for kind, _ in authors)


def speaker_of(state: ConversationState, message: Message) -> JsonDict:
    """Return the speaker of a message of a turn in the state."""
    turn = state.turns[message.turn_id]
    return _speakers(state).get(author_key(message, turn), author_name(message, turn))


def _recent_turns(
    state: ConversationState, turn: Turn, limit: int, first: int, speakers: Speakers
) -> list[HistoryEntry]:
    """Return the last ``limit`` turns before this one, which an earlier build began, oldest first.

    The list reaches back to the message with the ordinal ``first``, or until it has `HISTORY_BYTES`. What
    others say after the turn's own message is history too.
    """
    after, cache = _last_reset_ordinal(state), state.history_cache
    recent: dict[str, HistoryEntry] = {}
    remaining_bytes = HISTORY_BYTES
    for other in reversed(turns_of_earlier_builds(state)):
        messages = state.messages.get(other.id)
        if not messages or not after < other.ordinal < turn.ordinal:
            continue
        if limit <= 0:
            break
        limit -= 1
        entry = cache.get(other.id)
        if entry is None or not entry.is_current(other, messages, first, speakers):
            entry = history_entry(other, messages, first, speakers)
        if entry is None:
            continue
        remaining_bytes -= entry.size_bytes
        if remaining_bytes < 0:
            break
        recent[other.id] = entry
    # The next assembly reuses most of these entries.
    state.history_cache = recent
    return list(recent.values())[::-1]


def _meanwhile(state: ConversationState, turn: Turn, agent: PinnedAgent, through: int) -> list[JsonDict]:
    """Return the messages of other turns after the turn's own message, up to the ordinal ``through``."""
    if not through:
        return []
    said = said_since(state, turn, agent, last_known(state, turn))
    return [
        {
            "role": message.role.value,
            "content": readable(message.content, message.parts),
            "author": message.author,
            "speaker": speaker_of(state, message),
            "turn_id": message.turn_id,
        }
        for message in said.messages
        if message.ordinal <= through
    ]


def _last_reset_ordinal(state: ConversationState) -> int:
    """Return the ordinal of the last turn before the newest reset, which agents no longer see."""
    return state.conversation.reset_ordinal if state.conversation is not None else 0


def _persona(state: ConversationState, agent: PinnedAgent, turn: Turn) -> JsonDict:
    """Return the agent's system message: its persona's, or the snapshot of the newest reset."""
    for kept in state.conversation.prompts if state.conversation is not None else ():
        if kept.agent_id == agent.agent_id:
            further = turn.overrides.instructions if turn.overrides is not None else ()
            instructions = [*kept.instructions, *further]
            return {"system_prompt": kept.system_prompt, "instructions": instructions}
    return resolve_agent(agent).persona


def _transcript_message(state: ConversationState, message: Message) -> JsonDict:
    move_id = next(
        (move.id for move in state.moves.get(message.turn_id, ()) if move.message_id == message.id), ""
    )
    return {
        "message_id": message.id,
        "move_id": move_id,
        "speaker": speaker_of(state, message),
        "content": readable(message.content, message.parts),
        "said_ms": message.created_ms,
        "said_at": utc_text(message.created_ms),
    }


def _transcript_entry(move: Move) -> JsonDict:
    return {
        "move_id": move.id,
        "message_id": move.message_id,
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
                "result": _shown_result(entry.result),
                "error": None if entry.result.success else _error(entry.result),
            }
            for entry in move.invocations
            if entry.result is not None
        ],
    }


def _shown_result(result: ToolResult) -> JsonValue:
    """Return a result as the turn's model got it, if that was a part of it."""
    return result.result if result.excerpt is None else result_text(result)


def _error(result: ToolResult) -> JsonDict:
    # A payload is plain JSON, so it holds the enum's value.
    return {"code": None if result.code is None else result.code.value, "message": result.message}
