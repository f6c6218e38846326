"""The archive: expired conversations move to the object store and return on demand (B11).

Nothing is removed from disk before its object is complete, and no object is removed before its record is on
disk again. Both directions take several steps. After a crash between any two, the next sweep or the next
request resumes::

    expired, on disk ─▶ object written ─▶ record removed, the conversation names the object
         ─▶ record restored ─▶ active again, the object is stale ─▶ object removed ─▶ no stale object

If the server stops while it archives a conversation, the next start writes the same object again before it
serves requests. If a message ends the archiving first, no conversation names the object. So each object is
registered before it is written, and the sweep removes what is registered and not named (`ArchiveObjects`).

An object holds the conversation's record and its runs as compressed JSON lines, under the hash of the
whole. Conversations that were delegated from within it are archived and restored on their own.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

import msgspec

from wonder_server.actors.archive.dependents import Dependents
from wonder_server.actors.archive.objects import ArchiveObjects
from wonder_server.actors.directory import Directory
from wonder_server.actors.keyed_locks import KeyedLocks
from wonder_server.core import ids
from wonder_server.core.actor.queries import Forget, ListMembers, ReadConversation
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginArchiving,
    CompleteArchiving,
    ReleaseArchiveObject,
    RestoreArchived,
)
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.archives import ArchivedRow, Archives
from wonder_server.ports.blobs import Blobs
from wonder_server.ports.clock import Clock
from wonder_server.ports.scoped import ScopedRecords

FORMAT: Final = "wonder-conversation"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Archive(Protocol):
    """The archive, as handlers and entry points use it."""

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore the conversation's record and delete its object, if the conversation exists and is
        archived."""
        ...

    def on_disk(self, conversation_id: str) -> AbstractAsyncContextManager[None]:
        """Restore the record as `ensure_restored`, and keep it on disk until the block ends.

        Without the block, a record could be archived between the check and the read, which would then find
        no rows.
        """
        ...

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record, which is lost or about to be
        deleted."""
        ...

    async def remove_unnamed(self, conversation_id: str) -> None:
        """Remove the objects of interrupted archiving that the conversation, deleted or not, does not
        name."""
        ...


class NullArchive:
    """An archive without conversations."""

    async def ensure_restored(self, conversation_id: str) -> None:
        return

    @asynccontextmanager
    async def on_disk(self, conversation_id: str) -> AsyncIterator[None]:
        yield

    async def discard_archived(self, conversation_id: str) -> None:
        return

    async def remove_unnamed(self, conversation_id: str) -> None:
        return


class ScopedArchive:
    """The archive for one access scope: conversations that ``records`` does not show do not exist."""

    def __init__(self, archive: Archive, records: ScopedRecords) -> None:
        self._archive = archive
        self._records = records

    async def ensure_restored(self, conversation_id: str) -> None:
        if await self._records.shows(conversation_id):
            await self._archive.ensure_restored(conversation_id)

    @asynccontextmanager
    async def on_disk(self, conversation_id: str) -> AsyncIterator[None]:
        if not await self._records.shows(conversation_id):
            yield
            return
        async with self._archive.on_disk(conversation_id):
            yield

    async def discard_archived(self, conversation_id: str) -> None:
        if await self._records.shows(conversation_id):
            await self._archive.discard_archived(conversation_id)

    async def remove_unnamed(self, conversation_id: str) -> None:
        if await self._records.shows(conversation_id):
            await self._archive.remove_unnamed(conversation_id)


class Archiver:
    """Archives and restores conversations."""

    def __init__(
        self, *, directory: Directory, records: ScopedRecords, archives: Archives, blobs: Blobs, clock: Clock
    ) -> None:
        self._directory = directory
        self._records = records
        self._archives = archives
        self._objects = ArchiveObjects(
            directory=directory, records=records, archives=archives, blobs=blobs, clock=clock
        )
        self._dependents = Dependents(records)
        self._locks = KeyedLocks()
        self._readers: Counter[str] = Counter()

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore a conversation's record, if it is archived.

        Errors: STORAGE_UNAVAILABLE, transient unless the object is lost or damaged.
        """
        await self._restore_if_archived(conversation_id, restores_record=True)

    @asynccontextmanager
    async def on_disk(self, conversation_id: str) -> AsyncIterator[None]:
        """Restore the record as `ensure_restored`, and archive it only after the block.

        An `archive` that erases already completes first. Every other one finds the reader and returns False.
        """
        self._readers[conversation_id] += 1
        try:
            async with self._locks.lock("erase", conversation_id):
                pass
            await self.ensure_restored(conversation_id)
            yield
        finally:
            self._readers[conversation_id] -= 1
            if not self._readers[conversation_id]:
                del self._readers[conversation_id]

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record, so that it can be deleted."""
        await self._restore_if_archived(conversation_id, restores_record=False)

    async def archive(self, conversation_id: str, *, forced: bool = False) -> bool:
        """Archive a conversation. Return False if it has work in progress, or if it was changed or read
        meanwhile."""
        async with self._locks.lock("archive", conversation_id):
            conversation: Conversation | None = await self._records.get(
                "conversations", conversation_id, conversation_id
            )
            if conversation is None or conversation.archive_key or conversation.deleted_ms:
                return False
            await self._delete_object(conversation_id, conversation.stale_archive)
            if await self._dependents.open_runs(conversation_id):
                return False
            if await self._directory.query(conversation_id, ListMembers()):
                return False
            if not conversation.archived_ms:
                await self._directory.ask(conversation_id, BeginArchiving(forced=forced))
                conversation = await self._records.get("conversations", conversation_id, conversation_id)
                if conversation is None or not conversation.archived_ms:
                    return False
            runs = await self._dependents.runs(conversation_id)
            local_runs = tuple(run for run in runs if ids.shard_of(run) == ids.shard_of(conversation_id))
            for child in await self._dependents.delegated_conversations(conversation_id, runs):
                await self.archive(child, forced=True)
            epoch = self._directory.epoch_of(conversation_id)
            packed, entry_head = await self._pack(conversation_id, local_runs)
            registered = await self._objects.put(conversation, packed, epoch)
            completion = CompleteArchiving(
                archive_key=registered.key, archived_ms=conversation.archived_ms, runs=local_runs
            )
            if await self._erase(conversation_id, completion, entry_head):
                await self._objects.unregister(registered)
                return True
            await self._delete_object(conversation_id, registered.key)
            await self._objects.unregister(registered)
            return False

    async def remove_unnamed(self, conversation_id: str) -> None:
        async with self._locks.lock("archive", conversation_id):
            await self._objects.remove_unnamed(conversation_id)

    async def with_registered_objects(self) -> list[str]:
        """Return the conversations of this node with objects that may have no name."""
        return await self._objects.owners()

    async def _erase(self, conversation_id: str, completion: CompleteArchiving, entry_head: int) -> bool:
        """Erase a packed record from disk. Return False if a request reads the record, or if the object lacks
        a message, a deletion or a late usage of a model."""
        async with self._locks.lock("erase", conversation_id):
            if self._readers[conversation_id]:
                return False
            outcome = await self._directory.ask(conversation_id, completion, entry_head=entry_head)
            if not any(isinstance(decision, EraseRecord) for decision in outcome.decisions):
                return False
            # The state still holds the record, for replays.
            await self._directory.query(conversation_id, Forget())
            return True

    async def _restore_if_archived(self, conversation_id: str, *, restores_record: bool) -> None:
        if not ids.is_id("conv", conversation_id):
            return
        loaded = await self._directory.query(conversation_id, ReadConversation())
        if isinstance(loaded, Conversation) and not _is_archived(loaded):
            return
        conversation = await self._records.get("conversations", conversation_id, conversation_id)
        if not isinstance(conversation, Conversation) or not _is_archived(conversation):
            return
        # Finish the restore even if the caller is cancelled.
        await asyncio.shield(asyncio.ensure_future(self._restore(conversation_id, restores_record)))

    async def _restore(self, conversation_id: str, restores_record: bool) -> None:
        async with self._locks.lock("archive", conversation_id):
            conversation = await self._records.get("conversations", conversation_id, conversation_id)
            if not isinstance(conversation, Conversation):
                return
            if conversation.archive_key:
                if restores_record:
                    await self._restore_record(conversation)
                await self._directory.ask(
                    conversation_id, RestoreArchived(archive_object=conversation.archive_key)
                )
            await self._delete_object(conversation_id, conversation.archive_key or conversation.stale_archive)

    async def _restore_record(self, conversation: Conversation) -> None:
        epoch = self._directory.epoch_of(conversation.id)
        packed = await self._objects.get(conversation.archive_key)
        if packed is None:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The object {conversation.archive_key} of conversation {conversation.id} is missing. "
                "Restore the object from a backup, or delete the conversation.",
            )
        lines = await asyncio.to_thread(lambda: list(unpack(packed, self._archives.version)))
        await self._archives.restore(conversation.id, lines, epoch)
        while True:
            if await self._directory.query(conversation.id, Forget()):
                break
            await asyncio.sleep(0.001)

    async def _delete_object(self, conversation_id: str, key: str) -> None:
        if key:
            await self._objects.delete(key)
            await self._directory.ask(conversation_id, ReleaseArchiveObject(archive_object=key))

    async def _pack(self, conversation_id: str, runs: tuple[str, ...]) -> tuple[bytes, int]:
        """Return the packed record, and the sequence of its last journal entry."""
        packer = zlib.compressobj(6, wbits=31)
        header = {"format": FORMAT, "version": self._archives.version, "id": conversation_id, "runs": runs}
        pieces, count, entry_head = [packer.compress(_encode(header) + b"\n")], 0, 0
        async for page in self._archives.export(conversation_id, runs):
            if not count:
                entry_head = int(page[0][1]["entry_head"])
            count += len(page)
            text = b"".join(_encode(line) + b"\n" for line in page)
            pieces.append(await asyncio.to_thread(packer.compress, text))
        pieces.append(packer.compress(_encode({"lines": count}) + b"\n"))
        return b"".join((*pieces, packer.flush())), entry_head


def _is_archived(conversation: Conversation) -> bool:
    """Return True if the conversation has an object in the store."""
    return bool(conversation.archive_key or conversation.stale_archive)


def unpack(packed: bytes, version: int) -> Iterator[ArchivedRow]:
    """Yield the rows of an archived conversation.

    Errors: STORAGE_UNAVAILABLE if the object is incomplete or has a newer format.
    """
    try:
        header, *rows, footer = zlib.decompress(packed, wbits=31).splitlines()
        fields: JsonDict = _decode(header)
        complete = fields["format"] == FORMAT and _decode(footer)["lines"] == len(rows)
    except (zlib.error, ValueError, KeyError, TypeError, msgspec.DecodeError):
        complete = False
    if not complete:
        raise error(Reason.STORAGE_UNAVAILABLE, "The object of the archived conversation is incomplete.")
    if fields["version"] > version:
        raise error(
            Reason.STORAGE_UNAVAILABLE, "A newer server archived the conversation. Start that version."
        )
    for row in rows:
        table, columns = _decode(row)
        yield table, columns
