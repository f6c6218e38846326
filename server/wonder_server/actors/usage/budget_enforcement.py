"""Lifetime budgets of agents, over all conversations (feature C6).

Each commit adds to the agent's account in the shards (``ports/accounts.py``), so this module stores nothing
and a restart loses nothing. The server checks the account when a turn starts, when an agent is called, and
before each model call. Calls in progress count with an estimate, so that parallel turns do not all spend
the same remainder. An agent without a budget costs no lookup.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wonder_server.core.actor.commands import CallModel
from wonder_server.core.budget import Account, Budget, tightest
from wonder_server.core.conversation.model.event_payloads import Limit
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.planning.budget_rules import Estimate, check_affordable, estimate
from wonder_server.core.conversation.planning.limits import exhausted_fault, remaining
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.frozen import replace
from wonder_server.core.token_estimates import json_tokens
from wonder_server.ports.scoped import ScopedAccounts

_Key = tuple[str, object]
"""A call: the id of its turn, and an object of its own."""


class AgentBudgets:
    """Checks of agents' accounts. Without accounts, nothing is limited."""

    def __init__(self, accounts: ScopedAccounts | None = None) -> None:
        self._accounts = accounts
        self._reserved: dict[str, dict[_Key, Estimate]] = {}
        """Estimated usage of model calls in progress, by agent id."""

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
    async def reserve(self, call: CallModel) -> AsyncIterator[Limit | None]:
        """Reserve the estimated usage of ``call`` until the context ends, when its usage is on disk.

        Yield None, or the limit that the agent has reached; then nothing is reserved.
        """
        if call.budget is None or self._accounts is None:
            yield None
            return
        before = {**self._reserved.get(call.agent_id, {})}
        account = await self._account(self._accounts, call.agent_id)
        expected = estimate(account, json_tokens(call.request))
        # The account may be older than the end of a call. A turn has one call at a time, so the usage of its
        # last one is on disk.
        others = before | self._reserved.get(call.agent_id, {})
        reserved = sum((each for (turn, _), each in others.items() if turn != call.turn_id), Estimate())
        limit = check_affordable(call.budget, account, reserved, expected, is_last=call.is_last)
        if limit is not None:
            yield limit
            return
        key = (call.turn_id, object())
        self._reserved.setdefault(call.agent_id, {})[key] = expected
        try:
            yield None
        finally:
            del self._reserved[call.agent_id][key]
            if not self._reserved[call.agent_id]:
                del self._reserved[call.agent_id]

    async def _account(self, accounts: ScopedAccounts, agent_id: str) -> Account:
        return (await accounts.accounts([agent_id]))[agent_id]
