"""Entry points for conversations.

::

    Conversations(…)
      .lookup     read conversations        actors/conversation/lookup.py
      .creator    create conversations      actors/conversation/creation.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import Archive, NullArchive
from wonder_server.actors.conversation.creation import ConversationCreator
from wonder_server.actors.conversation.lookup import ConversationLookup, conversation_not_found
from wonder_server.actors.conversation.message_text import whole_text
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.streaming.attachment import Attachment, StreamSource, attach
from wonder_server.actors.usage.budget_enforcement import AgentBudgets
from wonder_server.core import ids
from wonder_server.core.conversation.model.decisions import AppendMessage, StartTurn
from wonder_server.core.conversation.model.inputs import MAX_CONTENT_BYTES, CancelTurn, Send
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    Caller,
    Conversation,
    Message,
    Turn,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import Request, request_identity
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.journal import Event
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import EventQuery

_ADDRESSED = re.compile(r"(?:^|\s)@([A-Za-z0-9_.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A message to send: the contract's ``Send``. ``trace_id`` as in `inputs.Send`."""

    content: str
    reply_to_message_id: str = ""
    request_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    metadata: JsonDict
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of an accepted message.

    ``sequence`` is the number of its first event. ``turn`` and ``message`` are None for a repeated request.
    """

    turn_id: str
    message_id: str
    sequence: int
    turn: Turn | None
    message: Message | None


class Conversations:
    """Sends messages, cancels turns and attaches readers. `lifecycle` changes whole conversations."""

    def __init__(
        self,
        *,
        access: ActorAccess,
        agents: AgentPinning,
        archive: Archive | None = None,
        expire_after_ms: int = 0,
        budgets: AgentBudgets | None = None,
    ) -> None:
        """Build the entry point. ``expire_after_ms`` is the expiry of conversations that set none, 0 for
        never."""
        self._archive = archive or NullArchive()
        self._budgets = budgets or AgentBudgets()
        self._directory = access.directory
        self._journals = access.journals
        self._streams = access.streams
        self._agents = agents
        self._clock = access.clock
        self.lookup = ConversationLookup(access)
        self.creator = ConversationCreator(access, self.lookup, agents, expire_after_ms)

    # --- the conversation -----------------------------------------------------------------------

    async def open(self, conversation_id: str) -> Conversation:
        """Return the conversation, restored if it was archived. Errors: CONVERSATION_NOT_FOUND."""
        found = self._cached(conversation_id) or await self.lookup.get(conversation_id)
        if found.archive_key:
            await self._archive.ensure_restored(conversation_id)
            found = await self.lookup.get(conversation_id)
        return found

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore the conversation's record if it is archived. Ignore an unknown id."""
        await self._archive.ensure_restored(conversation_id)

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record."""
        await self._archive.discard_archived(conversation_id)

    async def ask(self, conversation_id: str, event: object, asked: Request | None = None) -> Outcome:
        """Send an input and wait until its effects are on disk. Restore the conversation first if it is
        archived meanwhile."""
        while True:
            try:
                return await self._directory.ask(conversation_id, event, asked)
            except WonderError as problem:
                if problem.fault.metadata.get("archived") != "true":
                    raise
            await self._archive.ensure_restored(conversation_id)

    # --- turns ----------------------------------------------------------------------------------

    async def prepare_send(self, conversation_id: str, send_request: SendRequest) -> Send:
        """Return the input that sends this message. Errors: those of `send` that precede it."""
        _check_content(send_request.content)
        conversation = await self.open(conversation_id)
        replied_to = await self._replied_to(conversation_id, send_request.reply_to_message_id)
        agent = await self._agents.pin_agent(_addressee(conversation, send_request, replied_to))
        return Send(
            seed=ids.random_id("seed", self._clock.now_ms()),
            agent=agent,
            caller=Caller(user_id=send_request.user_id or _only_user(conversation)),
            content=send_request.content,
            reply_to_message_id=send_request.reply_to_message_id,
            metadata=send_request.metadata,
            trace_id=send_request.trace_id,
        )

    async def state(self, conversation_id: str) -> ConversationState:
        """Return the conversation's state, for reading only. Errors: CONVERSATION_NOT_FOUND."""
        state = self._directory.peek(conversation_id)
        if not isinstance(state, ConversationState):
            loaded = await self._journals.of(conversation_id).load(conversation_id, CONVERSATION)
            if loaded is None:
                raise conversation_not_found(conversation_id)
            state = CONVERSATION.restore(loaded.rows)
        assert isinstance(state, ConversationState)
        return state

    async def send(self, conversation_id: str, send_request: SendRequest) -> SendResult:
        """Start a turn. The turn and its message are on disk when this returns.

        Errors: CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, NO_AGENT, AGENT_NOT_FOUND,
        MESSAGE_NOT_FOUND, FIELD_INVALID, PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED, BUDGET_EXHAUSTED,
        REQUEST_ID_REUSED.
        """
        event = await self._budgets.check_turn(await self.prepare_send(conversation_id, send_request))
        asked = request_identity(
            conversation_id,
            send_request.request_id,
            content=send_request.content,
            reply_to=send_request.reply_to_message_id,
            agent=send_request.agent_id,
            user=send_request.user_id,
            metadata=send_request.metadata,
        )
        outcome = await self.ask(conversation_id, event, asked)
        decisions = outcome.decisions
        return SendResult(
            turn_id=outcome.answer["turn_id"],
            message_id=outcome.answer["message_id"],
            sequence=int(outcome.answer["first_sequence"]),
            turn=next((d.turn for d in decisions if isinstance(d, StartTurn)), None),
            message=next((d.message for d in decisions if isinstance(d, AppendMessage)), None),
        )

    async def cancel(self, conversation_id: str, turn_id: str, request_id: str) -> tuple[Turn, int]:
        """Cancel a turn. Return the turn as it ended, and the sequence of the last event.

        Errors: CONVERSATION_NOT_FOUND, TURN_NOT_FOUND, TURN_NOT_ACTIVE.
        """
        if not turn_id:
            raise error(Reason.FIELD_INVALID, "turn_id is empty. Name the turn to cancel.", field="turn_id")
        if not conversation_id:
            conversation_id = (await self.lookup.turn(turn_id)).conversation_id
        await self.open(conversation_id)
        asked = request_identity(conversation_id, request_id, cancel=turn_id)
        event = CancelTurn(turn_id=turn_id, partial_text=self._streams.partial_text(conversation_id, turn_id))
        try:
            outcome = await self.ask(conversation_id, event, asked)
        except WonderError as refused:
            if refused.fault.reason is not Reason.TURN_NOT_FOUND:
                raise
            # A turn that the actor no longer holds has ended.
            turn = await self.lookup.turn(turn_id, conversation_id)
            raise error(
                Reason.TURN_NOT_ACTIVE,
                f"Turn {turn_id} is {turn.status.value}; there is nothing to cancel.",
                field="turn_id",
            ) from None
        sequence = int(outcome.answer["last_sequence"])
        return await self.lookup.turn(turn_id, conversation_id), sequence

    async def whole_text(self, conversation_id: str, message_id: str) -> str:
        """Return the full text of a message, also of one that was truncated.

        Errors: CONVERSATION_NOT_FOUND, MESSAGE_NOT_FOUND.
        """
        await self.open(conversation_id)
        message = await self.lookup.message(message_id, conversation_id, field="message_id")
        return await whole_text(self._journals.of(conversation_id), message)

    # --- watching -------------------------------------------------------------------------------

    async def attach(self, conversation_id: str, after: int, *, tail_only: bool) -> Attachment:
        """Attach a reader to a conversation. Errors: CONVERSATION_NOT_FOUND, CURSOR_OUT_OF_RANGE."""
        if not self.lookup.may_exist(conversation_id):
            raise conversation_not_found(conversation_id)
        await self.open(conversation_id)
        attachment = await attach(
            StreamSource(
                conversation_id,
                CONVERSATION,
                self._journals.of(conversation_id),
                self.lookup.records,
                self._streams,
            ),
            after=after,
            tail_only=tail_only,
        )
        if attachment is None:
            raise conversation_not_found(conversation_id)
        return attachment

    async def events(self, query: EventQuery) -> list[Event]:
        """Return events of one conversation, or of all. Errors: CONVERSATION_NOT_FOUND."""
        if query.actor:
            await self.open(query.actor)
        return await self.lookup.records.events(CONVERSATION, query)

    # --- pieces ---------------------------------------------------------------------------------

    async def _replied_to(self, conversation_id: str, message_id: str) -> Message | None:
        return await self.lookup.message(message_id, conversation_id) if message_id else None

    def _cached(self, conversation_id: str) -> Conversation | None:
        """Return the conversation if it is in memory, else None."""
        state = self._directory.peek(conversation_id) if ids.is_id("conv", conversation_id) else None
        conversation = state.conversation if isinstance(state, ConversationState) else None
        return (
            None
            if conversation is None or conversation.deleted_ms or conversation.archive_key
            else conversation
        )


def _check_content(content: str) -> None:
    if not content.strip():
        raise error(Reason.FIELD_INVALID, "content is empty. A message needs text.", field="content")
    size_bytes = len(content.encode())
    if size_bytes > MAX_CONTENT_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"content has {size_bytes} bytes; the maximum is {MAX_CONTENT_BYTES}. "
            "Put longer text into a document.",
            field="content",
            limit=str(MAX_CONTENT_BYTES),
        )


def _only_user(conversation: Conversation) -> str:
    users = [person.id for person in conversation.participants if person.type == "user"]
    return users[0] if len(users) == 1 else ""


def _addressee(conversation: Conversation, send_request: SendRequest, replied_to: Message | None) -> str:
    """Return the id of the agent that answers: the named one, else the one addressed by ``@name``, else the
    author of the message replied to, else the first."""
    agents = [person for person in conversation.participants if person.type == "agent"]
    if send_request.agent_id:
        for agent in agents:
            if send_request.agent_id in (agent.id, agent.name):
                return agent.id
        raise error(
            Reason.AGENT_NOT_FOUND,
            f"Agent {send_request.agent_id[:64]!r} is not a participant of this conversation.",
            field="agent_id",
        )
    if not agents:
        raise error(
            Reason.NO_AGENT,
            "This conversation has no agent. Add one with AddParticipant.",
        )
    for name in _ADDRESSED.findall(send_request.content):
        for agent in agents:
            if agent.name == name:
                return agent.id
    if replied_to is not None and any(agent.id == replied_to.author for agent in agents):
        return replied_to.author
    return agents[0].id
