"""Entry points for conversations: create, send, cancel, attach, look up."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import Archive, NullArchive
from wonder_server.actors.conversation.message_text import whole_text
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.runtime.keyed_locks import KeyedLocks
from wonder_server.actors.streaming.attachment import Attachment, attach
from wonder_server.actors.usage.agent_budgets import AgentBudgets
from wonder_server.core import ids
from wonder_server.core.budget import NO_BUDGET
from wonder_server.core.conversation.model.decisions import AppendMessage, StartTurn
from wonder_server.core.conversation.model.inputs import MAX_CONTENT_BYTES, CancelTurn, Create, Send
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    Caller,
    Conversation,
    Message,
    Participant,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import Request, check_replay, request_identity
from wonder_server.ports.journal import Event
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import EventQuery, Query

_ADDRESSED = re.compile(r"(?:^|\s)@([A-Za-z0-9_.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A message to send: the contract's ``Send``. ``trace_id`` as in `inputs.Send`."""

    content: str
    reply_to_message_id: str = ""
    request_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    metadata: dict[str, Any]
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
    """Conversations, for clients. Changes of a whole conversation are in `lifecycle`."""

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
        self._expire_after_ms = expire_after_ms
        self._budgets = budgets or AgentBudgets()
        self._directory = access.directory
        self._journals = access.journals
        self._streams = access.streams
        self._agents = agents
        self._clock = access.clock
        self._locks = KeyedLocks()
        self.records = access.records

    # --- the conversation -----------------------------------------------------------------------

    async def create(
        self,
        draft: Conversation,
        request_id: str,
        *,
        return_existing: bool = False,
        use_home_project: bool = False,
    ) -> tuple[Conversation, bool]:
        """A new conversation, and whether it existed before. Its participants' agents must exist.
        ``at_home``: see `settled`.

        Errors: AGENT_NOT_FOUND, FIELD_INVALID, ALREADY_EXISTS (``external_ref``), REQUEST_ID_REUSED.
        """
        given_project_id, draft = (
            draft.project_id,
            await self.resolve_participants(draft, use_home_project=use_home_project),
        )
        asked = request_identity(
            "conversations",
            request_id,
            project=given_project_id,
            title=draft.title,
            reference=draft.external_ref,
            participants=[(p.type, p.id, p.name) for p in draft.participants],
            metadata=draft.metadata,
            **({"budget": stored_text("Budget", draft.budget)} if draft.budget != NO_BUDGET else {}),
            **({"expire_ms": draft.expire_ms} if draft.expire_ms else {}),
        )
        async with AsyncExitStack() as locks:
            # Lock in this order always, so that two creations cannot deadlock.
            if asked is not None:
                await locks.enter_async_context(self._locks.lock("conversations", asked.id))
            if draft.external_ref:
                await locks.enter_async_context(self.lock_external_ref(draft.project_id, draft.external_ref))
            if asked is not None:
                earlier = await self._created_before(asked)
                if earlier is not None:
                    # Repeat the first answer, which reported a new conversation.
                    return earlier, False
            existing = await self.find_by_external_ref(draft.project_id, draft.external_ref)
            if existing is None and use_home_project:
                # A client that named no project created it without one.
                existing = await self.find_by_external_ref(given_project_id, draft.external_ref)
            if existing is not None and return_existing:
                return existing, True
            if existing is not None:
                raise error(
                    Reason.ALREADY_EXISTS,
                    f"The project has a conversation with this external_ref: {existing.id}.",
                    field="conversation.external_ref",
                    id=existing.id,
                )
            now = self._clock.now_ms()
            if draft.expire_ms and draft.expire_ms <= now:
                message = "The time of expiry must lie ahead; leave it unset for never."
                raise error(Reason.FIELD_INVALID, message, field="conversation.expire_time")
            after_ms = draft.expire_ms - now if draft.expire_ms else self._expire_after_ms
            shard = ids.spread(asked.id if asked else ids.random_id("seed", now), self._journals.count)
            conversation = replace(
                draft,
                id=ids.actor_id("conv", now, shard),
                participants=tuple(replace(p, joined_ms=now) for p in draft.participants),
                expire_ms=now + after_ms if after_ms else 0,
                expire_after_ms=after_ms,
                created_ms=now,
                updated_ms=now,
            )
            self._directory.register_new(conversation.id)
            await self._directory.ask(conversation.id, Create(conversation=conversation), asked)
            return conversation, False

    async def get(self, conversation_id: str) -> Conversation:
        """Return the conversation, which may be archived. Errors: CONVERSATION_NOT_FOUND."""
        found: Conversation | None = None
        if ids.is_id("conv", conversation_id):
            found = await self.records.get("conversations", conversation_id, conversation_id)
        if found is None or found.deleted_ms:
            raise conversation_not_found(conversation_id)
        return found

    async def open(self, conversation_id: str) -> Conversation:
        """Return the conversation, restored if it was archived. Errors: CONVERSATION_NOT_FOUND."""
        found = self._cached(conversation_id) or await self.get(conversation_id)
        if found.archive_key:
            await self._archive.ensure_restored(conversation_id)
            found = await self.get(conversation_id)
        return found

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore the conversation's record if it is archived. Ignore an unknown id."""
        await self._archive.ensure_restored(conversation_id)

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record."""
        await self._archive.discard_archived(conversation_id)

    async def ask(self, conversation_id: str, event: Any, asked: Request | None = None) -> Outcome:
        """Send an input and wait until its effects are on disk. Restore the conversation first if it is
        archived meanwhile."""
        while True:
            try:
                return await self._directory.ask(conversation_id, event, asked)
            except WonderError as problem:
                if problem.fault.metadata.get("archived") != "true":
                    raise
            await self._archive.ensure_restored(conversation_id)

    def lock_external_ref(self, project_id: str, external_ref: str) -> AbstractAsyncContextManager[None]:
        """Lock an external reference, so that two conversations cannot take it at once."""
        return self._locks.lock("references", f"{project_id}\n{external_ref}")

    def may_exist(self, conversation_id: str) -> bool:
        """Return True if this is the id of a conversation in one of these shards."""
        return ids.is_id("conv", conversation_id) and self._journals.holds(conversation_id)

    async def find_by_external_ref(self, project_id: str, external_ref: str) -> Conversation | None:
        """Return the conversation with this external reference, or None."""
        if not external_ref:
            return None
        found = await self.list_by_external_ref(external_ref, project_id)
        return found[0] if found else None

    async def list_by_external_ref(self, external_ref: str, project_id: str | None) -> list[Conversation]:
        """Return up to two conversations with this external reference. ``project_id`` None searches all
        projects."""
        query = Query(
            table="conversations",
            # Filter by field, since an empty parent would not filter.
            fields=() if project_id is None else (("project_id", project_id),),
            alias=external_ref,
            limit=2,
        )
        found: list[Conversation] = await self.records.find(query)
        return found

    async def active_turns(self, conversation_id: str) -> list[str]:
        """Return the ids of the active turns."""
        query = Query(
            table="turns",
            actor=conversation_id,
            statuses=(TurnStatus.ACTIVE.value,),
            by_ordinal=True,
            limit=MAX_ACTIVE_TURNS,
        )
        return [turn.id for turn in await self.records.find(query)]

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
            raise error(Reason.FIELD_INVALID, "Name the turn.", field="turn_id")
        if not conversation_id:
            conversation_id = (await self.turn(turn_id)).conversation_id
        await self.open(conversation_id)
        asked = request_identity(conversation_id, request_id, cancel=turn_id)
        event = CancelTurn(turn_id=turn_id, partial_text=self._streams.partial_text(conversation_id, turn_id))
        try:
            outcome = await self.ask(conversation_id, event, asked)
        except WonderError as refused:
            if refused.fault.reason is not Reason.TURN_NOT_FOUND:
                raise
            # A turn that the actor no longer holds has ended.
            turn = await self.turn(turn_id, conversation_id)
            raise error(
                Reason.TURN_NOT_ACTIVE,
                f"The turn is already {turn.status.value}; nothing to cancel.",
                field="turn_id",
            ) from None
        sequence = int(outcome.answer["last_sequence"])
        return await self.turn(turn_id, conversation_id), sequence

    async def turn(self, turn_id: str, conversation_id: str = "") -> Turn:
        """Return a turn of the conversation, or, without ``conversation_id``, of any conversation that is
        not archived.

        Errors: TURN_NOT_FOUND.
        """
        found = None
        if ids.is_id("turn", turn_id) and (not conversation_id or ids.is_id("conv", conversation_id)):
            found = await self.records.get("turns", turn_id, conversation_id)
        if found is None:
            raise turn_not_found(turn_id, conversation_id)
        turn: Turn = found
        return turn

    async def message(
        self, message_id: str, conversation_id: str = "", field: str = "reply_to_message_id"
    ) -> Message:
        """Return a message of the conversation. Errors: MESSAGE_NOT_FOUND."""
        found = await self.records.get("messages", message_id, conversation_id)
        if found is None:
            raise error(
                Reason.MESSAGE_NOT_FOUND,
                "No message of this conversation has this id.",
                field=field,
                id=message_id[:64],
            )
        message: Message = found
        return message

    async def whole_text(self, conversation_id: str, message_id: str) -> str:
        """The text of a message as its author wrote it. Errors: CONVERSATION_NOT_FOUND, MESSAGE_NOT_FOUND."""
        await self.open(conversation_id)
        message = await self.message(message_id, conversation_id, field="message_id")
        return await whole_text(self._journals.of(conversation_id), message)

    # --- watching -------------------------------------------------------------------------------

    async def attach(self, conversation_id: str, after: int, *, tail_only: bool) -> Attachment:
        """Errors: CONVERSATION_NOT_FOUND, CURSOR_OUT_OF_RANGE."""
        if not self.may_exist(conversation_id):
            raise conversation_not_found(conversation_id)
        await self.open(conversation_id)
        attachment = await attach(
            conversation_id,
            CONVERSATION,
            self._journals.of(conversation_id),
            self.records,
            self._streams,
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
        return await self.records.events(CONVERSATION, query)

    # --- pieces ---------------------------------------------------------------------------------

    async def resolve_participants(
        self, draft: Conversation, *, use_home_project: bool = False
    ) -> Conversation:
        """Return the draft with its participants' ids and names.

        ``use_home_project``: the client named no project, so the conversation belongs to the project of its
        first agent, or to the draft's without agents. Errors: AGENT_NOT_FOUND.
        """
        participants: list[Participant] = []
        home_project_id = ""
        for index, person in enumerate(draft.participants):
            if person.type == "agent":
                asked = person.id or person.name
                try:
                    agent = await self._agents.pin_agent(asked)
                except WonderError as problem:
                    # The missing agent may be one that a tool of this agent calls.
                    own = problem.fault.metadata.get("agent", asked) == asked
                    if problem.fault.reason is not Reason.AGENT_NOT_FOUND or not own:
                        raise
                    raise error(
                        Reason.AGENT_NOT_FOUND,
                        problem.fault.message,  # with what was probably meant
                        field=f"conversation.participants[{index}].agent",
                    ) from None
                person = replace(person, id=agent.agent_id, name=agent.name)
                home_project_id = home_project_id or (agent.home() if use_home_project else "")
            if all((p.type, p.id) != (person.type, person.id) for p in participants):
                participants.append(person)
        return replace(
            draft, participants=tuple(participants), project_id=home_project_id or draft.project_id
        )

    async def _created_before(self, asked: Request) -> Conversation | None:
        """Return the conversation that an earlier request with the same id created, or None. Errors:
        REQUEST_ID_REUSED."""
        shard = ids.spread(asked.id, self._journals.count)
        journal = self._journals.of(ids.in_shard("conv_0", shard))
        answer = check_replay(await journal.completed_request(asked.scope, asked.id), asked)
        return None if answer is None else await self.get(answer["conversation_id"])

    async def _replied_to(self, conversation_id: str, message_id: str) -> Message | None:
        return await self.message(message_id, conversation_id) if message_id else None

    def _cached(self, conversation_id: str) -> Conversation | None:
        """Return the conversation if it is in memory, else None."""
        state = self._directory.peek(conversation_id) if ids.is_id("conv", conversation_id) else None
        conversation = state.conversation if isinstance(state, ConversationState) else None
        return (
            None
            if conversation is None or conversation.deleted_ms or conversation.archive_key
            else conversation
        )


def conversation_not_found(conversation_id: str) -> WonderError:
    return error(
        Reason.CONVERSATION_NOT_FOUND,
        "No conversation has this id.",
        field="conversation_id",
        id=conversation_id[:64],
    )


def turn_not_found(turn_id: str, conversation_id: str = "", field: str = "turn_id") -> WonderError:
    """Build TURN_NOT_FOUND. Without its conversation, the turn of an archived one cannot be found."""
    if conversation_id:
        message = "No turn of this conversation has this id."
    elif ids.is_id("turn", turn_id):
        message = (
            "No turn that is at hand has this id. If its conversation may be archived, name that too, by "
            "conversation_id, which brings it back."
        )
    else:
        message = "No turn has this id."
    return error(Reason.TURN_NOT_FOUND, message, field=field, id=turn_id[:64])


def _check_content(content: str) -> None:
    if not content.strip():
        raise error(Reason.FIELD_INVALID, "Say something: the content is empty.", field="content")
    if len(content.encode()) > MAX_CONTENT_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"A message has at most {MAX_CONTENT_BYTES} bytes; put longer text into a document.",
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
            f"`{send_request.agent_id[:64]}` takes no part in this conversation.",
            field="agent_id",
        )
    if not agents:
        raise error(Reason.NO_AGENT, "No agent takes part in this conversation; name one when you create it.")
    for name in _ADDRESSED.findall(send_request.content):
        for agent in agents:
            if agent.name == name:
                return agent.id
    if replied_to is not None and any(agent.id == replied_to.author for agent in agents):
        return replied_to.author
    return agents[0].id
