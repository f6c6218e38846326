"""The objects of archived conversations. Each is registered in its conversation's shard before it is written.

So a server that dies between the two leaves no object that no record knows. The registration goes when the
conversation names the object, or when the object is removed. An object can be named only while its
conversation has the ``archived_ms`` of the registration; after that, it is removed.
"""

from __future__ import annotations

from typing import Final

from wonder_server.actors.directory import Directory
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.ports.archives import Archives, RegisteredObject
from wonder_server.ports.blobs import Blobs, key_of
from wonder_server.ports.clock import Clock
from wonder_server.ports.scoped import ScopedRecords

KEPT_MS: Final = 3_600_000
"""Time that a registration of an object without a name is kept. A former owner of the shard, or a cancelled
request to the object store, may write the object after its removal; requests end within minutes."""


class ArchiveObjects:
    """Writes objects of conversations, and removes those that no conversation names."""

    def __init__(
        self, *, directory: Directory, records: ScopedRecords, archives: Archives, blobs: Blobs, clock: Clock
    ) -> None:
        self._directory = directory
        self._records = records
        self._archives = archives
        self._blobs = blobs
        self._clock = clock

    async def put(self, conversation: Conversation, packed: bytes, epoch: int) -> RegisteredObject:
        """Register an object, then write it. The caller owns the shard under ``epoch``."""
        registered = RegisteredObject(
            key=key_of(packed),
            conversation_id=conversation.id,
            archived_ms=conversation.archived_ms,
            registered_ms=self._clock.now_ms(),
            epoch=epoch,
        )
        await self._archives.register(registered)
        await self._blobs.put(packed)
        return registered

    async def get(self, key: str) -> bytes | None:
        return await self._blobs.get(key)

    async def delete(self, key: str) -> None:
        await self._blobs.delete(key)

    async def unregister(self, registered: RegisteredObject) -> None:
        """Remove the registration of an object that its conversation names, or that is removed."""
        await self._archives.unregister(registered)

    async def owners(self) -> list[str]:
        """Return the conversations with registered objects whose shards this node owns."""
        found = {each.conversation_id for each in await self._archives.registered()}
        return sorted(each for each in found if self._directory.owns(each))

    async def remove_unnamed(self, conversation_id: str) -> None:
        """Remove the registered objects that the conversation does not name and never will. The caller
        prevents its archiving meanwhile."""
        for registered in await self._archives.registered(conversation_id):
            conversation = await self._records.get("conversations", conversation_id, conversation_id)
            if isinstance(conversation, Conversation) and _is_unfinished(conversation, registered):
                continue
            if not isinstance(conversation, Conversation) or not _names(conversation, registered.key):
                await self._blobs.delete(registered.key)
            if self._clock.now_ms() - registered.registered_ms >= KEPT_MS:
                await self._archives.unregister(registered)


def _names(conversation: Conversation, key: str) -> bool:
    return key in (conversation.archive_key, conversation.stale_archive)


def _is_unfinished(conversation: Conversation, registered: RegisteredObject) -> bool:
    """Return True if the archiving that registered the object can still end and name it."""
    return (
        conversation.archived_ms == registered.archived_ms
        and not conversation.archive_key
        and not conversation.deleted_ms
    )
