"""What full text holds of memories: two columns of one FTS5 index, kept in step with the rows.

`words` are the memory's own; `around` are the first words of what was said just before and after it in
its conversation, which searches count for less. `memory_text.py` says how words are marked, and reads the
index.

The index keeps no copy of what is put in, so it must be told again to take it out. A row has it all:
its content, or beside it the words of a content that lies elsewhere, and `around` as it was put in. So
forgetting asks nothing of the object store. Functions here run in the writer's thread, inside the
transaction that changes the rows.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable
from typing import Final

from wonder_server.adapters.sqlite.memory import tokenizer
from wonder_server.adapters.sqlite.memory.rows import is_intact
from wonder_server.adapters.sqlite.seals import seal
from wonder_server.logs import logger

_log = logger("memory")

FORMAT: Final = 1
"""Grows when the index is to be made anew for all memories: `rebuild`."""

NEIGHBOUR_DISTANCE: Final = 1
"""How far before and after a memory its neighbours lie, by ordinal."""
MAX_NEIGHBOURS: Final = 4
MERGED_PAGES: Final = 100
MAX_NEIGHBOUR_CHARACTERS: Final = 240
"""What `around` takes of each neighbour: long ones would drown what the memory itself says."""

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
    SELECT key, content, content_ref FROM memories
    WHERE agent_id = :agent AND conversation_id = :conversation AND conversation_id != ''
      AND ordinal > 0 AND ordinal BETWEEN :ordinal - :reach AND :ordinal + :reach AND ordinal != :ordinal
    ORDER BY ordinal, key
"""
_NOTE: Final = "UPDATE memories SET indexed = ? WHERE key = ?"
_NOTHING: Final = -1
"""In the place of a seal: the index got nothing of the memory."""
_STALE: Final = "UPDATE formats SET format = 0 WHERE name = 'text'"
_SET_AROUND: Final = "UPDATE memories SET around = ? WHERE key = ?"


def install_functions(connection: sqlite3.Connection, on_change: Callable[[str, int], None]) -> None:
    """Have ``touched(agent_id, key)`` called for what is put in or taken out on this connection, also if
    the transaction fails afterwards. To be called before anything else."""

    def tell(agent_id: str, key: int) -> None:
        on_change(agent_id, key)

    connection.create_function("memory_touched", 2, tell)


def add(connection: sqlite3.Connection, key: int, words: str | None = None) -> None:
    """Put a memory in, as its row says. ``words``: what `memory_text.indexed` makes of its content, where
    the caller has it already."""
    agent_id, words, around = indexed_text(connection, key, words)
    connection.execute(_INDEX, (key, words, around))
    connection.execute(_NOTE, (_text_seal(words, around), key))
    connection.execute(_NOTIFY, (agent_id, key))
    connection.executemany(_COUNT, ((agent_id, 1), ("", 1)))


def remove(connection: sqlite3.Connection, key: int) -> None:
    """Take a memory out; its row is still what it was when it was put in.

    Of a damaged one the words are not known any more, and wrong ones would damage the index. It is left in
    the index then, where no search finds it, and the index is noted as stale: see `is_stale`.
    """
    agent_id, words, around = indexed_text(connection, key)
    [noted] = connection.execute("SELECT indexed FROM memories WHERE key = ?", (key,)).fetchone()
    if noted == _text_seal(words, around) or (noted is None and is_intact(connection, key)):
        connection.execute(_UNINDEX, (key, words, around))
    elif noted != _NOTHING:
        _log.warning("memory_index_stale", key=key)
        connection.execute(_STALE)
    connection.execute(_NOTIFY, (agent_id, key))
    connection.executemany(_COUNT, ((agent_id, -1), ("", -1)))


def store_overflow(connection: sqlite3.Connection, key: int, packed: bytes) -> None:
    """The words, by `pack`, of a content that lies elsewhere."""
    connection.execute(_KEEP_OVERFLOW, (key, packed))


def pack(content: str) -> bytes:
    """The words of a content, for `keep_overflow`: 15 ms for 1 MiB, so not for the event loop."""
    return zlib.compress(" ".join(tokenizer.words_of(content)).encode(), 1)


def neighbours(connection: sqlite3.Connection, key: int) -> list[int]:
    """The memories said just before and after this one."""
    return [row[0] for row in _neighbour_rows(connection, key)]


def refresh_neighbours(connection: sqlite3.Connection, keys: Iterable[int], *, indexed: bool = True) -> None:
    """See that `around` of these memories is what their neighbours say now. ``indexed``: they are in the
    index, and what it holds of them is changed as well."""
    for key in keys:
        around = "\n".join(
            _leading_text(connection, near, content, reference)
            for near, content, reference in _neighbour_rows(connection, key)
        )
        [old] = connection.execute("SELECT around FROM memories WHERE key = ?", (key,)).fetchone()
        if around == old:
            continue
        if indexed:
            remove(connection, key)
        connection.execute(_SET_AROUND, (around, key))
        if indexed:
            add(connection, key)


def merge(connection: sqlite3.Connection, *, first: bool) -> bool:
    """A step of merging the index into one piece, in which nothing is left of what was taken out: until then
    FTS5 keeps the words and a note that they no longer count. ``first``: of a new merge. False when it is
    done: 0.1 s for 100,000 short memories, in steps of 20 ms or so."""
    before = connection.total_changes
    connection.execute(_MERGE, (-MERGED_PAGES if first else MERGED_PAGES,))
    return connection.total_changes - before >= 2


def rebuild(connection: sqlite3.Connection) -> None:
    """Make the index anew for all memories."""
    connection.execute("INSERT INTO memories_text (memories_text) VALUES ('delete-all')")
    connection.execute("DELETE FROM counts")
    connection.execute("INSERT INTO counts VALUES ('', 0)")
    keys = [row[0] for row in connection.execute("SELECT key FROM memories ORDER BY key")]
    refresh_neighbours(connection, keys, indexed=False)
    for key in keys:
        if is_intact(connection, key):
            add(connection, key)
        else:
            agent_id, _, _ = indexed_text(connection, key)
            connection.execute(_NOTE, (_NOTHING, key))
            connection.executemany(_COUNT, ((agent_id, 1), ("", 1)))


def is_stale(connection: sqlite3.Connection) -> bool:
    """Return True if the index holds words of a damaged memory that is gone or changed, until `rebuild`."""
    row = connection.execute("SELECT format FROM formats WHERE name = 'text'").fetchone()
    return row is not None and row[0] != FORMAT


def renew(connection: sqlite3.Connection) -> None:
    """`rebuild`, and note that it was done."""
    rebuild(connection)
    connection.execute("INSERT OR REPLACE INTO formats VALUES ('text', ?)", (FORMAT,))


def indexed_text(connection: sqlite3.Connection, key: int, words: str | None = None) -> tuple[str, str, str]:
    """The agent, and what the index holds of the memory: its words, and those around it."""
    agent_id, content, reference, around = connection.execute(_INDEXED, (key,)).fetchone()
    agent_id = str(agent_id)
    if words is None:
        content = content if reference is None else _unpacked(connection, key)
        words = tokenizer.index_text(agent_id, str(content))
    return agent_id, words, tokenizer.index_text(agent_id, str(around))


def _text_seal(words: str, around: str) -> int:
    """The seal of what the index gets."""
    return seal(("index", words, around), b"")


def _neighbour_rows(connection: sqlite3.Connection, key: int) -> list[tuple[int, str, str | None]]:
    agent_id, conversation_id, ordinal, _ = connection.execute(_PLACE, (key,)).fetchone()
    if not conversation_id or type(ordinal) is not int or ordinal <= 0:
        return []
    place = {
        "agent": agent_id,
        "conversation": conversation_id,
        "ordinal": ordinal,
        "reach": NEIGHBOUR_DISTANCE,
    }
    return connection.execute(_NEIGHBOURS, place).fetchmany(MAX_NEIGHBOURS)


def _leading_text(connection: sqlite3.Connection, key: int, content: str, reference: str | None) -> str:
    """How a memory begins; it ends with a whole word if it can."""
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
        return ""  # Damaged: it is noted where that matters.
