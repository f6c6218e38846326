"""Changes of memories in memory.db. Each changes everything that belongs to a memory, in the open
transaction.

The functions here run in the writer thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.sqlite.memory import metadata_index, text_index
from wonder_server.adapters.sqlite.memory.filter import LIVE
from wonder_server.adapters.sqlite.memory.rows import (
    FIELDS,
    is_intact,
    locate,
    memory_of,
    recoverable,
    row_seal,
)
from wonder_server.codec.seals import seal
from wonder_server.core.errors import Reason, error, not_found
from wonder_server.core.idempotency import IdempotencyKey, check_fingerprint
from wonder_server.core.memory.records import Draft, Memory, fingerprint
from wonder_server.logs import logger
from wonder_server.ports.memories import AnsweredRequest, Entry, Stored, StoredText

_log = logger("memory")

_INSERT: Final = """
    INSERT INTO memories (
        id, agent_id, type, content, significance, metadata, conversation_id, turn_id, move_id, run_id,
        speaker, ordinal, idempotency_key, fingerprint, created_ms, updated_ms, version,
        content_ref, size_bytes, supersedes_id, said_ms, speaker_role, subject, message_id, speaker_id, seal
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_EMBED: Final = (
    "INSERT INTO embeddings (memory_key, agent_id, embedder, passage, vector, seal) VALUES (?, ?, ?, ?, ?, ?)"
)
_BY_KEY: Final = f"SELECT {FIELDS} FROM memories WHERE key = ?"
_BY_REQUEST: Final = f"SELECT {FIELDS} FROM memories WHERE agent_id = ? AND idempotency_key = ?"
# Superseded and archived memories are not known: an agent that states one again means it.
_KNOWN: Final = f"""
    SELECT {FIELDS} FROM memories WHERE agent_id = ? AND fingerprint = ? AND {LIVE} ORDER BY key LIMIT 1
"""
_CHANGE: Final = """
    UPDATE memories SET type = ?, significance = ?, metadata = ?, fingerprint = ?, updated_ms = ?,
        version = ?, archived_ms = ?, said_ms = ?, subject = ?
    WHERE key = ?
"""
_CHANGE_TEXT: Final = "UPDATE memories SET content = ?, content_ref = ?, size_bytes = ? WHERE key = ?"
_OTHERS: Final = "SELECT other_key FROM contradictions WHERE memory_key = ?"
_NEXT_VERSION: Final = "version = version + 1"


@dataclass(frozen=True, slots=True)
class IndexedText:
    """A tokenized text, prepared outside the writer thread.

    ``indexed`` goes into the index. ``packed`` is stored if the row does not have the content, else None.
    """

    indexed: str
    packed: bytes | None


def add(
    connection: sqlite3.Connection,
    agent_id: str,
    entries: Sequence[tuple[Entry, IndexedText]],
    embedder: str,
    now_ms: int,
) -> list[Stored]:
    """Add entries; see `Memories.add`."""
    check_agent_not_deleted(connection, agent_id)
    stored: list[Stored] = []
    new: dict[int, IndexedText] = {}
    for entry, words in entries:
        known = _known(connection, agent_id, entry)
        if known is not None:
            stored.append(Stored(memory=known, written=False))
            continue
        replaced = _supersede(connection, agent_id, entry, now_ms)
        key = _insert(connection, agent_id, entry, now_ms)
        new[key] = words
        if words.packed is not None:
            text_index.store_overflow(connection, key, words.packed)
        link(connection, agent_id, key, entry.draft.contradicts_ids, entry.path)
        _archive(connection, agent_id, entry.draft.archives_ids, now_ms, entry.path)
        metadata_index.add_terms(connection, key, agent_id, entry.draft.metadata)
        vector_keys = embed(connection, agent_id, key, embedder, entry.text.vectors)
        stored.append(Stored(memory=read(connection, key), vector_keys=vector_keys, removed_keys=replaced))
    _index(connection, new)
    return stored


def change(
    connection: sqlite3.Connection,
    memory: Memory,
    expected_version: int,
    text: StoredText | None,
    words: IndexedText | None,
    embedder: str,
) -> Stored:
    """Replace a memory; see `Memories.replace`."""
    key = locate(connection, memory.agent_id, memory.id, expected_version)
    old = read(connection, key)
    metadata_index.remove_terms(connection, key, memory.agent_id, old.metadata)
    metadata_index.add_terms(connection, key, memory.agent_id, memory.metadata)
    connection.execute(
        _CHANGE,
        (
            memory.type,
            memory.significance,
            json.dumps(memory.metadata),
            fingerprint(memory.type, memory.content, memory.subject),
            memory.updated_ms,
            memory.version,
            memory.archived_ms,
            None if memory.said_ms == memory.created_ms else memory.said_ms,
            memory.subject,
            key,
        ),
    )
    link(connection, memory.agent_id, key, memory.contradicts_ids)
    if text is None or words is None:
        _seal(connection, key)
        if memory.said_ms != old.said_ms:
            text_index.mark_changed(connection, memory.agent_id, key)
        return Stored(memory=read(connection, key))
    text_index.remove(connection, key)
    _add_unreferenced(connection, old)
    connection.execute(_CHANGE_TEXT, (*_content_columns(text), key))
    _seal(connection, key)
    connection.execute("DELETE FROM overflow_words WHERE memory_key = ?", (key,))
    if words.packed is not None:
        text_index.store_overflow(connection, key, words.packed)
    _remove_unreferenced(connection, text)
    text_index.add(connection, key, words.indexed)
    text_index.refresh_neighbours(connection, text_index.neighbours(connection, key))
    removed = vectors_of(connection, key)
    connection.execute("DELETE FROM embeddings WHERE memory_key = ?", (key,))
    vector_keys = embed(connection, memory.agent_id, key, embedder, text.vectors)
    return Stored(memory=read(connection, key), vector_keys=vector_keys, removed_keys=tuple(removed))


def delete(connection: sqlite3.Connection, key: int, now_ms: int, *, alone: bool = True) -> list[int]:
    """Delete a memory, damaged or not, with everything that belongs to it. Return the keys of its vectors.

    With ``alone``, update the links and neighbours of the agent's other memories. Without it, all are
    deleted.
    """
    memory = recoverable(connection, key)
    removed = vectors_of(connection, key)
    near = text_index.neighbours(connection, key) if alone else []
    text_index.remove(connection, key)
    if is_intact(connection, key):
        metadata_index.remove_terms(connection, key, memory.agent_id, memory.metadata)
    else:
        _log.warning("damaged_memory_deleted", memory=memory.id, agent=memory.agent_id)
        metadata_index.remove_all_terms(connection, key)
    if alone:
        link(connection, memory.agent_id, key, ())
        _relink(connection, memory, now_ms)
    connection.execute("DELETE FROM memories WHERE key = ?", (key,))
    _add_unreferenced(connection, memory)
    text_index.refresh_neighbours(connection, near)
    return removed


def read(connection: sqlite3.Connection, key: int) -> Memory:
    """Return the current state of a memory."""
    return memory_of(connection.execute(_BY_KEY, (key,)).fetchone())


def embed(
    connection: sqlite3.Connection, agent_id: str, key: int, embedder: str, vectors: Iterable[bytes]
) -> tuple[int, ...]:
    """Store the vectors of a memory's passages. Return their keys."""
    keys = []
    for passage, vector in enumerate(vectors):
        owner = key, agent_id, embedder, passage
        row = connection.execute(_EMBED, (*owner, vector, seal(("embeddings", *owner), vector)))
        assert row.lastrowid is not None
        keys.append(row.lastrowid)
    return tuple(keys)


def delete_vectors(connection: sqlite3.Connection, keys: Iterable[int]) -> None:
    """Delete all vectors of these memories."""
    connection.executemany("DELETE FROM embeddings WHERE memory_key = ?", [(key,) for key in keys])


def vectors_of(connection: sqlite3.Connection, key: int) -> list[int]:
    """Return the keys of a memory's vectors."""
    rows = connection.execute("SELECT key FROM embeddings WHERE memory_key = ? ORDER BY key", (key,))
    return [row[0] for row in rows]


def link(connection: sqlite3.Connection, agent_id: str, key: int, ids: Sequence[str], path: str = "") -> None:
    """Set the memories that a memory contradicts, in both directions. FIELD_INVALID."""
    wanted = {_contradicted_key(connection, agent_id, key, memory_id, path) for memory_id in ids}
    current = {row[0] for row in connection.execute(_OTHERS, (key,))}
    for other in sorted(wanted ^ current):
        if other in wanted:
            statement = "INSERT INTO contradictions (memory_key, other_key) VALUES (?, ?)"
        else:
            statement = "DELETE FROM contradictions WHERE memory_key = ? AND other_key = ?"
        connection.executemany(statement, ((key, other), (other, key)))
        _update_columns(connection, other, _NEXT_VERSION)


def check_agent_not_deleted(connection: sqlite3.Connection, agent_id: str) -> None:
    """Raise AGENT_NOT_FOUND if the agent was deleted."""
    deleted = "SELECT 1 FROM deleted_agents WHERE agent_id = ? AND is_sure"
    if connection.execute(deleted, (agent_id,)).fetchone():
        raise not_found(Reason.AGENT_NOT_FOUND, agent_id, field="agent_id", place=": it was deleted")


def answered_request(connection: sqlite3.Connection, request: IdempotencyKey) -> AnsweredRequest | None:
    """Return the request with this id and fingerprint; see `AnsweredRequests.answered`."""
    row = connection.execute(
        "SELECT agent_id, memory_id, created_ms FROM requests WHERE request_id = ? AND fingerprint = ?",
        (request.qualified_id, request.fingerprint),
    ).fetchone()
    return None if row is None else AnsweredRequest(row[0], tuple(row[1].split()), row[2])


def find_request(connection: sqlite3.Connection, agent_id: str, request: IdempotencyKey | None) -> str | None:
    """Return the result of an earlier request with this id (the ids of memories, or ''), or None.
    REQUEST_ID_REUSED."""
    if request is None:
        return None
    row = connection.execute(
        "SELECT fingerprint, memory_id FROM requests WHERE agent_id = ?1"
        " AND (request_id = ?2 OR request_id = ?3 AND fingerprint = '') ORDER BY request_id = ?2 DESC",
        (agent_id, request.qualified_id, request.earlier_id),
    ).fetchone()
    if row is None:
        return None
    check_fingerprint(row[0], request)
    return str(row[1])


def record_request(
    connection: sqlite3.Connection, agent_id: str, request: IdempotencyKey | None, memory_id: str, now_ms: int
) -> None:
    """Store the result of a request."""
    if request is not None:
        connection.execute(
            "INSERT INTO requests (agent_id, request_id, fingerprint, memory_id, created_ms)"
            " VALUES (?, ?, ?, ?, ?)",
            (agent_id, request.qualified_id, request.fingerprint, memory_id, now_ms),
        )


# --- helpers ----------------------------------------------------------------------------------------


def _known(connection: sqlite3.Connection, agent_id: str, entry: Entry) -> Memory | None:
    draft, row = entry.draft, None
    if draft.idempotency_key:
        row = connection.execute(_BY_REQUEST, (agent_id, draft.idempotency_key)).fetchone()
    if row is None and draft.unless_known:
        row = connection.execute(_KNOWN, (agent_id, _fingerprint(draft))).fetchone()
    return memory_of(row) if row else None


def _fingerprint(draft: Draft) -> bytes:
    return fingerprint(draft.type, draft.content, draft.subject)


def _insert(connection: sqlite3.Connection, agent_id: str, entry: Entry, now_ms: int) -> int:
    draft = entry.draft
    source = draft.source
    content, reference, size = _content_columns(entry.text)
    metadata = json.dumps(draft.metadata)
    digest, request = _fingerprint(draft), draft.idempotency_key or None
    body = (entry.id, agent_id, draft.type, content.encode(), draft.significance, metadata)
    origin = (
        *(source.conversation_id, source.turn_id, source.move_id, source.run_id),
        *(source.speaker, source.ordinal),
    )
    links = (reference, size, entry.supersedes_id, "", 0, "[]")
    later = (draft.said_ms, source.role, draft.subject, source.message_id, source.speaker_id)
    row = (*body, *origin, now_ms, now_ms, 1, *links, request, digest.hex().upper(), *later)
    key = connection.execute(
        _INSERT,
        (
            entry.id,
            agent_id,
            draft.type,
            content,
            draft.significance,
            metadata,
            source.conversation_id,
            source.turn_id,
            source.move_id,
            source.run_id,
            source.speaker,
            source.ordinal,
            request,
            digest,
            now_ms,
            now_ms,
            reference,
            size,
            entry.supersedes_id,
            *later,
            row_seal(row),
        ),
    ).lastrowid
    assert key is not None
    _remove_unreferenced(connection, entry.text)
    return key


def _index(connection: sqlite3.Connection, new: dict[int, IndexedText]) -> None:
    """Add new memories to the index, and update their neighbours."""
    text_index.refresh_neighbours(connection, new, indexed=False)
    for key, words in new.items():
        text_index.add(connection, key, words.indexed)
    limit = text_index.MAX_UPDATED_NEIGHBOURS
    near = {other for key in new for other in text_index.neighbours(connection, key, limit)}
    text_index.refresh_neighbours(connection, sorted(near - new.keys()))


def _content_columns(text: StoredText) -> tuple[str, str | None, int]:
    """Return content, object key and size, as the row stores them."""
    size = len(text.content.encode())
    return ("", text.content_ref, size) if text.content_ref else (text.content, None, size)


def _supersede(connection: sqlite3.Connection, agent_id: str, entry: Entry, now_ms: int) -> tuple[int, ...]:
    """Mark the memory that an entry supersedes. Its vectors stay, since searches can include it."""
    if not entry.supersedes_id:
        return ()
    key = locate(connection, agent_id, entry.supersedes_id, entry.supersedes_version)
    old = read(connection, key)
    if old.superseded_by_id:
        raise error(
            Reason.FIELD_INVALID,
            f"Memory {entry.supersedes_id} is superseded already. Supersede {old.superseded_by_id} instead.",
            field="memory_id",
        )
    _update_columns(
        connection, key, f"superseded_by_id = ?, updated_ms = ?, {_NEXT_VERSION}", entry.id, now_ms
    )
    return ()


def _archive(
    connection: sqlite3.Connection, agent_id: str, ids: Sequence[str], now_ms: int, path: str
) -> None:
    """Archive the memories that a new memory summarizes. FIELD_INVALID if one is archived already."""
    for memory_id in dict.fromkeys(ids):
        row = connection.execute(
            "SELECT key, archived_ms FROM memories WHERE agent_id = ? AND id = ?", (agent_id, memory_id)
        ).fetchone()
        if row is None or row[1]:
            raise error(
                Reason.FIELD_INVALID,
                f"Memory {memory_id} "
                + ("does not exist." if row is None else "is archived already.")
                + " archives_ids may contain only memories of the agent that are not archived.",
                field=f"{path}archives_ids",
            )
        _update_columns(
            connection, row[0], f"archived_ms = ?, updated_ms = ?, {_NEXT_VERSION}", now_ms, now_ms
        )


def _relink(connection: sqlite3.Connection, memory: Memory, now_ms: int) -> None:
    """Update the links to a memory that is deleted: its successor now supersedes its predecessor.

    Without a successor, archive the predecessor: deleting the newer memory must not bring back the older one.
    """
    older = _key_of(connection, memory.agent_id, memory.supersedes_id)
    newer = _key_of(connection, memory.agent_id, memory.superseded_by_id)
    if older is not None:
        newer_id = memory.superseded_by_id if newer is not None else ""
        archives = "archived_ms = CASE WHEN ? = '' AND archived_ms = 0 THEN ? ELSE archived_ms END"
        change = f"superseded_by_id = ?, {archives}, {_NEXT_VERSION}"
        _update_columns(connection, older, change, newer_id, newer_id, now_ms)
    if newer is not None:
        older_id = memory.supersedes_id if older is not None else ""
        _update_columns(connection, newer, f"supersedes_id = ?, {_NEXT_VERSION}", older_id)


def _key_of(connection: sqlite3.Connection, agent_id: str, memory_id: str) -> int | None:
    """Return the key of an agent's memory, or None if it does not exist."""
    if not memory_id:
        return None
    sql = "SELECT key FROM memories WHERE agent_id = ? AND id = ?"
    row = connection.execute(sql, (agent_id, memory_id)).fetchone()
    return None if row is None else int(row[0])


def _update_columns(connection: sqlite3.Connection, key: int, change: str, *values: object) -> None:
    """Change columns of a memory and seal it. A damaged memory gets no new seal, so it stays damaged."""
    was_intact = is_intact(connection, key)
    connection.execute(f"UPDATE memories SET {change} WHERE key = ?", (*values, key))
    if was_intact:
        _seal(connection, key)


def _seal(connection: sqlite3.Connection, key: int) -> None:
    """Seal a row whose seal was checked before the change."""
    row = connection.execute(_BY_KEY, (key,)).fetchone()
    connection.execute("UPDATE memories SET seal = ? WHERE key = ?", (row_seal(row), key))


def _contradicted_key(
    connection: sqlite3.Connection, agent_id: str, key: int, memory_id: str, path: str
) -> int:
    row = connection.execute(
        "SELECT key FROM memories WHERE agent_id = ? AND id = ?", (agent_id, memory_id)
    ).fetchone()
    if row is None or row[0] == key:
        raise error(
            Reason.FIELD_INVALID,
            f"contradicts_ids contains {memory_id}. It may contain only other memories of the same agent.",
            field=f"{path}contradicts_ids",
        )
    return int(row[0])


def _add_unreferenced(connection: sqlite3.Connection, memory: Memory) -> None:
    if memory.content_ref:
        values = memory.content_ref, memory.agent_id
        connection.execute("INSERT OR IGNORE INTO loose_objects (key, agent_id) VALUES (?, ?)", values)


def _remove_unreferenced(connection: sqlite3.Connection, text: StoredText) -> None:
    if text.content_ref:
        connection.execute("DELETE FROM loose_objects WHERE key = ?", (text.content_ref,))
