"""Codec of memory blocks."""

from __future__ import annotations

from typing import Final

from wonder.v1 import memory_pb2
from wonder_server.core.memory.blocks import (
    DEFAULT_MAX_CHARACTERS,
    BlockChange,
    BlockKey,
    ChangeKind,
    MemoryBlock,
)
from wonder_server.rpc.shared.times import to_timestamp

_KINDS: Final[dict[ChangeKind, memory_pb2.MemoryBlockChangeKind]] = {
    "set": memory_pb2.MEMORY_BLOCK_CHANGE_KIND_SET,
    "replace": memory_pb2.MEMORY_BLOCK_CHANGE_KIND_REPLACE,
    "append": memory_pb2.MEMORY_BLOCK_CHANGE_KIND_APPEND,
    "delete": memory_pb2.MEMORY_BLOCK_CHANGE_KIND_DELETE,
}


def block_to_proto(block: MemoryBlock) -> memory_pb2.MemoryBlock:
    """Encode a block."""
    return memory_pb2.MemoryBlock(
        agent_id=block.key.agent_id,
        label=block.key.label,
        subject=block.key.subject,
        description=block.description,
        content=block.content,
        max_characters=block.max_characters,
        read_only=block.read_only,
        create_time=to_timestamp(block.created_ms),
        update_time=to_timestamp(block.updated_ms),
        etag=block.etag,
    )


def block_from_proto(block: memory_pb2.MemoryBlock, agent_id: str) -> MemoryBlock:
    """Decode a block to set. The service checks the values."""
    return MemoryBlock(
        key=BlockKey(agent_id=agent_id, label=block.label, subject=block.subject),
        description=block.description,
        content=block.content,
        max_characters=block.max_characters or DEFAULT_MAX_CHARACTERS,
        read_only=block.read_only,
    )


def change_to_proto(change: BlockChange) -> memory_pb2.MemoryBlockChange:
    """Encode a recorded change."""
    author = change.author
    return memory_pb2.MemoryBlockChange(
        etag=str(change.version),
        kind=_KINDS[change.kind],
        content=change.content,
        principal=author.principal,
        user_id=author.user_id,
        conversation_id=author.conversation_id,
        turn_id=author.turn_id,
        move_id=author.move_id,
        change_time=to_timestamp(change.changed_ms),
    )
