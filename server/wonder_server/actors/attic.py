"""The archive: conversations whose time has come are put away, and brought back when somebody asks (B11).

Nothing is removed before it lies in the store of objects, whole, and nothing is removed there before it is
back. Both ways take several steps; a crash between any two leaves a state that the next sweep, or the next
who asks, takes up::

    expired, on disk ─▶ object written ─▶ record removed, the conversation names the object
                                          ─▶ record back, on disk ─▶ active again ─▶ object removed

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
from wonder_server.actors.loop import Loop
from wonder_server.actors.requests import Creations
from wonder_server.core import ids
from wonder_server.core.conversation.room_inputs import Expire, PutAway, Rouse
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
        """See to it that the conversation's record is there, if there is such a conversation at all."""
        ...


class NoAttic:
    """Where nothing is ever archived."""

    async def awake(self, conversation_id: str) -> None:
        return


class Attic:
    """Puts conversations away and brings them back."""

    def __init__(self, *, loop: Loop, records: Records, archives: Archives, blobs: Blobs) -> None:
        self._loop = loop
        self._records = records
        self._archives = archives
        self._blobs = blobs
        self._family = Family(records)
        self._alone = Creations()

    async def awake(self, conversation_id: str) -> None:
        """Bring a conversation's record back, if it is archived. Errors: STORAGE_UNAVAILABLE."""
        state = self._loop.peek(conversation_id)
        room = state.conversation if isinstance(state, ConversationState) else None
        if (room is not None and not room.archive) or not ids.is_id("conv", conversation_id):
            return
        if not await self._lies_here(conversation_id):
            return
        # Who asked may go away; what was begun is brought to its end.
        await asyncio.shield(asyncio.ensure_future(self._bring_back(conversation_id)))

    async def put_away(self, conversation_id: str, *, forced: bool = False) -> bool:
        """Archive a conversation whose time has come; False if something is under way in it."""
        async with self._alone.one("archive", conversation_id):
            room: Conversation | None = await self._records.get(
                "conversations", conversation_id, conversation_id
            )
            if room is None or room.archive or room.deleted_ms:
                return False
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
            if not outcome.decisions:
                # Somebody has spoken in it meanwhile.
                await self._blobs.delete(key)
            return bool(outcome.decisions)

    async def _lies_here(self, conversation_id: str) -> str:
        """The key of its object; empty if it is not archived."""
        room = await self._records.get("conversations", conversation_id, conversation_id)
        return room.archive if isinstance(room, Conversation) else ""

    async def _bring_back(self, conversation_id: str) -> None:
        async with self._alone.one("archive", conversation_id):
            key = await self._lies_here(conversation_id)
            if not key:
                return
            packed = await self._blobs.get(key)
            if packed is None:
                raise error(
                    Reason.STORAGE_UNAVAILABLE,
                    f"The archived conversation is not in the store of objects any more: {key}.",
                )
            lines = await asyncio.to_thread(lambda: list(unpacked(packed, self._archives.version)))
            await self._archives.restore(conversation_id, lines)
            while True:
                if self._loop.forget(conversation_id):
                    break
                await asyncio.sleep(0.001)
            await self._loop.ask(conversation_id, Rouse())
            await self._blobs.delete(key)

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
