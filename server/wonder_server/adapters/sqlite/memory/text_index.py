"""Full-text index of memories: one FTS5 index with two columns, updated with the rows.

Column ``words`` has the memory's own words. Column ``around`` has the first words of its neighbours, the
memories up to two places before and after it in its conversation; it counts less in searches. `tokenizer`
defines the tokens, and `bm25` reads the index.

The index stores no copy of its input, so removing a memory needs the same input again. A memory's row has all
of it: the content, or for a content that is an object its words (table ``overflow_words``), and ``around`` as
it was indexed. So deleting a memory needs no object store. The functions here run in the writer thread,
inside the transaction that changes the rows.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable
from typing import Final

from wonder_server.adapters.sqlite.memory import tokenizer
from wonder_server.adapters.sqlite.memory.rows import is_intact
from wonder_server.codec.seals import seal
from wonder_server.logs import logger

_log = logger("memory")

FORMAT: Final = 2
"""Version of the index format. After an increase, the next start rebuilds the index."""

NEIGHBOUR_DISTANCE: Final = 2
"""Maximum difference of ordinals between a memory and its neighbours. With 2 instead of 1, QMSum's recall@10
rises by 0.05."""
MAX_NEIGHBOURS: Final = 4
"""Maximum number of neighbours whose words a memory has in ``around``: the nearest."""
MAX_UPDATED_NEIGHBOURS: Final = 64
"""Maximum number of neighbours that a new memory is added to. Several memories can have one ordinal."""
_PROGRESS: Final = 10_000
"""Memories between two log lines of a rebuild."""
MERGED_PAGES: Final = 100
"""Pages of the index that one step of a merge writes, about."""
MAX_NEIGHBOUR_CHARACTERS: Final = 240
"""Characters of each neighbour in ``around``. Longer texts would outweigh the memory's own words."""

_INDEX: Final = "INSERT INTO memories_text (rowid, words, around) VALUES (?, ?, ?)"
_UNINDEX: Final = "INSERT INTO memories_text (memories_text, rowid, words, around) VALUES ('delete', ?, ?, ?)"
_NOTIFY: Final = "SELECT memory_touched(?, ?)"
_MERGE: Final = "INSERT INTO memories_text (memories_text, rank) VALUES ('merge', ?)"
_COUNT: Final = """
    INSERT INTO counts (agent_id, memories) VALUES (?, ?)
    ON CONFLICT (agent_id) DO UPDATE SET memories = memories + excluded.memories
"""
_INDEXED: Final = """
    SELECT agent_id, content, content_ref, around FROM memories WHERE key = ?
"""
_OVERFLOW: Final = "SELECT words FROM overflow_words WHERE memory_key = ?"
_KEEP_OVERFLOW: Final = "INSERT OR REPLACE INTO overflow_words (memory_key, words) VALUES (?, ?)"
_PLACE: Final = "SELECT agent_id, conversation_id, ordinal, around FROM memories WHERE key = ?"
_NEIGHBOURS: Final = """
    SELECT {columns} FROM memories
    WHERE agent_id = :agent AND conversation_id = :conversation AND conversation_id != ''
      AND ordinal > 0 AND ordinal BETWEEN :ordinal - :reach AND :ordinal + :reach AND ordinal != :ordinal
    ORDER BY abs(ordinal - :ordinal), ordinal, key LIMIT :limit
"""
_NEIGHBOUR_KEYS: Final = _NEIGHBOURS.format(columns="key")
_NEIGHBOUR_TEXTS: Final = _NEIGHBOURS.format(columns="key, content, content_ref")
_SET_INDEXED: Final = "UPDATE memories SET indexed = ? WHERE key = ?"
_NOTHING: Final = -1
"""Stored instead of a seal for a memory that is not in the index."""
_STALE: Final = "UPDATE formats SET format = 0 WHERE name = 'text'"
_SET_AROUND: Final = "UPDATE memories SET around = ? WHERE key = ?"


def install_functions(connection: sqlite3.Connection, on_change: Callable[[str, int], None]) -> None:
    """Call ``on_change(agent_id, key)`` for each change of the index on this connection.

    The call also happens if the transaction fails afterwards. Call this before any other function here.
    """

    def notify(agent_id: str, key: int) -> None:
        on_change(agent_id, key)

    connection.create_function("memory_touched", 2, notify)


def add(connection: sqlite3.Connection, key: int, words: str | None = None) -> None:
    """Add a memory to the index. ``words`` is the result of `tokenizer.index_text`, if the caller has it."""
    agent_id, words, around = indexed_text(connection, key, words)
    connection.execute(_INDEX, (key, words, around))
    connection.execute(_SET_INDEXED, (_text_seal(words, around), key))
    connection.execute(_NOTIFY, (agent_id, key))
    connection.executemany(_COUNT, ((agent_id, 1), ("", 1)))


def remove(connection: sqlite3.Connection, key: int) -> None:
    """Remove a memory from the index. Its row must be unchanged since it was added.

    The words of a damaged memory are unknown, and wrong words would damage the index. So the memory stays in
    the index, where no search finds it, and the index becomes stale: see `is_stale`.
    """
    agent_id, words, around = indexed_text(connection, key)
    [stored] = connection.execute("SELECT indexed FROM memories WHERE key = ?", (key,)).fetchone()
    if stored == _text_seal(words, around) or (stored is None and is_intact(connection, key)):
        connection.execute(_UNINDEX, (key, words, around))
    elif stored != _NOTHING:
        _log.warning("memory_index_stale", key=key)
        connection.execute(_STALE)
    connection.execute(_NOTIFY, (agent_id, key))
    connection.executemany(_COUNT, ((agent_id, -1), ("", -1)))


def store_overflow(connection: sqlite3.Connection, key: int, packed: bytes) -> None:
    """Store the words, packed by `pack`, of a content that is an object."""
    connection.execute(_KEEP_OVERFLOW, (key, packed))


def pack(content: str) -> bytes:
    """Compress the words of a content for `store_overflow`. 1 MiB takes 15 ms, too long for the event
    loop."""
    return zlib.compress(" ".join(tokenizer.words_of(content)).encode(), 1)


def mark_changed(connection: sqlite3.Connection, agent_id: str, key: int) -> None:
    """Report a change of a memory that the ranking reads from its row: speaker, side, time."""
    connection.execute(_NOTIFY, (agent_id, key))


def neighbours(connection: sqlite3.Connection, key: int, limit: int = -1) -> list[int]:
    """Return the keys of the memories that can have the words of this one in ``around``, nearest first."""
    return [row[0] for row in _neighbour_rows(connection, _NEIGHBOUR_KEYS, key, limit)]


def refresh_neighbours(connection: sqlite3.Connection, keys: Iterable[int], *, indexed: bool = True) -> None:
    """Update ``around`` of these memories from their neighbours. With ``indexed``, update the index too."""
    for key in keys:
        nearest = _neighbour_rows(connection, _NEIGHBOUR_TEXTS, key, MAX_NEIGHBOURS)
        around = "\n".join(_leading_text(connection, *neighbour) for neighbour in nearest)
        [old] = connection.execute("SELECT around FROM memories WHERE key = ?", (key,)).fetchone()
        if around == old:
            continue
        if indexed:
            remove(connection, key)
        connection.execute(_SET_AROUND, (around, key))
        if indexed:
            add(connection, key)


def merge(connection: sqlite3.Connection, *, first: bool) -> bool:
    """Run one step of merging the index into one segment. Return False when the merge is complete.

    Until a merge, FTS5 keeps the words of removed memories with a deletion marker. ``first`` starts a new
    merge. A merge takes 0.1 s for 100,000 short memories, in steps of about 20 ms.
    """
    before = connection.total_changes
    connection.execute(_MERGE, (-MERGED_PAGES if first else MERGED_PAGES,))
    return connection.total_changes - before >= 2


def rebuild(connection: sqlite3.Connection) -> None:
    """Rebuild the index of all memories."""
    connection.execute("INSERT INTO memories_text (memories_text) VALUES ('delete-all')")
    connection.execute("DELETE FROM counts")
    connection.execute("INSERT INTO counts VALUES ('', 0)")
    keys = [row[0] for row in connection.execute("SELECT key FROM memories ORDER BY key")]
    for done, key in enumerate(keys):
        if done % _PROGRESS == 0:
            _log.info("memory_index_rebuilding", done=done, memories=len(keys))
        refresh_neighbours(connection, [key], indexed=False)
        if is_intact(connection, key):
            add(connection, key)
        else:
            agent_id, _, _ = indexed_text(connection, key)
            connection.execute(_SET_INDEXED, (_NOTHING, key))
            connection.executemany(_COUNT, ((agent_id, 1), ("", 1)))


def is_stale(connection: sqlite3.Connection) -> bool:
    """Return True if the index still has words of a damaged memory that was deleted or changed."""
    row = connection.execute("SELECT format FROM formats WHERE name = 'text'").fetchone()
    return row is not None and row[0] != FORMAT


def renew(connection: sqlite3.Connection) -> None:
    """Rebuild the index and store its format."""
    rebuild(connection)
    connection.execute("INSERT OR REPLACE INTO formats VALUES ('text', ?)", (FORMAT,))


def indexed_text(connection: sqlite3.Connection, key: int, words: str | None = None) -> tuple[str, str, str]:
    """Return the agent and the indexed text of a memory: its own words, and those of its neighbours."""
    agent_id, content, reference, around = connection.execute(_INDEXED, (key,)).fetchone()
    agent_id = str(agent_id)
    if words is None:
        content = content if reference is None else _unpacked(connection, key)
        words = tokenizer.index_text(agent_id, str(content))
    return agent_id, words, tokenizer.index_text(agent_id, str(around))


def _text_seal(words: str, around: str) -> int:
    """Return the seal of the indexed text."""
    return seal(("index", words, around), b"")


def _neighbour_rows(
    connection: sqlite3.Connection, sql: str, key: int, limit: int
) -> list[tuple[int, str, str | None]]:
    agent_id, conversation_id, ordinal, _ = connection.execute(_PLACE, (key,)).fetchone()
    if not conversation_id or type(ordinal) is not int or ordinal <= 0:
        return []
    parameters = {
        "agent": agent_id,
        "conversation": conversation_id,
        "ordinal": ordinal,
        "reach": NEIGHBOUR_DISTANCE,
        "limit": limit,
    }
    return connection.execute(sql, parameters).fetchall()


def _leading_text(connection: sqlite3.Connection, key: int, content: str, reference: str | None) -> str:
    """Return the beginning of a memory's content, cut after a whole word if possible."""
    content = str(content) if reference is None else _unpacked(connection, key)
    if len(content) <= MAX_NEIGHBOUR_CHARACTERS:
        return content
    start = content[:MAX_NEIGHBOUR_CHARACTERS]
    return start.rsplit(maxsplit=1)[0] if any(map(str.isspace, start)) else start


def _unpacked(connection: sqlite3.Connection, key: int) -> str:
    row = connection.execute(_OVERFLOW, (key,)).fetchone()
    try:
        return zlib.decompress(row[0]).decode() if row else ""
    except (zlib.error, TypeError, ValueError):
        return ""  # Damaged; the caller compares the seal of the result.
