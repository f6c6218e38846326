"""Agents called by services: one turn, whose end the caller waits for (features C8 and C9).

Such a call works like that of a run's node (`actors/dispatch/agent_calls.py`), but the waiting caller is
not an actor. The turn of a caller that disconnects is cancelled, unless the call has a ``request_id`` to
repeat it with.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from wonder_server.actors.access import EntryAccess
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.overrides import fingerprint, with_overrides
from wonder_server.actors.dispatch.agent_calls import (
    Delegation,
    check_shared_project,
    delegate_conversation,
    input_text,
)
from wonder_server.actors.streaming.items import Closed
from wonder_server.actors.usage.budget_enforcement import Budgets
from wonder_server.core import ids
from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model.event_payloads import TURN_ENDED
from wonder_server.core.conversation.model.inputs import CancelTurn, Send
from wonder_server.core.conversation.model.values import (
    TURN_RULES,
    Caller,
    Role,
    Turn,
    TurnStatus,
)
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.definitions.parse import canonical
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import (
    IdempotencyKey,
    Origin,
    check_replay,
    content_key,
    is_same_message,
    sent_key,
)
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.ports.journal import Event
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.placement import owner_moved
from wonder_server.ports.records import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCallRequest:
    """A service's call of an agent.

    ``conversation_id`` is the conversation that the agent joins, "" to delegate. ``branch`` is the branch
    to work on. ``timeout_ms`` 0 means no timeout. ``output_schema`` is the JSON Schema of the answer; empty
    for that of the persona.
    """

    agent: str
    input: JsonValue
    caller: Caller
    origin: Origin
    conversation_id: str = ""
    project_id: str = ""
    branch: str = ""
    timeout_ms: int = 0
    budget: Budget | None = None
    trace_id: str = ""
    output_schema: JsonDict = field(default_factory=dict)
    overrides: TurnOverrides | None = None


class AgentCallService:
    """Starts turns for services and waits until they end."""

    def __init__(
        self,
        *,
        access: EntryAccess,
        conversations: Conversations,
        agents: AgentPinning,
        budgets: Budgets | None = None,
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._clock = access.clock
        self._conversations = conversations
        self._agents = agents
        self._locks = access.locks
        self._budgets = budgets or Budgets()

    async def call(self, call_request: AgentCallRequest) -> Turn:
        """Call an agent and return the turn as it ended, with its output if it completed.

        Errors: AGENT_NOT_FOUND, CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, INPUT_INVALID,
        PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED, BUDGET_EXHAUSTED, REQUEST_ID_REUSED, SERVER_DRAINING.
        """
        # Start in a separate task: a sent message leads to a turn even if the caller is cancelled meanwhile.
        beginning = asyncio.ensure_future(self._begin(call_request))
        try:
            turn = await self._ended(await asyncio.shield(beginning), call_request.timeout_ms)
        except asyncio.CancelledError:
            if not call_request.origin.request_id:
                beginning.add_done_callback(self._cancel_abandoned)
            raise
        return await self._with_output(turn)

    async def called_before(self, origin: Origin, timeout_ms: int) -> Turn | None:
        """Return the turn that the same message began before, as it ended, also if what the message names was
        deleted since; None for another message. Errors: CONVERSATION_NOT_FOUND if it was deleted."""
        key = sent_key("calls", origin)
        if key is None:
            return None
        async with self._locks.lock("calls", key.id):
            stored = await self._journals.completed_request(key.scope, key.id)
            if stored is None or not is_same_message(stored, key):
                return None
            turn = await self._delegated(stored.answer["conversation_id"])
        return None if turn is None else await self._with_output(await self._ended(turn, timeout_ms))

    async def _ended(self, turn: Turn, timeout_ms: int) -> Turn:
        """Wait for the end of a turn, which is cancelled after the time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                return await self._wait_for_end(turn)
        except TimeoutError:
            self._cancel(turn, f"The turn did not end within {timeout_ms} ms.")
            return await self._wait_for_end(turn)

    async def _delegated(self, conversation_id: str) -> Turn | None:
        """Return the turn of a delegated call, None if the server died before it began. Errors:
        CONVERSATION_NOT_FOUND."""
        await self._conversations.lookup.created(conversation_id)
        async with self._conversations.on_disk(conversation_id):  # It may have been archived since.
            await self._conversations.open(conversation_id)
            return await self._first_turn(conversation_id)

    async def _begin(self, call_request: AgentCallRequest) -> Turn:
        """Return the turn of the call, started now or by an earlier request with the same id."""
        content = input_text(call_request.input)
        if call_request.conversation_id:
            return await self._loop_in(call_request, content)
        identity = content_key(
            "calls",
            call_request.origin,
            agent=call_request.agent,
            content=content,
            project=call_request.project_id,
            caller=stored_text("Caller", call_request.caller),
            **({"branch": call_request.branch} if call_request.branch else {}),
            **_optional_content(call_request),
        )
        if identity is None:
            return await self._delegate(call_request, content, None)
        async with self._locks.lock("calls", identity.id):
            stored = await self._journals.completed_request(identity.scope, identity.id)
            earlier = check_replay(stored, identity)
            if earlier is None:
                return await self._delegate(call_request, content, identity)
            conversation_id = earlier["conversation_id"]
            turn = await self._delegated(conversation_id)
            if turn is not None:
                return turn
            # The server died between the commit of the conversation and that of its message.
            agent = await self._agents.pin_agent(call_request.agent)
            send = await self._send(call_request, agent, content)
            caller = call_request.origin.principal.caller
            outcome = await self._conversations.ask(conversation_id, send, None, caller=caller)
            return await self._turn(outcome.answer["turn_id"], conversation_id)

    async def _delegate(
        self, call_request: AgentCallRequest, content: str, identity: IdempotencyKey | None
    ) -> Turn:
        agent = await self._agents.pin_agent(call_request.agent)
        if call_request.project_id and call_request.project_id not in agent.project_ids:
            raise error(
                Reason.FIELD_INVALID,
                f"The agent does not belong to project {call_request.project_id}.",
                field="project_id",
            )
        now = self._clock.now_ms()
        shard = ids.spread(identity.id if identity else ids.random_id("seed", now))
        conversation_id = ids.actor_id("conv", now, shard)
        called_by = (
            call_request.caller.run_id
            or call_request.caller.agent_id
            or call_request.caller.user_id
            or "service"
        )
        delegation = Delegation(
            called_by=called_by,
            project_id=call_request.project_id,
            branch=call_request.branch,
            principal=call_request.origin.principal.text,
        )
        create = delegate_conversation(conversation_id, agent, delegation, now)
        send = await self._send(call_request, agent, content)
        if send.unaffordable is not None:
            # Reject the call before its conversation exists.
            raise WonderError(send.unaffordable)
        caller = call_request.origin.principal.caller
        # Both inputs are in the mailbox before the actor runs, so one commit holds both. The new task starts
        # after the first input is in the mailbox.
        creating = self._directory.ask(conversation_id, create, identity, caller=caller, fresh=True)
        sending = asyncio.ensure_future(self._directory.ask(conversation_id, send, caller=caller))
        try:
            await creating
        finally:
            sent, *_ = await asyncio.gather(sending, return_exceptions=True)
        if isinstance(sent, BaseException):
            raise sent
        return await self._turn(sent.answer["turn_id"], conversation_id)

    async def _loop_in(self, call_request: AgentCallRequest, content: str) -> Turn:
        await self._conversations.open(call_request.conversation_id)

        async def build() -> Send:
            agent = await self._agents.pin_agent(call_request.agent)
            return await self._send(call_request, agent, content)

        identity = content_key(
            call_request.conversation_id,
            call_request.origin,
            call=call_request.agent,
            content=content,
            caller=stored_text("Caller", call_request.caller),
            **_optional_content(call_request),
        )
        outcome = await self._conversations.ask_once(
            call_request.conversation_id, build, identity, caller=call_request.origin.principal.caller
        )
        return await self._turn(outcome.answer["turn_id"], call_request.conversation_id)

    async def _send(self, call_request: AgentCallRequest, agent: PinnedAgent, content: str) -> Send:
        if call_request.caller.agent_id:
            caller = await self._agents.pin_agent(call_request.caller.agent_id)
            check_shared_project(caller.project_ids, agent)
        agent, overrides = await with_overrides(self._agents, agent, call_request.overrides)
        send = Send(
            seed=ids.random_id("seed", self._clock.now_ms()),
            agent=agent,
            caller=call_request.caller,
            content=content,
            loop_in=bool(call_request.conversation_id),
            depth=1,
            budget=call_request.budget,
            trace_id=call_request.trace_id,
            principal=call_request.origin.principal.text,
            output_schema=call_request.output_schema,
            rules=TURN_RULES,
            overrides=overrides,
        )
        return await self._budgets.check_turn(send)

    async def _first_turn(self, conversation_id: str) -> Turn | None:
        query = Query(table="turns", actor=conversation_id, by_ordinal=True, newest_first=False, limit=1)
        found: list[Turn] = await self._conversations.lookup.records.find(query)
        return found[0] if found else None

    async def _turn(self, turn_id: str, conversation_id: str) -> Turn:
        """Return the turn, also if its conversation has expired and was archived since. Errors:
        TURN_NOT_FOUND."""
        async with self._conversations.on_disk(conversation_id):
            return await self._conversations.lookup.turn(turn_id, conversation_id)

    # --- its end --------------------------------------------------------------------------------

    async def _wait_for_end(self, turn: Turn) -> Turn:
        """Return the turn once it has ended. Errors: SERVER_DRAINING, OWNER_MOVED."""
        while True:
            # Subscribe before reading the record, so that no end in between is missed.
            with self._directory.live(turn.conversation_id) as subscription:
                turn = await self._turn(turn.id, turn.conversation_id)
                if turn.status is not TurnStatus.ACTIVE:
                    return turn
                ended = False
                while not ended:
                    await subscription.wait()
                    for item in subscription.take():
                        if isinstance(item, Closed) and item.reason == "draining":
                            raise error(
                                Reason.SERVER_DRAINING,
                                "The server is shutting down; repeat the call with the same request_id.",
                            )
                        if isinstance(item, Closed) and item.reason == "moved":
                            raise owner_moved(ids.shard_of(turn.conversation_id))
                        ended |= isinstance(item, Closed) or _ends(item, turn.id)

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
        async with self._conversations.on_disk(turn.conversation_id):
            messages = await self._conversations.lookup.records.find(query)
        return replace(turn, output=messages[0].content if messages else "")

    def _cancel(self, turn: Turn, reason: str) -> None:
        # The caller's own turn, for the caller's own timeout or disconnection.
        cancel = CancelTurn(turn_id=turn.id, reason=reason, principal=turn.principal)
        self._directory.tell(turn.conversation_id, cancel)

    def _cancel_abandoned(self, started: asyncio.Future[Turn]) -> None:
        """Cancel the turn of a caller that has disconnected."""
        if not started.cancelled() and started.exception() is None:
            self._cancel(started.result(), "The caller disconnected.")


def _optional_content(call_request: AgentCallRequest) -> dict[str, str]:
    """Return the parts of a request's fingerprint that requests of earlier versions lack."""
    parts: dict[str, str] = {}
    if call_request.budget is not None:
        parts["budget"] = stored_text("Budget", call_request.budget)
    if call_request.output_schema:
        parts["output_schema"] = canonical(call_request.output_schema)
    return {**parts, **fingerprint(call_request.overrides)}


def _ends(item: object, turn_id: str) -> bool:
    return isinstance(item, Event) and item.emit.turn_id == turn_id and item.emit.kind in TURN_ENDED
