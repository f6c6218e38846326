"""Turns whose budgets limit a model call (feature C6).

A turn's planner sees its own conversation only, and the usage of work below a turn reaches it when the work
reports it. So each model call names the turns above it that have budgets, and the handler checks all of them
just before the call (``actors/usage/budget_enforcement.py``), with the calls that are in flight.
"""

from __future__ import annotations

from wonder_server.core.actor.queries import Spending
from wonder_server.core.budget import NO_BUDGET, Account, BudgetLevel, limits_calls
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import Spender
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.conversation.planning.limits import turn_budget
from wonder_server.core.definitions.specs import PinnedAgent


def budget_levels(
    state: ConversationState, turn: Turn, agent: PinnedAgent, operation_id: str
) -> tuple[BudgetLevel, ...]:
    """Return the levels of the model calls of an operation of ``turn``, outermost first; nothing if no
    budget limits them."""
    above, own = state.turn_work[turn.id].levels, turn_budget(turn, agent)
    conversation = NO_BUDGET if state.conversation is None else state.conversation.budget
    if not (above or limits_calls(own) or limits_calls(conversation) or limits_calls(agent.budget)):
        return ()
    level = BudgetLevel(
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        operation_id=operation_id,
        agent_id=agent.agent_id,
        turn=own,
        conversation=conversation,
        agent=agent.budget or NO_BUDGET,
    )
    return (*above, level)


def spending_of(state: ConversationState, turn_id: str) -> Spending:
    """Return what a turn and its conversation have used, and the operations that have not ended."""
    turn = state.turns.get(turn_id)
    return Spending(
        turn=None if turn is None else _account(turn),
        conversation=Account() if state.conversation is None else _account(state.conversation),
        operation_ids=tuple(state.operations),
    )


def _account(spender: Spender) -> Account:
    return Account(
        input_tokens=spender.input_tokens,
        output_tokens=spender.output_tokens,
        cost_micros=spender.cost_micros,
        model_calls=spender.model_calls,
    )
