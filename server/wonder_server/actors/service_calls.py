"""Agents called by services: one turn, whose end the caller waits for (features C8 and C9).

The same as the node of a run does (``calls.py``), except that whoever waits is no actor. A caller that goes
away cancels the turn, unless it gave a ``request_id`` with which it can ask again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from wonder_server.actors.calls import content_of, delegation
from wonder_server.actors.conversations import Conversations
from wonder_server.actors.keyed_locks import KeyedLocks
from wonder_server.actors.loop import Loop
from wonder_server.actors.purses import Purses
from wonder_server.actors.streams import Closed, Streams
from wonder_server.core import ids
from wonder_server.core.budget import Budget
from wonder_server.core.conversation.inputs import CancelTurn, Send
from wonder_server.core.conversation.values import Caller, Role, Turn, TurnStatus
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import Request, first_answer, request
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Event, Shards
from wonder_server.ports.library import Agents
from wonder_server.ports.records import Query

_ENDS = ("turn_completed", "turn_failed", "turn_cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall:
    """What a service asks of an agent. ``conversation_id`` is where the agent is looped in, empty to
    delegate; ``branch`` is the one to work on; ``timeout_ms`` 0 is for as long as it takes."""

    agent: str
    input: Any
    caller: Caller
    conversation_id: str = ""
    project_id: str = ""
    branch: str = ""
    timeout_ms: int = 0
    budget: Budget | None = None
    request_id: str = ""
    trace_id: str = ""


class ServiceCalls:
    """Begins turns for services and waits for their ends."""

    def __init__(
        self,
        *,
        loop: Loop,
        shards: Shards,
        conversations: Conversations,
        streams: Streams,
        agents: Agents,
        clock: Clock,
        purses: Purses | None = None,
    ) -> None:
        self._loop = loop
        self._shards = shards
        self._conversations = conversations
        self._streams = streams
        self._agents = agents
        self._clock = clock
        self._creations = KeyedLocks()
        self._purses = purses or Purses()

    async def call(self, asked: ServiceCall) -> Turn:
        """The turn as it ended, with its output if it was completed.

        Errors: AGENT_NOT_FOUND, CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, INPUT_INVALID,
        PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED, BUDGET_EXHAUSTED, REQUEST_ID_REUSED, SERVER_DRAINING.
        """
        # In a task of its own: what has been sent leads to a turn, even if its caller goes away meanwhile.
        beginning = asyncio.ensure_future(self._begin(asked))
        try:
            turn = await asyncio.shield(beginning)
            try:
                async with asyncio.timeout(asked.timeout_ms / 1000 if asked.timeout_ms else None):
                    turn = await self._end_of(turn)
            except TimeoutError:
                reason = f"The turn did not end within {asked.timeout_ms} ms."
                self._stop(turn, reason)
                turn = await self._end_of(turn)
        except asyncio.CancelledError:
            if not asked.request_id:
                beginning.add_done_callback(self._abandon)
            raise
        return await self._with_output(turn)

    async def _begin(self, asked: ServiceCall) -> Turn:
        """The turn, begun now, or before by the same request."""
        content = content_of(asked.input)
        if asked.conversation_id:
            return await self._loop_in(asked, content)
        told = request(
            "calls",
            asked.request_id,
            agent=asked.agent,
            content=content,
            project=asked.project_id,
            caller=stored_text("Caller", asked.caller),
            **({"branch": asked.branch} if asked.branch else {}),
            **({"budget": stored_text("Budget", asked.budget)} if asked.budget is not None else {}),
        )
        if told is None:
            return await self._delegate(asked, content, None)
        async with self._creations.lock("calls", told.id):
            shard = ids.spread(told.id, self._shards.count)
            journal = self._shards.of(ids.in_shard("conv_0", shard))
            before = first_answer(await journal.answered(told.scope, told.id), told)
            if before is None:
                return await self._delegate(asked, content, told)
            conversation_id = before["conversation_id"]
            await self._conversations.open(conversation_id)  # It may have been archived since, or deleted.
            return await self._first_turn(conversation_id)

    async def _delegate(self, asked: ServiceCall, content: str, told: Request | None) -> Turn:
        agent = await self._agents.pin_agent(asked.agent)
        if asked.project_id and asked.project_id not in agent.project_ids:
            raise error(
                Reason.FIELD_INVALID, "The agent does not belong to this project.", field="project_id"
            )
        now = self._clock.now_ms()
        shard = ids.spread(told.id if told else ids.random_id("seed", now), self._shards.count)
        conversation_id = ids.actor_id("conv", now, shard)
        who = asked.caller.run_id or asked.caller.agent_id or asked.caller.user_id or "service"
        create = delegation(conversation_id, agent, asked.project_id, who, now, asked.branch)
        send = await self._send(asked, agent, content)
        if send.poor is not None:
            # Before there is a room for it.
            raise WonderError(send.poor)
        self._loop.new(conversation_id)
        # Both lie in the mailbox before it is looked into: one commit, so that neither is there alone.
        await asyncio.gather(
            self._loop.ask(conversation_id, create, told),
            self._loop.ask(conversation_id, send),
        )
        return await self._first_turn(conversation_id)

    async def _loop_in(self, asked: ServiceCall, content: str) -> Turn:
        await self._conversations.open(asked.conversation_id)
        agent = await self._agents.pin_agent(asked.agent)
        told = request(
            asked.conversation_id,
            asked.request_id,
            call=asked.agent,
            content=content,
            caller=stored_text("Caller", asked.caller),
            **({"budget": stored_text("Budget", asked.budget)} if asked.budget is not None else {}),
        )
        send = await self._send(asked, agent, content)
        outcome = await self._conversations.ask(asked.conversation_id, send, told)
        return await self._conversations.turn(outcome.answer["turn_id"], asked.conversation_id)

    async def _send(self, asked: ServiceCall, agent: PinnedAgent, content: str) -> Send:
        send = Send(
            seed=ids.random_id("seed", self._clock.now_ms()),
            agent=agent,
            caller=asked.caller,
            content=content,
            loop_in=bool(asked.conversation_id),
            depth=1,
            budget=asked.budget,
            trace_id=asked.trace_id,
        )
        return await self._purses.afforded(send)

    async def _first_turn(self, conversation_id: str) -> Turn:
        query = Query(table="turns", actor=conversation_id, by_ordinal=True, newest_first=False, limit=1)
        found: list[Turn] = await self._conversations.records.find(query)
        return found[0]

    # --- its end --------------------------------------------------------------------------------

    async def _end_of(self, turn: Turn) -> Turn:
        """Wait until the turn has ended. Errors: SERVER_DRAINING."""
        while True:
            # Before the record is looked into, or an end in between would go unheard.
            subscription, _ = self._streams.subscribe(turn.conversation_id)
            try:
                turn = await self._conversations.turn(turn.id, turn.conversation_id)
                if turn.status is not TurnStatus.ACTIVE:
                    return turn
                heard = False
                while not heard:
                    await subscription.wait()
                    for item in subscription.take():
                        if isinstance(item, Closed) and item.why == "draining":
                            raise error(
                                Reason.SERVER_DRAINING,
                                "The server is shutting down; ask again with the same request_id.",
                            )
                        heard |= isinstance(item, Closed) or _ends(item, turn.id)
            finally:
                self._streams.unsubscribe(turn.conversation_id, subscription)

    async def _with_output(self, turn: Turn) -> Turn:
        if turn.status is not TurnStatus.COMPLETED or turn.output is not None:
            return turn
        query = Query(
            table="messages",
            actor=turn.conversation_id,
            parent=turn.id,
            statuses=(Role.AGENT.value,),
            by_ordinal=True,
            limit=1,
        )
        said = await self._conversations.records.find(query)
        return replace(turn, output=said[0].content if said else "")

    def _stop(self, turn: Turn, reason: str) -> None:
        spoken = self._streams.spoken(turn.conversation_id, turn.id)
        self._loop.tell(turn.conversation_id, CancelTurn(turn_id=turn.id, spoken=spoken, reason=reason))

    def _abandon(self, begun: asyncio.Future[Turn]) -> None:
        """The caller has gone away."""
        if not begun.cancelled() and begun.exception() is None:
            self._stop(begun.result(), "The caller went away.")


def _ends(item: object, turn_id: str) -> bool:
    return isinstance(item, Event) and item.emit.turn_id == turn_id and item.emit.kind in _ENDS
