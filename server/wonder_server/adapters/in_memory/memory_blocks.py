"""Memory blocks in memory. Implements the port `MemoryBlocks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import IdempotencyKey, check_fingerprint
from wonder_server.core.memory.blocks import (
    MAX_BLOCKS,
    MAX_CHANGES,
    Author,
    BlockChange,
    BlockKey,
    ChangeKind,
    MemoryBlock,
    block_not_found,
)


class InMemoryBlocks:
    """The blocks of a server without a data folder."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, MemoryBlock] = {}
        self._changes: dict[BlockKey, list[BlockChange]] = {}
        self._requests: dict[tuple[str, str], str] = {}

    def known(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock] | None:
        return [
            self._blocks[key]
            for subject in subjects
            for key in sorted(self._blocks, key=lambda key: key.label)
            if (key.agent_id, key.subject) == (agent_id, subject)
        ]

    async def of(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock]:
        return self.known(agent_id, subjects) or []

    async def page(self, agent_id: str, after: tuple[str, str], limit: int) -> list[MemoryBlock]:
        keys = sorted((key.subject, key.label) for key in self._blocks if key.agent_id == agent_id)
        chosen = [key for key in keys if key > after][:limit]
        return [self._blocks[BlockKey(agent_id=agent_id, subject=each[0], label=each[1])] for each in chosen]

    async def change(
        self,
        key: BlockKey,
        edit: Callable[[MemoryBlock | None], MemoryBlock],
        expected_version: int | None,
        change: tuple[ChangeKind, Author],
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> MemoryBlock:
        current = self._blocks.get(key)
        if self._is_repeated(key, request):
            if current is None:
                raise block_not_found(key)
            return current
        _check_version(current, expected_version)
        if current is None and len(await self.of(key.agent_id, [key.subject])) >= MAX_BLOCKS:
            raise error(Reason.LIMIT_EXCEEDED, f"The maximum is {MAX_BLOCKS} memory blocks.", field="label")
        block, created_ms = edit(current), now_ms if current is None else current.created_ms
        version = self._last_version(key) + 1
        stored = replace(block, version=version, created_ms=created_ms, updated_ms=now_ms)
        self._blocks[key] = stored
        self._record(key, change[0], stored.content, change[1], now_ms)
        self._keep(key, request)
        return stored

    async def remove(
        self,
        key: BlockKey,
        expected_version: int | None,
        author: Author,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> None:
        if self._is_repeated(key, request):
            return
        if key not in self._blocks:
            raise block_not_found(key)
        _check_version(self._blocks[key], expected_version)
        del self._blocks[key]
        self._changes[key] = [replace(each, content="") for each in self._changes[key]]
        self._record(key, "delete", "", author, now_ms)
        self._keep(key, request)

    async def changes(self, key: BlockKey, limit: int) -> list[BlockChange]:
        return self._changes.get(key, [])[::-1][:limit]

    def _last_version(self, key: BlockKey) -> int:
        changes = self._changes.get(key)
        return changes[-1].version if changes else 0

    def _record(self, key: BlockKey, kind: ChangeKind, content: str, author: Author, now_ms: int) -> None:
        version = self._last_version(key) + 1
        change = BlockChange(version=version, kind=kind, content=content, author=author, changed_ms=now_ms)
        self._changes[key] = [*self._changes.get(key, []), change][-MAX_CHANGES:]

    def _is_repeated(self, key: BlockKey, request: IdempotencyKey | None) -> bool:
        if request is None:
            return False
        found = self._requests.get((key.agent_id, request.qualified_id))
        if found is not None:
            check_fingerprint(found, request)
        return found is not None

    def _keep(self, key: BlockKey, request: IdempotencyKey | None) -> None:
        if request is not None:
            self._requests[key.agent_id, request.qualified_id] = request.fingerprint


def _check_version(current: MemoryBlock | None, expected: int | None) -> None:
    if expected is not None and (0 if current is None else current.version) != expected:
        raise error(Reason.ETAG_MISMATCH, "The memory block has changed meanwhile.", field="etag")
