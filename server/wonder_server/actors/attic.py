"""The archive: conversations whose time has come are put away, and brought back when somebody asks (B11).

Nothing is removed before it lies in the store of objects, whole, and nothing is removed there before it is
back. Both ways take several steps; a crash between any two leaves a state that the next sweep, or the next
who asks, takes up::

    expired, on disk ─▶ object written ─▶ record removed, the conversation names the object
         ─▶ record back, on disk ─▶ active again, the object is spent ─▶ object removed ─▶ not even spent

Of a conversation that was about to be archived when the server died, the same object is written once more at
the next start, before anybody can speak in it. So no object is ever there that no conversation names.

What is put away is the conversation's record and the runs it led to, as JSON lines, compressed, under the
hash of the whole. What others delegated from within it are conversations of their own: each is put away by
itself, and comes back by itself.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from wonder_server.actors.family import Family
from wonder_server.actors.keyed_locks import KeyedLocks
from wonder_server.actors.loop import Loop
from wonder_server.core import ids
from wonder_server.core.conversation.room_decisions import RemoveRecord
from wonder_server.core.conversation.room_inputs import Discard, Expire, PutAway, Rouse
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import Conversation
from wonder_server.core.errors import Reason, error
from wonder_server.ports.archives import Archives, Line
from wonder_server.ports.blobs import Blobs
from wonder_server.ports.records import Records

FORMAT: Final = "wonder-conversation"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Brings(Protocol):
    """What others need of the archive."""

    async def awake(self, conversation_id: str) -> None:
        """See to it that the conversation's record is there, and no object of it, if there is such a
        conversation at all."""
        ...

    async def abandon(self, conversation_id: str) -> None:
        """Give up the record of an archived conversation, which is lost or to be deleted."""
        ...


class NoAttic:
    """Where nothing is ever archived."""

    async def awake(self, conversation_id: str) -> None:
        return

    async def abandon(self, conversation_id: str) -> None:
        return


class Attic:
    """Puts conversations away and brings them back."""

    def __init__(self, *, loop: Loop, records: Records, archives: Archives, blobs: Blobs) -> None:
        self._loop = loop
        self._records = records
        self._archives = archives
        self._blobs = blobs
        self._family = Family(records)
        self._alone = KeyedLocks()

    async def awake(self, conversation_id: str) -> None:
        """Bring a conversation's record back, if it is archived. Errors: STORAGE_UNAVAILABLE, transient
        unless its object is lost or damaged."""
        await self._fetch(conversation_id, restores=True)

    async def abandon(self, conversation_id: str) -> None:
        """Have it stand there without its record, if it is archived, so that it can be deleted."""
        await self._fetch(conversation_id, restores=False)

    async def put_away(self, conversation_id: str, *, forced: bool = False) -> bool:
        """Archive a conversation whose time has come; False if something is under way in it."""
        async with self._alone.lock("archive", conversation_id):
            room: Conversation | None = await self._records.get(
                "conversations", conversation_id, conversation_id
            )
            if room is None or room.archive or room.deleted_ms:
                return False
            await self._discard(conversation_id, room.spent)
            if await self._family.open_runs(conversation_id) or self._loop.rooted(conversation_id):
                return False
            if not room.archived_ms:
                await self._loop.ask(conversation_id, Expire(forced=forced))
                room = await self._records.get("conversations", conversation_id, conversation_id)
                if room is None or not room.archived_ms:
                    return False
            runs = await self._family.runs(conversation_id)
            beside = tuple(run for run in runs if ids.shard_of(run) == ids.shard_of(conversation_id))
            for child in await self._family.rooms(conversation_id, runs):
                await self.put_away(child, forced=True)
            key = await self._blobs.put(await self._packed(conversation_id, beside))
            away = PutAway(archive=key, archived_ms=room.archived_ms, runs=beside)
            outcome = await self._loop.ask(conversation_id, away)
            if any(isinstance(decision, RemoveRecord) for decision in outcome.decisions):
                return True
            # Somebody has spoken in it or deleted it meanwhile.
            await self._discard(conversation_id, key)
            return False

    async def _fetch(self, conversation_id: str, *, restores: bool) -> None:
        state = self._loop.peek(conversation_id)
        room = state.conversation if isinstance(state, ConversationState) else None
        if (room is not None and not _away(room)) or not ids.is_id("conv", conversation_id):
            return
        room = await self._records.get("conversations", conversation_id, conversation_id)
        if not isinstance(room, Conversation) or not _away(room):
            return
        # Who asked may go away; what was begun is brought to its end.
        await asyncio.shield(asyncio.ensure_future(self._bring_back(conversation_id, restores)))

    async def _bring_back(self, conversation_id: str, restores: bool) -> None:
        async with self._alone.lock("archive", conversation_id):
            room = await self._records.get("conversations", conversation_id, conversation_id)
            if not isinstance(room, Conversation):
                return
            if room.archive:
                if restores:
                    await self._restore(room)
                await self._loop.ask(conversation_id, Rouse(spent=room.archive))
            await self._discard(conversation_id, room.archive or room.spent)

    async def _restore(self, room: Conversation) -> None:
        packed = await self._blobs.get(room.archive)
        if packed is None:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The archived conversation is not in the store of objects any more: {room.archive}. "
                "Restore that from a backup, or delete the conversation.",
            )
        lines = await asyncio.to_thread(lambda: list(unpacked(packed, self._archives.version)))
        await self._archives.restore(room.id, lines)
        while True:
            if self._loop.forget(room.id):
                break
            await asyncio.sleep(0.001)

    async def _discard(self, conversation_id: str, key: str) -> None:
        if key:
            await self._blobs.delete(key)
            await self._loop.ask(conversation_id, Discard(spent=key))

    async def _packed(self, conversation_id: str, runs: tuple[str, ...]) -> bytes:
        packer = zlib.compressobj(6, wbits=31)
        header = {"format": FORMAT, "version": self._archives.version, "id": conversation_id, "runs": runs}
        pieces, count = [packer.compress(_encode(header) + b"\n")], 0
        async for page in self._archives.export(conversation_id, runs):
            count += len(page)
            text = b"".join(_encode(line) + b"\n" for line in page)
            pieces.append(await asyncio.to_thread(packer.compress, text))
        pieces.append(packer.compress(_encode({"lines": count}) + b"\n"))
        return b"".join((*pieces, packer.flush()))


def _away(room: Conversation) -> bool:
    """Whether there is an object of it."""
    return bool(room.archive or room.spent)


def unpacked(packed: bytes, version: int) -> Iterator[Line]:
    """The rows of an archived conversation. Errors: STORAGE_UNAVAILABLE if it is not whole or too new."""
    try:
        header, *rows, footer = zlib.decompress(packed, wbits=31).splitlines()
        told: dict[str, Any] = _decode(header)
        whole = told["format"] == FORMAT and _decode(footer)["lines"] == len(rows)
    except (zlib.error, ValueError, KeyError, TypeError, msgspec.DecodeError):
        whole = False
    if not whole:
        raise error(Reason.STORAGE_UNAVAILABLE, "The archived conversation is damaged: it is not whole.")
    if told["version"] > version:
        raise error(
            Reason.STORAGE_UNAVAILABLE, "The conversation was archived by a newer server; start that one."
        )
    for row in rows:
        table, columns = _decode(row)
        yield table, columns
