"""Stems of words, computed by FTS5 itself. Another implementation of Porter's algorithm would differ
somewhere."""

from __future__ import annotations

import sqlite3
from typing import Final

_MAX_CACHED: Final = 100_000
"""Maximum number of words in the cache. A full cache is cleared."""
_PREFIX: Final = "0" * 13
"""Digits with the length of an agent's prefix. FTS5 stems a word with its prefix, and the total length
matters."""


class Stemmer:
    """Map words to the terms under which the memory index stores them. For one thread."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[str, ...]] = {}
        self._scratch: sqlite3.Connection | None = None

    def of(self, word: str) -> tuple[str, ...]:
        """Return the terms of a word without its prefix. FTS5 knows fewer letters than Python, so it can
        split one."""
        found = self._cache.get(word)
        if found is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            found = self._cache[word] = self._stem(word)
        return found

    def _stem(self, word: str) -> tuple[str, ...]:
        scratch = self._scratch
        if scratch is None:
            # Same tokenizer as `memories_text` in schema.py.
            scratch = self._scratch = sqlite3.connect(":memory:", isolation_level=None)
            scratch.execute(
                "CREATE VIRTUAL TABLE words USING fts5 "
                "(word, content='', tokenize='porter unicode61 remove_diacritics 2')"
            )
            scratch.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'row')")
        scratch.execute("INSERT INTO words (rowid, word) VALUES (1, ?)", (_PREFIX + word,))
        terms = tuple(row[0].removeprefix(_PREFIX) for row in scratch.execute("SELECT term FROM terms"))
        scratch.execute("INSERT INTO words (words) VALUES ('delete-all')")
        return terms
