"""What clients do with a conversation as a whole: who takes part, closing, resetting, deleting it.

Deleting takes steps: the room is closed and everything in it told to stop, in one commit; when nothing of it
goes on any more, all that was written of it is removed, what it led to first. A crash in between is taken up
by the sweeper (`sweeper.py`), and from the first commit on nobody finds the conversation any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from wonder_server.actors.conversations import Conversations
from wonder_server.actors.family import Family
from wonder_server.actors.keyed_locks import KeyedLocks
from wonder_server.actors.loop import Loop
from wonder_server.actors.streams import Streams
from wonder_server.core.conversation.inputs import Send
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.room_inputs import (
    Complete,
    Demolish,
    Join,
    Leave,
    NoteMerge,
    Reopen,
    Reset,
    Revise,
    RoomInput,
    Vacate,
)
from wonder_server.core.conversation.values import BranchMerge, Conversation, KeptPrompt, Participant
from wonder_server.core.coordinator.inputs import CancelRun
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.idempotency import first_answer, request
from wonder_server.core.ids import in_shard
from wonder_server.core.records import Erase
from wonder_server.logs import logger
from wonder_server.ports.journal import DELETIONS, Commit, Shards
from wonder_server.ports.library import Agents
from wonder_server.ports.records import Query, Records

_log = logger("actors")

SCANNED: Final = 64
"""Entries of a journal that are read at once."""

PATIENCE_S: Final = 10.0
"""How long who deletes waits until all of it is gone; it is gone for everybody before."""

_PAUSE_S: Final = 0.005


class Rooms:
    """Changes conversations as a whole."""

    def __init__(
        self,
        *,
        loop: Loop,
        shards: Shards,
        records: Records,
        streams: Streams,
        agents: Agents,
        conversations: Conversations,
    ) -> None:
        self._loop = loop
        self._shards = shards
        self._records = records
        self._streams = streams
        self._agents = agents
        self._conversations = conversations
        self._family = Family(records)
        self._names = KeyedLocks()
        self._going: dict[str, asyncio.Task[None]] = {}

    # --- participants ---------------------------------------------------------------------------

    async def join(self, conversation_id: str, newcomer: Participant, request_id: str) -> Conversation:
        """Somebody takes part. Errors: CONVERSATION_NOT_FOUND, CONVERSATION_NOT_ACTIVE, AGENT_NOT_FOUND,
        LIMIT_EXCEEDED, REQUEST_ID_REUSED."""
        await self._conversations.open(conversation_id)
        asked = newcomer.id or newcomer.name
        if newcomer.type == "agent":
            agent = await self._agents.pin_agent(asked)
            newcomer = replace(newcomer, id=agent.agent_id, name=agent.name)
        event = Join(participant=replace(newcomer, origin="added"))
        return await self._change(conversation_id, event, request_id, join=(newcomer.type, asked))

    async def leave(self, conversation_id: str, type: str, key: str, request_id: str) -> Conversation:
        """Somebody takes part no longer; ``key`` is a user's id, or an agent's id or name.

        Errors: CONVERSATION_NOT_FOUND, REQUEST_ID_REUSED.
        """
        room = await self._conversations.open(conversation_id)
        person = next((p for p in room.participants if p.type == type and key in (p.id, p.name)), None)
        if type == "agent" and person is not None:
            exact = next((p for p in room.participants if p.type == type and p.id == key), None)
            person = exact or person
        leaver = key if type == "user" or person is None else person.id
        event = Leave(type=type, id=leaver, spoken=await self._spoken(conversation_id))
        return await self._change(conversation_id, event, request_id, leave=(type, key))

    # --- the room -------------------------------------------------------------------------------

    async def revise(self, conversation_id: str, change: Revise, request_id: str) -> Conversation:
        """Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID, ALREADY_EXISTS, REQUEST_ID_REUSED."""
        room = await self._conversations.open(conversation_id)
        told = {"revise": stored_text("Revise", replace(change, version=0))}
        if not change.external_ref or change.external_ref == room.external_ref:
            return await self._change(conversation_id, change, request_id, **told)
        async with self._conversations.naming(room.project_id, change.external_ref):
            taken = await self._conversations.by_reference(room.project_id, change.external_ref)
            if taken is not None and taken.id != conversation_id:
                raise error(
                    Reason.ALREADY_EXISTS,
                    f"The project has a conversation with this external_ref: {taken.id}.",
                    field="conversation.external_ref",
                    id=taken.id,
                )
            return await self._change(conversation_id, change, request_id, **told)

    async def note_merge(self, conversation_id: str, merge: BranchMerge) -> None:
        """Its work was merged; once for each merge, however often it is told. Errors:
        CONVERSATION_NOT_FOUND."""
        await self._conversations.open(conversation_id)
        told = f"merged/{merge.repository[:32]}/{merge.commit}"
        await self._change(conversation_id, NoteMerge(merge=merge), told, merge=merge.commit)

    async def complete(
        self, conversation_id: str, *, cancel_turns: bool, version: int, request_id: str
    ) -> Conversation:
        """Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, CONVERSATION_NOT_ACTIVE, RESOURCE_IN_USE,
        REQUEST_ID_REUSED."""
        await self._conversations.open(conversation_id)
        spoken = await self._spoken(conversation_id)
        event = Complete(cancel_turns=cancel_turns, version=version, spoken=spoken)
        return await self._change(conversation_id, event, request_id, complete=cancel_turns)

    async def reopen(self, conversation_id: str, *, version: int, request_id: str) -> Conversation:
        """Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, REQUEST_ID_REUSED."""
        await self._conversations.open(conversation_id)
        return await self._change(conversation_id, Reopen(version=version), request_id, reopen=True)

    async def reset(
        self, conversation_id: str, *, keep_system_message: bool, version: int, request_id: str
    ) -> Conversation:
        """Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH, RESOURCE_IN_USE, REQUEST_ID_REUSED."""
        room = await self._conversations.open(conversation_id)
        prompts = await self._prompts(room) if keep_system_message else ()
        event = Reset(keep=keep_system_message, prompts=prompts, version=version)
        return await self._change(conversation_id, event, request_id, reset=keep_system_message)

    async def delete(self, conversation_id: str, *, version: int, request_id: str) -> None:
        """Remove everything; nobody finds it from here on. Errors: CONVERSATION_NOT_FOUND, ETAG_MISMATCH,
        REQUEST_ID_REUSED."""
        asked = request(DELETIONS, request_id, delete=conversation_id)
        if asked is not None and self._conversations.can_be(conversation_id):
            journal = self._shards.of(conversation_id)
            if first_answer(await journal.answered(asked.scope, asked.id), asked) is not None:
                return
        try:
            await self._conversations.get(conversation_id)
            await self._reach(conversation_id)
            await self._conversations.ask(conversation_id, Vacate(version=version), asked)
        except WonderError as problem:
            if not _is_damage(problem):
                raise
            # Its record cannot be told of it any more: all of it goes, and then the request is noted.
            await self._begin_demolition(conversation_id)
            if asked is not None:
                noted = Commit(conversation_id, CONVERSATION, changes=[Erase(whole=True)])
                noted.requests.append((asked, {}))
                await self._shards.of(conversation_id).commit([noted])
            return
        self._streams.close(conversation_id, "deleted")
        await asyncio.wait({self._begin_demolition(conversation_id)}, timeout=PATIENCE_S)

    # --- its end --------------------------------------------------------------------------------

    async def demolish(self, conversation_id: str) -> None:
        """Remove a vacated room, once nothing of it goes on."""
        await self._begin_demolition(conversation_id)

    def _begin_demolition(self, conversation_id: str) -> asyncio.Task[None]:
        """In a task of its own: who asked may go away."""
        task = self._going.get(conversation_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._demolish(conversation_id))
            self._going[conversation_id] = task
            task.add_done_callback(lambda _: self._going.pop(conversation_id, None))
        return task

    async def close(self) -> None:
        """Leave what is being deleted to the next start."""
        for task in list(self._going.values()):
            task.cancel()
        if self._going:
            await asyncio.wait(list(self._going.values()))

    async def _demolish(self, conversation_id: str) -> None:
        await self._reach(conversation_id)
        runs = await self._family.runs(conversation_id, lenient=True)
        for room in await self._family.rooms(conversation_id, runs, lenient=True):
            await self._reach(room)
            with contextlib.suppress(WonderError):
                # Unless a crash came after that.
                await self._loop.ask(room, Vacate())
            self._streams.close(room, "deleted")
            await self._demolish(room)
        await self._end_runs(conversation_id)
        for shard in range(self._shards.count):
            elsewhere = self._shards.of(in_shard(conversation_id, shard))
            if elsewhere is not self._shards.of(conversation_id):
                # Runs that clients started for it.
                await elsewhere.commit([Commit(conversation_id, CONVERSATION, changes=[Erase(whole=True)])])
        try:
            while await self._records.get("conversations", conversation_id, conversation_id) is not None:
                if not (await self._loop.ask(conversation_id, Demolish())).decisions:
                    await asyncio.sleep(_PAUSE_S)
        except WonderError as problem:
            if not _is_damage(problem):
                raise
            _log.warning("damaged_conversation_deleted", conversation=conversation_id, problem=str(problem))
            self._streams.close(conversation_id, "deleted")
            erase = Erase(children=tuple(runs), whole=True)
            await self._shards.of(conversation_id).commit(
                [Commit(conversation_id, CONVERSATION, changes=[erase])]
            )
        self._loop.forget(conversation_id)

    async def _end_runs(self, conversation_id: str) -> None:
        """Cancel its runs and wait until they have ended. A damaged run cannot be cancelled, nor go on."""
        damaged: set[str] = set()
        while True:
            open_runs = [
                run_id
                for run_id in await self._family.open_runs(conversation_id, lenient=True)
                if run_id not in damaged
            ]
            if not open_runs and not self._loop.rooted(conversation_id):
                return
            for run_id in open_runs:
                try:
                    await self._loop.ask(run_id, CancelRun(reason="Its conversation was deleted."))
                except WonderError as problem:
                    if _is_damage(problem):
                        damaged.add(run_id)
            await asyncio.sleep(_PAUSE_S)

    # --- pieces ---------------------------------------------------------------------------------

    async def _reach(self, conversation_id: str) -> None:
        """Have the record here of what is to be deleted; what is lost or damaged need not come back."""
        try:
            await self._conversations.awake(conversation_id)
        except WonderError as problem:
            if not _is_damage(problem):
                raise
            with contextlib.suppress(WonderError):
                await self._conversations.abandon(conversation_id)

    async def _change(
        self, conversation_id: str, event: RoomInput, request_id: str, **told: Any
    ) -> Conversation:
        asked = request(conversation_id, request_id, **told)
        await self._conversations.ask(conversation_id, event, asked)
        return await self._conversations.get(conversation_id)

    async def _spoken(self, conversation_id: str) -> dict[str, str]:
        turns = await self._conversations.active_turns(conversation_id)
        said = {turn_id: self._streams.spoken(conversation_id, turn_id) for turn_id in turns}
        return {turn_id: text for turn_id, text in said.items() if text}

    async def _prompts(self, room: Conversation) -> tuple[KeptPrompt, ...]:
        """The system messages of the agents as each had it in its first turn here."""
        found = {prompt.agent_id: prompt for prompt in room.prompts}
        wanted = {person.id for person in room.participants if person.type == "agent"} - found.keys()
        for agent_id in list(wanted):
            query = Query(table="turns", actor=room.id, fields=(("agent_id", agent_id),), limit=1)
            if not await self._records.find(query):
                wanted.discard(agent_id)
        journal, after = self._shards.of(room.id), 0
        while wanted:
            entries = await journal.entries(room.id, CONVERSATION, after, SCANNED)
            if not entries:
                break
            after = entries[-1].sequence
            for agent in (entry.input.agent for entry in entries if isinstance(entry.input, Send)):
                if agent.agent_id in wanted:
                    wanted.discard(agent.agent_id)
                    found[agent.agent_id] = KeptPrompt(
                        agent_id=agent.agent_id,
                        system_prompt=agent.persona.system_prompt,
                        instructions=tuple(agent.persona.instructions),
                    )
        return tuple(found.values())


def _is_damage(problem: WonderError) -> bool:
    """Return True if a record is damaged, so that it does not help to try again."""
    return problem.fault.reason is Reason.STORAGE_UNAVAILABLE and not problem.fault.transient
