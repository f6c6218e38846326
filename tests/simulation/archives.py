"""The object store of a node, and the export of records to it, on the simulated disk.

Both delay and fail like the journal, and a node may die before and after each change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from tests.simulation.disk import Disk, NodeStores
from wonder_server.ports.archives import ArchivedRow, RegisteredObject

PAGE: Final = 20
"""Rows of one page of an export."""


class NodeBlobs:
    """The object store of one node. Implements the port ``Blobs``."""

    def __init__(self, stores: NodeStores) -> None:
        self.stores = stores
        self._blobs = stores.disk.blobs

    async def put(self, content: bytes) -> str:
        key = await self.stores.change(lambda: self._blobs.put(content))
        self.stores.disk.trace("object", key)
        return key

    async def get(self, key: str) -> bytes | None:
        await self.stores.wait_for_read()
        return await self._blobs.get(key)

    async def exists(self, key: str) -> bool:
        await self.stores.wait_for_read()
        return await self._blobs.exists(key)

    async def delete(self, key: str) -> None:
        await self.stores.change(lambda: self._blobs.delete(key))
        self.stores.disk.trace("object removed", key)


class NodeArchives:
    """The export of one node. Implements the port ``Archives``.

    A row of the export holds a number: the disk keeps the stored row (`Disk.keep`).
    """

    version: Final = 1

    def __init__(self, stores: NodeStores) -> None:
        self.stores = stores
        self._disk: Disk = stores.disk

    async def export(self, actor_id: str, children: Sequence[str]) -> AsyncIterator[list[ArchivedRow]]:
        rows = [row for each in (actor_id, *children) for row in self.rows(each)]
        for start in range(0, len(rows), PAGE):
            await self.stores.wait_for_read()
            yield rows[start : start + PAGE]

    def rows(self, actor_id: str) -> list[ArchivedRow]:
        """Return the rows of an actor in the order in which they are restored."""
        memory = self._disk.journal.memory
        head, keep = memory.actors[actor_id][3], self._disk.keep
        return [
            (table, {"actor": actor_id, "value": keep(*row), "entry_head": head})
            for table, row in memory.rows_of(actor_id)
        ]

    async def restore(self, actor_id: str, lines: Iterable[ArchivedRow], epoch: int) -> None:
        archived = [(table, str(row["actor"]), self._disk.vault[int(row["value"])]) for table, row in lines]
        await self.stores.change(lambda: self._restore(actor_id, archived, epoch))

    async def register(self, registered: RegisteredObject) -> None:
        await self.stores.change(lambda: self._register(registered))

    async def _register(self, registered: RegisteredObject) -> None:
        self._disk.journal.check_epoch(registered.conversation_id, registered.epoch)
        self._disk.archive_keys.add(registered.key)
        self._disk.registered[registered.key, registered.epoch] = registered
        self._disk.trace("registered", registered.key)

    async def registered(self, conversation_id: str = "") -> list[RegisteredObject]:
        await self.stores.wait_for_read()
        found = self._disk.registered.values()
        return [each for each in found if conversation_id in ("", each.conversation_id)]

    async def unregister(self, registered: RegisteredObject) -> None:
        await self.stores.change(lambda: self._unregister(registered))

    async def _unregister(self, registered: RegisteredObject) -> None:
        key = registered.key, registered.epoch
        if self._disk.registered.get(key) == registered:
            del self._disk.registered[key]

    async def _restore(self, actor_id: str, archived: Sequence[tuple[str, str, Any]], epoch: int) -> None:
        """Write the rows that do not exist."""
        journal = self._disk.journal
        journal.check_epoch(actor_id, epoch)
        for table, _, row in archived:
            journal.memory.restore(table, row)
        self._disk.trace("restored", *{owner: None for _, owner, _ in archived})
