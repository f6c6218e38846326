"""Usage of models: tokens, calls and cost (features B4, B10).

A cost is complete only if the price of every call is known. So the known part is summed, next to the number
of calls without a known price. The usage of a delegate's turn also counts for its caller.
"""

from __future__ import annotations

import json
from typing import Protocol, TypeVar

from wonder_server.core.budget import Account, add_accounts
from wonder_server.core.conversation.model.turn_progress import TurnProgress
from wonder_server.core.conversation.model.values import Conversation, Turn
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, replace
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.model import Usage
from wonder_server.core.schema.json_nesting import check_nesting

RULES_OF_ITEMIZED_USAGE = 2
"""Version of `TURN_RULES` from which on the usage of a turn counts cached and reasoning tokens."""


RULES_OF_ESTIMATED_REQUESTS = 6
"""Version of `TURN_RULES` from which on a call that a restart interrupted counts the tokens of its
request."""


class UsageDelta(Value, frozen=True, kw_only=True):
    """Usage to add to a turn or conversation.

    ``cost_micros`` is the known part of the cost in millionths of a US dollar. ``unpriced_calls`` counts
    the calls of ``model_calls`` without a known price. It is negative when the price of a call that was
    counted at its start becomes known. Cached and written input tokens and reasoning tokens are parts of the
    others (`wonder_server.core.model.Usage`).
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_tokens: int = 0


class AccountCharge(Value, frozen=True, kw_only=True):
    """An amount to add to an agent's account (`wonder_server.core.budget.Account`). The id is unique to the
    charge. ``others`` are the ids of further accounts that get it too: of the project and of a run.
    """

    id: str
    agent_id: str
    amount: Account
    others: tuple[str, ...] = ()


class Spender(Protocol):
    """A turn or a conversation, with its usage."""

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

    @property
    def cached_input_tokens(self) -> int: ...

    @property
    def cache_write_input_tokens(self) -> int: ...

    @property
    def reasoning_tokens(self) -> int: ...


S = TypeVar("S", Turn, TurnProgress, Conversation)


def of_call(usage: Usage, attempts: int, *, itemized: bool, settles: bool = False) -> UsageDelta:
    """Return the usage of one model call; failed attempts count as calls.

    An estimated cost counts, but the call is unpriced. ``settles``: the call was counted at its start as
    unpriced. ``itemized``: count cached and reasoning tokens too (`Turn.itemized`).
    """
    counted = UsageDelta(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cost_micros=usage.cost_micros or 0,
        model_calls=attempts,
        unpriced_calls=int(usage.cost_micros is None or usage.estimated) - settles,
    )
    if not itemized:
        return counted
    return replace(
        counted,
        cached_input_tokens=usage.cached_input_tokens or 0,
        cache_write_input_tokens=usage.cache_write_input_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
    )


def add_usage(spender: S, spent: UsageDelta, **changes: int) -> S:
    """Return the turn or conversation with the usage added. ``changes`` sets further fields."""
    return replace(
        spender,
        input_tokens=spender.input_tokens + spent.input_tokens,
        output_tokens=spender.output_tokens + spent.output_tokens,
        cost_micros=spender.cost_micros + spent.cost_micros,
        model_calls=spender.model_calls + spent.model_calls,
        unpriced_calls=max(0, spender.unpriced_calls + spent.unpriced_calls),
        cached_input_tokens=spender.cached_input_tokens + spent.cached_input_tokens,
        cache_write_input_tokens=spender.cache_write_input_tokens + spent.cache_write_input_tokens,
        reasoning_tokens=spender.reasoning_tokens + spent.reasoning_tokens,
        **changes,
    )


def difference(before: Turn, after: Turn) -> UsageDelta | None:
    """Return the usage between two values of a turn; None if there is none."""
    spent = UsageDelta(
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        cost_micros=after.cost_micros - before.cost_micros,
        model_calls=after.model_calls - before.model_calls,
        unpriced_calls=after.unpriced_calls - before.unpriced_calls,
        cached_input_tokens=after.cached_input_tokens - before.cached_input_tokens,
        cache_write_input_tokens=after.cache_write_input_tokens - before.cache_write_input_tokens,
        reasoning_tokens=after.reasoning_tokens - before.reasoning_tokens,
    )
    return None if spent == UsageDelta() else spent


def charge(turn: Turn, spent: UsageDelta, others: tuple[str, ...] = ()) -> AccountCharge:
    """Return the charge to the agent's account, and to ``others``, for usage that the turn now includes."""
    amount = Account(
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost_micros=spent.cost_micros,
        model_calls=spent.model_calls,
        unpriced_calls=spent.unpriced_calls,
        cached_input_tokens=spent.cached_input_tokens,
        cache_write_input_tokens=spent.cache_write_input_tokens,
        reasoning_tokens=spent.reasoning_tokens,
    )
    # Calls or tokens grow with each usage; if neither grows, the charge can only settle calls.
    charge_id = f"{turn.id}/{turn.model_calls}/{total_tokens(turn)}"
    if not spent.model_calls and not total_tokens(spent):
        charge_id = f"{charge_id}/{turn.unpriced_calls}"
    return AccountCharge(id=charge_id, agent_id=turn.agent_id, amount=amount, others=others)


def other_accounts(turn: Turn, project_id: str, run_id: str) -> tuple[str, ...]:
    """Return the accounts beside the agent's that get a charge of the turn: of the project, of the run around
    the turn, and of the run ``run_id`` in which the usage occurred.

    A turn that another conversation called reports its usage to the calling turn, which charges the project
    and the run around both. So each call is in the account of a project and of a run once.
    """
    parent = turn.parent.actor_id if turn.parent is not None else ""
    if parent.startswith("conv_") and parent != turn.conversation_id:
        return (run_id,) if run_id and run_id != turn.root_id else ()
    return tuple(dict.fromkeys(each for each in (project_id, turn.root_id, run_id) if each))


def began_ms(turn: Turn) -> int:
    """Return the time at which work on the turn began: a queued turn waits before."""
    return turn.started_ms or turn.created_ms


def charge_of_time(turn: Turn, other: AccountCharge | None) -> AccountCharge:
    """Return the charge for the active time of an ended turn, combined with ``other``."""
    amount = Account(busy_ms=max(0, turn.completed_ms - began_ms(turn) - turn.waited_ms))
    others: tuple[str, ...] = ()
    if other is not None:
        amount, others = add_accounts((amount, other.amount)), other.others
    return AccountCharge(id=f"{turn.id}/time", agent_id=turn.agent_id, amount=amount, others=others)


def total_tokens(spender: Spender) -> int:
    """Return the tokens of requests and answers together."""
    return spender.input_tokens + spender.output_tokens


def known_cost(spender: Spender) -> int | None:
    """Return the cost in millionths of a US dollar; None unless the price of every call is known.

    Usage that was recorded before calls were counted has no known cost.
    """
    counted = spender.model_calls > 0 or total_tokens(spender) == 0
    return spender.cost_micros if counted and not spender.unpriced_calls else None


def as_usage(spender: Spender) -> JsonDict:
    """Return the usage of a called turn for its caller; `from_usage` reads it."""
    return {
        "input_tokens": spender.input_tokens,
        "output_tokens": spender.output_tokens,
        "model_calls": spender.model_calls,
        "cost_micros": known_cost(spender),
        "cached_input_tokens": spender.cached_input_tokens,
        "cache_write_input_tokens": spender.cache_write_input_tokens,
        "reasoning_tokens": spender.reasoning_tokens,
        **_partial_cost(spender),
    }


def _partial_cost(spender: Spender) -> JsonDict:
    """Return the known part of a cost that is not known in full, and the number of calls without a price."""
    if not spender.unpriced_calls:
        return {}
    return {"known_cost_micros": spender.cost_micros, "unpriced_calls": spender.unpriced_calls}


def from_usage(usage: JsonObject) -> UsageDelta:
    """Return the usage from the form of `as_usage`, or from the ``usage`` of an ``llm`` action.

    A missing number counts as 0; a missing cost is unknown.
    """
    cost = usage.get("cost_micros")
    calls = _count(usage.get("model_calls", 1))
    known = isinstance(cost, int) and not isinstance(cost, bool)
    return UsageDelta(
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        cost_micros=_count(cost if known else usage.get("known_cost_micros")),
        model_calls=calls,
        unpriced_calls=0 if known else min(calls, _count(usage.get("unpriced_calls", calls))),
        cached_input_tokens=_count(usage.get("cached_input_tokens")),
        cache_write_input_tokens=_count(usage.get("cache_write_input_tokens")),
        reasoning_tokens=_count(usage.get("reasoning_tokens")),
    )


def reported_usage(output: JsonValue, fault: Fault | None) -> UsageDelta | None:
    """Return the usage that a called turn reports in its answer or its fault; None if it reports none."""
    usage = output.get("usage") if isinstance(output, dict) else None
    if fault is not None:
        try:
            text = fault.metadata.get("usage", "null")
            check_nesting(text)
            usage = json.loads(text)
        except ValueError:
            usage = None
    return from_usage(usage) if isinstance(usage, dict) else None


def _count(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
