"""The history of a turn's requests: the earlier turns that an agent sees, in whole turns.

Providers keep the beginning of a request in a cache as long as it stays the same byte for byte. So the
history moves in steps: it grows until it exceeds a limit and then shrinks to `STEP` of it. Each turn records
the first turn of its history (`Turn.history_start`). The next turn of the agent begins there while that fits.

Limits are the persona's ``recent_turns_limit``, the model's context window and `HISTORY_BYTES`. The newest
messages (``keep_recent_messages``) stay beyond the last two: longer texts are cut then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from wonder_server.core.content.parts import content_tokens
from wonder_server.core.conversation.context.transcript import (
    RULES_OF_REPLIES,
    View,
    exchanges_of,
    transcript_of,
)
from wonder_server.core.conversation.context.window import (
    context_limit,
    covered_ordinal,
    message_tokens,
    overhead_tokens,
    reset_ordinal,
    summary_of,
    turn_first,
    waits_behind,
)
from wonder_server.core.conversation.model.event_payloads import HistoryTruncation
from wonder_server.core.conversation.model.exchange import Exchange, exchanges_bytes
from wonder_server.core.conversation.model.history_entry import HistoryEntry, history_entry
from wonder_server.core.conversation.model.past_turn import PastTurn
from wonder_server.core.conversation.model.speakers import AGENT, Key, Speakers, author_key, caller_key
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Turn, TurnStatus
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema.truncation import truncate_text
from wonder_server.core.token_estimates import BYTES_PER_TOKEN, PER_MESSAGE, byte_size

HISTORY_BYTES: Final = 1 << 20
"""Maximum size of the history for an assembly. Without it a few very long turns would block the next one."""

STEP: Final = 0.75
"""Share of a limit that the history keeps when it exceeds the limit."""
REGROW: Final = 0.5
"""Share of the limits below which the history takes older turns in again, since a limit was raised."""

CONTEXT_SHARE: Final = 0.1
"""Share of the request for memories and other sources, which the assembly adds."""
INPUT_SHARE: Final = 0.5
"""Share of the request for the new message. What is beyond it is cut from the request."""

MIN_TEXT_BYTES: Final = 256
"""Minimum length to which a text is cut."""


def past_turns(
    state: ConversationState, turn: Turn, agent: PinnedAgent, covered: int, newest: int | None = None
) -> list[PastTurn]:
    """Return the earlier turns of the state that the agent sees, oldest first, with their messages after the
    ordinal ``covered``. What others say after the turn's own message comes in notices.

    ``newest`` returns only the newest ones, so many.
    """
    after, end = reset_ordinal(state), turn_first(state, turn)
    found: list[PastTurn] = []
    cache, recent = state.past_cache, dict[str, PastTurn]()
    for other in reversed(state.turns.values()):
        if len(found) == newest or other.ordinal <= after:
            break
        messages: Sequence[Message] = state.messages.get(other.id, ())
        if not messages or waits_behind(other, turn):
            continue
        exchanges = exchanges_of_turn(state, other) if other.agent_id == agent.agent_id else ()
        if messages[0].ordinal <= covered or messages[-1].ordinal >= end:
            messages = [message for message in messages if covered < message.ordinal < end]
            if messages:
                found.append(_past_turn(other, messages, exchanges))
            continue
        past = cache.get(other.id)
        if past is None or not past.is_current(other, messages, exchanges):
            past = _past_turn(other, tuple(messages), exchanges)
        recent[other.id] = past
        found.append(past)
    # The next selection reuses most of these.
    state.past_cache = recent
    return found[::-1]


def _past_turn(turn: Turn, messages: Sequence[Message], exchanges: tuple[Exchange, ...]) -> PastTurn:
    size = exchanges_bytes(exchanges) + (turn.quote.line_bytes if turn.quote is not None else 0)
    tokens = sum([content_tokens(message.content, message.parts) + PER_MESSAGE for message in messages])
    tokens += size // BYTES_PER_TOKEN + PER_MESSAGE * sum([1 + len(each.results) for each in exchanges])
    size += sum([byte_size(message.content) for message in messages])
    return PastTurn(turn, messages, exchanges, tokens, size)


def exchanges_of_turn(state: ConversationState, turn: Turn) -> tuple[Exchange, ...]:
    """Return the moves of a turn with tool calls, as requests of other turns have them."""
    moves = state.moves.get(turn.id)
    if moves is None:
        return state.exchanges.get(turn.id, ())
    return exchanges_of(moves, has_ended=turn.status is not TurnStatus.ACTIVE)


def select_history(state: ConversationState, turn: Turn, agent: PinnedAgent) -> HistoryTruncation | None:
    """Return what an assembly of ``turn`` omits; None for nothing."""
    limits = _Limits(state, turn, agent)
    # One turn beyond the limit tells that the history has a beginning.
    past = past_turns(state, turn, agent, covered_ordinal(state, agent), limits.turns + 1)
    known = state.turns.get(turn.id)
    is_new = known is None or known.status is TurnStatus.QUEUED
    before = previous_start(state, turn) if is_new else turn.history_start
    start = next((at for at, each in enumerate(past) if each.turn.ordinal >= before), len(past))
    if not limits.start(past, 1) <= start <= limits.start(past, REGROW):
        start = limits.start(past, STEP)
    return _truncation(_Selection(state, turn, agent, limits, past), start)


def truncation_after_summary(
    state: ConversationState, turn: Turn, agent: PinnedAgent, last_ordinal: int, summarized: int
) -> HistoryTruncation:
    """Return what the assembly of ``turn`` omits once a summary covers the messages up to ``last_ordinal``.

    The summary replaces ``summarized`` more messages.
    """
    past = past_turns(state, turn, agent, last_ordinal)
    limits = _Limits(state, turn, agent)
    selection = _Selection(state, turn, agent, limits, past, summarized)
    truncation = _truncation(selection, limits.start(past, 1)) or HistoryTruncation(first=0)
    return replace(
        truncation,
        first=last_ordinal + 1,
        omitted_messages=truncation.omitted_messages + summarized,
        summarized=True,
        summarized_messages=summarized,
    )


def messages_to_summarize(state: ConversationState, turn: Turn, agent: PinnedAgent) -> list[Message]:
    """Return the messages that a summary replaces, by ordinal: all before the newest, which stay verbatim."""
    past = past_turns(state, turn, agent, covered_ordinal(state, agent))
    limits = _Limits(state, turn, agent)
    kept = past[max(limits.start(past, STEP), limits.kept_start(past)) :]
    # Messages of concurrent turns interleave. A summary covers all messages up to an ordinal.
    end = min([each.messages[0].ordinal for each in kept], default=turn_first(state, turn))
    if turn.history_end:
        # The summary covers all messages up to an ordinal, and must not cover the turn's own.
        end = min([end, *[message.ordinal for message in _waiting_messages(state, turn)]])
    messages = [message for each in past for message in each.messages if message.ordinal < end]
    return sorted(messages, key=lambda message: message.ordinal)


def previous_start(state: ConversationState, turn: Turn) -> int:
    """Return the first turn of the history of the agent's previous turn; 0 for all."""
    for other in reversed(state.turns.values()):
        if other.agent_id == turn.agent_id and other.ordinal < turn.ordinal:
            return other.history_start
    return 0


class _Limits:
    """The limits of a history: turns, tokens and bytes. The newest messages are exempt from the last two."""

    def __init__(self, state: ConversationState, turn: Turn, agent: PinnedAgent) -> None:
        limit = context_limit(agent)
        self.turns = agent.persona.recent_turns_limit
        self.kept_messages = agent.persona.context_window.keep_recent_messages
        self.tokens = inf
        if limit:
            input_tokens = message_tokens(state, turn)
            used = overhead_tokens(state, turn, agent) - input_tokens
            used += min(input_tokens, int(limit * INPUT_SHARE)) + int(limit * CONTEXT_SHARE)
            self.tokens = max(0, limit - used)

    def start(self, past: Sequence[PastTurn], share: float) -> int:
        """Return the index of the first turn of the longest history within ``share`` of the limits."""
        turns = max(1, int(self.turns * share)) if self.turns else 0
        tokens, size, kept = self.tokens * share, HISTORY_BYTES * share, 0
        newest = past[max(0, len(past) - turns) :]
        fits = sum([each.size_bytes for each in newest]) <= size
        if fits and sum([each.tokens for each in newest]) <= tokens:
            return len(past) - len(newest)
        start = len(past)
        for at in range(len(past) - 1, max(-1, len(past) - 1 - turns), -1):
            tokens, size = tokens - past[at].tokens, size - past[at].size_bytes
            if (tokens < 0 or size < 0) and kept >= self.kept_messages:
                break
            kept += len(past[at].messages)
            start = at
        return start

    def kept_start(self, past: Sequence[PastTurn]) -> int:
        """Return the index of the first turn with one of the newest messages, which always stay."""
        start, kept = len(past), 0
        while start and kept < self.kept_messages:
            start -= 1
            kept += len(past[start].messages)
        return start

    def omits_tokens(self, past: Sequence[PastTurn]) -> bool:
        """Return True if the history has fewer turns than it may, since more exceed the other limits."""
        return self.start(past, 1) > max(0, len(past) - self.turns)

    def max_bytes(self, past: Sequence[PastTurn]) -> int:
        """Return the longest text with which these turns are within the limits; 0 if they are.

        A power of two, so that it rarely changes.
        """
        size = sum([each.size_bytes for each in past])
        most = min(HISTORY_BYTES, self.tokens * BYTES_PER_TOKEN)
        if size <= HISTORY_BYTES and sum([each.tokens for each in past]) <= self.tokens:
            return 0
        texts = [byte_size(message.content) for each in past for message in each.messages]
        texts += [
            byte_size(result["content"])
            for each in past
            for exchange in each.exchanges
            for result in exchange.results
        ]
        longest = HISTORY_BYTES
        while longest > MIN_TEXT_BYTES and sum([min(text, longest) for text in texts]) > most:
            longest //= 2
        return longest


@dataclass(frozen=True, slots=True)
class _Selection:
    """The turns and limits to select a history from. A new summary replaces ``summarized`` more messages."""

    state: ConversationState
    turn: Turn
    agent: PinnedAgent
    limits: _Limits
    past: Sequence[PastTurn]
    summarized: int = 0


def _truncation(given: _Selection, start: int) -> HistoryTruncation | None:
    """Return what is omitted before the turn with the index ``start``; None for nothing."""
    past, seen = given.past, given.past[start:]
    end = turn_first(given.state, given.turn)
    shown = sum([len(each.messages) for each in seen])
    unseen = 0
    if given.turn.history_end:
        unseen = sum([message.ordinal < end for message in _waiting_messages(given.state, given.turn)])
    omitted = max(0, _message_count(given.state, given.agent, end) - given.summarized - shown - unseen)
    max_bytes = given.limits.max_bytes(seen)
    first_turn = (seen[0].turn.ordinal if seen else past[-1].turn.ordinal + 1) if start else 0
    if not (first_turn or omitted or max_bytes):
        return None
    by_tokens = past[:start] if given.limits.omits_tokens(past) else ()
    return HistoryTruncation(
        first=covered_ordinal(given.state, given.agent) + 1,
        omitted_messages=omitted,
        tokens=sum([each.tokens for each in by_tokens]),
        first_turn=first_turn,
        max_bytes=max_bytes,
    )


def _message_count(state: ConversationState, agent: PinnedAgent, end: int) -> int:
    """Return the number of messages since the last reset, before the ordinal ``end``, that no summary
    replaces.
    """
    conversation, summary = state.conversation, summary_of(state, agent)
    if conversation is None:
        return 0
    hidden = conversation.reset_messages
    if conversation.reset_ordinal and not hidden:
        # The reset is older than the count. The messages of the turns in the state are certain.
        firsts = [
            messages[0].ordinal
            for turn_id, messages in state.messages.items()
            if messages and state.turns[turn_id].ordinal > conversation.reset_ordinal
        ]
        hidden = min(firsts, default=end) - 1
    return end - 1 - hidden - (summary.messages if summary is not None else 0)


def _waiting_messages(state: ConversationState, turn: Turn) -> list[Message]:
    """Return the messages that are not in the history of ``turn``, which was queued: its own, and those of
    turns that wait behind it.
    """
    waiting = [other.id for other in state.turns.values() if waits_behind(other, turn)]
    return [message for turn_id in waiting for message in state.messages.get(turn_id, ())]


# --- entries ------------------------------------------------------------------------------------


def history_entries(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    speakers: Speakers,
    truncation: HistoryTruncation,
) -> tuple[list[HistoryEntry], bool]:
    """Return the entries of the history of ``turn``, oldest first, and True if it has several parties."""
    after = max(reset_ordinal(state), truncation.first_turn - 1)
    shown = _shown_turns(state, turn, truncation.first, after, speakers)
    several = _is_multi_party(turn, agent, shown, truncation.first, speakers)
    work = state.turn_work.get(turn.id)
    # A preview has no work. It shows what a new turn gets.
    replies = work is None or work.rules >= RULES_OF_REPLIES
    view = View(agent.agent_id, speakers if several else None, replies)
    recent: dict[str, HistoryEntry] = {}
    for other, messages, entry in reversed(shown):
        exchanges = exchanges_of_turn(state, other) if other.agent_id == agent.agent_id else ()
        form = agent.agent_id, several, replies, exchanges, truncation.max_bytes
        if entry is None or entry.form != form:
            entry = _entry(other, messages, exchanges, view, speakers, truncation)
        if entry is not None:
            recent[other.id] = entry
    # The next assembly reuses most of these entries.
    state.history_cache = recent
    return list(recent.values()), several


_Shown = tuple[Turn, Sequence[Message], HistoryEntry | None]
"""An earlier turn, its messages before those of the present one, and its entry of the last assembly if that
is current."""


def _shown_turns(
    state: ConversationState, turn: Turn, first: int, after: int, speakers: Speakers
) -> list[_Shown]:
    """Return the turns with an ordinal above ``after``, newest first."""
    end, cache = turn_first(state, turn), state.history_cache
    shown: list[_Shown] = []
    for other in reversed(state.turns.values()):
        if other.ordinal <= after:
            break
        messages: Sequence[Message] = state.messages.get(other.id, ())
        if not messages or waits_behind(other, turn):
            continue
        if messages[-1].ordinal >= end:
            messages = [message for message in messages if message.ordinal < end]
            if not messages:
                continue
        entry = cache.get(other.id)
        if entry is not None and not entry.is_current(other, messages, first, speakers):
            entry = None
        shown.append((other, messages, entry))
    return shown


def _is_multi_party(
    turn: Turn, agent: PinnedAgent, shown: Sequence[_Shown], first: int, speakers: Speakers
) -> bool:
    """Return True if the agent has several other participants or speakers, or another agent has answered."""
    own, authors = {(AGENT, agent.agent_id)}, set[Key]()
    for other, messages, entry in shown:
        if entry is not None:
            authors |= entry.authors
        else:
            authors.update([author_key(message, other) for message in messages if message.ordinal >= first])
    authors -= own
    others = (speakers.others(agent.agent_id) | authors | {caller_key(turn.caller)}) - own
    return len(others) > 1 or any(kind == AGENT for kind, _ in authors)


def _entry(
    turn: Turn,
    messages: Sequence[Message],
    exchanges: tuple[Exchange, ...],
    view: View,
    speakers: Speakers,
    truncation: HistoryTruncation,
) -> HistoryEntry | None:
    """Return the entry of a turn with its thread; None if no message remains."""
    most = truncation.max_bytes
    shown = messages
    if most:
        shown = [replace(each, content=truncate_text(each.content, most)) for each in messages]
    entry = history_entry(turn, shown, truncation.first, speakers)
    if entry is None:
        return None
    thread = [
        _cut(message, most) if most else message
        for message in transcript_of(turn, shown, exchanges, view, truncation.first)
    ]
    return HistoryEntry(
        turn={**entry.turn, "thread": thread},
        history=entry.history,
        size_bytes=entry.size_bytes,
        omitted_through=entry.omitted_through,
        first_ordinal=entry.first_ordinal,
        status=entry.status,
        last_message=messages[-1],
        authors=entry.authors,
        speakers=speakers,
        form=(view.agent_id, view.speakers is not None, view.replies, exchanges, most),
    )


def _cut(message: JsonDict, max_bytes: int) -> JsonDict:
    content = message["content"]
    if not isinstance(content, str):
        return message
    shorter = truncate_text(content, max_bytes)
    return message if shorter is content else {**message, "content": shorter}
