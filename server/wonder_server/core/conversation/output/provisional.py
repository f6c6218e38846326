"""The state after decisions that are not applied yet, for a planner that continues from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from wonder_server.core.conversation.model.decisions import Decision
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.output.decision_table import apply


def provisional(state: ConversationState, decisions: Sequence[Decision]) -> ConversationState:
    """Return a copy of the state with the decisions applied. The values in it are shared: they are frozen."""
    copy = dataclasses.replace(
        state,
        turns=dict(state.turns),
        messages={turn_id: list(messages) for turn_id, messages in state.messages.items()},
        moves={turn_id: list(moves) for turn_id, moves in state.moves.items()},
        exchanges=dict(state.exchanges),
        turn_work=dict(state.turn_work),
        requests=dict(state.requests),
        operations=dict(state.operations),
    )
    for decision in decisions:
        apply(copy, decision)
    return copy
