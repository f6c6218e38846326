"""Budgets of agents: parallel calls do not spend the same remainder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from wonder_server.actors.usage.budget_enforcement import Budgets, PlannedCall
from wonder_server.core.budget import Account, Budget, BudgetLevel
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
