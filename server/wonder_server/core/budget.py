"""What may be spent: the contract's ``Budget``. 0 means: no limit of that kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from wonder_server.core.frozen import Value


class Budget(Value, frozen=True, kw_only=True):
    """Tokens of requests and answers together, millionths of a US dollar, milliseconds."""

    max_tokens: int = 0
    max_cost_micros: int = 0
    max_duration_ms: int = 0

    def to_document(self) -> dict[str, Any]:
        """As the catalog keeps it."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Budget:
        """`to_document` read."""
        return cls(**document)


NO_BUDGET = Budget()


class Account(Value, frozen=True, kw_only=True):
    """What an agent has spent in its life, or a part of that: the fields of `spending.Spent`, and for how
    many milliseconds its turns were active, as far as its budget asked."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0
    busy_ms: int = 0


CHARGES = "charges"
"""The table whose rows (`wonder_server.core.actor.changes.Put`), each an `Account`, are added to the account
of
their ``parent``, the agent, rather than kept. Each row needs an id that no other has."""


def add_accounts(accounts: Iterable[Account]) -> Account:
    """All of them together."""
    sums = dict.fromkeys(Account.__struct_fields__, 0)
    for account in accounts:
        for name in sums:
            sums[name] += getattr(account, name)
    return Account(**sums)


def tightest(*budgets: Budget) -> Budget:
    """What keeps within all of them."""
    return Budget(
        max_tokens=_least(budget.max_tokens for budget in budgets),
        max_cost_micros=_least(budget.max_cost_micros for budget in budgets),
        max_duration_ms=_least(budget.max_duration_ms for budget in budgets),
    )


def _least(limits: Iterable[int]) -> int:
    return min((limit for limit in limits if limit > 0), default=0)
