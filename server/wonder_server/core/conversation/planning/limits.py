"""Limits of a turn and their enforcement (features B10, C6).

A turn's limits are the tightest of its persona's limits, its caller's budget and the rest of its
conversation's budget. The last call that fits forbids tools and asks the model to finish. If the model
calls tools all the same, the turn fails with BUDGET_EXHAUSTED.

Time differs, since waiting consumes it too. From `WRAP_UP_SHARE` of the time on, the turn no longer waits
for tools, so the model can still be asked to finish. At the end of the time the turn fails. All deadlines
are timers of operations, so they survive a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard, get_args

from wonder_server.core.budget import NO_BUDGET, Account, Budget, limits_calls, tightest
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.model.decisions import (
    BeginTurn,
    CloseApproval,
    Decision,
    DispatchAgent,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    LimitReached,
    Redispatch,
    RequestApproval,
    RetryOperation,
    StartTurn,
)
from wonder_server.core.conversation.model.event_payloads import Limit
from wonder_server.core.conversation.model.operations import Decisions, cancel_pending, fail_turn
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import (
    Spender,
    UsageDelta,
    add_usage,
    began_ms,
    difference,
    total_tokens,
)
from wonder_server.core.conversation.model.values import (
    Conversation,
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
"""Share of a turn's time after which the turn is asked to finish."""

WRAP_UP = (
    "You have nearly used up the {} that you may spend. Do not call tools any more: "
    "answer now with what you have, and say what is missing."
)
"""Note for the model; the placeholder names the budget."""

_AFTER_TURN = (OperationKind.EXTRACTION, OperationKind.MEMORY)
"""Operations that continue after the end of their turn. They do not use its time."""


@dataclass(frozen=True, slots=True)
class LastCall:
    """The last call that fits: the note for the model, and the fault for the event."""

    note: str
    fault: Fault


def check_last_call(
    state: ConversationState, turn: Turn, agent: PinnedAgent, body: dict[str, object], now: int
) -> LastCall | None:
    """Return the limits' last call if the model call with ``body`` is it; None if another one fits."""
    conversation = state.conversation
    own, conversation_budget = turn_budget(turn, agent), _conversation_budget(conversation)
    if own == conversation_budget == NO_BUDGET:
        return None
    budgets: list[tuple[str, Budget, Spender]] = [("turn", own, turn)]
    if conversation is not None:
        budgets.append(("conversation", conversation_budget, conversation))
    if any(limits_calls(budget) for _, budget, _ in budgets):
        calls = turn.moves or 1
        tokens = max(json_tokens(body), total_tokens(turn) // calls)
        cost = turn.cost_micros // calls
        for whose, budget, spender in budgets:
            fault = _last_call_fault(whose, budget, spender, tokens, cost)
            if fault is not None:
                return LastCall(wrap_up_note(fault), fault)
    limit, started = _time(state, turn, agent, now)
    if limit and now >= started + int(limit * WRAP_UP_SHARE):
        return LastCall(
            WRAP_UP.format("time"), budget_fault("turn", "time", limit, now - started, enforced=False)
        )
    return None


def _last_call_fault(
    whose: str, budget: Budget, spender: Spender, tokens: int, cost: int, *, calls: int = 2
) -> Fault | None:
    """Return the fault of a budget that does not allow this number of calls of this size; None if it does."""
    used = total_tokens(spender)
    if budget.max_tokens and used + calls * tokens > budget.max_tokens:
        return budget_fault(whose, "tokens", budget.max_tokens, used, tokens, enforced=False)
    spent = spender.cost_micros
    if budget.max_cost_micros and spent + calls * cost >= budget.max_cost_micros:
        return budget_fault(whose, "cost", budget.max_cost_micros, spent, cost, enforced=False)
    return None


def allows_call(
    state: ConversationState, turn: Turn, agent: PinnedAgent, body: dict[str, object], now: int
) -> bool:
    """Return True if the turn and its conversation can afford one more call, with ``body``.

    ``turn`` counts an answer that the state does not count yet.
    """
    tokens = max(json_tokens(body), total_tokens(turn) // (turn.moves or 1))
    cost = turn.cost_micros // (turn.moves or 1)
    spenders: list[tuple[str, Budget, Spender]] = [("turn", turn_budget(turn, agent), turn)]
    if state.conversation is not None:
        spent = difference(state.turns[turn.id], turn) or UsageDelta()
        conversation = add_usage(state.conversation, spent)
        spenders.append(("conversation", conversation.budget, conversation))
    faults = [
        _last_call_fault(whose, budget, spender, tokens, cost, calls=1) for whose, budget, spender in spenders
    ]
    limit, started = _time(state, turn, agent, now)
    return not any(faults) and not (limit and now >= started + limit)


def is_last_call(state: ConversationState, turn: Turn, agent: PinnedAgent) -> bool:
    """Return True if the request of the coming model call forbids tools, or the agent has none."""
    limit = agent.persona.constraints.max_moves_per_turn
    request = state.requests[turn.id]
    forbids = request.wrap_up is not None or request.repair
    return not agent.tools or forbids or bool(limit and turn.moves + 1 >= limit)


def exhausted(state: ConversationState, turn: Turn, fault: Fault, now: int, *, answered: str) -> Decisions:
    """End a turn whose model called tools although it was asked to finish.

    ``fault`` is the limit of that request. ``turn`` includes the usage of that answer. ``answered`` is the
    model's operation, which has ended.
    """
    whose, kind = fault.metadata.get("of", "turn"), fault.metadata.get("budget", "tokens")
    spent = difference(state.turns[turn.id], turn) or UsageDelta()
    spender: Spender = turn
    if whose == "conversation" and state.conversation is not None:
        spender = add_usage(state.conversation, spent)
    used = total_tokens(spender) if kind == "tokens" else spender.cost_micros
    if kind == "time":
        used = now - began_ms(turn) - waited_ms(state, turn, now)
    elif whose in ("agent", "caller"):
        # The usage of other conversations is that of the last check.
        more = total_tokens(spent) if kind == "tokens" else spent.cost_micros
        used = int(fault.metadata.get("used", "0")) + more
    final = budget_fault(whose, kind, int(fault.metadata.get("limit", "0")), used, enforced=True)
    return _end(state, turn, final, now, except_id=answered)


def unaffordable(conversation: Conversation) -> Fault | None:
    """Return the fault of a conversation whose budget is used up; None if it is not."""
    return exhausted_fault("conversation", conversation.budget, conversation)


def exhausted_fault(whose: str, budget: Budget, spender: Conversation | Account) -> Fault | None:
    """Return the fault of a conversation or an agent whose budget is used up; None if it is not."""
    for kind, limit, used in (
        ("tokens", budget.max_tokens, total_tokens(spender)),
        ("cost", budget.max_cost_micros, spender.cost_micros),
        ("time", budget.max_duration_ms, spender.busy_ms),
    ):
        if limit and used >= limit:
            return budget_fault(whose, kind, limit, used, enforced=True)
    return None


def delegate_budget(state: ConversationState, turn: Turn, agent: PinnedAgent, now: int) -> Budget | None:
    """Return the budget for delegates of the turn; None without limits.

    A used-up limit becomes 1, since 0 means unlimited.
    """
    own, conversation_budget = turn_budget(turn, agent), _conversation_budget(state.conversation)
    if own == conversation_budget == NO_BUDGET:
        return None
    budgets = [remaining(own, turn)]
    if state.conversation is not None:
        budgets.append(remaining(conversation_budget, state.conversation))
    limit, started = _time(state, turn, agent, now)
    if limit:
        budgets.append(Budget(max_duration_ms=max(1, started + limit - now)))
    return tightest(*budgets)


RULES_OF_LIMITED_TOOLS = 5
"""Version of `TURN_RULES` from which on tools and hooks know that the agent's budget limits their cost."""


def limits_cost(state: ConversationState, turn: Turn, agent: PinnedAgent) -> bool:
    """Return True if a budget of the turn, the conversation or the agent limits the cost."""
    # This runs for each call of a turn, so it reads the fields without combining budgets first.
    if agent.budget is not None and agent.budget.max_cost_micros:
        return True
    if turn_budget(turn, agent).max_cost_micros:
        return True
    return bool(_conversation_budget(state.conversation).max_cost_micros)


def turn_budget(turn: Turn, agent: PinnedAgent) -> Budget:
    """Return the limits of the turn from its persona and its caller."""
    own = resolve_agent(agent).limits
    return own if turn.budget is None else tightest(own, turn.budget)


# --- time -------------------------------------------------------------------------------------------


Timed = DispatchWorkflow | DispatchTask | DispatchAgent | DispatchModel | Redispatch | RetryOperation

_TIMED = frozenset(get_args(Timed))


def clamp_timers(state: ConversationState, decisions: Decisions, now: int) -> Decisions:
    """Return the decisions with each operation's timer limited to the end of its turn's time.

    While a call of the turn waits for a person, its time stands still: only their own timeouts limit the
    others.
    """
    bounded: list[Decision] | None = None
    for place, decision in enumerate(decisions):
        if not _is_timed(decision):
            continue
        operation = decision.operation
        turn, agent = _turn_and_agent(state, decisions, operation)
        if operation.timeout_ms and waits_for_people(state, turn, decisions):
            continue
        ends = _latest_end(state, turn, agent, operation, now)
        if ends and (operation.wake_ms == 0 or operation.wake_ms > ends):
            bounded = bounded or list(decisions)
            bounded[place] = replace(decision, operation=replace(operation, wake_ms=ends))
    return decisions if bounded is None else tuple(bounded)


def _is_timed(decision: Decision) -> TypeGuard[Timed]:
    return type(decision) in _TIMED


def handle_turn_timeout(state: ConversationState, operation: Operation, now: int) -> Decisions | Fault | None:
    """Return the effect of a timer at ``now`` on its turn.

    The decisions end a turn whose time is over. A fault cancels a tool call that the turn no longer waits
    for. None: the turn's time is not affected.
    """
    turn = state.turns.get(operation.turn_id)
    if turn is None or turn.status is not TurnStatus.ACTIVE or operation.kind in _AFTER_TURN:
        return None
    limit, started = _time(state, turn, state.turn_work[turn.id].agent, now)
    if not limit:
        return None
    if now >= started + limit:
        return _end(state, turn, budget_fault("turn", "time", limit, now - started, enforced=True), now)
    if _is_tool(operation) and now >= started + int(limit * WRAP_UP_SHARE):
        return Fault(
            reason=Reason.TIMEOUT, message="The turn's time is nearly over, so the turn stopped waiting."
        )
    return None


def _turn_and_agent(
    state: ConversationState, decisions: Decisions, operation: Operation
) -> tuple[Turn, PinnedAgent]:
    """Return the operation's turn and its agent. One of the decisions may start the turn."""
    turn = state.turns.get(operation.turn_id)
    if turn is not None:
        if turn.status is TurnStatus.QUEUED:
            (began,) = (each for each in decisions if type(each) is BeginTurn and each.turn.id == turn.id)
            turn = replace(turn, started_ms=began.started_ms)
        return turn, state.turn_work[turn.id].agent
    starts = (each for each in decisions if type(each) is StartTurn)
    start = next(each for each in starts if each.turn.id == operation.turn_id)
    return start.turn, start.work.agent


def _latest_end(
    state: ConversationState, turn: Turn, agent: PinnedAgent, operation: Operation, now: int
) -> int:
    """Return the latest deadline of an operation of the turn; 0 for none."""
    if operation.kind in _AFTER_TURN:
        return 0
    limit, started = _time(state, turn, agent, now)
    if not limit:
        return 0
    wrap_up = started + int(limit * WRAP_UP_SHARE)
    # A tool that the model calls after the wrap-up time may use the rest of the turn's time.
    return wrap_up if _is_tool(operation) and operation.created_ms < wrap_up else started + limit


def waited_ms(state: ConversationState, turn: Turn, now: int) -> int:
    """Return the time in which the turn has waited for people, until now."""
    since = state.waiting_since(turn.id)
    at_gates = max(0, now - max(since, turn.waited_until_ms)) if since else 0
    held = [op.held_at_ms for op in state.operations.values() if op.held_at_ms and op.turn_id == turn.id]
    return turn.waited_ms + max([at_gates, *(now - at for at in held)])


def waits_for_people(state: ConversationState, turn: Turn, decisions: Decisions) -> bool:
    """Return True if a call of the turn waits at a gate after ``decisions``."""
    if any(type(each) is RequestApproval and each.gate.turn_id == turn.id for each in decisions):
        return True
    if not state.gates:
        return False
    closed = {each.gate.id for each in decisions if type(each) is CloseApproval}
    return any(gate.turn_id == turn.id and gate.id not in closed for gate in state.gates.values())


def _time(state: ConversationState, turn: Turn, agent: PinnedAgent, now: int) -> tuple[int, int]:
    """Return the time limit of the turn in milliseconds (0 for none) and its start, later by the time in
    which it waited for people.
    """
    conversation = state.conversation
    started = began_ms(turn) + waited_ms(state, turn, now)
    own = turn_budget(turn, agent).max_duration_ms
    conversation_limit = _conversation_budget(conversation).max_duration_ms
    if not conversation_limit or conversation is None:
        return own, started
    began = began_ms(turn)
    busy_since = conversation.busy_since_ms or began
    ends = busy_since + conversation_limit - conversation.busy_ms
    ends = min(ends, began + own) if own else ends
    return max(1, ends - began), started


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
    """Return the rest of the token and cost limits. A used-up limit becomes 1, since 0 means unlimited."""
    return Budget(
        max_tokens=budget.max_tokens and max(1, budget.max_tokens - total_tokens(spender)),
        max_cost_micros=budget.max_cost_micros and max(1, budget.max_cost_micros - spender.cost_micros),
    )


def wrap_up_note(fault: Fault) -> str:
    """Return the note for the model about a nearly used-up budget."""
    named = {"cost": "money"}
    kind = fault.metadata.get("budget", "tokens")
    return WRAP_UP.format(named.get(kind, kind))


_UNITS = {"tokens": "tokens", "cost": "millionths of a dollar", "time": "milliseconds"}


_ADVICE = {
    "turn": "raise its limit (in the persona's constraints, or the caller's budget) to let turns take more",
    "conversation": "raise the conversation's budget (UpdateConversation) to go on",
    "caller": "raise the budget of the turn that called the agent, of its conversation or of its agent",
    "agent": "raise the agent's budget (`wonder agent budget`, or UpdateAgent) to go on",
}


def budget_fault(whose: str, kind: str, limit: int, used: int, more: int = 0, *, enforced: bool) -> Fault:
    """Return the fault of a used-up, or nearly used-up, budget.

    ``kind`` is ``tokens``, ``cost`` or ``time``, and ``whose`` is ``turn``, ``conversation``, ``agent`` or
    ``caller``, for a budget above a called agent's turn.
    ``more`` is the probable usage of the next call, or of the calls in progress if the budget is enforced.
    """
    unit = _UNITS[kind]
    message = f"The {whose} used {used:,} of {limit:,} {unit}"
    if enforced:
        message += f", and calls in progress may need {more:,}" if more else ""
        message += f": {_ADVICE[whose]}."
    elif more:
        message += f", and the next call may need about {more:,}. The model is asked to answer without tools."
    else:
        message += "; the model is asked to answer without tools."
    metadata = {"budget": kind, "limit": str(limit), "used": str(used), "of": whose}
    return Fault(reason=Reason.BUDGET_EXHAUSTED, message=message, metadata=metadata)
