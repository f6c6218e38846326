"""Entry points for conversations.

::

    Conversations(…)
      .lookup     read conversations        actors/conversation/lookup.py
      .creator    create conversations      actors/conversation/creation.py
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeGuard

from wonder_server.actors.access import EntryAccess
from wonder_server.actors.archive.archiver import Archive, NullArchive
from wonder_server.actors.conversation.creation import ConversationCreator
from wonder_server.actors.conversation.decision_log import Decided, DecisionFilter, Place, decided_after
from wonder_server.actors.conversation.lookup import ConversationLookup, conversation_not_found
from wonder_server.actors.conversation.message_parts import MessageFiles, PartRequest, check_content
from wonder_server.actors.conversation.message_text import whole_text
from wonder_server.actors.conversation.overrides import fingerprint, with_overrides
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.streaming.attachment import Attachment
from wonder_server.actors.streaming.items import PartKind
from wonder_server.actors.usage.budget_enforcement import Budgets
from wonder_server.core import ids
from wonder_server.core.actor.queries import ReadConversation
from wonder_server.core.content.parts import Parts
from wonder_server.core.conversation.model.decisions import AppendMessage, PostMessage, StartTurn, SteerTurn
from wonder_server.core.conversation.model.exchange import Quote
from wonder_server.core.conversation.model.inputs import CancelTurn, Post, Send
from wonder_server.core.conversation.model.speakers import AGENT, quote_of
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import is_staged
from wonder_server.core.conversation.model.values import (
    TURN_RULES,
    Caller,
    Conversation,
    Message,
    Turn,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.idempotency import IdempotencyKey, Origin, check_replay, content_key
from wonder_server.core.identity import Principal
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.files import NoFiles
from wonder_server.ports.journal import Event
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import EventQuery

_ADDRESSED = re.compile(r"(?:^|\s)@([A-Za-z0-9_.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A message to send: the contract's ``Send``. ``trace_id`` as in `inputs.Send`."""

    content: str
    origin: Origin
    reply_to_message_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    metadata: JsonDict
    trace_id: str = ""
    parts: tuple[PartRequest, ...] = ()
    start_turn: bool = True
    overrides: TurnOverrides | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of an accepted message. A posted one has the turn of its record.

    ``sequence`` is the number of its first event. ``turn`` and ``message`` are None for a repeated request.
    """

    turn_id: str
    message_id: str
    sequence: int
    turn: Turn | None
    message: Message | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLimits:
    """``expire_after_ms`` is the expiry of conversations that set none, 0 for never. ``max_waiting`` as in
    `inputs.Send`."""

    expire_after_ms: int = 0
    max_waiting: int = 32


class Conversations:
    """Sends messages, cancels turns and attaches readers. `lifecycle` changes whole conversations."""

    def __init__(
        self,
        *,
        access: EntryAccess,
        agents: AgentPinning,
        archive: Archive | None = None,
        limits: ConversationLimits = ConversationLimits(),
        budgets: Budgets | None = None,
        files: MessageFiles | None = None,
    ) -> None:
        self._max_waiting = limits.max_waiting
        self._archive = archive or NullArchive()
        self._budgets = budgets or Budgets()
        self.files = files or MessageFiles(NoFiles())
        self._directory = access.directory
        self._journals = access.journals
        self._agents = agents
        self.clock = access.clock
        self.lookup = ConversationLookup(access)
        self.creator = ConversationCreator(access, self.lookup, agents, limits.expire_after_ms)

    # --- the conversation -----------------------------------------------------------------------

    async def open(self, conversation_id: str) -> Conversation:
        """Return the conversation, restored if it was archived. Errors: CONVERSATION_NOT_FOUND."""
        found = await self._cached(conversation_id) or await self.lookup.get(conversation_id)
        if found.archive_key:
            await self._archive.ensure_restored(conversation_id)
            found = await self.lookup.get(conversation_id)
        return found

    def on_disk(self, conversation_id: str) -> AbstractAsyncContextManager[None]:
        """Restore the conversation's record if it is archived, and keep it on disk until the block ends.
        Ignore an unknown id."""
        return self._archive.on_disk(conversation_id)

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record."""
        await self._archive.discard_archived(conversation_id)

    async def ask(
        self, conversation_id: str, event: object, identity: IdempotencyKey | None = None, *, caller: str = ""
    ) -> Outcome:
        """Send an input and wait until its effects are on disk. Restore the conversation first if it is
        archived meanwhile."""
        while True:
            try:
                return await self._directory.ask(conversation_id, event, identity, caller=caller)
            except WonderError as problem:
                if problem.fault.metadata.get("archived") != "true":
                    raise
            await self._archive.ensure_restored(conversation_id)

    async def ask_once(
        self,
        conversation_id: str,
        build: Callable[[], Awaitable[object]],
        identity: IdempotencyKey | None,
        *,
        caller: str,
    ) -> Outcome:
        """Send the input that ``build`` returns, as `ask`. Errors: those of ``build`` and of the planner.

        A repeated request gets its stored answer, also if ``build`` fails now: the agent or file that the
        request names may have been deleted since.
        """
        try:
            event = await build()
        except WonderError:
            # With an input, the actor recognizes a repeated request itself. So no send reads twice.
            answer = await self._stored_answer(conversation_id, identity)
            if answer is None:
                raise
            return Outcome((), answer)
        return await self.ask(conversation_id, event, identity, caller=caller)

    async def _stored_answer(
        self, conversation_id: str, identity: IdempotencyKey | None
    ) -> dict[str, str] | None:
        """Return the answer of an earlier request to this conversation, or None. Errors: REQUEST_ID_REUSED,
        CONVERSATION_NOT_FOUND."""
        if identity is None:
            return None
        async with self.on_disk(conversation_id):
            await self.open(conversation_id)
            journal = self._journals.of(conversation_id)
            return check_replay(await journal.completed_request(identity.scope, identity.id), identity)

    # --- turns ----------------------------------------------------------------------------------

    async def prepare_send(self, conversation_id: str, send_request: SendRequest) -> Send:
        """Return the input that sends this message. Errors: those of `send` that precede it."""
        if not send_request.parts:
            check_content(send_request.content)
        async with self.on_disk(conversation_id):
            conversation = await self.open(conversation_id)
            quote = await self._quote(conversation_id, send_request.reply_to_message_id)
        return await self._prepare(conversation, send_request, quote)

    async def check_first_message(self, draft: Conversation, send_request: SendRequest) -> None:
        """Raise the error that `send` would raise for the first message of a conversation like ``draft``."""
        await self.prepare_first(draft, send_request)

    async def prepare_first(
        self, draft: Conversation, send_request: SendRequest, parts: Parts | None = None
    ) -> Send:
        """Return the input that sends the first new message of a conversation like ``draft``. ``parts`` are
        those of a message that was sent before. Errors: those of `send`."""
        if not send_request.parts and parts is None:
            check_content(send_request.content)
        if send_request.reply_to_message_id:
            raise not_found(
                Reason.MESSAGE_NOT_FOUND,
                send_request.reply_to_message_id,
                field="reply_to_message_id",
                place=" in this conversation",
            )
        send = await self._budgets.check_turn(await self._prepare(draft, send_request, None, parts))
        if send.unaffordable is not None:
            raise WonderError(send.unaffordable)
        return send

    async def _prepare(
        self,
        conversation: Conversation,
        send_request: SendRequest,
        quote: Quote | None,
        parts: Parts | None = None,
    ) -> Send:
        content = send_request.content
        if parts is None:
            content, parts = await self.files.resolve(conversation.project_id, content, send_request.parts)
        agent = await self._agents.pin_agent(_addressee(conversation, send_request, content, quote))
        agent, overrides = await with_overrides(self._agents, agent, send_request.overrides)
        return Send(
            seed=ids.random_id("seed", self.clock.now_ms()),
            agent=agent,
            caller=Caller(user_id=send_request.user_id or _only_user(conversation)),
            content=content,
            reply_to_message_id=send_request.reply_to_message_id,
            metadata=send_request.metadata,
            trace_id=send_request.trace_id,
            principal=send_request.origin.principal.text,
            quote=quote,
            rules=TURN_RULES,
            parts=parts,
            max_waiting=self._max_waiting,
            overrides=overrides,
        )

    async def _prepare_post(self, conversation_id: str, send_request: SendRequest) -> Post:
        """Return the input that appends this message without a turn. Errors: as `prepare_send`, and
        FIELD_INVALID if the request names an agent."""
        if send_request.agent_id:
            message = "agent_id is set, but start_turn is false: no agent answers. Set one of the two."
            raise error(Reason.FIELD_INVALID, message, field="agent_id")
        if send_request.overrides is not None:
            message = "overrides are set, but start_turn is false: there is no turn. Set one of the two."
            raise error(Reason.FIELD_INVALID, message, field="overrides")
        if not send_request.parts:
            check_content(send_request.content)
        async with self.on_disk(conversation_id):
            conversation = await self.open(conversation_id)
            quote = await self._quote(conversation_id, send_request.reply_to_message_id)
        content, parts = await self.files.resolve(
            conversation.project_id, send_request.content, send_request.parts
        )
        return Post(
            seed=ids.random_id("seed", self.clock.now_ms()),
            caller=Caller(user_id=send_request.user_id or _only_user(conversation)),
            content=content,
            reply_to_message_id=send_request.reply_to_message_id,
            metadata=send_request.metadata,
            principal=send_request.origin.principal.text,
            quote=quote,
            parts=parts,
        )

    async def state(self, conversation_id: str) -> ConversationState:
        """Return the conversation's state as it is on disk. Errors: CONVERSATION_NOT_FOUND."""
        loaded = await self._journals.of(conversation_id).load(conversation_id)
        if loaded is None:
            raise conversation_not_found(conversation_id)
        state: ConversationState = CONVERSATION.restore(loaded.rows)
        return state

    async def send(self, conversation_id: str, send_request: SendRequest) -> SendResult:
        """Start a turn, or only append the message. All of it is on disk when this returns.

        Errors: CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, NO_AGENT, AGENT_NOT_FOUND,
        MESSAGE_NOT_FOUND, FILE_NOT_FOUND, FIELD_INVALID, PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED, BUDGET_EXHAUSTED,
        REQUEST_ID_REUSED.
        """

        async def build() -> Send | Post:
            if not send_request.start_turn:
                return await self._prepare_post(conversation_id, send_request)
            return await self._budgets.check_turn(await self.prepare_send(conversation_id, send_request))

        identity = content_key(
            conversation_id,
            send_request.origin,
            content=send_request.content,
            reply_to=send_request.reply_to_message_id,
            agent=send_request.agent_id,
            user=send_request.user_id,
            metadata=send_request.metadata,
            **({"parts": _fingerprint(send_request.parts)} if send_request.parts else {}),
            **({} if send_request.start_turn else {"post": True}),
            **fingerprint(send_request.overrides),
        )
        caller = send_request.origin.principal.caller
        outcome = await self.ask_once(conversation_id, build, identity, caller=caller)
        decisions = outcome.decisions
        return SendResult(
            turn_id=outcome.answer["turn_id"],
            message_id=outcome.answer["message_id"],
            sequence=int(outcome.answer["first_sequence"]),
            turn=next((d.turn for d in decisions if isinstance(d, StartTurn)), None),
            message=next((d.message for d in decisions if _is_own_message(d, outcome.answer)), None),
        )

    async def cancel(self, conversation_id: str, turn_id: str, origin: Origin) -> tuple[Turn, int]:
        """Cancel a turn. Return the turn as it ended, and the sequence of the last event.

        Errors: CONVERSATION_NOT_FOUND, TURN_NOT_FOUND, TURN_NOT_ACTIVE.
        """
        if not turn_id:
            raise error(Reason.FIELD_INVALID, "turn_id is empty. Name the turn to cancel.", field="turn_id")
        if not conversation_id:
            conversation_id = (await self.lookup.turn(turn_id)).conversation_id
        async with self.on_disk(conversation_id):
            return await self._cancel(conversation_id, turn_id, origin)

    async def _cancel(self, conversation_id: str, turn_id: str, origin: Origin) -> tuple[Turn, int]:
        await self.open(conversation_id)
        identity = content_key(conversation_id, origin, cancel=turn_id)
        event = CancelTurn(turn_id=turn_id, principal=origin.principal.text)
        try:
            outcome = await self.ask(conversation_id, event, identity, caller=origin.principal.caller)
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

    def cancel_abandoned(self, conversation_id: str, turn_id: str, principal: Principal) -> None:
        """Have a turn cancelled whose client has disconnected. A turn that has ended remains as it is."""
        cancel = CancelTurn(turn_id=turn_id, reason="The client disconnected.", principal=principal.text)
        self._directory.tell(conversation_id, cancel)

    async def whole_text(self, conversation_id: str, message_id: str) -> str:
        """Return the full text of a message, also of one that was truncated.

        Errors: CONVERSATION_NOT_FOUND, MESSAGE_NOT_FOUND.
        """
        async with self.on_disk(conversation_id):
            await self.open(conversation_id)
            message = await self.lookup.message(message_id, conversation_id, field="message_id")
            return await whole_text(self._journals.of(conversation_id), message)

    async def decisions(
        self, conversation_id: str, after: Place, wanted: DecisionFilter, limit: int
    ) -> tuple[Sequence[Decided], Place | None]:
        """Return recorded decisions in order, and the place to continue after; see `decided_after`. Restore
        the record if it is archived. Errors: CONVERSATION_NOT_FOUND."""
        if not self.lookup.may_exist(conversation_id):
            raise conversation_not_found(conversation_id)
        async with self.on_disk(conversation_id):
            await self.open(conversation_id)
            journal = self._journals.of(conversation_id)
            return await decided_after(journal, conversation_id, after, wanted, limit)

    # --- watching -------------------------------------------------------------------------------

    async def attach(
        self, conversation_id: str, after: int, *, tail_only: bool, kinds: Collection[PartKind] = ()
    ) -> Attachment:
        """Attach a reader to a conversation. ``kinds`` are the kinds of parts that it gets beside the text of
        messages. Errors: CONVERSATION_NOT_FOUND, CURSOR_OUT_OF_RANGE."""
        if not self.lookup.may_exist(conversation_id):
            raise conversation_not_found(conversation_id)
        async with self.on_disk(conversation_id):
            await self.open(conversation_id)
            attachment = await self._directory.attach(
                conversation_id, after=after, tail_only=tail_only, kinds=kinds
            )
        if attachment is None:
            raise conversation_not_found(conversation_id)
        return attachment

    async def events(self, query: EventQuery) -> list[Event]:
        """Return events of one conversation, or of all. Errors: CONVERSATION_NOT_FOUND."""
        if not query.actor:
            return await self.lookup.records.events(CONVERSATION.prefix, query)
        async with self.on_disk(query.actor):
            await self.open(query.actor)
            return await self.lookup.records.events(CONVERSATION.prefix, query)

    # --- pieces ---------------------------------------------------------------------------------

    async def _quote(self, conversation_id: str, message_id: str) -> Quote | None:
        """Return the message that a reply names; None without one. Errors: MESSAGE_NOT_FOUND."""
        if not message_id:
            return None
        message = await self.lookup.message(message_id, conversation_id)
        return quote_of(message, await self.lookup.turn(message.turn_id, conversation_id))

    async def _cached(self, conversation_id: str) -> Conversation | None:
        """Return the conversation if it is in memory, else None."""
        if not ids.is_id("conv", conversation_id):
            return None
        found = await self._directory.query(conversation_id, ReadConversation())
        if not isinstance(found, Conversation) or found.deleted_ms or found.archive_key or is_staged(found):
            return None
        return found


_Appending = AppendMessage | PostMessage | SteerTurn


def _is_own_message(decision: object, answer: Mapping[str, str]) -> TypeGuard[_Appending]:
    """Return True for the decision that appends the message of the request; a message that it interrupts may
    come before."""
    if not isinstance(decision, _Appending):
        return False
    return decision.message.id == answer["message_id"]


def _fingerprint(parts: Sequence[PartRequest]) -> list[list[str]]:
    return [[part.type, part.text, part.file_id] for part in parts]


def _only_user(conversation: Conversation) -> str:
    users = [person.id for person in conversation.participants if person.type == "user"]
    return users[0] if len(users) == 1 else ""


def _addressee(
    conversation: Conversation, send_request: SendRequest, content: str, quote: Quote | None
) -> str:
    """Return the id of the agent that answers: the named one, else the one addressed by ``@name``, else the
    author of the message replied to, else the first."""
    agents = [person for person in conversation.participants if person.type == "agent"]
    if send_request.agent_id:
        for agent in agents:
            if send_request.agent_id in (agent.id, agent.name):
                return agent.id
        names = ", ".join(agent.name or agent.id for agent in agents)
        raise not_found(
            Reason.AGENT_NOT_FOUND,
            send_request.agent_id,
            field="agent_id",
            place=" among the participants of this conversation",
            next_step=f"Its agents are: {names or 'none'}. Add one with AddParticipant.",
        )
    if not agents:
        raise error(
            Reason.NO_AGENT,
            "This conversation has no agent. Add one with AddParticipant.",
        )
    for name in _ADDRESSED.findall(content):
        for agent in agents:
            # "What do you think, @critic." has the full stop in what looks like a name.
            if agent.name in (name, name.rstrip(".-_")):
                return agent.id
    if quote is not None and quote.kind == AGENT and any(agent.id == quote.author for agent in agents):
        return quote.author
    return agents[0].id
