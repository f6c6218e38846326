"""Removal of the data of deleted conversations, by the server itself.

It follows the commit that marks a conversation as deleted. When the work has ended, the server removes the
data, dependents first. After a crash, the expiry sweep resumes the removal.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from wonder_server.actors.access import InternalAccess
from wonder_server.actors.archive.archiver import Archive
from wonder_server.actors.archive.dependents import Dependents
from wonder_server.core.actor.changes import Erase
from wonder_server.core.actor.queries import Forget, ListMembers
from wonder_server.core.conversation.model.lifecycle_inputs import BeginDeletion, FinishDeletion
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.coordinator.model.inputs import CancelRun
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.identity import SERVER
from wonder_server.core.ids import shard_of
from wonder_server.logs import logger
from wonder_server.ports.journal import Commit

_log = logger("actors")

_PAUSE_S: Final = 0.005


class Deletions:
    """Removes deleted conversations, each in a task that outlives the request."""

    def __init__(self, access: InternalAccess, archive: Archive) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._records = access.records
        self._archive = archive
        self._dependents = Dependents(access.records)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def finish(self, conversation_id: str) -> None:
        """Remove a deleted conversation's data, after its work has ended."""
        await self._schedule(conversation_id)

    async def finish_within(self, conversation_id: str, seconds: float) -> None:
        """Do as `finish`, and return after ``seconds`` at the latest. The removal then continues."""
        await asyncio.wait({self._schedule(conversation_id)}, timeout=seconds)

    async def erase_damaged(self, conversation_id: str, identity: IdempotencyKey | None) -> None:
        """Erase all of a damaged record, which accepts no input, and then record the request."""
        await self._schedule(conversation_id)
        if identity is not None:
            commit = Commit(conversation_id, changes=[Erase(whole=True)])
            commit.requests.append((identity, {}))
            await self._directory.write(conversation_id, [commit])

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore the record of a conversation that is about to be deleted, unless it is lost or damaged."""
        try:
            await self._archive.ensure_restored(conversation_id)
        except WonderError as problem:
            if not is_damage(problem):
                raise
            with contextlib.suppress(WonderError):
                await self._archive.discard_archived(conversation_id)

    async def close(self) -> None:
        """Cancel the removals in progress. The next start resumes them."""
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _schedule(self, conversation_id: str) -> asyncio.Task[None]:
        """Return the task that removes the conversation's data."""
        task = self._tasks.get(conversation_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._remove(conversation_id))
            self._tasks[conversation_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(conversation_id, None))
        return task

    async def _remove(self, conversation_id: str) -> None:
        await self.ensure_restored(conversation_id)
        deleted_by = await self._deleted_by(conversation_id)
        runs = await self._dependents.runs(conversation_id, lenient=True)
        for delegated in await self._dependents.delegated_conversations(conversation_id, runs, lenient=True):
            await self.ensure_restored(delegated)
            with contextlib.suppress(WonderError):
                # The deletion may have begun before a crash.
                await self._directory.ask(delegated, BeginDeletion(principal=deleted_by))
            self._directory.end_streams(delegated, "deleted")
            await self._remove(delegated)
        await self._end_runs(conversation_id, deleted_by)
        await self._erase_elsewhere(conversation_id)
        try:
            while await self._records.get("conversations", conversation_id, conversation_id) is not None:
                if not (await self._directory.ask(conversation_id, FinishDeletion())).decisions:
                    await asyncio.sleep(_PAUSE_S)
        except WonderError as problem:
            if not is_damage(problem):
                raise
            _log.warning("damaged_conversation_deleted", conversation=conversation_id, problem=str(problem))
            self._directory.end_streams(conversation_id, "deleted")
            erase = Erase(children=tuple(runs), whole=True)
            await self._directory.write(conversation_id, [Commit(conversation_id, changes=[erase])])
        await self._directory.query(conversation_id, Forget())
        # If the object store is unavailable, a later sweep removes the objects: they stay registered.
        with contextlib.suppress(WonderError):
            await self._archive.remove_unnamed(conversation_id)

    async def _erase_elsewhere(self, conversation_id: str) -> None:
        """Erase runs of the conversation in other shards, where earlier versions stored those that clients
        started."""
        members = {shard_of(member): member for member in await self._journals.members(conversation_id)}
        for shard, member in members.items():
            if shard != shard_of(conversation_id):
                await self._directory.write(member, [Commit(conversation_id, changes=[Erase(whole=True)])])

    async def _deleted_by(self, conversation_id: str) -> str:
        """Return the principal that deleted the conversation; the server if its record is damaged."""
        with contextlib.suppress(WonderError):
            found = await self._records.get("conversations", conversation_id, conversation_id)
            if isinstance(found, Conversation):
                return found.updated_by
        return SERVER.text

    async def _end_runs(self, conversation_id: str, deleted_by: str) -> None:
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
            if not open_runs and not await self._directory.query(conversation_id, ListMembers()):
                return
            cancel = CancelRun(reason="Its conversation was deleted.", principal=deleted_by)
            for run_id in open_runs:
                try:
                    await self._directory.ask(run_id, cancel)
                except WonderError as problem:
                    if is_damage(problem):
                        damaged.add(run_id)
            await asyncio.sleep(_PAUSE_S)


def is_damage(problem: WonderError) -> bool:
    """Return True if a record is damaged, so that it does not help to try again."""
    return problem.fault.reason is Reason.STORAGE_UNAVAILABLE and not problem.fault.transient
