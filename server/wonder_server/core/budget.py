"""What may be spent: the contract's ``Budget``. 0 means: no limit of that kind."""

from __future__ import annotations

from collections.abc import Iterable

from wonder_server.core.frozen import Value


class Budget(Value, frozen=True, kw_only=True):
    """Tokens of requests and answers together, millionths of a US dollar, milliseconds."""

    max_tokens: int = 0
    max_cost_micros: int = 0
    max_duration_ms: int = 0


def narrowed(*budgets: Budget) -> Budget:
    """What keeps within all of them."""
    return Budget(
        max_tokens=_least(budget.max_tokens for budget in budgets),
        max_cost_micros=_least(budget.max_cost_micros for budget in budgets),
        max_duration_ms=_least(budget.max_duration_ms for budget in budgets),
    )


def _least(limits: Iterable[int]) -> int:
    return min((limit for limit in limits if limit > 0), default=0)
