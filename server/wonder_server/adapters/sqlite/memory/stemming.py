"""The stems that FTS5 makes of words, asked of FTS5 itself: a second Porter would differ somewhere."""

from __future__ import annotations

import sqlite3
from typing import Final

_MAX_CACHED: Final = 100_000
"""How many words are remembered; then it begins anew."""
_PREFIX: Final = "0" * 13
"""As long as an agent's mark. FTS5 stems a word together with the mark before it, and the length counts."""


class Stemmer:
    """Words to the terms that the index of memories holds for them. For one thread."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[str, ...]] = {}
        self._scratch: sqlite3.Connection | None = None

    def of(self, word: str) -> tuple[str, ...]:
        """The terms of one word without its mark: one, or several if FTS5 knows fewer letters than Python."""
        found = self._cache.get(word)
        if found is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            found = self._cache[word] = self._stem(word)
        return found

    def _stem(self, word: str) -> tuple[str, ...]:
        scratch = self._scratch
        if scratch is None:
            # As `memories_text` is made in memory_schema.py.
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
