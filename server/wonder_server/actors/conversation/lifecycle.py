"""Changes of whole conversations: participants, completion, reset and deletion.

Deletion takes steps. One commit marks the conversation as deleted and cancels its work; from then on it is
invisible. When the work has ended, the server removes the data, dependents first. After a crash, the expiry
sweep resumes the deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.dependents import Dependents
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.creation import external_ref_taken
from wonder_server.actors.runtime.keyed_locks import KeyedLocks
from wonder_server.core.actor.changes import Erase
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginDeletion,
    Complete,
    FinishDeletion,
    Join,
    Leave,
    LifecycleInput,
    Reopen,
    ReportMerge,
    Reset,
    Update,
)
from wonder_server.core.conversation.model.values import (
    BranchMerge,
    Conversation,
    Participant,
    PromptSnapshot,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.inputs import CancelRun
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import check_replay, request_identity
from wonder_server.core.ids import in_shard
from wonder_server.logs import logger
from wonder_server.ports.journal import DELETIONS, Commit
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import Query

_log = logger("actors")

ENTRIES_PAGE: Final = 64
"""Entries of a journal that are read at once."""

DELETE_WAIT_S: Final = 10.0
"""Time that a delete request waits until the data is removed, in seconds. The conversation is invisible
before."""

_PAUSE_S: Final = 0.005


class ConversationLifecycle:
    """Changes, completes and deletes conversations."""

    def __init__(
        self,
        *,
        access: ActorAccess,
        agents: AgentPinning,
        conversations: Conversations,
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._records = access.records
        self._streams = access.streams
        self._agents = agents
        self._conversations = conversations
        self._dependents = Dependents(access.records)
        self._names = KeyedLocks()
        self._deletions: dict[str, asyncio.Task[None]] = {}

    # --- participants ---------------------------------------------------------------------------

    async def join(self, conversation_id: str, participant: Participant, request_id: str) -> Conversation:
        """Add a participant.

        Errors: CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, AGENT_NOT_FOUND, LIMIT_EXCEEDED,
        REQUEST_ID_REUSED.
        """
        await self._conversations.open(conversation_id)
        asked = participant.id or participant.name
        if participant.type == "agent":
            agent = await self._agents.pin_agent(asked)
            participant = replace(participant, id=agent.agent_id, name=agent.name)
        event = Join(participant=replace(participant, origin="added"))
        return await self._change(conversation_id, event, request_id, join=(participant.type, asked))

    async def leave(self, conversation_id: str, type: str, key: str, request_id: str) -> Conversation:
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
        event = Leave(type=type, id=participant_id, partial_texts=await self._partial_texts(conversation_id))
        return await self._change(conversation_id, event, request_id, leave=(type, key))

    # --- the conversation -----------------------------------------------------------------------

    async def update(self, conversation_id: str, change: Update, request_id: str) -> Conversation:
        """Update the fields that ``change`` sets.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID, ALREADY_EXISTS, REQUEST_ID_REUSED.
        """
        conversation = await self._conversations.open(conversation_id)
        content = {"revise": stored_text("Revise", replace(change, version=0))}
        if not change.external_ref or change.external_ref == conversation.external_ref:
            return await self._change(conversation_id, change, request_id, **content)
        async with self._conversations.creator.lock_external_ref(
            conversation.project_id, change.external_ref
        ):
            taken = await self._conversations.lookup.find_by_external_ref(
                conversation.project_id, change.external_ref
            )
            if taken is not None and taken.id != conversation_id:
                raise external_ref_taken(taken)
            return await self._change(conversation_id, change, request_id, **content)

    async def record_merge(self, conversation_id: str, merge: BranchMerge) -> None:
        """Record that the conversation's branch was merged, once for each merge. Errors:
        CONVERSATION_NOT_FOUND."""
        await self._conversations.open(conversation_id)
        request_id = f"merged/{merge.repository[:32]}/{merge.commit}"
        await self._change(conversation_id, ReportMerge(merge=merge), request_id, merge=merge.commit)

    async def complete(
        self, conversation_id: str, *, cancel_turns: bool, version: int, request_id: str
    ) -> Conversation:
        """Complete the conversation.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, CONVERSATION_NOT_ACTIVE, RESOURCE_IN_USE,
        REQUEST_ID_REUSED.
        """
        await self._conversations.open(conversation_id)
        partial_texts = await self._partial_texts(conversation_id)
        event = Complete(cancel_turns=cancel_turns, version=version, partial_texts=partial_texts)
        return await self._change(conversation_id, event, request_id, complete=cancel_turns)

    async def reopen(self, conversation_id: str, *, version: int, request_id: str) -> Conversation:
        """Reopen the conversation. Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, REQUEST_ID_REUSED."""
        await self._conversations.open(conversation_id)
        return await self._change(conversation_id, Reopen(version=version), request_id, reopen=True)

    async def reset(
        self, conversation_id: str, *, keep_system_message: bool, version: int, request_id: str
    ) -> Conversation:
        """Remove the conversation's history.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE, REQUEST_ID_REUSED.
        """
        conversation = await self._conversations.open(conversation_id)
        prompts = await self._prompts(conversation) if keep_system_message else ()
        event = Reset(keep_system_message=keep_system_message, prompts=prompts, version=version)
        return await self._change(conversation_id, event, request_id, reset=keep_system_message)

    async def delete(self, conversation_id: str, *, version: int, request_id: str) -> None:
        """Delete the conversation. It is invisible at once; its data is removed in the background.

        Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, REQUEST_ID_REUSED.
        """
        asked = request_identity(DELETIONS, request_id, delete=conversation_id)
        if asked is not None and self._conversations.lookup.may_exist(conversation_id):
            journal = self._journals.of(conversation_id)
            if check_replay(await journal.completed_request(asked.scope, asked.id), asked) is not None:
                return
        try:
            await self._conversations.lookup.get(conversation_id)
            await self._ensure_deletable(conversation_id)
            await self._conversations.ask(conversation_id, BeginDeletion(version=version), asked)
        except WonderError as problem:
            if not _is_damage(problem):
                raise
            # A damaged record accepts no input: erase all of it, then record the request.
            await self._schedule_deletion(conversation_id)
            if asked is not None:
                commit = Commit(conversation_id, CONVERSATION, changes=[Erase(whole=True)])
                commit.requests.append((asked, {}))
                await self._journals.of(conversation_id).commit([commit])
            return
        self._streams.close(conversation_id, "deleted")
        await asyncio.wait({self._schedule_deletion(conversation_id)}, timeout=DELETE_WAIT_S)

    # --- its end --------------------------------------------------------------------------------

    async def finish_deletion(self, conversation_id: str) -> None:
        """Start to remove a deleted conversation's data, after its work has ended."""
        await self._schedule_deletion(conversation_id)

    def _schedule_deletion(self, conversation_id: str) -> asyncio.Task[None]:
        """Return the task that removes the conversation's data. It outlives the request."""
        task = self._deletions.get(conversation_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._finish_deletion(conversation_id))
            self._deletions[conversation_id] = task
            task.add_done_callback(lambda _: self._deletions.pop(conversation_id, None))
        return task

    async def close(self) -> None:
        """Cancel the deletions in progress. The next start resumes them."""
        for task in list(self._deletions.values()):
            task.cancel()
        if self._deletions:
            await asyncio.wait(list(self._deletions.values()))

    async def _finish_deletion(self, conversation_id: str) -> None:
        await self._ensure_deletable(conversation_id)
        runs = await self._dependents.runs(conversation_id, lenient=True)
        for delegated in await self._dependents.delegated_conversations(conversation_id, runs, lenient=True):
            await self._ensure_deletable(delegated)
            with contextlib.suppress(WonderError):
                # The deletion may have begun before a crash.
                await self._directory.ask(delegated, BeginDeletion())
            self._streams.close(delegated, "deleted")
            await self._finish_deletion(delegated)
        await self._end_runs(conversation_id)
        for shard in range(self._journals.count):
            journal = self._journals.of(in_shard(conversation_id, shard))
            if journal is not self._journals.of(conversation_id):
                # Erase the runs that clients started for the conversation in other shards.
                await journal.commit([Commit(conversation_id, CONVERSATION, changes=[Erase(whole=True)])])
        try:
            while await self._records.get("conversations", conversation_id, conversation_id) is not None:
                if not (await self._directory.ask(conversation_id, FinishDeletion())).decisions:
                    await asyncio.sleep(_PAUSE_S)
        except WonderError as problem:
            if not _is_damage(problem):
                raise
            _log.warning("damaged_conversation_deleted", conversation=conversation_id, problem=str(problem))
            self._streams.close(conversation_id, "deleted")
            erase = Erase(children=tuple(runs), whole=True)
            await self._journals.of(conversation_id).commit(
                [Commit(conversation_id, CONVERSATION, changes=[erase])]
            )
        self._directory.evict(conversation_id)

    async def _end_runs(self, conversation_id: str) -> None:
        """Cancel the conversation's runs and wait until they have ended.

        A damaged run cannot be cancelled, and does not continue either.
        """
        damaged: set[str] = set()
        while True:
            open_runs = [
                run_id
                for run_id in await self._dependents.open_runs(conversation_id, lenient=True)
                if run_id not in damaged
            ]
            if not open_runs and not self._directory.members_of(conversation_id):
                return
            for run_id in open_runs:
                try:
                    await self._directory.ask(run_id, CancelRun(reason="Its conversation was deleted."))
                except WonderError as problem:
                    if _is_damage(problem):
                        damaged.add(run_id)
            await asyncio.sleep(_PAUSE_S)

    # --- pieces ---------------------------------------------------------------------------------

    async def _ensure_deletable(self, conversation_id: str) -> None:
        """Restore the record of a conversation that is about to be deleted, unless it is lost or damaged."""
        try:
            await self._conversations.ensure_restored(conversation_id)
        except WonderError as problem:
            if not _is_damage(problem):
                raise
            with contextlib.suppress(WonderError):
                await self._conversations.discard_archived(conversation_id)

    async def _change(
        self, conversation_id: str, event: LifecycleInput, request_id: str, **content: object
    ) -> Conversation:
        asked = request_identity(conversation_id, request_id, **content)
        await self._conversations.ask(conversation_id, event, asked)
        return await self._conversations.lookup.get(conversation_id)

    async def _partial_texts(self, conversation_id: str) -> dict[str, str]:
        turns = await self._conversations.lookup.active_turns(conversation_id)
        texts = {turn_id: self._streams.partial_text(conversation_id, turn_id) for turn_id in turns}
        return {turn_id: text for turn_id, text in texts.items() if text}

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
            entries = await journal.entries(conversation.id, CONVERSATION, after, ENTRIES_PAGE)
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


def _is_damage(problem: WonderError) -> bool:
    """Return True if a record is damaged, so that it does not help to try again."""
    return problem.fault.reason is Reason.STORAGE_UNAVAILABLE and not problem.fault.transient
