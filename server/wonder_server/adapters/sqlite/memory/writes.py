"""How rows of memory.db change: everything that belongs to a memory, in the transaction that is under way.

Functions here run in the writer's thread.
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
from wonder_server.adapters.sqlite.seals import seal
from wonder_server.core.errors import Reason, error
from wonder_server.core.memory.records import Memory, fingerprint
from wonder_server.logs import logger
from wonder_server.ports.memories import Entry, Request, Stored, StoredText

_log = logger("memory")

_INSERT: Final = """
    INSERT INTO memories (
        id, agent_id, type, content, significance, metadata, conversation_id, turn_id, move_id, run_id,
        speaker, ordinal, idempotency_key, fingerprint, created_ms, updated_ms, version,
        content_ref, size_bytes, supersedes_id, seal
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)
"""
_EMBED: Final = (
    "INSERT INTO embeddings (memory_key, agent_id, embedder, passage, vector, seal) VALUES (?, ?, ?, ?, ?, ?)"
)
_BY_KEY: Final = f"SELECT {FIELDS} FROM memories WHERE key = ?"
_BY_REQUEST: Final = f"SELECT {FIELDS} FROM memories WHERE agent_id = ? AND idempotency_key = ?"
# What was replaced or archived is not known any more: who says it again means it.
_KNOWN: Final = f"""
    SELECT {FIELDS} FROM memories WHERE agent_id = ? AND fingerprint = ? AND {LIVE} ORDER BY key LIMIT 1
"""
_CHANGE: Final = """
    UPDATE memories SET type = ?, significance = ?, metadata = ?, fingerprint = ?, updated_ms = ?,
        version = ?, archived_ms = ?
    WHERE key = ?
"""
_CHANGE_TEXT: Final = "UPDATE memories SET content = ?, content_ref = ?, size_bytes = ? WHERE key = ?"
_OTHERS: Final = "SELECT other_key FROM contradictions WHERE memory_key = ?"
_NEXT_VERSION: Final = "version = version + 1"


@dataclass(frozen=True, slots=True)
class IndexedText:
    """What the index gets of a text, made ready outside the writer's thread: ``indexed`` as it goes in,
    ``packed`` what is kept of it where the row does not hold the content."""

    indexed: str
    packed: bytes | None


def add(
    connection: sqlite3.Connection,
    agent_id: str,
    entries: Sequence[tuple[Entry, IndexedText]],
    embedder: str,
    now_ms: int,
) -> list[Stored]:
    """See `Memories.add`."""
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
    """See `Memories.replace`."""
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
            fingerprint(memory.type, memory.content),
            memory.updated_ms,
            memory.version,
            memory.archived_ms,
            key,
        ),
    )
    link(connection, memory.agent_id, key, memory.contradicts_ids)
    if text is None or words is None:
        _seal(connection, key)
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
    gone = vectors_of(connection, key)
    connection.execute("DELETE FROM embeddings WHERE memory_key = ?", (key,))
    vector_keys = embed(connection, memory.agent_id, key, embedder, text.vectors)
    return Stored(memory=read(connection, key), vector_keys=vector_keys, removed_keys=tuple(gone))


def delete(connection: sqlite3.Connection, key: int, now_ms: int, *, alone: bool = True) -> list[int]:
    """Everything of one memory goes, also of a damaged one; the keys of its vectors. ``alone``: others of the
    agent stay, and are told."""
    memory = recoverable(connection, key)
    gone = vectors_of(connection, key)
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
    return gone


def read(connection: sqlite3.Connection, key: int) -> Memory:
    """The memory as it is now."""
    return memory_of(connection.execute(_BY_KEY, (key,)).fetchone())


def embed(
    connection: sqlite3.Connection, agent_id: str, key: int, embedder: str, vectors: Iterable[bytes]
) -> tuple[int, ...]:
    """Store the vectors of a memory's passages; their keys."""
    keys = []
    for passage, vector in enumerate(vectors):
        place = key, agent_id, embedder, passage
        row = connection.execute(_EMBED, (*place, vector, seal(("embeddings", *place), vector)))
        assert row.lastrowid is not None
        keys.append(row.lastrowid)
    return tuple(keys)


def delete_vectors(connection: sqlite3.Connection, keys: Iterable[int]) -> None:
    """Drop all vectors of these memories."""
    connection.executemany("DELETE FROM embeddings WHERE memory_key = ?", [(key,) for key in keys])


def vectors_of(connection: sqlite3.Connection, key: int) -> list[int]:
    """The keys of a memory's vectors."""
    rows = connection.execute("SELECT key FROM embeddings WHERE memory_key = ? ORDER BY key", (key,))
    return [row[0] for row in rows]


def link(connection: sqlite3.Connection, agent_id: str, key: int, ids: Sequence[str], path: str = "") -> None:
    """Let exactly these memories be what it contradicts; they contradict it as well. FIELD_INVALID."""
    wanted = {_contradicted_key(connection, agent_id, key, memory_id, path) for memory_id in ids}
    there = {row[0] for row in connection.execute(_OTHERS, (key,))}
    for other in sorted(wanted ^ there):
        if other in wanted:
            statement = "INSERT INTO contradictions (memory_key, other_key) VALUES (?, ?)"
        else:
            statement = "DELETE FROM contradictions WHERE memory_key = ? AND other_key = ?"
        connection.executemany(statement, ((key, other), (other, key)))
        _update_columns(connection, other, _NEXT_VERSION)


def check_agent_not_deleted(connection: sqlite3.Connection, agent_id: str) -> None:
    """AGENT_NOT_FOUND if the agent is no more."""
    deleted = "SELECT 1 FROM deleted_agents WHERE agent_id = ? AND is_sure"
    if connection.execute(deleted, (agent_id,)).fetchone():
        raise error(Reason.AGENT_NOT_FOUND, "The agent was deleted.", field="agent_id")


def find_request(connection: sqlite3.Connection, agent_id: str, request: Request | None) -> str | None:
    """What a request that was carried out before made: a memory's id, or ''. REQUEST_ID_REUSED."""
    if request is None:
        return None
    row = connection.execute(
        "SELECT fingerprint, memory_id FROM requests WHERE agent_id = ? AND request_id = ?",
        (agent_id, request.id),
    ).fetchone()
    if row is None:
        return None
    if row[0] != request.fingerprint:
        raise error(
            Reason.REQUEST_ID_REUSED,
            "This request_id was used for another request; choose a new one.",
            field="request_id",
        )
    return str(row[1])


def record_request(
    connection: sqlite3.Connection, agent_id: str, request: Request | None, memory_id: str, now_ms: int
) -> None:
    """Note that a request was carried out."""
    if request is not None:
        connection.execute(
            "INSERT INTO requests (agent_id, request_id, fingerprint, memory_id, created_ms)"
            " VALUES (?, ?, ?, ?, ?)",
            (agent_id, request.id, request.fingerprint, memory_id, now_ms),
        )


# --- parts ------------------------------------------------------------------------------------------


def _known(connection: sqlite3.Connection, agent_id: str, entry: Entry) -> Memory | None:
    draft, row = entry.draft, None
    if draft.idempotency_key:
        row = connection.execute(_BY_REQUEST, (agent_id, draft.idempotency_key)).fetchone()
    if row is None and draft.unless_known:
        mark = fingerprint(draft.type, draft.content)
        row = connection.execute(_KNOWN, (agent_id, mark)).fetchone()
    return memory_of(row) if row else None


def _insert(connection: sqlite3.Connection, agent_id: str, entry: Entry, now_ms: int) -> int:
    draft = entry.draft
    source = draft.source
    content, reference, size = _content_columns(entry.text)
    metadata = json.dumps(draft.metadata)
    mark, request = fingerprint(draft.type, draft.content), draft.idempotency_key or None
    said = (entry.id, agent_id, draft.type, content.encode(), draft.significance, metadata)
    origin = (
        *(source.conversation_id, source.turn_id, source.move_id, source.run_id),
        *(source.speaker, source.ordinal),
    )
    links = (reference, size, entry.supersedes_id, "", 0, "[]")
    row = (*said, *origin, now_ms, now_ms, 1, *links, request, mark.hex().upper())
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
            mark,
            now_ms,
            now_ms,
            reference,
            size,
            entry.supersedes_id,
            row_seal(row),
        ),
    ).lastrowid
    assert key is not None
    _remove_unreferenced(connection, entry.text)
    return key


def _index(connection: sqlite3.Connection, new: dict[int, IndexedText]) -> None:
    """Put new memories into the index, and tell their neighbours."""
    text_index.refresh_neighbours(connection, new, indexed=False)
    for key, words in new.items():
        text_index.add(connection, key, words.indexed)
    near = {other for key in new for other in text_index.neighbours(connection, key)}
    text_index.refresh_neighbours(connection, sorted(near - new.keys()))


def _content_columns(text: StoredText) -> tuple[str, str | None, int]:
    """Content, object and size, as the row holds them."""
    size = len(text.content.encode())
    return ("", text.content_ref, size) if text.content_ref else (text.content, None, size)


def _supersede(connection: sqlite3.Connection, agent_id: str, entry: Entry, now_ms: int) -> tuple[int, ...]:
    """Let an entry take the place of what it replaces, whose vectors stay: it can still be asked for."""
    if not entry.supersedes_id:
        return ()
    key = locate(connection, agent_id, entry.supersedes_id, entry.supersedes_version)
    old = read(connection, key)
    if old.superseded_by_id:
        raise error(
            Reason.FIELD_INVALID,
            f"It was replaced already, by {old.superseded_by_id}; replace that one.",
            field="memory_id",
        )
    _update_columns(
        connection, key, f"superseded_by_id = ?, updated_ms = ?, {_NEXT_VERSION}", entry.id, now_ms
    )
    return ()


def _archive(
    connection: sqlite3.Connection, agent_id: str, ids: Sequence[str], now_ms: int, path: str
) -> None:
    """Set aside what a new memory stands for. What stands for something already is not put away twice."""
    for memory_id in dict.fromkeys(ids):
        row = connection.execute(
            "SELECT key, archived_ms FROM memories WHERE agent_id = ? AND id = ?", (agent_id, memory_id)
        ).fetchone()
        if row is None or row[1]:
            raise error(
                Reason.FIELD_INVALID,
                f"It can only stand for memories of the agent that are not archived yet; {memory_id} is "
                + ("not there." if row is None else "archived."),
                field=f"{path}archives_ids",
            )
        _update_columns(
            connection, row[0], f"archived_ms = ?, updated_ms = ?, {_NEXT_VERSION}", now_ms, now_ms
        )


def _relink(connection: sqlite3.Connection, memory: Memory, now_ms: int) -> None:
    """Links to a memory that goes: who replaced it, replaces what it had replaced. If nobody did, what it
    had replaced is archived: forgetting the new must not bring back the old."""
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
    """The key of an agent's memory, if it is there."""
    if not memory_id:
        return None
    sql = "SELECT key FROM memories WHERE agent_id = ? AND id = ?"
    row = connection.execute(sql, (agent_id, memory_id)).fetchone()
    return None if row is None else int(row[0])


def _update_columns(connection: sqlite3.Connection, key: int, change: str, *values: object) -> None:
    """Change some columns of a memory and seal it. A damaged one is not sealed: it stays damaged."""
    was_whole = is_intact(connection, key)
    connection.execute(f"UPDATE memories SET {change} WHERE key = ?", (*values, key))
    if was_whole:
        _seal(connection, key)


def _seal(connection: sqlite3.Connection, key: int) -> None:
    """Seal a row that was checked before it was changed."""
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
            "It can only contradict other memories of the same agent.",
            field=f"{path}contradicts_ids",
        )
    return int(row[0])


def _add_unreferenced(connection: sqlite3.Connection, memory: Memory) -> None:
    if memory.content_ref:
        connection.execute("INSERT OR IGNORE INTO loose_objects (key) VALUES (?)", (memory.content_ref,))


def _remove_unreferenced(connection: sqlite3.Connection, text: StoredText) -> None:
    if text.content_ref:
        connection.execute("DELETE FROM loose_objects WHERE key = ?", (text.content_ref,))
