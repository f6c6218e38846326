"""Budgets and accounts. A limit of 0 means unlimited."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict, JsonObject
from wonder_server.core.model import Usage


class Budget(Value, frozen=True, kw_only=True):
    """A budget (the contract's ``Budget``): tokens of requests and answers together, cost, and duration.

    Costs are in millionths of a US dollar.
    """

    max_tokens: int = 0
    max_cost_micros: int = 0
    max_duration_ms: int = 0

    def to_document(self) -> JsonDict:
        """Return the stored form of the catalog."""
        document: JsonDict = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_document(cls, document: JsonObject) -> Budget:
        """Return the budget of a stored form."""
        return cls(**document)


NO_BUDGET = Budget()


class BudgetLevel(Value, frozen=True, kw_only=True):
    """A turn whose budgets limit a model call: the turn of the call itself, or one that waits for its work.

    ``operation_id`` is the operation of the turn in which the call is made: its own model call, or the tool
    call that caused the work. The budgets are those of the turn, of its conversation and of its agent, as
    they were when the operation began.
    """

    conversation_id: str
    turn_id: str
    operation_id: str
    agent_id: str
    turn: Budget = NO_BUDGET
    conversation: Budget = NO_BUDGET
    agent: Budget = NO_BUDGET


def limits_calls(budget: Budget | None) -> bool:
    """Return True if the budget limits what model calls use: tokens or cost."""
    return budget is not None and bool(budget.max_tokens or budget.max_cost_micros)


class Account(Value, frozen=True, kw_only=True):
    """Usage of an agent, a project or a root run over its lifetime, or a part of it.

    The fields are those of `UsageDelta`. ``busy_ms`` is the active time of its turns, counted only while
    its budget limits time.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0
    busy_ms: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_tokens: int = 0


CHARGES = "charges"
"""Table of charges. The store adds each row, an `Account`, to the account ``parent`` and drops it.

An account has the id of its agent, project or run. The id of each row is unique.
"""


def account_of_call(usage: Usage, calls: int, *, settles: bool = False) -> Account:
    """Return the amount of one model call; failed attempts count as calls.

    An estimated cost counts, but the call is unpriced. ``settles``: the call was counted at its start as
    unpriced.
    """
    return Account(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cost_micros=usage.cost_micros or 0,
        model_calls=calls,
        unpriced_calls=int(usage.cost_micros is None or usage.estimated) - settles,
        cached_input_tokens=usage.cached_input_tokens or 0,
        cache_write_input_tokens=usage.cache_write_input_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
    )


def add_accounts(accounts: Iterable[Account]) -> Account:
    """Return the sum of the accounts."""
    sums = dict.fromkeys(Account.__struct_fields__, 0)
    for account in accounts:
        for name in sums:
            sums[name] += getattr(account, name)
    return Account(**sums)


def tightest(*budgets: Budget) -> Budget:
    """Return the budget with the smallest limit of each kind."""
    return Budget(
        max_tokens=_smallest_limit(budget.max_tokens for budget in budgets),
        max_cost_micros=_smallest_limit(budget.max_cost_micros for budget in budgets),
        max_duration_ms=_smallest_limit(budget.max_duration_ms for budget in budgets),
    )


def _smallest_limit(limits: Iterable[int]) -> int:
    return min((limit for limit in limits if limit > 0), default=0)
