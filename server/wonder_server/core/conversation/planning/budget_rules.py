"""Budgets of agents over all their conversations (feature C6).

A conversation's planner sees only its own conversation. So the handler checks the agent's account just
before each model call (``actors/usage/budget_enforcement.py``) with these rules. The result reaches
the planner as the input `BudgetNearlyExhausted`, or fails the call.
"""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.core.budget import Account, Budget
from wonder_server.core.conversation.model.event_payloads import Limit
from wonder_server.core.conversation.model.usage import total_tokens
from wonder_server.core.conversation.planning.limits import budget_fault


@dataclass(frozen=True, slots=True)
class Estimate:
    """Probable usage of model calls."""

    tokens: int = 0
    cost_micros: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.tokens + other.tokens, self.cost_micros + other.cost_micros)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.tokens - other.tokens, self.cost_micros - other.cost_micros)


def estimate(account: Account, request_tokens: int) -> Estimate:
    """Return the probable usage of a call with a request of this size, from the agent's average so far."""
    calls = account.model_calls or 1
    return Estimate(request_tokens + account.output_tokens // calls, account.cost_micros // calls)


def check_affordable(
    budget: Budget, account: Account, reserved: Estimate, call: Estimate, *, is_last: bool
) -> Limit | None:
    """Check ``call``, in addition to the ``reserved`` calls in flight, against the agent's budget.

    Returns None if the budget allows it, and an enforced limit if it does not. Returns a limit that is not
    enforced if this is the last call that fits. ``is_last``: the model knows that already.
    """
    for kind, limit, used, more, next_one in (
        ("tokens", budget.max_tokens, total_tokens(account), reserved.tokens, call.tokens),
        ("cost", budget.max_cost_micros, account.cost_micros, reserved.cost_micros, call.cost_micros),
    ):
        if limit and used + more >= limit:
            return Limit(fault=budget_fault("agent", kind, limit, used, enforced=True), enforced=True)
        # After this call, another of the same size would no longer fit.
        if limit and not is_last and used + more + 2 * next_one > limit:
            fault = budget_fault("agent", kind, limit, used, next_one, enforced=False)
            return Limit(fault=fault, enforced=False)
    return None
