"""Tokens of the full-text index of memories. One FTS5 index serves all agents and keeps them apart.

FTS5 ranks with the counts of the whole table and reads a word's whole list of rows for that. Memories of
other agents changed an agent's ranking and slowed its searches: 4.6 ms for an agent with 1,000 memories in a
table of 49,000. So the index stores each word behind a prefix for its agent (``0481502077143tea``), and every
list contains rows of one agent. The prefix consists of digits, which do not affect Porter's stemming of the
word.

`ranking.py` reads the lists and ranks with the agent's own counts.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from wonder_server.core.content.normal_text import nfkc

MAX_QUERY_CHARACTERS: Final = 8_000
MAX_QUERY_WORDS: Final = 64

_WORD: Final = re.compile(r"[^\W_]+")


def index_text(agent_id: str, content: str) -> str:
    """Return the text to index for a content: its words, each behind the agent's prefix.

    The stored index depends on this function: increase `text_index.FORMAT` with each change.
    """
    prefix = agent_prefix(agent_id)
    return " ".join(prefix + word for word in words_of(content))


def query_terms(query: str) -> list[str]:
    """Return the distinct words of a query. Above `MAX_QUERY_WORDS`, omit the shortest."""
    words = list(dict.fromkeys(words_of(query[:MAX_QUERY_CHARACTERS])))
    if len(words) > MAX_QUERY_WORDS:
        words = sorted(words, key=len, reverse=True)[:MAX_QUERY_WORDS]
    return words


def query_words(agent_id: str, query: str) -> list[str]:
    """Return the FTS5 expressions for the words of a query.

    Each consists of letters and digits in quotes, so a query cannot contain FTS5 syntax.
    """
    prefix = agent_prefix(agent_id)
    return [f'"{prefix}{word}"' for word in query_terms(query)]


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, in lower case."""
    return _WORD.findall(nfkc(text).lower())


def agent_prefix(agent_id: str) -> str:
    """Return the prefix of an agent's words in the index: thirteen digits."""
    digest = hashlib.blake2b(agent_id.encode(), digest_size=5).digest()
    return f"{int.from_bytes(digest, 'big'):013d}"
