"""Budgets: parallel calls do not spend the same remainder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from wonder_server.actors.usage.budget_enforcement import Budgets, PlannedCall
from wonder_server.core.actor.queries import ReadSpending, Spending
from wonder_server.core.budget import NO_BUDGET, Account, Budget, BudgetLevel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.ports.access import ALL_RECORDS

USED = Account(input_tokens=80, output_tokens=15, model_calls=1)


class SlowAccounts:
    """Accounts whose reads return what was stored when they began, once ``proceed`` is set."""

    scope = ALL_RECORDS

    def __init__(self) -> None:
        self.proceed = asyncio.Event()
        self.proceed.set()
        self.stored = USED

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        found = dict.fromkeys(agent_ids, self.stored)
        await self.proceed.wait()
        return found


def call(turn_id: str) -> PlannedCall:
    level = BudgetLevel(
        conversation_id="conv_1",
        turn_id=turn_id,
        operation_id=f"op_{turn_id}",
        agent_id="agt_1",
        agent=Budget(max_tokens=100),
    )
    profile = ModelProfile(provider="offline", model="offline", format="openai_chat")
    return PlannedCall(levels=(level,), profile=profile, request_tokens=1)


async def is_refused(budgets: Budgets, turn_id: str) -> bool:
    async with budgets.reserve(call(turn_id)) as limit:
        return limit is not None


async def test_a_call_that_ends_while_the_account_is_read_counts() -> None:
    accounts = SlowAccounts()
    budgets = Budgets(accounts)
    async with AsyncExitStack() as first:
        assert await first.enter_async_context(budgets.reserve(call("turn_1"))) is None
        accounts.proceed.clear()
        second = asyncio.ensure_future(is_refused(budgets, "turn_2"))
        await asyncio.sleep(0)
        accounts.stored = Account(input_tokens=90, output_tokens=30, model_calls=2)
    accounts.proceed.set()
    assert await second


async def test_the_last_call_of_a_turn_does_not_count_twice() -> None:
    budgets = Budgets(SlowAccounts())
    async with budgets.reserve(call("turn_1")) as limit:
        assert limit is None
        assert not await is_refused(budgets, "turn_1")
        assert await is_refused(budgets, "turn_2")
    assert not await is_refused(budgets, "turn_2")


class Turns:
    """Owners of conversations that say what turns have used."""

    def __init__(self, used: dict[str, int], calls: int = 1) -> None:
        self.used = used
        self.calls = calls

    async def query(self, conversation_id: str, asked: ReadSpending) -> Spending:
        spent = Account(input_tokens=self.used[asked.turn_id], model_calls=self.calls)
        whole = Account(input_tokens=self.used.get(conversation_id, spent.input_tokens), model_calls=1)
        waiting = tuple(f"op_{turn_id}" for turn_id in self.used)
        return Spending(turn=spent, conversation=whole, operation_ids=waiting)


def limited(turn_id: str, conversation_id: str, limit: Budget = NO_BUDGET) -> BudgetLevel:
    return BudgetLevel(
        conversation_id=conversation_id,
        turn_id=turn_id,
        operation_id=f"op_{turn_id}",
        agent_id="agt_1",
        conversation=limit,
    )


def finishing(*levels: BudgetLevel) -> PlannedCall:
    profile = ModelProfile(provider="offline", model="offline", format="openai_chat")
    return PlannedCall(levels=levels, profile=profile, request_tokens=30, finishes=True)


def budgets_of(turns: Turns) -> Budgets:
    directory: Any = turns
    return Budgets(None, directory)


async def test_delegates_that_have_begun_do_not_finish_beyond_the_budget_of_their_caller() -> None:
    limit = Budget(max_tokens=100)
    budgets = budgets_of(Turns({"top": 0, "conv_1": 0, "a": 25, "b": 25, "c": 25}))
    calls = [finishing(limited("top", "conv_1", limit), limited(each, f"conv_{each}")) for each in "abc"]
    async with AsyncExitStack() as stack:
        # Each has used 25; with the call in flight of the first two 50 + 60 are spent.
        verdicts = [await stack.enter_async_context(budgets.reserve(each)) for each in calls]
    assert verdicts[:2] == [None, None]
    assert verdicts[2] is not None and verdicts[2].enforced
    assert verdicts[2].fault.metadata["of"] == "caller"


async def test_of_parallel_turns_that_have_begun_one_may_finish_at_a_time() -> None:
    limit = Budget(max_tokens=100)
    budgets = budgets_of(Turns({"a": 60, "b": 60, "conv_1": 120}))
    first, second = (finishing(limited(each, "conv_1", limit)) for each in "ab")
    async with budgets.reserve(first) as verdict:
        assert verdict is None
        async with budgets.reserve(second) as other:
            assert other is not None and other.enforced
    async with budgets.reserve(second) as verdict:
        assert verdict is None


async def test_a_turn_that_has_not_begun_gets_nothing_beyond_the_budget() -> None:
    budgets = budgets_of(Turns({"a": 0, "conv_1": 120}, calls=0))
    async with budgets.reserve(finishing(limited("a", "conv_1", Budget(max_tokens=100)))) as verdict:
        assert verdict is not None and verdict.enforced
