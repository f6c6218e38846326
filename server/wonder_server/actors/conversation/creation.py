"""Creation of conversations: at most one for each request and for each external reference."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.conversation.lookup import ConversationLookup
from wonder_server.actors.runtime.keyed_locks import KeyedLocks
from wonder_server.core import ids
from wonder_server.core.budget import NO_BUDGET
from wonder_server.core.conversation.model.inputs import Create
from wonder_server.core.conversation.model.values import Conversation, Participant
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import Request, request_identity
from wonder_server.ports.library import AgentPinning


class ConversationCreator:
    """Creates conversations. ``expire_after_ms`` is the expiry of those that set none, 0 for never."""

    def __init__(
        self, access: ActorAccess, lookup: ConversationLookup, agents: AgentPinning, expire_after_ms: int
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._clock = access.clock
        self._lookup = lookup
        self._agents = agents
        self._expire_after_ms = expire_after_ms
        self._locks = KeyedLocks()

    async def create(
        self,
        draft: Conversation,
        request_id: str,
        *,
        return_existing: bool = False,
        use_home_project: bool = False,
    ) -> tuple[Conversation, bool]:
        """Create a conversation. Return it, and True if it existed before.

        The agents among its participants must exist. See `resolve_participants` for ``use_home_project``.
        Errors: AGENT_NOT_FOUND, FIELD_INVALID, ALREADY_EXISTS (``external_ref``), REQUEST_ID_REUSED.
        """
        given_project_id = draft.project_id
        draft = await self.resolve_participants(draft, use_home_project=use_home_project)
        asked = _request_identity(draft, given_project_id, request_id)
        async with AsyncExitStack() as locks:
            # Lock in this order always, so that two creations cannot deadlock.
            if asked is not None:
                await locks.enter_async_context(self._locks.lock("conversations", asked.id))
            if draft.external_ref:
                await locks.enter_async_context(self.lock_external_ref(draft.project_id, draft.external_ref))
            if asked is not None:
                earlier = await self._lookup.created_by(asked)
                if earlier is not None:
                    # Repeat the first answer, which reported a new conversation.
                    return earlier, False
            existing = await self._lookup.find_by_external_ref(draft.project_id, draft.external_ref)
            if existing is None and use_home_project:
                # A client that named no project created it without one.
                existing = await self._lookup.find_by_external_ref(given_project_id, draft.external_ref)
            if existing is not None and return_existing:
                return existing, True
            if existing is not None:
                raise external_ref_taken(existing)
            conversation = self._new_conversation(draft, asked)
            self._directory.register_new(conversation.id)
            await self._directory.ask(conversation.id, Create(conversation=conversation), asked)
            return conversation, False

    def _new_conversation(self, draft: Conversation, asked: Request | None) -> Conversation:
        """Return the draft with its id, times and expiry. Errors: FIELD_INVALID."""
        now = self._clock.now_ms()
        if draft.expire_ms and draft.expire_ms <= now:
            message = "expire_time is in the past. Set a future time, or leave it unset for no expiry."
            raise error(Reason.FIELD_INVALID, message, field="conversation.expire_time")
        after_ms = draft.expire_ms - now if draft.expire_ms else self._expire_after_ms
        shard = ids.spread(asked.id if asked else ids.random_id("seed", now), self._journals.count)
        return replace(
            draft,
            id=ids.actor_id("conv", now, shard),
            participants=tuple(replace(p, joined_ms=now) for p in draft.participants),
            expire_ms=now + after_ms if after_ms else 0,
            expire_after_ms=after_ms,
            created_ms=now,
            updated_ms=now,
        )

    def lock_external_ref(self, project_id: str, external_ref: str) -> AbstractAsyncContextManager[None]:
        """Lock an external reference, so that two conversations cannot take it at once."""
        return self._locks.lock("references", f"{project_id}\n{external_ref}")

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


def external_ref_taken(existing: Conversation) -> WonderError:
    return error(
        Reason.ALREADY_EXISTS,
        f"The project has a conversation with this external_ref: {existing.id}.",
        field="conversation.external_ref",
        id=existing.id,
    )


def _request_identity(draft: Conversation, given_project_id: str, request_id: str) -> Request | None:
    return request_identity(
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
