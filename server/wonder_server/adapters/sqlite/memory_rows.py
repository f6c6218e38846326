"""Rows of memory.db and the values they are: columns, and reading them."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.memory import Memory, Source

FIELDS: Final = (
    "id, agent_id, type, content, significance, metadata, "
    "conversation_id, turn_id, move_id, run_id, speaker, ordinal, "
    "created_ms, updated_ms, version, content_ref, size_bytes, supersedes_id, superseded_by_id, archived_ms, "
    "(SELECT json_group_array(id) FROM (SELECT other.id FROM contradictions "
    " JOIN memories AS other ON other.key = contradictions.other_key "
    " WHERE contradictions.memory_key = memories.key ORDER BY other.id))"
)
"""What `memory_of` reads, from table ``memories``."""

_NOT_FOUND: Final = "The agent has no memory with this id."
_CHANGED: Final = "The memory has changed since; read it again."


def memory_of(row: tuple[Any, ...]) -> Memory:
    """The memory of a row of `FIELDS`. Its content is empty where it lies elsewhere, at ``content_ref``."""
    return Memory(
        id=row[0],
        agent_id=row[1],
        type=row[2],
        content=row[3],
        significance=row[4],
        metadata=json.loads(row[5]),
        source=Source(
            conversation_id=row[6],
            turn_id=row[7],
            move_id=row[8],
            run_id=row[9],
            speaker=row[10],
            ordinal=row[11],
        ),
        created_ms=row[12],
        updated_ms=row[13],
        version=row[14],
        content_ref=row[15] or "",
        size_bytes=row[16],
        supersedes_id=row[17],
        superseded_by_id=row[18],
        archived_ms=row[19],
        contradicts_ids=tuple(json.loads(row[20])),
    )


def locate(connection: sqlite3.Connection, agent_id: str, memory_id: str, version: int | None) -> int:
    """The key of an agent's memory. MEMORY_NOT_FOUND; ETAG_MISMATCH if it is not of this version."""
    row = connection.execute(
        "SELECT key, version FROM memories WHERE agent_id = ? AND id = ?", (agent_id, memory_id)
    ).fetchone()
    if row is None:
        raise error(Reason.MEMORY_NOT_FOUND, _NOT_FOUND, field="id")
    if version is not None and row[1] != version:
        raise error(Reason.ETAG_MISMATCH, _CHANGED, field="etag")
    return int(row[0])
