"""Full text of memories: one FTS5 index for all agents, in which no agent meets another.

FTS5 ranks with the counts of the whole table, and reads a word's whole list of rows to get them: what
others had written changed an agent's ranking, and cost its searches time (4.6 ms for an agent of 1,000
memories in a table of 49,000). So each word is stored behind a mark of its agent
(``0481502077143tea``): every list holds one agent's rows. The mark is digits only, which leave
Porter's stemming of the rest alone.

What remains of the others is the number of rows in FTS5's inverse document frequency. `scores` takes
that factor out, word by word, and puts in the agent's own.
"""

from __future__ import annotations

import hashlib
import math
import re
import sqlite3
import unicodedata
from typing import Final

MAX_QUERY_CHARACTERS: Final = 8_000
MAX_QUERY_WORDS: Final = 64

_WORD: Final = re.compile(r"[^\W_]+")

_COUNTS: Final = "SELECT agent_id, memories FROM counts WHERE agent_id IN ('', ?)"
_HOLDERS: Final = "SELECT count(*) FROM memories_text WHERE memories_text MATCH ?"
_MATCH: Final = "SELECT rowid, bm25(memories_text) FROM memories_text WHERE memories_text MATCH ?"


def indexed(agent_id: str, content: str) -> str:
    """What the index gets of a content: its words, each behind the agent's mark. The stored index
    depends on it: with a change here `memory_index.FORMAT` grows."""
    mark = _mark(agent_id)
    return " ".join(mark + word for word in split(content))


def query_words(agent_id: str, query: str) -> list[str]:
    """The FTS5 expressions for the distinct words of free text.

    Only letters and digits get through, each word in quotes: nothing of a query can be syntax.
    Beyond `MAX_QUERY_WORDS` the shortest are left out.
    """
    words = list(dict.fromkeys(split(query[:MAX_QUERY_CHARACTERS])))
    if len(words) > MAX_QUERY_WORDS:
        words = sorted(words, key=len, reverse=True)[:MAX_QUERY_WORDS]
    mark = _mark(agent_id)
    return [f'"{mark}{word}"' for word in words]


def scores(connection: sqlite3.Connection, agent_id: str, words: list[str]) -> dict[int, float]:
    """BM25 of every memory that holds one of the words (from `query_words`), by key; more is better.

    Word counts and the number of memories are the agent's own; the average length is everyone's.
    Words in more than half of the memories count for next to nothing and cost the most to read: they
    are left out, unless the query has no others.
    """
    counts = dict(connection.execute(_COUNTS, (agent_id,)))
    everyones, own = counts[""], counts.get(agent_id, 0)
    held = [(word, connection.execute(_HOLDERS, (word,)).fetchone()[0]) for word in map(_own, words)]
    held = [(word, holders) for word, holders in held if holders]
    telling = [(word, holders) for word, holders in held if holders <= own / 2]
    found: dict[int, float] = {}
    for word, holders in telling or held:
        # FTS5's formula, with its floor; then the same with the agent's number, never negative.
        theirs = max(math.log((everyones - holders + 0.5) / (holders + 0.5)), 1e-6)
        scale = math.log(1 + max(own - holders + 0.5, 0.5) / (holders + 0.5)) / theirs
        for key, score in connection.execute(_MATCH, (word,)):
            found[key] = found.get(key, 0.0) - score * scale
    return found


def _own(word: str) -> str:
    """Only where it is the memory's own word."""
    return f"words : {word}"


def split(text: str) -> list[str]:
    """The words of a text: letters and digits, in lower case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def _mark(agent_id: str) -> str:
    digest = hashlib.blake2b(agent_id.encode(), digest_size=5).digest()
    return f"{int.from_bytes(digest, 'big'):013d}"
