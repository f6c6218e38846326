"""The archive: expired conversations move to the object store and return on demand (B11).

Nothing is removed from disk before its object is complete, and no object is removed before its record is on
disk again. Both directions take several steps. After a crash between any two, the next sweep or the next
request resumes::

    expired, on disk ─▶ object written ─▶ record removed, the conversation names the object
         ─▶ record restored ─▶ active again, the object is stale ─▶ object removed ─▶ no stale object

If the server stops while it archives a conversation, the next start writes the same object again before it
serves requests. So every object is named by a conversation.

An object holds the conversation's record and its runs as compressed JSON lines, under the hash of the
whole. Conversations that were delegated from within it are archived and restored on their own.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from wonder_server.actors.archive.dependents import Dependents
from wonder_server.actors.directory import Directory
from wonder_server.actors.runtime.keyed_locks import KeyedLocks
from wonder_server.core import ids
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginArchiving,
    CompleteArchiving,
    ReleaseArchiveObject,
    RestoreArchived,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.archives import ArchivedRow, Archives
from wonder_server.ports.blobs import Blobs
from wonder_server.ports.records import Records

FORMAT: Final = "wonder-conversation"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Archive(Protocol):
    """The archive, as handlers and entry points use it."""

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore the conversation's record and delete its object, if the conversation exists and is
        archived."""
        ...

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record, which is lost or about to be
        deleted."""
        ...


class NullArchive:
    """An archive without conversations."""

    async def ensure_restored(self, conversation_id: str) -> None:
        return

    async def discard_archived(self, conversation_id: str) -> None:
        return


class Archiver:
    """Archives and restores conversations."""

    def __init__(self, *, directory: Directory, records: Records, archives: Archives, blobs: Blobs) -> None:
        self._directory = directory
        self._records = records
        self._archives = archives
        self._blobs = blobs
        self._dependents = Dependents(records)
        self._locks = KeyedLocks()

    async def ensure_restored(self, conversation_id: str) -> None:
        """Restore a conversation's record, if it is archived.

        Errors: STORAGE_UNAVAILABLE, transient unless the object is lost or damaged.
        """
        await self._restore_if_archived(conversation_id, restores_record=True)

    async def discard_archived(self, conversation_id: str) -> None:
        """Mark an archived conversation as restored without its record, so that it can be deleted."""
        await self._restore_if_archived(conversation_id, restores_record=False)

    async def archive(self, conversation_id: str, *, forced: bool = False) -> bool:
        """Archive a conversation. Return False if it has work in progress, or if it changed meanwhile."""
        async with self._locks.lock("archive", conversation_id):
            conversation: Conversation | None = await self._records.get(
                "conversations", conversation_id, conversation_id
            )
            if conversation is None or conversation.archive_key or conversation.deleted_ms:
                return False
            await self._delete_object(conversation_id, conversation.stale_archive)
            if await self._dependents.open_runs(conversation_id) or self._directory.members_of(
                conversation_id
            ):
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
            key = await self._blobs.put(await self._pack(conversation_id, local_runs))
            completion = CompleteArchiving(
                archive_key=key, archived_ms=conversation.archived_ms, runs=local_runs
            )
            outcome = await self._directory.ask(conversation_id, completion)
            if any(isinstance(decision, EraseRecord) for decision in outcome.decisions):
                return True
            # A message or a deletion arrived meanwhile.
            await self._delete_object(conversation_id, key)
            return False

    async def _restore_if_archived(self, conversation_id: str, *, restores_record: bool) -> None:
        state = self._directory.peek(conversation_id)
        conversation = state.conversation if isinstance(state, ConversationState) else None
        if (conversation is not None and not _is_archived(conversation)) or not ids.is_id(
            "conv", conversation_id
        ):
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
        packed = await self._blobs.get(conversation.archive_key)
        if packed is None:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The object {conversation.archive_key} of conversation {conversation.id} is missing. "
                "Restore the object from a backup, or delete the conversation.",
            )
        lines = await asyncio.to_thread(lambda: list(unpack(packed, self._archives.version)))
        await self._archives.restore(conversation.id, lines)
        while True:
            if self._directory.evict(conversation.id):
                break
            await asyncio.sleep(0.001)

    async def _delete_object(self, conversation_id: str, key: str) -> None:
        if key:
            await self._blobs.delete(key)
            await self._directory.ask(conversation_id, ReleaseArchiveObject(archive_object=key))

    async def _pack(self, conversation_id: str, runs: tuple[str, ...]) -> bytes:
        packer = zlib.compressobj(6, wbits=31)
        header = {"format": FORMAT, "version": self._archives.version, "id": conversation_id, "runs": runs}
        pieces, count = [packer.compress(_encode(header) + b"\n")], 0
        async for page in self._archives.export(conversation_id, runs):
            count += len(page)
            text = b"".join(_encode(line) + b"\n" for line in page)
            pieces.append(await asyncio.to_thread(packer.compress, text))
        pieces.append(packer.compress(_encode({"lines": count}) + b"\n"))
        return b"".join((*pieces, packer.flush()))


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
