"""What turns may spend, and what happens when they have spent it (features B10, C6).

A turn's limits are the smallest of what its persona says, what its caller allows and what is left of its
conversation's budget. The model is told on the last call that fits: it gets that without tools, and is asked
to wrap up. If it calls tools all the same, the turn fails with the typed reason. Time is different, for
waiting uses it up too: from `WRAP_UP_SHARE` of it on, tools are no longer waited for, so that the model can
still be told; at its end the turn fails. All deadlines are those of operations, so a restart keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard, get_args

from wonder_server.core.budget import NO_BUDGET, Account, Budget, tightest
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.model.decisions import (
    Decision,
    DispatchAgent,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    LimitReached,
    Redispatch,
    RetryOperation,
    StartTurn,
)
from wonder_server.core.conversation.model.operations import Decisions, cancel_pending, fail_turn
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import (
    Spender,
    UsageDelta,
    add_usage,
    difference,
    total_tokens,
)
from wonder_server.core.conversation.model.values import (
    Conversation,
    Limit,
    Operation,
    OperationKind,
    Turn,
    TurnStatus,
)
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.token_estimates import json_tokens

WRAP_UP_SHARE = 0.8
"""The part of a turn's time after which it is brought to its end."""

WRAP_UP = (
    "You have nearly used up the {} that you may spend. Do not call tools any more: "
    "answer now with what you have, and say what is missing."
)

_AFTER_TURN = (OperationKind.EXTRACTION, OperationKind.MEMORY)
"""What goes on when its turn has ended; its time is its own."""


@dataclass(frozen=True, slots=True)
class LastCall:
    """The last call that fits: what the model is told, and what is recorded of it."""

    note: str
    fault: Fault


def check_last_call(
    state: ConversationState, turn: Turn, agent: PinnedAgent, body: dict[str, object], now: int
) -> LastCall | None:
    """Whether the call of the model with ``body`` is the last that the limits leave room for."""
    conversation = state.conversation
    own, conversation_budget = turn_budget(turn, agent), _conversation_budget(conversation)
    if own == conversation_budget == NO_BUDGET:
        return None
    if (
        own.max_tokens
        or conversation_budget.max_tokens
        or own.max_cost_micros
        or conversation_budget.max_cost_micros
    ):
        spent = turn.moves or 1
        tokens = max(json_tokens(body), total_tokens(turn) // spent)
        cost = turn.cost_micros // spent
        for whose, budget, spender in (
            ("turn", own, turn),
            ("conversation", conversation_budget, conversation),
        ):
            if spender is None:
                continue
            # After this call, another of the same size would no longer fit.
            if budget.max_tokens and total_tokens(spender) + 2 * tokens > budget.max_tokens:
                used = total_tokens(spender)
                fault = budget_fault(whose, "tokens", budget.max_tokens, used, tokens, enforced=False)
                return LastCall(wrap_up_note(fault), fault)
            if budget.max_cost_micros and spender.cost_micros + 2 * cost >= budget.max_cost_micros:
                used = spender.cost_micros
                fault = budget_fault(whose, "cost", budget.max_cost_micros, used, cost, enforced=False)
                return LastCall(wrap_up_note(fault), fault)
    limit, started = _time(conversation, turn, agent)
    if limit and now >= started + int(limit * WRAP_UP_SHARE):
        return LastCall(
            WRAP_UP.format("time"), budget_fault("turn", "time", limit, now - started, enforced=False)
        )
    return None


def is_last_call(state: ConversationState, turn: Turn, agent: PinnedAgent) -> bool:
    """Whether the model, which is about to be called, is asked for an answer without tools."""
    limit = agent.persona.constraints.max_moves_per_turn
    asked = state.requests[turn.id]
    return not agent.tools or asked.wrap_up is not None or bool(limit and turn.moves + 1 >= limit)


def exhausted(state: ConversationState, turn: Turn, fault: Fault, now: int, *, answered: str) -> Decisions:
    """The turn ends, since the model was told and went on: ``fault`` is what it was told, ``answered`` the
    operation that is closed already, ``turn`` with what it has spent on that."""
    whose, kind = fault.metadata.get("of", "turn"), fault.metadata.get("budget", "tokens")
    spent = difference(state.turns[turn.id], turn) or UsageDelta()
    spender: Spender = turn
    if whose == "conversation" and state.conversation is not None:
        spender = add_usage(state.conversation, spent)
    used = total_tokens(spender) if kind == "tokens" else spender.cost_micros
    if kind == "time":
        used = now - turn.created_ms
    elif whose == "agent":
        # Of its other conversations, what was known when the model was told.
        more = total_tokens(spent) if kind == "tokens" else spent.cost_micros
        used = int(fault.metadata.get("used", "0")) + more
    final = budget_fault(whose, kind, int(fault.metadata.get("limit", "0")), used, enforced=True)
    return _end(state, turn, final, now, except_id=answered)


def unaffordable(conversation: Conversation) -> Fault | None:
    """Why no turn can start: the conversation has spent all that it may."""
    return exhausted_fault("conversation", conversation.budget, conversation)


def exhausted_fault(whose: str, budget: Budget, spender: Conversation | Account) -> Fault | None:
    """The fault of a conversation or an agent that has spent all that its budget lets it."""
    for kind, limit, used in (
        ("tokens", budget.max_tokens, total_tokens(spender)),
        ("cost", budget.max_cost_micros, spender.cost_micros),
        ("time", budget.max_duration_ms, spender.busy_ms),
    ):
        if limit and used >= limit:
            return budget_fault(whose, kind, limit, used, enforced=True)
    return None


def delegate_budget(state: ConversationState, turn: Turn, agent: PinnedAgent, now: int) -> Budget | None:
    """What a delegate of the turn may spend; None if nothing limits it. What is used up counts as 1, for 0
    would be no limit."""
    own, conversation_budget = turn_budget(turn, agent), _conversation_budget(state.conversation)
    if own == conversation_budget == NO_BUDGET:
        return None
    rests = [remaining(own, turn)]
    if state.conversation is not None:
        rests.append(remaining(conversation_budget, state.conversation))
    limit, started = _time(state.conversation, turn, agent)
    if limit:
        rests.append(Budget(max_duration_ms=max(1, started + limit - now)))
    return tightest(*rests)


def turn_budget(turn: Turn, agent: PinnedAgent) -> Budget:
    """What the turn itself may spend, by its persona and its caller."""
    own = resolve_agent(agent).limits
    return own if turn.budget is None else tightest(own, turn.budget)


# --- time -------------------------------------------------------------------------------------------


Timed = DispatchWorkflow | DispatchTask | DispatchAgent | DispatchModel | Redispatch | RetryOperation

_TIMED = frozenset(get_args(Timed))


def clamp_timers(state: ConversationState, decisions: Decisions) -> Decisions:
    """The same decisions, with no operation of a turn that may only take so long waking after that."""
    bounded: list[Decision] | None = None
    for place, decision in enumerate(decisions):
        if not _is_timed(decision):
            continue
        operation = decision.operation
        turn, agent = _turn_and_agent(state, decisions, operation)
        ends = _latest_end(state.conversation, turn, agent, operation)
        if ends and (operation.wake_ms == 0 or operation.wake_ms > ends):
            bounded = bounded or list(decisions)
            bounded[place] = replace(decision, operation=replace(operation, wake_ms=ends))
    return decisions if bounded is None else tuple(bounded)


def _is_timed(decision: Decision) -> TypeGuard[Timed]:
    return type(decision) in _TIMED


def handle_turn_timeout(state: ConversationState, operation: Operation, now: int) -> Decisions | Fault | None:
    """What a wake at ``now`` means for the turn: it is over; or its tool is no longer waited for, and this
    fault is what the model is told; or nothing."""
    turn = state.turns.get(operation.turn_id)
    if turn is None or turn.status is not TurnStatus.ACTIVE or operation.kind in _AFTER_TURN:
        return None
    limit, started = _time(state.conversation, turn, state.turn_work[turn.id].agent)
    if not limit:
        return None
    if now >= started + limit:
        return _end(state, turn, budget_fault("turn", "time", limit, now - started, enforced=True), now)
    if _is_tool(operation) and now >= started + int(limit * WRAP_UP_SHARE):
        return Fault(
            reason=Reason.TIMEOUT, message="The turn's time is nearly over; it was not waited for any longer."
        )
    return None


def _turn_and_agent(
    state: ConversationState, decisions: Decisions, operation: Operation
) -> tuple[Turn, PinnedAgent]:
    """The operation's turn, which one of the decisions may just have started, and its agent."""
    turn = state.turns.get(operation.turn_id)
    if turn is not None:
        return turn, state.turn_work[turn.id].agent
    (start,) = (each for each in decisions if type(each) is StartTurn)
    return start.turn, start.work.agent


def _latest_end(
    conversation: Conversation | None, turn: Turn, agent: PinnedAgent, operation: Operation
) -> int:
    """When an operation of the turn is given up at the latest; 0 for no such time."""
    if operation.kind in _AFTER_TURN:
        return 0
    limit, started = _time(conversation, turn, agent)
    if not limit:
        return 0
    wrap_up = started + int(limit * WRAP_UP_SHARE)
    # A tool that is only started now, although the model was told, may have the rest.
    return wrap_up if _is_tool(operation) and operation.created_ms < wrap_up else started + limit


def _time(conversation: Conversation | None, turn: Turn, agent: PinnedAgent) -> tuple[int, int]:
    """Milliseconds that the turn may take, 0 for any, and when they began."""
    own = turn_budget(turn, agent).max_duration_ms
    conversation_limit = _conversation_budget(conversation).max_duration_ms
    if not conversation_limit or conversation is None:
        return own, turn.created_ms
    busy_since = conversation.busy_since_ms or turn.created_ms
    ends = busy_since + conversation_limit - conversation.busy_ms
    ends = min(ends, turn.created_ms + own) if own else ends
    return max(1, ends - turn.created_ms), turn.created_ms


def _is_tool(operation: Operation) -> bool:
    return bool(operation.tool_call_id)


# --- pieces -----------------------------------------------------------------------------------------


def _end(state: ConversationState, turn: Turn, fault: Fault, now: int, *, except_id: str = "") -> Decisions:
    pending = cancel_pending(state, turn.id, now, except_id=except_id)
    limited = LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True))
    return (*pending, limited, *fail_turn(turn, fault, now))


def _conversation_budget(conversation: Conversation | None) -> Budget:
    return NO_BUDGET if conversation is None else conversation.budget


def remaining(budget: Budget, spender: Spender) -> Budget:
    """What is left of the tokens and the money; what is used up counts as 1, for 0 would be no limit."""
    return Budget(
        max_tokens=budget.max_tokens and max(1, budget.max_tokens - total_tokens(spender)),
        max_cost_micros=budget.max_cost_micros and max(1, budget.max_cost_micros - spender.cost_micros),
    )


def wrap_up_note(fault: Fault) -> str:
    """What the model is told of a budget that is nearly used up."""
    named = {"cost": "money"}
    kind = fault.metadata.get("budget", "tokens")
    return WRAP_UP.format(named.get(kind, kind))


_UNITS = {"tokens": "tokens", "cost": "millionths of a dollar", "time": "milliseconds"}


_ADVICE = {
    "turn": "raise its limit (in the persona's constraints, or the caller's budget) to let turns take more",
    "conversation": "raise the conversation's budget (UpdateConversation) to go on",
    "agent": "raise the agent's budget (`wonder agent budget`, or UpdateAgent) to go on",
}


def budget_fault(whose: str, kind: str, limit: int, used: int, more: int = 0, *, enforced: bool) -> Fault:
    """That a budget of ``tokens``, ``cost`` or ``time`` is used up, or nearly; ``whose`` is ``turn``,
    ``conversation`` or ``agent``, ``more`` what the next call is likely to take of it."""
    unit = _UNITS[kind]
    message = f"The {whose} used {used:,} of {limit:,} {unit}"
    if enforced:
        message += f": {_ADVICE[whose]}."
    elif more:
        message += f"; the next call may take about {more:,} of the {max(0, limit - used):,} left, so "
        message += "the model is asked to answer without tools."
    else:
        message += "; the model is asked to answer without tools."
    metadata = {"budget": kind, "limit": str(limit), "used": str(used), "of": whose}
    return Fault(reason=Reason.BUDGET_EXHAUSTED, message=message, metadata=metadata)
