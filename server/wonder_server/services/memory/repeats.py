"""Answers to repeated requests whose memory was deleted since.

The store keeps no deleted content, so such an answer is built from the request itself."""

from __future__ import annotations

import dataclasses

from wonder_server.core.memory.blocks import MemoryBlock
from wonder_server.core.memory.records import Change, Draft, Memory, Source
from wonder_server.ports.memories import AnsweredRequest


def as_written(answered: AnsweredRequest, memory_id: str, draft: Draft) -> Memory:
    """Build a memory as the request wrote it."""
    return Memory(
        id=memory_id,
        agent_id=answered.agent_id,
        type=draft.type,
        content=draft.content,
        significance=draft.significance,
        metadata=draft.metadata,
        source=draft.source,
        created_ms=answered.at_ms,
        updated_ms=answered.at_ms,
        said_ms=answered.at_ms if draft.said_ms is None else draft.said_ms,
        version=1,
        size_bytes=len(draft.content.encode()),
        contradicts_ids=draft.contradicts_ids,
        subject=draft.subject,
    )


def as_changed(answered: AnsweredRequest, memory_id: str, change: Change) -> Memory:
    """Build a memory with the fields that the request changed. The others, and the version, are unknown."""
    content = change.content or ""
    return Memory(
        id=memory_id,
        agent_id=answered.agent_id,
        type=change.type or "",
        content=content,
        significance=change.significance or 0.0,
        metadata=change.metadata or {},
        source=Source(),
        created_ms=0,
        updated_ms=answered.at_ms,
        said_ms=change.said_ms or 0,
        version=0,
        size_bytes=len(content.encode()),
        contradicts_ids=change.contradicts_ids or (),
        subject=change.subject or "",
    )


def as_superseded(answered: AnsweredRequest, memory_id: str, by_id: str) -> Memory:
    """Build a memory that the request replaced by another. Its content is unknown."""
    old = as_changed(answered, memory_id, Change())
    return dataclasses.replace(old, superseded_by_id=by_id)


def block_as_set(answered: AnsweredRequest, block: MemoryBlock) -> MemoryBlock:
    """Build a block as the request set it. The version is unknown."""
    key = dataclasses.replace(block.key, agent_id=answered.agent_id)
    return dataclasses.replace(block, key=key, created_ms=answered.at_ms, updated_ms=answered.at_ms)
