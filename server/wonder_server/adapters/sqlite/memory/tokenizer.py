"""Full text of memories: one FTS5 index for all agents, in which no agent meets another.

FTS5 ranks with the counts of the whole table, and reads a word's whole list of rows to get them: what
others had written changed an agent's ranking, and cost its searches time (4.6 ms for an agent of 1,000
memories in a table of 49,000). So each word is stored behind a mark of its agent
(``0481502077143tea``): every list holds one agent's rows. The mark is digits only, which leave
Porter's stemming of the rest alone.

`memory_postings.py` reads the lists and ranks by them, with counts that are the agent's own.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

MAX_QUERY_CHARACTERS: Final = 8_000
MAX_QUERY_WORDS: Final = 64

_WORD: Final = re.compile(r"[^\W_]+")


def index_text(agent_id: str, content: str) -> str:
    """What the index gets of a content: its words, each behind the agent's mark. The stored index
    depends on it: with a change here `memory_index.FORMAT` grows."""
    behind = agent_prefix(agent_id)
    return " ".join(behind + word for word in words_of(content))


def query_terms(query: str) -> list[str]:
    """The distinct words of free text; beyond `MAX_QUERY_WORDS` the shortest are left out."""
    words = list(dict.fromkeys(words_of(query[:MAX_QUERY_CHARACTERS])))
    if len(words) > MAX_QUERY_WORDS:
        words = sorted(words, key=len, reverse=True)[:MAX_QUERY_WORDS]
    return words


def query_words(agent_id: str, query: str) -> list[str]:
    """The FTS5 expressions for the words of free text.

    Only letters and digits get through, each word in quotes: nothing of a query can be syntax.
    """
    behind = agent_prefix(agent_id)
    return [f'"{behind}{word}"' for word in query_terms(query)]


def words_of(text: str) -> list[str]:
    """The words of a text: letters and digits, in lower case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def agent_prefix(agent_id: str) -> str:
    """What stands before every word of an agent in the index: thirteen digits."""
    digest = hashlib.blake2b(agent_id.encode(), digest_size=5).digest()
    return f"{int.from_bytes(digest, 'big'):013d}"
