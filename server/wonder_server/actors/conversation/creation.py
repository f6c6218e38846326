"""Creation of conversations: at most one for each request and for each external reference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from wonder_server.actors.access import EntryAccess, ask_new
from wonder_server.actors.conversation.histories.new_history import NewHistory, create_with_history
from wonder_server.actors.conversation.lookup import ConversationLookup
from wonder_server.core import ids
from wonder_server.core.budget import NO_BUDGET
from wonder_server.core.conversation.model.inputs import Create
from wonder_server.core.conversation.model.lifecycle_inputs import ReleaseExternalRef
from wonder_server.core.conversation.model.values import Conversation, Participant
from wonder_server.core.conversation.planning.lifecycle import has_expired
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
from wonder_server.core.identity import Principal
from wonder_server.ports.journal import external_ref_taken, reference_key
from wonder_server.ports.library import AgentPinning


class ConversationCreator:
    """Creates conversations. ``expire_after_ms`` is the expiry of those that set none, 0 for never."""

    def __init__(
        self, access: EntryAccess, lookup: ConversationLookup, agents: AgentPinning, expire_after_ms: int
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._clock = access.clock
        self._lookup = lookup
        self._agents = agents
        self._expire_after_ms = expire_after_ms
        self._locks = access.locks

    async def create(
        self,
        draft: Conversation,
        origin: Origin,
        *,
        return_existing: bool = False,
        use_home_project: bool = False,
        check: Callable[[Conversation], Awaitable[None]] | None = None,
        history: NewHistory | None = None,
    ) -> tuple[Conversation, bool]:
        """Create a conversation. Return it, and True if it existed before.

        The agents among its participants must exist. See `resolve_participants` for ``use_home_project``.
        ``check`` gets the conversation before it is created, and raises to prevent that. ``history`` is the
        history that it starts with.
        A repeated request returns the first conversation, whatever became of its agents. Errors:
        AGENT_NOT_FOUND, FIELD_INVALID, ALREADY_EXISTS (``external_ref``), REQUEST_ID_REUSED,
        CONVERSATION_NOT_FOUND if the request is repeated after the conversation was deleted.
        """
        given_project_id = draft.project_id
        identity = _key(draft, given_project_id, origin) if history is None else history.identity(origin)
        async with AsyncExitStack() as locks:
            # Lock in this order always, so that two creations cannot deadlock.
            if identity is not None:
                await locks.enter_async_context(self._locks.lock("conversations", identity.id))
                earlier = await self._created_before(draft, identity, origin)
                if earlier is not None:
                    # Repeat the first answer, which reported a new conversation.
                    return earlier, False
            if draft.origin is None:
                # A fork keeps its participants, also an agent that was deleted.
                draft = await self.resolve_participants(draft, use_home_project=use_home_project)
            if draft.external_ref:
                await locks.enter_async_context(self.lock_external_ref(draft.project_id, draft.external_ref))
            # A client that named no project may have created it without one.
            places = (draft.project_id, given_project_id) if use_home_project else (draft.project_id,)
            existing = await self._find_holder_in(places, draft.external_ref, origin.principal)
            if existing is not None and return_existing:
                return existing, True
            if existing is not None:
                raise external_ref_taken(existing.id)
            conversation = self._new_conversation(draft, identity, origin.principal)
            if check is not None:
                await check(conversation)
            try:
                return await self._write(conversation, history, identity, origin), False
            except WonderError as problem:
                if problem.fault.reason is Reason.ALREADY_EXISTS and return_existing:
                    return await self._lookup.get(problem.fault.metadata["id"]), True
                raise

    async def _write(
        self,
        conversation: Conversation,
        history: NewHistory | None,
        identity: IdempotencyKey | None,
        origin: Origin,
    ) -> Conversation:
        """Write the new conversation and return it. Errors: ALREADY_EXISTS; those of the history."""
        caller = origin.principal.caller
        if history is not None:
            await create_with_history(self._directory, conversation, history, identity, caller)
            return await self._lookup.get(conversation.id)
        create = Create(conversation=conversation)
        await ask_new(self._directory, conversation.id, create, identity, caller=caller)
        return conversation

    async def created_before(self, origin: Origin) -> Conversation | None:
        """Return the conversation that the same message created before, also if what it names was deleted
        since; None for another message. Errors: CONVERSATION_NOT_FOUND if it was deleted."""
        key = sent_key("conversations", origin)
        if key is None:
            return None
        async with self._locks.lock("conversations", key.id):
            earlier = await self._journals.completed_request(key.scope, key.id)
        if earlier is None or not is_same_message(earlier, key):
            return None
        return await self._lookup.created(earlier.answer["conversation_id"])

    async def find_holder(
        self, project_id: str, external_ref: str, principal: Principal
    ) -> Conversation | None:
        """Return the conversation that keeps this external reference from others, or None.

        An expired conversation gives its reference up; its record stays, on disk or in the archive.
        """
        holder = await self._lookup.find_by_external_ref(project_id, external_ref)
        if holder is None or not has_expired(holder, self._clock.now_ms()):
            return holder
        release = ReleaseExternalRef(external_ref=external_ref, principal=principal.text)
        await self._directory.ask(holder.id, release)
        # The holder keeps the reference if it is busy, and another request may have postponed its expiry.
        return await self._lookup.find_by_external_ref(project_id, external_ref)

    async def _find_holder_in(
        self, places: Sequence[str], external_ref: str, principal: Principal
    ) -> Conversation | None:
        """Return the holder of an external reference in the first of these projects that has one."""
        for project_id in places:
            holder = await self.find_holder(project_id, external_ref, principal)
            if holder is not None:
                return holder
        return None

    async def _created_before(
        self, draft: Conversation, identity: IdempotencyKey, origin: Origin
    ) -> Conversation | None:
        """Return the conversation that an earlier request with this id created, or None. Errors:
        REQUEST_ID_REUSED, CONVERSATION_NOT_FOUND."""
        earlier = await self._journals.completed_request(identity.scope, identity.id)
        if earlier is not None and not (
            earlier.fingerprint == identity.fingerprint or is_same_message(earlier, identity)
        ):
            # Earlier versions stored a fingerprint of the participants as they were resolved.
            resolved = await self.resolve_participants(draft)
            identity = _key(resolved, draft.project_id, origin) or identity
        answer = check_replay(earlier, identity)
        return None if answer is None else await self._lookup.created(answer["conversation_id"])

    def _new_conversation(
        self, draft: Conversation, identity: IdempotencyKey | None, principal: Principal
    ) -> Conversation:
        """Return the draft with its id, times, expiry and creator. Errors: FIELD_INVALID."""
        now = self._clock.now_ms()
        if draft.expire_ms and draft.expire_ms <= now:
            message = "expire_time is in the past. Set a future time, or leave it unset for no expiry."
            raise error(Reason.FIELD_INVALID, message, field="conversation.expire_time")
        after_ms = draft.expire_ms - now if draft.expire_ms else self._expire_after_ms
        if draft.external_ref:
            # The home of the reference, where the store refuses a second conversation with it.
            key = reference_key(draft.project_id, draft.external_ref)
        else:
            key = identity.id if identity else ids.random_id("seed", now)
        return replace(
            draft,
            id=ids.actor_id("conv", now, ids.spread(key)),
            participants=tuple(replace(p, joined_ms=now) for p in draft.participants),
            expire_ms=now + after_ms if after_ms else 0,
            expire_after_ms=after_ms,
            created_ms=now,
            updated_ms=now,
            created_by=principal.text,
            updated_by=principal.text,
        )

    def lock_external_ref(self, project_id: str, external_ref: str) -> AbstractAsyncContextManager[None]:
        """Lock an external reference at its home. The second of two conversations that take it at once then
        finds the first, and the store need not refuse it (`Journal.commit`)."""
        return self._locks.lock("references", reference_key(project_id, external_ref))

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
                agent_ref = person.id or person.name
                try:
                    agent = await self._agents.pin_agent(agent_ref)
                except WonderError as problem:
                    # The missing agent may be one that a tool of this agent calls.
                    own = problem.fault.metadata.get("agent", agent_ref) == agent_ref
                    if problem.fault.reason is not Reason.AGENT_NOT_FOUND or not own:
                        raise
                    raise error(
                        Reason.AGENT_NOT_FOUND,
                        problem.fault.message,  # with what was probably meant
                        field=f"conversation.participants[{index}].agent",
                        id=agent_ref[:100],
                    ) from None
                person = replace(person, id=agent.agent_id, name=agent.name)
                home_project_id = home_project_id or (agent.home() if use_home_project else "")
            if all((p.type, p.id) != (person.type, person.id) for p in participants):
                participants.append(person)
        return replace(
            draft, participants=tuple(participants), project_id=home_project_id or draft.project_id
        )


def _key(draft: Conversation, given_project_id: str, origin: Origin) -> IdempotencyKey | None:
    return content_key(
        "conversations",
        origin,
        project=given_project_id,
        title=draft.title,
        reference=draft.external_ref,
        participants=[(p.type, p.id, p.name) for p in draft.participants],
        metadata=draft.metadata,
        **({"budget": stored_text("Budget", draft.budget)} if draft.budget != NO_BUDGET else {}),
        **({"expire_ms": draft.expire_ms} if draft.expire_ms else {}),
        **({"concurrent_turns": draft.concurrent_turns} if draft.concurrent_turns else {}),
    )
