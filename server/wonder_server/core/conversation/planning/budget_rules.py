"""Rules of budgets for calls that run at the same time (feature C6).

A conversation's planner sees only its own conversation, and the usage of parallel work when it ends. So the
handler checks each model call that a budget limits just before it is made
(``actors/usage/budget_enforcement.py``) with these rules, the calls in flight included. The result reaches
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
    """Usage of model calls, or their probable usage. Costs are in millionths of a US dollar."""

    tokens: int = 0
    cost_micros: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.tokens + other.tokens, self.cost_micros + other.cost_micros)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.tokens - other.tokens, self.cost_micros - other.cost_micros)


NOTHING = Estimate()


def used(account: Account) -> Estimate:
    """Return the usage of an account that budgets limit."""
    return Estimate(total_tokens(account), account.cost_micros)


def estimate(account: Account, request_tokens: int) -> Estimate:
    """Return the probable usage of a call with a request of this size, from the agent's average so far."""
    calls = account.model_calls or 1
    return Estimate(request_tokens + account.output_tokens // calls, account.cost_micros // calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A budget, what is used of it, and what the calls in flight will probably use.

    ``whose`` is that of `budget_fault`. ``finishes``: the turn has begun. It is asked to finish, and
    may answer once more, where another is refused.
    """

    whose: str
    budget: Budget
    used: Estimate
    reserved: Estimate
    finishes: bool = False


def check_affordable(check: Check, call: Estimate, *, is_last: bool) -> Limit | None:
    """Check a probable ``call``, in addition to the calls in flight, against a budget.

    Returns None if the budget allows it, and an enforced limit if it does not. Returns a limit that is not
    enforced if this is the last call that fits. ``is_last``: the model knows that already.
    """
    budget, before = check.budget, check.used + check.reserved
    for kind, limit, spent, total, next_one in (
        ("tokens", budget.max_tokens, check.used.tokens, before.tokens, call.tokens),
        ("cost", budget.max_cost_micros, check.used.cost_micros, before.cost_micros, call.cost_micros),
    ):
        if limit and total >= limit and not check.finishes:
            fault = budget_fault(check.whose, kind, limit, spent, total - spent, enforced=True)
            return Limit(fault=fault, enforced=True)
        # After this call, another of the same size would no longer fit.
        if limit and not is_last and total + 2 * next_one > limit:
            fault = budget_fault(check.whose, kind, limit, spent, next_one, enforced=False)
            return Limit(fault=fault, enforced=False)
    return None
