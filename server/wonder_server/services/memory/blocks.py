"""Use cases of memory blocks: set, edit, list and delete the texts that stand in every request of an agent
(feature M13).

The caller checks that the agent exists. Edits by tools name the text that they replace, and the store makes
them in one transaction with the read. So two turns at once never overwrite each other: the later one finds
its text, or is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.memory.blocks import (
    MAX_CHANGES,
    Author,
    BlockChange,
    BlockKey,
    ChangeKind,
    MemoryBlock,
    appended,
    block_not_found,
    check_block,
    check_key,
    replaced,
)
from wonder_server.core.memory.validation import check_name
from wonder_server.ports.clock import Clock
from wonder_server.ports.memories import AnsweredRequest
from wonder_server.ports.scoped import ScopedMemoryBlocks
from wonder_server.services.memory.etags import version_of
from wonder_server.services.memory.repeats import block_as_set
from wonder_server.services.paging import Page, PageRequest, page

_SEPARATOR: Final = "\n"
"""Between subject and label in the cursor of a page. A label has no line break: the last one divides it."""


class MemoryBlockService:
    """The use cases of memory blocks for one access scope."""

    def __init__(self, blocks: ScopedMemoryBlocks, clock: Clock) -> None:
        self._blocks = blocks
        self._clock = clock

    def known(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock] | None:
        """Return the result of `of` if that needs no reading; else None."""
        return self._blocks.known(agent_id, subjects)

    async def of(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock]:
        """Return the blocks about these subjects ("" for the agent's own), in their order, by label."""
        check_name(agent_id, "agent_id")
        return await self._blocks.of(agent_id, subjects)

    async def get(self, key: BlockKey) -> MemoryBlock:
        """Return one block. Raises MEMORY_NOT_FOUND, FIELD_INVALID."""
        check_name(key.agent_id, "agent_id")
        check_key(key)
        for block in await self._blocks.of(key.agent_id, [key.subject]):
            if block.key == key:
                return block
        raise block_not_found(key)

    async def page(
        self, agent_id: str, request: PageRequest, subject: str | None = None
    ) -> Page[MemoryBlock]:
        """Return one page of the agent's blocks by subject and label; with a ``subject``, those about it."""
        check_name(agent_id, "agent_id")
        scope: list[object] = ["memory_blocks", agent_id, *([] if subject is None else [subject])]
        subject_after, _, label_after = request.cursor(scope, "").rpartition(_SEPARATOR)
        limit = request.limit()
        if subject is None:
            found = await self._blocks.page(agent_id, (subject_after, label_after), limit + 1)
        else:  # At most `MAX_BLOCKS`, which the store has together.
            of_subject = await self._blocks.of(agent_id, [subject])
            found = [block for block in of_subject if block.key.label > label_after][: limit + 1]
        return page(found, limit, scope, lambda block: f"{block.key.subject}{_SEPARATOR}{block.key.label}")

    async def changes(self, key: BlockKey, request: PageRequest) -> Page[BlockChange]:
        """Return one page of the recorded changes of a block, newest first, also of a deleted one."""
        check_name(key.agent_id, "agent_id")
        check_key(key)
        scope: list[object] = ["memory_block_changes", key.agent_id, key.subject, key.label]
        before, limit = request.cursor(scope, 0), request.limit()
        found = await self._blocks.changes(key, MAX_CHANGES)
        older = [change for change in found if not before or change.version < before]
        return page(older[: limit + 1], limit, scope, lambda change: change.version)

    async def set(
        self, block: MemoryBlock, author: Author, *, etag: str = "", request: IdempotencyKey | None = None
    ) -> MemoryBlock:
        """Store a block, whether it exists or not. With an ``etag``, change only that version.

        Raises FIELD_INVALID, ETAG_MISMATCH, LIMIT_EXCEEDED, REQUEST_ID_REUSED, AGENT_NOT_FOUND."""
        check_name(block.key.agent_id, "agent_id")
        check_block(block)
        return await self._blocks.change(
            block.key, lambda _: block, version_of(etag), ("set", author), self._clock.now_ms(), request
        )

    async def set_before(self, answered: AnsweredRequest, block: MemoryBlock) -> MemoryBlock:
        """Return the block that an earlier request set, as it is now, or as it was set if it was deleted
        since, alone or with its agent."""
        try:
            return await self.get(block.key)
        except WonderError as problem:
            if problem.fault.reason not in (Reason.MEMORY_NOT_FOUND, Reason.AGENT_NOT_FOUND):
                raise
            return block_as_set(answered, block)

    async def delete(
        self, key: BlockKey, author: Author, *, etag: str = "", request: IdempotencyKey | None = None
    ) -> None:
        """Delete a block, and the contents in its record. Raises MEMORY_NOT_FOUND, ETAG_MISMATCH."""
        check_key(key)
        await self._blocks.remove(key, version_of(etag), author, self._clock.now_ms(), request)

    async def replace(
        self, key: BlockKey, texts: tuple[str, str], author: Author, request: IdempotencyKey | None = None
    ) -> MemoryBlock:
        """Replace the first of the ``texts`` by the second, for a tool.

        Raises MEMORY_NOT_FOUND, FIELD_INVALID unless the block contains the first text exactly once,
        PERMISSION_DENIED for a read-only block."""
        old, new = texts
        return await self._edit(key, "replace", lambda content: replaced(content, old, new), author, request)

    async def append(
        self, key: BlockKey, text: str, author: Author, request: IdempotencyKey | None = None
    ) -> MemoryBlock:
        """Add a line to a block, for a tool. A block about a user is created if it does not exist.

        Raises as `replace`, and LIMIT_EXCEEDED."""
        return await self._edit(key, "append", lambda content: appended(content, text), author, request)

    async def _edit(
        self,
        key: BlockKey,
        kind: ChangeKind,
        edit: Callable[[str], str],
        author: Author,
        request: IdempotencyKey | None,
    ) -> MemoryBlock:
        check_key(key)

        def changed(block: MemoryBlock | None) -> MemoryBlock:
            if block is None:
                if kind != "append" or not key.subject:
                    raise _no_block_for_tool(key)
                block = MemoryBlock(key=key)
            if block.read_only:
                message = f"Memory block {key.label} is read-only for tools. Only clients change it."
                raise error(Reason.PERMISSION_DENIED, message, field="label")
            new = dataclasses.replace(block, content=edit(block.content))
            check_block(new)
            return new

        return await self._blocks.change(key, changed, None, (kind, author), self._clock.now_ms(), request)


def _no_block_for_tool(key: BlockKey) -> WonderError:
    """Return the error for a model, which reads the blocks in its request and edits them by tool."""
    whose = "about the user" if key.subject else "of yours"
    return error(
        Reason.MEMORY_NOT_FOUND,
        f"There is no memory block '{key.label}' {whose}. Use a label of the memory blocks in your "
        "instructions, and about_user for a block about the user. memory_block_append creates a block about "
        "the user.",
        field="label",
    )
