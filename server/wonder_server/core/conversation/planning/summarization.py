"""Summaries in place of older messages (feature B12, strategy ``summarize``).

If the history of a turn does not fit the model, the workflow ``wonder/std/summarize_history`` runs as a
hook before the assembly::

    Send ─▶ summary ─▶ assembly ─▶ …

The conversation keeps the summary and the ordinal of the last message that it covers. The summary replaces
these messages in all later turns. When the history no longer fits again, the next summary replaces this
one; its input is this summary and the messages since. If summarization fails finally, the turn continues
with a sliding window.
"""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.content.parts import content_tokens, readable
from wonder_server.core.conversation.context.history import (
    messages_to_summarize,
    previous_start,
    select_history,
    truncation_after_summary,
)
from wonder_server.core.conversation.context.hook_inputs import speaker_of
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.context.window import (
    earlier_messages,
    reset_ordinal,
    summary_of,
    truncate_history,
    uses_summary,
)
from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    DispatchWorkflow,
    HistorySummarized,
    MarkWaiting,
)
from wonder_server.core.conversation.model.event_payloads import HistoryTruncation
from wonder_server.core.conversation.model.exchange import Summary
from wonder_server.core.conversation.model.operations import Decisions, charge_hook, hook_operation
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Operation, OperationKind, Turn
from wonder_server.core.conversation.planning.hooks.side_models import with_model
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.token_estimates import text_tokens

RULES_OF_RESTING_SUMMARIES = 4
"""Version of `TURN_RULES` from which on a failed summary is tried again only once the history has grown by a
step."""

SUMMARY_TIMEOUT_MS = 120_000
"""Timeout of a summary, which calls a model. Other hooks have `HOOK_TIMEOUT_MS`."""

MAX_SUMMARY_CHARS = 40_000
"""Maximum length of a summary in characters."""


def first_hook(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    truncation: HistoryTruncation | None,
    ids: Minter,
    now: int,
) -> Operation:
    """Return the first operation of a new turn: its assembly, which omits ``truncation``, or the summary that
    precedes it.
    """
    older: list[Message] = []
    if truncation is not None and truncation.first_turn and uses_summary(agent):
        older = messages_to_summarize(state, turn, agent)
    return with_model(_first_hook(turn, ids, now, truncation, older), agent)


def was_tried(state: ConversationState, turn: Turn) -> bool:
    """Return True if the agent's previous turn needed a summary of the same messages.

    It has failed then, or is in progress: after a summary the history no longer begins with that turn.
    """
    return turn.history_start != 0 and turn.history_start == previous_start(state, turn)


def assembly_hook(turn: Turn, truncation: HistoryTruncation | None, ids: Minter, now: int) -> Operation:
    """Return the assembly of a new turn, which omits ``truncation``, without a summary before it."""
    return _first_hook(turn, ids, now, truncation, ())


def earlier_first_hook(
    state: ConversationState, turn: Turn, agent: PinnedAgent, ids: Minter, now: int
) -> Operation:
    """Return the first operation of a new turn that an earlier build began."""
    truncation = truncate_history(state, turn, agent)
    older: list[Message] = []
    if truncation is not None and uses_summary(agent):
        older = _older_messages(state, turn, agent)
    return _first_hook(turn, ids, now, truncation, older)


def _first_hook(
    turn: Turn, ids: Minter, now: int, truncation: HistoryTruncation | None, older: Sequence[Message]
) -> Operation:
    assembly = hook_operation(ids.new("op"), turn, OperationKind.ASSEMBLY, turn.context_assembly_run_id, now)
    if older:
        return replace(
            assembly,
            # Messages that other turns append meanwhile are not summarized.
            input={"last": older[-1].ordinal},
            kind=OperationKind.SUMMARY,
            timeout_ms=SUMMARY_TIMEOUT_MS,
            wake_ms=now + SUMMARY_TIMEOUT_MS,
            # The assembly that follows has its own run.
            run_id=ids.child("run", turn.conversation_id),
        )
    return assembly if truncation is None else replace(assembly, input=truncation_input(truncation))


def history_truncation(operation: Operation) -> HistoryTruncation | None:
    """Return the truncation in an assembly's operation; None without one."""
    given = operation.input
    if not isinstance(given, dict):
        return None
    return HistoryTruncation(
        first=given["first"],
        omitted_messages=given.get("left_out", 0),
        tokens=given.get("tokens", 0),
        summarized=given.get("summarized", False),
        summarized_messages=given.get("summarized_messages", 0),
        first_turn=given.get("first_turn", 0),
        max_bytes=given.get("max_bytes", 0),
    )


def truncation_input(truncation: HistoryTruncation) -> JsonDict:
    """Return the stored form of a truncation, which `history_truncation` reads."""
    return {
        "first": truncation.first,
        "left_out": truncation.omitted_messages,
        "tokens": truncation.tokens,
        "summarized": truncation.summarized,
        **{name: value for name in _NEWER if (value := getattr(truncation, name))},
    }


_NEWER = ("summarized_messages", "first_turn", "max_bytes")
"""Fields of a truncation that operations of earlier versions lack."""


def summary_input(state: ConversationState, turn: Turn, agent: PinnedAgent, operation: Operation) -> JsonDict:
    """Return the input of a summary run: ``{conversation_id, summary, messages, model_profile}``."""
    summary = summary_of(state, agent)
    return {
        "conversation_id": turn.conversation_id,
        "summary": summary.text if summary is not None else "",
        "messages": [
            {
                "role": message.role.value,
                "author": message.author,
                "speaker": speaker_of(state, message),
                "content": readable(message.content, message.parts),
            }
            for message in _summarized_messages(state, turn, agent, operation)
        ],
        "model_profile": resolve_agent(agent).summary_profile,
    }


def summarized(
    state: ConversationState, operation: Operation, output: JsonValue, ids: Minter, now: int
) -> Decisions:
    """Store the summary and dispatch the assembly. Output without a summary counts as a failure."""
    turn = state.turns[operation.turn_id]
    agent = state.turn_work[turn.id].agent
    text = output.get("summary") if isinstance(output, dict) else None
    older = _messages_to_summarize(state, turn, agent, operation)
    conversation = state.conversation
    if not isinstance(text, str) or not text.strip() or not older or conversation is None:
        return summary_failed(state, operation, ids, now)
    turn, charged = charge_hook(turn, operation, output)
    before = summary_of(state, agent)
    rules = state.turn_work[turn.id].rules
    covered = len(_summarized_messages(state, turn, agent, operation)) if rules else len(older)
    summary = Summary(
        text=text.strip()[:MAX_SUMMARY_CHARS],
        last_ordinal=older[-1].ordinal,
        messages=covered + (before.messages if before is not None else 0),
        after_turn=reset_ordinal(state),
    )
    tokens = sum([content_tokens(message.content, message.parts) for message in older])
    tokens = max(0, tokens - text_tokens(summary.text))
    truncation = HistoryTruncation(
        first=older[-1].ordinal + 1, omitted_messages=covered, tokens=tokens, summarized=True
    )
    if rules:
        truncation = truncation_after_summary(state, turn, agent, older[-1].ordinal, covered)
        truncation = replace(truncation, tokens=tokens)
    return (
        *charged,
        HistorySummarized(operation_id=operation.id, turn_id=turn.id, summary=summary),
        *_assemble(turn, truncation, ids, now),
    )


def summary_failed(state: ConversationState, operation: Operation, ids: Minter, now: int) -> Decisions:
    """Dispatch the assembly with the newest messages that fit."""
    turn = state.turns[operation.turn_id]
    work = state.turn_work[turn.id]
    if work.rules:
        truncation = select_history(state, turn, work.agent)
    else:
        truncation = truncate_history(state, turn, work.agent)
    return (CancelOperation(operation=operation), *_assemble(turn, truncation, ids, now))


def _assemble(turn: Turn, truncation: HistoryTruncation | None, ids: Minter, now: int) -> Decisions:
    assembly = hook_operation(ids.new("op"), turn, OperationKind.ASSEMBLY, turn.context_assembly_run_id, now)
    if truncation is not None:
        assembly = replace(assembly, input=truncation_input(truncation))
    return (DispatchWorkflow(operation=assembly), MarkWaiting(turn_id=turn.id, operation_id=assembly.id))


def _older_messages(state: ConversationState, turn: Turn, agent: PinnedAgent) -> list[Message]:
    """Return the messages to summarize before a turn that an earlier build began: all but the newest."""
    messages = earlier_messages(state, turn, agent)
    return messages[: max(0, len(messages) - agent.persona.context_window.keep_recent_messages)]


def _messages_to_summarize(
    state: ConversationState, turn: Turn, agent: PinnedAgent, operation: Operation
) -> list[Message]:
    """Return the messages that the operation summarizes and no other summary covers meanwhile."""
    last = operation.input["last"]
    if state.turn_work[turn.id].rules:
        return [m for m in messages_to_summarize(state, turn, agent) if m.ordinal <= last]
    return [m for m in earlier_messages(state, turn, agent) if m.ordinal <= last]


def _summarized_messages(
    state: ConversationState, turn: Turn, agent: PinnedAgent, operation: Operation
) -> list[Message]:
    """Return the messages that the summary run of the operation receives."""
    messages = _messages_to_summarize(state, turn, agent, operation)
    return _within_limit(messages, resolve_agent(agent).summary_limit)


def _within_limit(messages: list[Message], limit: int) -> list[Message]:
    """Return the newest of ``messages`` that fit the limit, at least one."""
    used, kept = 0, 0
    for message in reversed(messages):
        used += content_tokens(message.content, message.parts)
        if kept and used > limit:
            break
        kept += 1
    return messages[len(messages) - kept :]
