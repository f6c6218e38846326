"""Changes of whole conversations: participants, completion, reset and deletion.

Deletion takes steps. One commit marks the conversation as deleted and cancels its work; from then on it is
invisible. `deletions` then removes its data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from wonder_server.actors.access import EntryAccess
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.deletions import Deletions, is_damage
from wonder_server.core.conversation.model.exchange import PromptSnapshot
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginDeletion,
    Complete,
    Join,
    Leave,
    LifecycleInput,
    Reopen,
    ReportMerge,
    Reset,
    Update,
)
from wonder_server.core.conversation.model.values import (
    TURN_RULES,
    BranchMerge,
    Conversation,
    Participant,
)
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import IdempotencyKey, Origin, check_replay, content_key
from wonder_server.core.identity import SERVER, Principal
from wonder_server.ports.journal import DELETIONS, external_ref_taken, reference_home
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import Query

ENTRIES_PAGE: Final = 64
"""Entries of a journal that are read at once."""

DELETE_WAIT_S: Final = 10.0
"""Time that a delete request waits until the data is removed, in seconds. The conversation is invisible
before."""


class ConversationLifecycle:
    """Changes, completes and deletes conversations."""

    def __init__(
        self,
        *,
        access: EntryAccess,
        agents: AgentPinning,
        conversations: Conversations,
        deletions: Deletions,
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._records = access.records
        self._agents = agents
        self._conversations = conversations
        self._deletions = deletions
        self._locks = access.locks

    # --- participants ---------------------------------------------------------------------------

    async def join(self, conversation_id: str, participant: Participant, origin: Origin) -> Conversation:
        """Add a participant.

        Errors: CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, AGENT_NOT_FOUND, LIMIT_EXCEEDED,
        REQUEST_ID_REUSED.
        """
        participant_ref = participant.id or participant.name

        async def build() -> Join:
            await self._conversations.open(conversation_id)
            joining = participant
            if participant.type == "agent":
                agent = await self._agents.pin_agent(participant_ref)
                joining = replace(participant, id=agent.agent_id, name=agent.name)
            return Join(participant=replace(joining, origin="added"))

        return await self._change_once(
            conversation_id, build, origin, join=(participant.type, participant_ref)
        )

    async def leave(self, conversation_id: str, type: str, key: str, origin: Origin) -> Conversation:
        """Remove a participant. ``key`` is a user's id, or an agent's id or name.

        Errors: CONVERSATION_NOT_FOUND, REQUEST_ID_REUSED.
        """
        conversation = await self._conversations.open(conversation_id)
        person = next(
            (p for p in conversation.participants if p.type == type and key in (p.id, p.name)), None
        )
        if type == "agent" and person is not None:
            exact = next((p for p in conversation.participants if p.type == type and p.id == key), None)
            person = exact or person
        participant_id = key if type == "user" or person is None else person.id
        event = Leave(type=type, id=participant_id)
        return await self._change(conversation_id, event, origin, leave=(type, key))

    # --- the conversation -----------------------------------------------------------------------

    async def update(self, conversation_id: str, change: Update, origin: Origin) -> Conversation:
        """Update the fields that ``change`` sets.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID, ALREADY_EXISTS, REQUEST_ID_REUSED,
        OWNER_MOVED if another node owns the home of the external reference.
        """
        conversation = await self._conversations.open(conversation_id)
        content = {"revise": stored_text("Revise", replace(change, version=0))}
        if not change.external_ref or change.external_ref == conversation.external_ref:
            return await self._change(conversation_id, change, origin, **content)
        project_id, reference = conversation.project_id, change.external_ref
        # Only the owner of the reference's home gives it away, to conversations of all shards.
        self._directory.epoch_of(reference_home(project_id, reference))
        async with self._conversations.creator.lock_external_ref(project_id, reference):

            async def build() -> Update:
                taken = await self._conversations.creator.find_holder(project_id, reference, origin.principal)
                if taken is not None and taken.id != conversation_id:
                    raise external_ref_taken(taken.id)
                return change

            return await _finished(self._change_once(conversation_id, build, origin, **content))

    async def record_merge(self, conversation_id: str, merge: BranchMerge, principal: Principal) -> None:
        """Record that ``principal`` merged the conversation's branch, once for each merge. Errors:
        CONVERSATION_NOT_FOUND."""
        await self._conversations.open(conversation_id)
        name = f"{merge.repository[:32]}/{merge.commit}"
        earlier = content_key(conversation_id, Origin(SERVER, f"merged/{name}"), merge=merge.commit)
        assert earlier is not None
        stored = await self._journals.of(conversation_id).completed_request(earlier.scope, earlier.id)
        if stored is not None and stored.fingerprint == earlier.fingerprint:
            return  # An earlier version stored merges among the requests of clients.
        identity = content_key(f"{conversation_id}/merges", Origin(SERVER, name), merge=merge.commit)
        await self._conversations.ask(
            conversation_id, ReportMerge(merge=merge, principal=principal.text), identity
        )

    async def complete(
        self, conversation_id: str, *, cancel_turns: bool, version: int, origin: Origin
    ) -> Conversation:
        """Complete the conversation.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, CONVERSATION_NOT_ACTIVE, RESOURCE_IN_USE,
        REQUEST_ID_REUSED.
        """
        await self._conversations.open(conversation_id)
        event = Complete(cancel_turns=cancel_turns, version=version)
        return await self._change(conversation_id, event, origin, complete=cancel_turns)

    async def reopen(self, conversation_id: str, *, version: int, origin: Origin) -> Conversation:
        """Reopen the conversation. Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, REQUEST_ID_REUSED."""
        await self._conversations.open(conversation_id)
        return await self._change(conversation_id, Reopen(version=version), origin, reopen=True)

    async def reset(
        self, conversation_id: str, *, keep_system_message: bool, version: int, origin: Origin
    ) -> Conversation:
        """Remove the conversation's history.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE, REQUEST_ID_REUSED.
        """
        conversation = await self._conversations.open(conversation_id)
        prompts = await self._prompts(conversation) if keep_system_message else ()
        event = Reset(
            keep_system_message=keep_system_message, prompts=prompts, version=version, rules=TURN_RULES
        )
        return await self._change(conversation_id, event, origin, reset=keep_system_message)

    async def delete(self, conversation_id: str, *, version: int, origin: Origin) -> None:
        """Delete the conversation. It is invisible at once; its data is removed in the background.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, REQUEST_ID_REUSED.
        """
        identity = content_key(DELETIONS, origin, delete=conversation_id)
        if identity is None:
            begins = await self._begin_deletion(conversation_id, version, origin, None)
        else:
            # Of two deletions with one id at once, the second finds the first, in whichever file it is.
            async with self._locks.lock(DELETIONS, identity.id):
                begins = await self._begin_deletion(conversation_id, version, origin, identity)
        if begins:
            self._directory.end_streams(conversation_id, "deleted")
            await self._deletions.finish_within(conversation_id, DELETE_WAIT_S)

    async def _begin_deletion(
        self, conversation_id: str, version: int, origin: Origin, identity: IdempotencyKey | None
    ) -> bool:
        """Mark the conversation as deleted. Return False if nothing is left to do: the same request deleted
        it before, or the record was damaged and is erased."""
        if await self._has_deleted(conversation_id, identity):
            return False
        try:
            await self._conversations.lookup.get(conversation_id)
            await self._deletions.ensure_restored(conversation_id)
            caller = origin.principal.caller
            await self._conversations.ask(
                conversation_id,
                BeginDeletion(version=version, principal=origin.principal.text),
                identity,
                caller=caller,
            )
        except WonderError as problem:
            is_missing = problem.fault.reason is Reason.CONVERSATION_NOT_FOUND
            if is_missing and await self._has_deleted(conversation_id, identity):
                # The same request was committed meanwhile, after its first caller had left.
                return False
            if not is_damage(problem):
                raise
            await self._deletions.erase_damaged(conversation_id, identity)
            return False
        return True

    async def _has_deleted(self, conversation_id: str, identity: IdempotencyKey | None) -> bool:
        """Return True if this request has deleted the conversation. Errors: REQUEST_ID_REUSED."""
        if identity is None or not self._conversations.lookup.may_exist(conversation_id):
            return False
        # The id may have deleted a conversation of another file.
        earlier = await self._journals.completed_request(identity.scope, identity.id)
        return check_replay(earlier, identity) is not None

    # --- pieces ---------------------------------------------------------------------------------

    async def _change(
        self, conversation_id: str, event: LifecycleInput, origin: Origin, **content: object
    ) -> Conversation:
        async def build() -> LifecycleInput:
            return event

        return await self._change_once(conversation_id, build, origin, **content)

    async def _change_once(
        self,
        conversation_id: str,
        build: Callable[[], Awaitable[LifecycleInput]],
        origin: Origin,
        **content: object,
    ) -> Conversation:
        """Send the input of ``build`` and return the conversation; see `Conversations.ask_once`."""
        identity = content_key(conversation_id, origin, **content)

        async def attributed() -> LifecycleInput:
            # Not part of the key: a request repeated after an upgrade finds its first answer.
            return replace(await build(), principal=origin.principal.text)

        caller = origin.principal.caller
        await self._conversations.ask_once(conversation_id, attributed, identity, caller=caller)
        return await self._conversations.lookup.get(conversation_id)

    async def _prompts(self, conversation: Conversation) -> tuple[PromptSnapshot, ...]:
        """Return each agent's system prompt as of its first turn in the conversation."""
        found = {prompt.agent_id: prompt for prompt in conversation.prompts}
        wanted = {person.id for person in conversation.participants if person.type == "agent"} - found.keys()
        for agent_id in list(wanted):
            query = Query(table="turns", actor=conversation.id, fields=(("agent_id", agent_id),), limit=1)
            if not await self._records.find(query):
                wanted.discard(agent_id)
        journal, after = self._journals.of(conversation.id), 0
        while wanted:
            entries = await journal.entries(conversation.id, after, ENTRIES_PAGE)
            if not entries:
                break
            after = entries[-1].sequence
            for agent in (entry.input.agent for entry in entries if isinstance(entry.input, Send)):
                if agent.agent_id in wanted:
                    wanted.discard(agent.agent_id)
                    found[agent.agent_id] = PromptSnapshot(
                        agent_id=agent.agent_id,
                        system_prompt=agent.persona.system_prompt,
                        instructions=tuple(agent.persona.instructions),
                    )
        return tuple(found.values())


async def _finished(change: Coroutine[object, None, Conversation]) -> Conversation:
    """Return the result of ``change``. If the caller is cancelled, raise the cancellation after the change:
    the caller's lock then covers the commit."""
    task = asyncio.get_running_loop().create_task(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
