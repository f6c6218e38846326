"""Rows of memory.db and the values they are: columns, and reading them."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from wonder_server.adapters.sqlite.seals import Seals, damaged, seal
from wonder_server.core.errors import Reason, error
from wonder_server.core.memory import Memory, Source

FIELDS: Final = (
    "id, agent_id, type, CAST(content AS BLOB), significance, metadata, "
    "conversation_id, turn_id, move_id, run_id, speaker, ordinal, "
    "created_ms, updated_ms, version, content_ref, size_bytes, supersedes_id, superseded_by_id, archived_ms, "
    "(SELECT json_group_array(id) FROM (SELECT other.id FROM contradictions "
    " JOIN memories AS other ON other.key = contradictions.other_key "
    " WHERE contradictions.memory_key = memories.key ORDER BY other.id)), "
    "seal, key, (SELECT upto FROM unsealed WHERE name = 'memories')"
)
"""What `memory_of` reads, from table ``memories``."""

STORE: Final = "memory.db"

_NOT_FOUND: Final = "The agent has no memory with this id."
_CHANGED: Final = "The memory has changed since; read it again."


def memory_of(row: tuple[Any, ...]) -> Memory:
    """The memory of a row of `FIELDS`. Its content is empty where it lies elsewhere, at ``content_ref``.

    Raises STORAGE_UNAVAILABLE if the row is damaged.
    """
    id, agent_id, type_, content, significance, metadata, *source = row[:12]
    placed = row[15] or "", row[16]
    *_, found, key, upto = row
    said = _seal_key(id, agent_id, type_, significance, metadata, source, row[12], placed)
    content = Seals(STORE, {"memories": upto}).check("memories", said, content, found, key)
    try:
        return _memory(row, content.decode())
    except (ValueError, TypeError):
        raise damaged(STORE, "memories", str(id)) from None


def sealed(memory: Memory, metadata: str, placed: tuple[str, str | None, int]) -> int:
    """The seal of a memory's row, with ``metadata`` as JSON, and content, object and size as the row holds
    them."""
    source = memory.source
    content, reference, size = placed
    key = _seal_key(
        memory.id,
        memory.agent_id,
        memory.type,
        memory.significance,
        metadata,
        [
            source.conversation_id,
            source.turn_id,
            source.move_id,
            source.run_id,
            source.speaker,
            source.ordinal,
        ],
        memory.created_ms,
        (reference or "", size),
    )
    return seal(("memories", *key), content.encode())


def _seal_key(
    id: str,
    agent_id: str,
    type: str,
    significance: object,
    metadata: str,
    source: list[Any],
    created_ms: int,
    placed: tuple[str, int],
) -> tuple[object, ...]:
    """What the seal of a memory covers beside its content; links and versions change without it."""
    # A column of type REAL gives back a float, whatever was put into it.
    weight = float(significance) if isinstance(significance, int | float) else significance
    return id, agent_id, type, weight, metadata, *source, created_ms, *placed


def _memory(row: tuple[Any, ...], content: str) -> Memory:
    return Memory(
        id=row[0],
        agent_id=row[1],
        type=row[2],
        content=content,
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
