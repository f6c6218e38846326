"""A summary in place of older messages (feature B12, strategy ``summarize``).

When a turn finds that its history no longer fits, the workflow ``wonder/std/summarize_history`` runs before
its assembly, like a hook::

    Send ─▶ summary ─▶ assembly ─▶ …

What it puts out is kept with the conversation, up to which message it reaches too, and stands in for those
messages in all turns that follow, until these no longer fit either: then the next summary takes the place of
this one, made of it and what was said since. If it fails for good the turn goes on with a sliding window.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.context.window import (
    context_limit,
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
from wonder_server.core.conversation.model.operations import Decisions, charge_hook, hook_operation
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    HistoryTruncation,
    Message,
    Operation,
    OperationKind,
    Summary,
    Turn,
)
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.token_estimates import text_tokens

SUMMARY_TIMEOUT_MS = 120_000
"""A summary is a call of a model; other hooks have less."""

MAX_SUMMARY_CHARS = 40_000


def first_hook(state: ConversationState, turn: Turn, agent: PinnedAgent, ids: Minter, now: int) -> Operation:
    """What a new turn begins with: its assembly, or the summary that this needs."""
    assembly = hook_operation(ids.new("op"), turn, OperationKind.ASSEMBLY, turn.context_assembly_run_id, now)
    reduced = truncate_history(state, turn, agent)
    if reduced is None:
        return assembly
    older = _older_messages(state, turn, agent) if uses_summary(agent) else []
    if older:
        return replace(
            assembly,
            # What other turns say meanwhile is not in it.
            input={"last": older[-1].ordinal},
            kind=OperationKind.SUMMARY,
            timeout_ms=SUMMARY_TIMEOUT_MS,
            wake_ms=now + SUMMARY_TIMEOUT_MS,
            # The assembly that follows has its own run.
            run_id=ids.child("run", turn.conversation_id),
        )
    return replace(assembly, input=_truncation_input(reduced))


def history_truncation(operation: Operation) -> HistoryTruncation | None:
    """What an assembly leaves out of the history."""
    given = operation.input
    if not isinstance(given, dict):
        return None
    return HistoryTruncation(
        first=given["first"],
        omitted_messages=given.get("left_out", 0),
        tokens=given.get("tokens", 0),
        summarized=given.get("summarized", False),
    )


def _truncation_input(truncation: HistoryTruncation) -> dict[str, Any]:
    """Return the stored form of a truncation, which `cut_of` reads."""
    return {
        "first": truncation.first,
        "left_out": truncation.omitted_messages,
        "tokens": truncation.tokens,
        "summarized": truncation.summarized,
    }


def summary_input(
    state: ConversationState, turn: Turn, agent: PinnedAgent, operation: Operation
) -> dict[str, Any]:
    """The input of a run that sums up: ``{conversation_id, summary, messages, model_profile}``."""
    summary = summary_of(state, agent)
    return {
        "conversation_id": turn.conversation_id,
        "summary": summary.text if summary is not None else "",
        "messages": [
            {"role": message.role.value, "author": message.author, "content": message.content}
            for message in _within_limit(
                _messages_to_summarize(state, turn, agent, operation), context_limit(agent)
            )
        ],
        "model_profile": resolve_agent(agent).side_profile,
    }


def summarized(
    state: ConversationState, operation: Operation, output: Any, ids: Minter, now: int
) -> Decisions:
    """The summary is made, or what was put out is none: on to the assembly."""
    turn = state.turns[operation.turn_id]
    agent = state.turn_work[turn.id].agent
    text = output.get("summary") if isinstance(output, dict) else None
    older = _messages_to_summarize(state, turn, agent, operation)
    conversation = state.conversation
    if not isinstance(text, str) or not text.strip() or not older or conversation is None:
        return summary_failed(state, operation, ids, now)
    turn, paid = charge_hook(turn, operation, output)
    before = summary_of(state, agent)
    summary = Summary(
        text=text.strip()[:MAX_SUMMARY_CHARS],
        last_ordinal=older[-1].ordinal,
        messages=len(older) + (before.messages if before is not None else 0),
        after_turn=reset_ordinal(state),
    )
    tokens = sum(text_tokens(message.content) for message in older) - text_tokens(summary.text)
    reduced = HistoryTruncation(
        first=older[-1].ordinal + 1, omitted_messages=len(older), tokens=max(0, tokens), summarized=True
    )
    return (
        *paid,
        HistorySummarized(operation_id=operation.id, turn_id=turn.id, summary=summary),
        *_assemble(turn, reduced, ids, now),
    )


def summary_failed(state: ConversationState, operation: Operation, ids: Minter, now: int) -> Decisions:
    """There is no summary: the newest messages that fit have to do."""
    turn = state.turns[operation.turn_id]
    reduced = truncate_history(state, turn, state.turn_work[turn.id].agent)
    return (CancelOperation(operation=operation), *_assemble(turn, reduced, ids, now))


def _assemble(turn: Turn, reduced: HistoryTruncation | None, ids: Minter, now: int) -> Decisions:
    assembly = hook_operation(ids.new("op"), turn, OperationKind.ASSEMBLY, turn.context_assembly_run_id, now)
    if reduced is not None:
        assembly = replace(assembly, input=_truncation_input(reduced))
    return (DispatchWorkflow(operation=assembly), MarkWaiting(turn_id=turn.id, operation_id=assembly.id))


def _older_messages(state: ConversationState, turn: Turn, agent: PinnedAgent) -> list[Message]:
    """What would be summed up: all but the newest messages, which stay word for word."""
    messages = earlier_messages(state, turn, agent)
    return messages[: max(0, len(messages) - agent.persona.context_window.keep_recent_messages)]


def _messages_to_summarize(
    state: ConversationState, turn: Turn, agent: PinnedAgent, operation: Operation
) -> list[Message]:
    """What the operation is to sum up, as far as nobody else has meanwhile."""
    last = operation.input["last"]
    return [m for m in earlier_messages(state, turn, agent) if m.ordinal <= last]


def _within_limit(messages: list[Message], limit: int) -> list[Message]:
    """The newest of ``messages`` that fit, and one at least."""
    used, kept = 0, 0
    for message in reversed(messages):
        used += text_tokens(message.content)
        if kept and used > limit:
            break
        kept += 1
    return messages[len(messages) - kept :]
