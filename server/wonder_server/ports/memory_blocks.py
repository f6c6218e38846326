"""Memory blocks of agents, with the record of their changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.memory.blocks import Author, BlockChange, BlockKey, ChangeKind, MemoryBlock


class MemoryBlocks(Protocol):
    """The memory blocks of agents. Each change is one transaction with its record.

    A ``request`` that was executed before changes nothing; a different request with the same id raises
    REQUEST_ID_REUSED.
    """

    def known(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock] | None:
        """Return the result of `of` if the store knows it without reading; else None."""
        ...

    async def of(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock]:
        """Return the blocks about these subjects ("" for the agent's own), in their order, by label."""
        ...

    async def page(self, agent_id: str, after: tuple[str, str], limit: int) -> list[MemoryBlock]:
        """Return blocks of the agent by subject and label, those after this subject and label."""
        ...

    async def change(
        self,
        key: BlockKey,
        edit: Callable[[MemoryBlock | None], MemoryBlock],
        expected_version: int | None,
        change: tuple[ChangeKind, Author],
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> MemoryBlock:
        """Store what ``edit`` makes of the block, and record it; return the block with its version and times.

        ``edit`` is a pure function that may raise; it gets None if there is no block, and the store may call
        it in another thread. Errors: its own; ETAG_MISMATCH unless the stored version is the expected one
        (0: no block; None: any), LIMIT_EXCEEDED for one block too many, AGENT_NOT_FOUND for a deleted agent.
        """
        ...

    async def remove(
        self,
        key: BlockKey,
        expected_version: int | None,
        author: Author,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> None:
        """Delete a block, and the contents in its record. Errors: MEMORY_NOT_FOUND, ETAG_MISMATCH."""
        ...

    async def changes(self, key: BlockKey, limit: int) -> list[BlockChange]:
        """Return the newest recorded changes of a block, newest first, also of a deleted one."""
        ...
