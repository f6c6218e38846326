"""Reduction of a conversation to the model's context window (feature B12).

The limit of a request is `ContextWindow.threshold` of the model's context window. Three steps enforce it:

    before assembly   `context.history` keeps the newest turns that fit; with the strategy ``summarize``,
                      a summary replaces the omitted ones (`planning.summarization`)
    before each call  `context.fitting`, since an assembly may add more and tool results enlarge a request
    after rejection   the provider counts differently and rejects the request as too long: one retry with
                      `RETRY_SHARE` of its size

Counts are estimates (`core/token_estimates.py`). If the model's limit is unknown, nothing is omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from wonder_server.core.content.parts import content_tokens
from wonder_server.core.conversation.context.dialects import dialect_of
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.model.event_payloads import HistoryTruncation
from wonder_server.core.conversation.model.exchange import Summary
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Turn, TurnStatus
from wonder_server.core.definitions.specs import PinnedAgent, WindowStrategy
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.token_estimates import PER_MESSAGE, json_tokens, text_tokens

RETRY_SHARE = 0.6
"""Share of a rejected request's size for the retry."""

HARD_SHARE = 0.95
"""Share of the context window up to which the newest messages stay even beyond the threshold."""

NOTICE = "[Note: {} older messages are left out, so that the conversation fits the model.]"

Request = JsonDict

encode = msgspec.json.Encoder().encode


def context_limit(agent: PinnedAgent) -> int:
    """Return the maximum number of tokens of the agent's request; 0 if the model's limit is unknown."""
    return resolve_agent(agent).context_limit


def earlier_messages(state: ConversationState, turn: Turn, agent: PinnedAgent) -> list[Message]:
    """Return the messages of the recent turns, oldest first, that the agent sees and no summary covers."""
    limit = agent.persona.recent_turns_limit
    after = reset_ordinal(state)
    turns = [each for each in turns_of_earlier_builds(state) if after < each.ordinal < turn.ordinal]
    turns = [each for each in turns if state.messages.get(each.id)][-limit:] if limit > 0 else []
    covered = covered_ordinal(state, agent)
    messages = [m for each in turns for m in state.messages[each.id] if m.ordinal > covered]
    # Messages of concurrent turns interleave.
    return sorted(messages, key=lambda message: message.ordinal)


EARLIER_RECENT_TURNS = 50
"""Number of recent turns in the state of earlier builds."""


def turns_of_earlier_builds(state: ConversationState) -> list[Turn]:
    """Return the turns that the state of an earlier build had: fewer recent ones, and those with work."""
    turns = list(state.turns.values())
    older = [each for each in turns[:-EARLIER_RECENT_TURNS] if each.id in state.turn_work]
    return [*older, *turns[-EARLIER_RECENT_TURNS:]]


def reset_ordinal(state: ConversationState) -> int:
    """Return the ordinal of the last turn that agents no longer see."""
    return 0 if state.conversation is None else state.conversation.reset_ordinal


def summary_of(state: ConversationState, agent: PinnedAgent) -> Summary | None:
    """Return the summary that is valid for an agent that summarizes; None without one."""
    summary = None if state.conversation is None else state.conversation.summary
    if summary is None or agent.summary is None or summary.after_turn < reset_ordinal(state):
        return None
    return summary


def covered_ordinal(state: ConversationState, agent: PinnedAgent) -> int:
    """Return the ordinal of the last message that the summary covers; 0 without one."""
    summary = summary_of(state, agent)
    return summary.last_ordinal if summary is not None else 0


def truncate_history(state: ConversationState, turn: Turn, agent: PinnedAgent) -> HistoryTruncation | None:
    """Return the part of the history that the turn's assembly omits; None if everything fits."""
    limit = context_limit(agent)
    if not limit:
        return None
    used = overhead_tokens(state, turn, agent)
    # A text has at most one token a character, so most histories fit without an estimate.
    if used + state.character_count + PER_MESSAGE * state.message_count <= limit:
        return None
    messages = earlier_messages(state, turn, agent)
    sizes = [content_tokens(message.content, message.parts) + PER_MESSAGE for message in messages]
    if used + sum(sizes) <= limit:
        return None
    hard = max(limit, int(agent.profile.spec.context_window_tokens * HARD_SHARE))
    kept = 0
    for size in reversed(sizes):
        within = limit if kept >= agent.persona.context_window.keep_recent_messages else hard
        if used + size > within:
            break
        used += size
        kept += 1
    left_out = len(messages) - kept
    first = messages[left_out].ordinal if kept else turn_first(state, turn)
    return HistoryTruncation(first=first, omitted_messages=left_out, tokens=sum(sizes[:left_out]))


def turn_first(state: ConversationState, turn: Turn) -> int:
    """Return the ordinal of the turn's first message, which is beyond all earlier ones; for a turn that was
    queued, the ordinal after its history.
    """
    if turn.history_end:
        return turn.history_end + 1
    own = state.messages.get(turn.id)
    conversation = state.conversation
    return own[0].ordinal if own else (conversation.message_count + 1 if conversation is not None else 1)


def last_known(state: ConversationState, turn: Turn) -> int:
    """Return the ordinal of the newest message that the first assembly of the turn contains."""
    return turn.history_end or turn_first(state, turn)


def waits_behind(other: Turn, turn: Turn) -> bool:
    """Return True if ``other`` is not in the history of ``turn``: it started later, or waits for the end of
    ``turn``, which was queued itself.
    """
    if not turn.history_end:
        return other.ordinal >= turn.ordinal
    return other.id == turn.id or (other.status is TurnStatus.QUEUED and other.agent_id == turn.agent_id)


def overhead_tokens(state: ConversationState, turn: Turn, agent: PinnedAgent) -> int:
    """Return the tokens of a request besides the history: persona, tools, summary, input."""
    summary = summary_of(state, agent)
    return (
        resolve_agent(agent).overhead_tokens
        + (text_tokens(summary.text) if summary is not None else 0)
        + message_tokens(state, turn)
        + 10 * PER_MESSAGE
    )


def message_tokens(state: ConversationState, turn: Turn) -> int:
    """Return the tokens of the turn's own message."""
    own = state.messages.get(turn.id)
    return content_tokens(turn.input, own[0].parts if own else ())


def uses_summary(agent: PinnedAgent) -> bool:
    """Return True if a summary replaces the agent's older messages."""
    return agent.persona.context_window.strategy is WindowStrategy.SUMMARIZE and agent.summary is not None


# --- requests ---------------------------------------------------------------------------------------


class TrimmedRequest(NamedTuple):
    """A trimmed request with the number of omitted messages and its tokens before and after."""

    body: Request
    omitted_messages: int
    tokens_before: int
    tokens_after: int


def trim_request(body: Request, request_format: str, limit: int) -> TrimmedRequest | None:
    """Return ``body`` without its oldest messages, as few as possible, and with a notice, in a turn that an
    earlier build began.

    Returns None if the body fits or nothing can be omitted. System messages stay. Everything from the last
    plain message on stays, since the turn's calls and their results belong together.
    """
    # A request has at most one token a byte of JSON.
    if not limit or len(encode(body)) <= limit:
        return None
    before = json_tokens(body)
    if before <= limit:
        return None
    dialect = dialect_of(request_format)
    messages = body.get(dialect.messages)
    if not isinstance(messages, list):
        return None
    head = head_length(messages)
    # Cut only before a plain message, never between a call and its result.
    starts = [i for i in range(head + 1, len(messages)) if is_plain_message(messages[i])]
    if not starts:
        return None
    dropped, at = 0, head
    for start in starts:
        dropped += sum(json_tokens(message) + 2 for message in messages[at:start])
        at = start
        if before - dropped <= limit:
            break
    kept = {**body, dialect.messages: [*messages[:head], *messages[at:]]}
    smaller = dialect.insert_notice(kept, head, NOTICE.format(at - head))
    return TrimmedRequest(smaller, at - head, before, json_tokens(smaller))


def head_length(messages: Sequence[JsonValue]) -> int:
    """Return the number of system messages at the beginning of a request."""
    head = 0
    while head < len(messages) and role_of(messages[head]) in ("system", "developer"):
        head += 1
    return head


def is_too_long(fault: Fault) -> bool:
    """Return True if a provider rejected the request as longer than the model's context window."""
    return fault.metadata.get("kind") == "context_length"


def role_of(message: JsonValue) -> str:
    """Return the role of a message; "" without one."""
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def is_plain_message(message: JsonValue) -> bool:
    """Return True for a message of the user that has no tool results."""
    if role_of(message) != "user":
        return False
    parts: JsonValue = message.get("content", message.get("parts"))
    if not isinstance(parts, list):
        return True
    return not any(
        isinstance(part, dict) and (part.get("type") == "tool_result" or "functionResponse" in part)
        for part in parts
    )
