"""Budgets of turns, conversations and agents, over all work that runs at the same time (feature C6).

What is used is on record: a turn and a conversation have their usage, and each commit adds to the agent's
account in the shards (``ports/accounts.py``). So this module stores nothing, and a restart loses nothing. The
server checks the account when a turn starts and when an agent is called, and all budgets above a model call
before the call. Calls in flight count with an estimate, so that parallel work does not spend the same
remainder many times. Work without a budget costs no lookup.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from wonder_server.actors.directory import Directory
from wonder_server.actors.usage.reservations import Reservations
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.queries import ReadSpending, Spending
from wonder_server.core.budget import Account, Budget, BudgetLevel, limits_calls, tightest
from wonder_server.core.conversation.model.event_payloads import Limit
from wonder_server.core.conversation.model.inputs import Send, TimerFired
from wonder_server.core.conversation.planning.budget_rules import (
    NOTHING,
    Check,
    Estimate,
    check_affordable,
    estimate,
    used,
)
from wonder_server.core.conversation.planning.limits import exhausted_fault, remaining
from wonder_server.core.definitions.specs import ModelProfile, PinnedAgent
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.frozen import replace
from wonder_server.core.model import ModelResult, Usage
from wonder_server.ports.prices import Prices
from wonder_server.ports.scoped import ScopedAccounts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedCall:
    """A model call before it is made; each is a call of its own. ``levels`` are those of `CallModel`, at
    least one.

    ``finishes``: the turn itself calls its model, so that it may answer once more where other calls are
    refused. ``is_last`` as in `CallModel`.
    """

    levels: Sequence[BudgetLevel]
    profile: ModelProfile
    request_tokens: int
    is_last: bool = True
    finishes: bool = False


class Budgets:
    """Checks of budgets. Without accounts, those of agents limit nothing; without a directory, those of turns
    and conversations."""

    def __init__(
        self,
        accounts: ScopedAccounts | None = None,
        directory: Directory | None = None,
        prices: Prices | None = None,
    ) -> None:
        """Build the checks. ``prices`` estimate the cost of calls; without them it is the agent's average."""
        self._accounts = accounts
        self._directory = directory
        self._prices = prices
        self._reservations = Reservations()
        self._releasing: set[asyncio.Task[None]] = set()

    async def check_turn(self, send: Send) -> Send:
        """Return ``send`` with the fault if its agent cannot afford the turn, and with the agent's remaining
        time as a limit."""
        budget, agent_id = send.agent.budget, send.agent.agent_id
        if budget is None or self._accounts is None:
            return send
        account = await self._account(self._accounts, agent_id)
        fault = exhausted_fault("agent", budget, account)
        if fault is not None:
            return replace(send, unaffordable=fault)
        if not budget.max_duration_ms:
            return send
        time = Budget(max_duration_ms=budget.max_duration_ms - account.busy_ms)
        return replace(send, budget=time if send.budget is None else tightest(send.budget, time))

    async def delegate_budget(self, caller: PinnedAgent, budget: Budget | None) -> Budget | None:
        """Return the budget of an agent that ``caller`` calls: ``budget``, limited to the caller's own
        remainder.

        None means no limit.
        """
        if caller.budget is None or self._accounts is None:
            return budget
        unspent = remaining(caller.budget, await self._account(self._accounts, caller.agent_id))
        return unspent if budget is None else tightest(budget, unspent)

    @asynccontextmanager
    async def reserve_action(
        self, scope: Scope, profile: ModelProfile, request_tokens: int
    ) -> AsyncIterator[Fault | None]:
        """Reserve the estimated usage of the call of an ``llm`` action in ``scope``, until what it reports is
        on disk.

        Yield None, or the reason why a budget does not allow the call.
        """
        if not scope.levels:
            yield None
            return
        call = PlannedCall(levels=scope.levels, profile=profile, request_tokens=request_tokens)
        limit = await self._reserve(call)
        if limit is not None:
            yield limit.fault
            return
        try:
            yield None
        finally:
            task = asyncio.get_running_loop().create_task(self._release_later(call))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

    @asynccontextmanager
    async def reserve(self, call: PlannedCall) -> AsyncIterator[Limit | None]:
        """Reserve the estimated usage of ``call`` until the context ends, when its usage is on disk.

        Yield None, or the limit that a budget has reached; then nothing is reserved.
        """
        limit = await self._reserve(call)
        if limit is not None:
            yield limit
            return
        try:
            yield None
        finally:
            await self._release(call)

    async def _release_later(self, call: PlannedCall) -> None:
        """Release a call whose usage was sent to its conversation."""
        if self._directory is not None:
            with suppress(WonderError):
                # An input without effect is answered when those before it are on disk.
                own = call.levels[-1].conversation_id
                await self._directory.ask(own, TimerFired(operation_id=""))
        await self._release(call)

    async def _release(self, call: PlannedCall) -> None:
        own = call.levels[-1]
        if len(call.levels) > 1:
            # The turns above know the usage of this one by its entry until it ends.
            await self._record([own])
        self._reservations.remove(own.turn_id, call)

    async def _reserve(self, call: PlannedCall) -> Limit | None:
        """Reserve the estimated usage of a call, or return the limit that it has reached."""
        own, held = call.levels[-1], self._reservations
        agents = {each.agent_id for each in call.levels if limits_calls(each.agent)}
        await self._record(held.due() + [each for agent in agents for each in held.levels_of_agent(agent)])
        # An account may be older than the end of a call, so calls count that were in flight before its read.
        before = {each: held.of_agent(each, own.turn_id, ()) for each in agents}
        accounts = await self._read_accounts({own.agent_id, *agents})
        expected = await self._expected(call, accounts[own.agent_id])
        spendings = await self._record(call.levels)
        began = call.finishes and _has_called(spendings[-1])
        limits = list[Limit]()
        for level, spending in zip(call.levels, spendings, strict=True):
            whose = ("turn", "conversation", "agent") if level is own else ("caller", "caller", "caller")
            checks = self._checks_of_record(level, spending, whose, finishes=began and level is own)
            if limits_calls(level.agent):
                waiting = () if spending is None else spending.operation_ids
                pending = before[level.agent_id] | held.of_agent(level.agent_id, own.turn_id, waiting)
                reserved = sum(pending.values(), NOTHING)
                account = used(accounts[level.agent_id])
                checks.append(Check(whose=whose[2], budget=level.agent, used=account, reserved=reserved))
            found = (check_affordable(each, expected, is_last=call.is_last) for each in checks)
            limits += [each for each in found if each is not None]
        if limits:
            return next((each for each in limits if each.enforced), limits[0])
        held.add(call.levels, call, expected)
        # A turn that is new here, as after a restart, may have used something before.
        self._take_over(call.levels, spendings)
        return None

    def _checks_of_record(
        self, level: BudgetLevel, spending: Spending | None, whose: tuple[str, str, str], *, finishes: bool
    ) -> list[Check]:
        """Return the budgets of a turn and its conversation, with what is used and in flight. Of a turn that
        is not in memory nothing is known.

        ``finishes``: the turn may answer once more. Of its conversation only while nothing else is in flight,
        else each of many parallel turns would.
        """
        held, checks = self._reservations, list[Check]()
        if spending is None:
            return checks
        waiting = frozenset(spending.operation_ids)
        if limits_calls(level.turn) and spending.turn is not None:
            spent, pending = used(spending.turn), held.of_turn(level.turn_id, waiting)
            checks.append(
                Check(whose=whose[0], budget=level.turn, used=spent, reserved=pending, finishes=finishes)
            )
        if limits_calls(level.conversation):
            spent, limit = used(spending.conversation), level.conversation
            pending = held.of_conversation(level.conversation_id, waiting)
            alone = finishes and pending == NOTHING
            checks.append(Check(whose=whose[1], budget=limit, used=spent, reserved=pending, finishes=alone))
        return checks

    async def _record(self, levels: Sequence[BudgetLevel]) -> list[Spending | None]:
        """Read what turns have used, and take it over. Returns the answers in the same order."""
        found = [await self._spending(level) for level in levels]
        self._take_over(levels, found)
        return found

    def _take_over(self, levels: Sequence[BudgetLevel], spendings: Sequence[Spending | None]) -> None:
        for level, spending in zip(levels, spendings, strict=True):
            self._reservations.record(level, spending)

    async def _spending(self, level: BudgetLevel) -> Spending | None:
        if self._directory is None:
            return None
        try:
            found = await self._directory.query(level.conversation_id, ReadSpending(turn_id=level.turn_id))
        except WonderError:
            return None  # Another node owns the conversation.
        return found if isinstance(found, Spending) else None

    async def _expected(self, call: PlannedCall, account: Account) -> Estimate:
        """Return the probable usage of a call: its request, and an answer of the agent's average length."""
        expected = estimate(account, call.request_tokens)
        if self._prices is None:
            return expected
        answer_tokens = expected.tokens - call.request_tokens
        usage = Usage(input_tokens=call.request_tokens, output_tokens=answer_tokens)
        priced = await self._prices.with_cost(call.profile, ModelResult(text="", usage=usage))
        cost = priced.usage.cost_micros
        return expected if cost is None else Estimate(expected.tokens, cost)

    async def _read_accounts(self, agent_ids: set[str]) -> dict[str, Account]:
        if self._accounts is None:
            return dict.fromkeys(agent_ids, Account())
        return await self._accounts.accounts(sorted(agent_ids))

    async def _account(self, accounts: ScopedAccounts, agent_id: str) -> Account:
        return (await accounts.accounts([agent_id]))[agent_id]


def _has_called(spending: Spending | None) -> bool:
    """Return True if the turn has called its model before."""
    return spending is not None and spending.turn is not None and spending.turn.model_calls > 0
