"""Budgets of agents: what an agent may spend in its life, all conversations together (feature C6).

Its account is kept in the shards and added up with each commit (``ports/accounts.py``), so that nothing has
to be kept in step here, or over a restart. It is looked at when a turn begins, when another agent is called,
and just before each call of a model. Calls that are under way count with an estimate, so that many turns at
once do not all spend the same rest. Agents without a budget cost nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wonder_server.core.budget import Account, Budget, narrowed
from wonder_server.core.commands import CallModel
from wonder_server.core.conversation.inputs import Send
from wonder_server.core.conversation.limits import rest, used_up
from wonder_server.core.conversation.purse import Estimate, estimate, judged
from wonder_server.core.conversation.values import Limit
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.frozen import replace
from wonder_server.core.tokens import json_tokens
from wonder_server.ports.accounts import Accounts


class Purses:
    """Looks at accounts; with none to look at, nothing is limited."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self._accounts = accounts
        self._underway: dict[str, Estimate] = {}
        """What calls under way will probably spend, by agent."""

    async def afforded(self, send: Send) -> Send:
        """The same, with why its agent cannot afford the turn, and no longer than the agent has time."""
        budget, agent_id = send.agent.budget, send.agent.agent_id
        if budget is None or self._accounts is None:
            return send
        account = await self._account(self._accounts, agent_id)
        poor = used_up("agent", budget, account)
        if poor is not None:
            return replace(send, poor=poor)
        if not budget.max_duration_ms:
            return send
        time = Budget(max_duration_ms=budget.max_duration_ms - account.busy_ms)
        return replace(send, budget=time if send.budget is None else narrowed(send.budget, time))

    async def passed_on(self, caller: PinnedAgent, budget: Budget | None) -> Budget | None:
        """What an agent may spend that ``caller`` calls: ``budget``, within what the caller has left itself;
        None for as much as it likes."""
        if caller.budget is None or self._accounts is None:
            return budget
        left = rest(caller.budget, await self._account(self._accounts, caller.agent_id))
        return left if budget is None else narrowed(budget, left)

    @asynccontextmanager
    async def held(self, call: CallModel) -> AsyncIterator[Limit | None]:
        """Hold what ``call`` will probably spend while it is under way; if the agent cannot afford it, the
        limit that it reached, and nothing is held."""
        if call.budget is None or self._accounts is None:
            yield None
            return
        account = await self._account(self._accounts, call.agent_id)
        wanted = estimate(account, json_tokens(call.request))
        underway = self._underway.get(call.agent_id, Estimate())
        limit = judged(call.budget, account, underway, wanted, is_last=call.is_last)
        if limit is not None:
            yield limit
            return
        self._underway[call.agent_id] = underway + wanted
        try:
            yield None
        finally:
            left = self._underway.pop(call.agent_id) - wanted
            if left != Estimate():
                self._underway[call.agent_id] = left

    async def _account(self, accounts: Accounts, agent_id: str) -> Account:
        return (await accounts.accounts([agent_id]))[agent_id]
