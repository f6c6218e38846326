"""Reduction of a request to the model's context window (feature B12), as a decision."""

from __future__ import annotations

from wonder_server.core.conversation.context.fitting import fit_request
from wonder_server.core.conversation.context.window import TrimmedRequest, context_limit
from wonder_server.core.conversation.model.decisions import ReduceContext
from wonder_server.core.conversation.model.event_payloads import ContextReduction, HistoryTruncation
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.json_types import JsonDict
from wonder_server.core.token_estimates import json_tokens


def within_window(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    body: JsonDict,
    truncation: HistoryTruncation | None,
) -> tuple[Decisions, JsonDict]:
    """Return the request within the model's context window, and the decision that records its reduction.

    ``truncation`` is what the assembly omitted. What it omitted only for the number of turns is no reduction.
    """
    smaller = fit_request(state, turn, agent, body, context_limit(agent))
    if smaller is None and (truncation is None or not (truncation.tokens or truncation.summarized)):
        return (), body
    if smaller is None:
        tokens = json_tokens(body)
        smaller = TrimmedRequest(body, 0, tokens, tokens)
    return (reduction(turn, smaller, truncation),), smaller.body


def reduction(turn: Turn, smaller: TrimmedRequest, truncation: HistoryTruncation | None) -> ReduceContext:
    """Return the decision that records the reduction of a request."""
    reduced = ContextReduction(
        messages_left_out=smaller.omitted_messages
        + (truncation.omitted_messages if truncation is not None else 0),
        summarized=truncation is not None and truncation.summarized,
        tokens_before=smaller.tokens_before + (truncation.tokens if truncation is not None else 0),
        tokens_after=smaller.tokens_after,
    )
    return ReduceContext(turn_id=turn.id, reduction=reduced)
