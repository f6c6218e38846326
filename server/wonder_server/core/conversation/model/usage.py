"""What turns spend on models: tokens, calls, cost (features B4, B10).

A cost is only known if the price of every part of it is: so the known part is summed up, and beside it how
many calls there were whose price is not known. A delegate's turn counts for its caller's too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from wonder_server.core.budget import Account, add_accounts
from wonder_server.core.conversation.model.values import Conversation, Turn
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, replace
from wonder_server.core.model import Usage


class UsageDelta(Value, frozen=True, kw_only=True):
    """``cost_micros`` is the part that is known, in millionths of a US dollar; ``unpriced_calls`` are those
    of ``model_calls`` whose price is not known. They become fewer when the price of a call that was counted
    as it began is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0


class AccountCharge(Value, frozen=True, kw_only=True):
    """What is added to an agent's account (`wonder_server.core.budget.Account`). No other has this id."""

    id: str
    agent_id: str
    amount: Account


class Spender(Protocol):
    """A turn or a conversation."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...

    @property
    def cost_micros(self) -> int: ...

    @property
    def model_calls(self) -> int: ...

    @property
    def unpriced_calls(self) -> int: ...


S = TypeVar("S", Turn, Conversation)


def of_call(usage: Usage, attempts: int, *, settles: bool = False) -> UsageDelta:
    """What one call of a model spent; attempts that failed count as calls. What is estimated has no known
    price, though its estimate counts. ``settles``: it has counted since it began as one without a price."""
    return UsageDelta(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cost_micros=usage.cost_micros or 0,
        model_calls=attempts,
        unpriced_calls=int(usage.cost_micros is None or usage.estimated) - settles,
    )


def add_usage(spender: S, spent: UsageDelta, **besides: int) -> S:
    """A turn or a conversation that has spent this besides; ``besides`` are other fields that change."""
    return replace(
        spender,
        input_tokens=spender.input_tokens + spent.input_tokens,
        output_tokens=spender.output_tokens + spent.output_tokens,
        cost_micros=spender.cost_micros + spent.cost_micros,
        model_calls=spender.model_calls + spent.model_calls,
        unpriced_calls=max(0, spender.unpriced_calls + spent.unpriced_calls),
        **besides,
    )


def difference(before: Turn, after: Turn) -> UsageDelta | None:
    """What a turn has spent between two of its values; None for nothing."""
    spent = UsageDelta(
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        cost_micros=after.cost_micros - before.cost_micros,
        model_calls=after.model_calls - before.model_calls,
        unpriced_calls=after.unpriced_calls - before.unpriced_calls,
    )
    return None if spent == UsageDelta() else spent


def charge(turn: Turn, spent: UsageDelta) -> AccountCharge:
    """What the turn, as it is now, has just spent, for its agent's account."""
    amount = Account(
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost_micros=spent.cost_micros,
        model_calls=spent.model_calls,
        unpriced_calls=spent.unpriced_calls,
    )
    # Either number grows whenever something is spent; as long as neither does, calls can only be settled.
    named = f"{turn.id}/{turn.model_calls}/{total_tokens(turn)}"
    if not spent.model_calls and not total_tokens(spent):
        named = f"{named}/{turn.unpriced_calls}"
    return AccountCharge(id=named, agent_id=turn.agent_id, amount=amount)


def charge_of_time(turn: Turn, other: AccountCharge | None) -> AccountCharge:
    """For how long the turn, which has ended, was active, and what is charged ``besides``."""
    amount = Account(busy_ms=max(0, turn.completed_ms - turn.created_ms))
    if other is not None:
        amount = add_accounts((amount, other.amount))
    return AccountCharge(id=f"{turn.id}/time", agent_id=turn.agent_id, amount=amount)


def total_tokens(spender: Spender) -> int:
    """Requests and answers together."""
    return spender.input_tokens + spender.output_tokens


def known_cost(spender: Spender) -> int | None:
    """The cost in millionths of a US dollar, if the price of every part is known. Of what was recorded
    before calls were counted, none is."""
    counted = spender.model_calls > 0 or total_tokens(spender) == 0
    return spender.cost_micros if counted and not spender.unpriced_calls else None


def as_usage(spender: Spender) -> dict[str, Any]:
    """What a called turn tells its caller that it spent; `from_usage` reads it."""
    return {
        "input_tokens": spender.input_tokens,
        "output_tokens": spender.output_tokens,
        "model_calls": spender.model_calls,
        "cost_micros": known_cost(spender),
    }


def from_usage(usage: Mapping[str, Any]) -> UsageDelta:
    """What `as_usage` told, or the ``usage`` of an ``llm`` action. What is missing counts as nothing; a cost
    that is missing is not known."""
    cost = usage.get("cost_micros")
    calls = _count(usage.get("model_calls", 1))
    known = isinstance(cost, int) and not isinstance(cost, bool)
    return UsageDelta(
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        cost_micros=_count(cost),
        model_calls=calls,
        unpriced_calls=0 if known else calls,
    )


def reported_usage(output: Any, fault: Fault | None) -> UsageDelta | None:
    """What a called turn says that it spent, in its answer or in its fault; None if it says nothing."""
    usage = output.get("usage") if isinstance(output, dict) else None
    if fault is not None:
        try:
            usage = json.loads(fault.metadata.get("usage", "null"))
        except (ValueError, RecursionError):
            usage = None
    return from_usage(usage) if isinstance(usage, dict) else None


def _count(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
