"""Columns of the memories in memory.db, and their conversion to values."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from wonder_server.adapters.sqlite.connection import Row
from wonder_server.codec.seals import Seals, damaged_record, seal
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.memory.records import Memory, Source
from wonder_server.ports.blobs import is_key

FIELDS: Final = (
    "id, agent_id, type, CAST(content AS BLOB), significance, metadata, "
    "conversation_id, turn_id, move_id, run_id, speaker, ordinal, "
    "created_ms, updated_ms, version, content_ref, size_bytes, supersedes_id, superseded_by_id, archived_ms, "
    "(SELECT json_group_array(id) FROM (SELECT other.id FROM contradictions "
    " JOIN memories AS other ON other.key = contradictions.other_key "
    " WHERE contradictions.memory_key = memories.key ORDER BY other.id)), "
    "idempotency_key, hex(fingerprint), said_ms, speaker_role, subject, message_id, speaker_id, seal, "
    "key, (SELECT upto FROM unsealed WHERE name = 'memories')"
)
"""The columns of table ``memories`` that `memory_of` reads."""

STORE: Final = "memory.db"

_ETAG_MISMATCH: Final = "Memory {id} has changed meanwhile. Read it again and repeat the change."


def memory_of(row: Row) -> Memory:
    """Return the memory of a row of `FIELDS`. Its content is empty if it is the object ``content_ref``.

    Raises STORAGE_UNAVAILABLE if the row is damaged.
    """
    *_, found, key, upto = row
    seals = Seals(STORE, {"memories": upto})
    content = seals.check("memories", _seal_key(row), row[3], found, key, older=_first_seal_key(row))
    try:
        return _memory(row, content.decode())
    except (ValueError, TypeError):
        raise damaged_record(STORE, "memories", str(row[0])) from None


def row_seal(row: Row) -> int:
    """Return the seal of a row of `FIELDS`. The columns from the seal on may be missing."""
    return seal(("memories", *_seal_key(row)), row[3])


def is_intact(connection: sqlite3.Connection, key: int) -> bool:
    """Return False if the memory's row is damaged."""
    return intact(connection, key) is not None


def intact(connection: sqlite3.Connection, key: int) -> Memory | None:
    """Return the memory, or None if its row is damaged."""
    row = connection.execute(f"SELECT {FIELDS} FROM memories WHERE key = ?", (key,)).fetchone()
    try:
        return memory_of(row)
    except WonderError:
        return None


def recoverable(connection: sqlite3.Connection, key: int) -> Memory:
    """Return the fields of a memory, damaged or not, that its deletion needs."""
    found = intact(connection, key)
    if found is not None:
        return found
    sql = "SELECT id, agent_id, content_ref, supersedes_id, superseded_by_id FROM memories WHERE key = ?"
    row = connection.execute(sql, (key,)).fetchone()
    id, agent_id, reference, supersedes, superseded = (str(value or "") for value in row)
    return Memory(
        id=id,
        agent_id=agent_id,
        type="",
        content="",
        significance=0.0,
        metadata={},
        source=Source(),
        created_ms=0,
        updated_ms=0,
        said_ms=0,
        version=0,
        content_ref=reference if is_key(reference) else "",
        supersedes_id=supersedes,
        superseded_by_id=superseded,
    )


def _seal_key(row: Row) -> tuple[object, ...]:
    """Return the columns that the seal of a memory covers besides its content."""
    said_ms, role, about = row[23], row[24], row[25:28]
    # Rows without them have the seals of the versions before these columns. Each combination has a length of
    # its own.
    later = (said_ms, role) if said_ms is not None or role else ()
    later += about if any(about) else ()
    return *_first_seal_key(row), row[13], row[14], *row[17:20], row[21] or "", row[22], *later


def _first_seal_key(row: Row) -> tuple[object, ...]:
    """Return the columns that the first seals covered: no version, links, update times or fingerprint."""
    id, agent_id, type_, _, significance, metadata, *source = row[:12]
    # A column of type REAL returns a float for any number.
    weight = float(significance) if isinstance(significance, int | float) else significance
    return id, agent_id, type_, weight, metadata, *source, row[12], row[15] or "", row[16]


def _memory(row: Row, content: str) -> Memory:
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
            message_id=row[26],
            move_id=row[8],
            run_id=row[9],
            speaker=row[10],
            speaker_id=row[27],
            ordinal=row[11],
            role=row[24],
        ),
        created_ms=row[12],
        updated_ms=row[13],
        said_ms=row[12] if row[23] is None else row[23],
        version=row[14],
        content_ref=row[15] or "",
        size_bytes=row[16],
        supersedes_id=row[17],
        superseded_by_id=row[18],
        archived_ms=row[19],
        subject=row[25],
        contradicts_ids=tuple(json.loads(row[20])),
    )


def locate(connection: sqlite3.Connection, agent_id: str, memory_id: str, version: int | None) -> int:
    """Return the row key of an agent's memory. MEMORY_NOT_FOUND; ETAG_MISMATCH if its version differs."""
    row = connection.execute(
        "SELECT key, version FROM memories WHERE agent_id = ? AND id = ?", (agent_id, memory_id)
    ).fetchone()
    if row is None:
        place = f" of the agent '{agent_id}'"
        raise not_found(Reason.MEMORY_NOT_FOUND, memory_id, field="id", place=place)
    if version is not None and row[1] != version:
        raise error(Reason.ETAG_MISMATCH, _ETAG_MISMATCH.format(id=memory_id), field="etag")
    return int(row[0])
