"""Search for words in messages: queries, matches, scores and snippets.

A query is plain text: its words are runs of letters and digits, and nothing in it is an operator. A message
matches if it contains every word. A word matches at the beginning of a word of the message, whatever its
case, so ``deploy`` finds ``Deployment``. A word in a script without spaces between words, such as Chinese,
matches anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wonder_server.core.content.normal_text import nfkc
from wonder_server.core.errors import Reason, error

MAX_QUERY_CHARACTERS: Final = 1_000
MAX_QUERY_WORDS: Final = 16
SNIPPET_CHARACTERS: Final = 200
"""Maximum number of characters of a snippet, without the marks of omitted text."""
SCORED_CHARACTERS: Final = 100_000
"""Characters of a message that its score depends on. All matches of 16 words in 1 MB took 1.5 s."""

_SLICE: Final = 50_000
"""Characters that a pattern searches at once. The search holds the interpreter's lock for up to 4 ms."""
_WORD: Final = re.compile(r"[^\W_]+")
_WITHOUT_SPACES: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_LEAD: Final = 4
"""One part in four of a snippet precedes the match."""
_SATURATION: Final = 1.2
_LENGTH_WEIGHT: Final = 0.5
_AFTER_SCORED: Final = 0.5
"""Count of a word that occurs only after the part of a text that is scored."""
_USUAL_CHARACTERS: Final = 300
"""Length of a message that neither raises nor lowers a score."""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """The words that a message must contain, in lower case."""

    words: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Return True if the text contains every word."""
        lowered = _normal(text)
        # The search for a substring rejects nearly all texts, in a tenth of the time of a pattern.
        return all(word in lowered for word in self.words) and all(
            _first(_pattern(word), word, lowered) for word in self.words
        )

    def score(self, text: str) -> float:
        """Return the relevance of a text that matches, from 0 to 1: how often and how exactly its words
        occur, in relation to its length. Of a long text it reads the first `SCORED_CHARACTERS`."""
        lowered = _normal(text[:SCORED_CHARACTERS])
        length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(lowered) / _USUAL_CHARACTERS
        total = 0.0
        for word in self.words:
            found = [_is_whole(lowered, match.end()) for match in _pattern(word).finditer(lowered)]
            count = sum(1.0 if whole else 0.5 for whole in found) or _AFTER_SCORED
            total += count / (count + _SATURATION * length)
        return round(total / len(self.words), 6)

    def snippet(self, text: str) -> str:
        """Return the part of the text around the first match, in one line."""
        place = next((match.start() for word in self.words if (match := _first(_shown(word), word, text))), 0)
        start = max(0, place - SNIPPET_CHARACTERS // _LEAD)
        end = min(len(text), start + SNIPPET_CHARACTERS)
        if start:
            space = text.find(" ", start, place)
            start = space + 1 if space >= 0 else start
        return f"{'…' if start else ''}{one_line(text[start:end])}{'…' if end < len(text) else ''}"


def text_query(text: str, field: str = "query") -> TextQuery:
    """Return the query of a text. Raises FIELD_INVALID if it has no words, or too many."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise error(
            Reason.FIELD_INVALID,
            f"{field} has {len(text):,} characters; the maximum is {MAX_QUERY_CHARACTERS:,}.",
            field=field,
        )
    words = tuple(dict.fromkeys(_WORD.findall(_normal(text))))
    if not words:
        raise error(
            Reason.FIELD_INVALID, f"{field} has no words. Write words that the messages contain.", field=field
        )
    if len(words) > MAX_QUERY_WORDS:
        raise error(
            Reason.FIELD_INVALID,
            f"{field} has {len(words)} words; the maximum is {MAX_QUERY_WORDS}. A message must contain all.",
            field=field,
        )
    return TextQuery(words)


def one_line(text: str) -> str:
    """Return the text as one line: line breaks, white space and control characters become single spaces."""
    printable = "".join(
        " " if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp") else each for each in text
    )
    return " ".join(printable.split())


def quoted(text: str) -> str:
    """Return the text with a space before each further line, so that none of its lines can pose as the
    label of a speaker. Every kind of line break becomes a newline."""
    return "\n ".join(text.splitlines()) if text else ""


def _normal(text: str) -> str:
    return text.lower() if text.isascii() else nfkc(text).lower()


def _first(pattern: re.Pattern[str], word: str, text: str) -> re.Match[str] | None:
    """Return the first match of the pattern of a word, in slices, between which other threads run."""
    for start in range(0, len(text), _SLICE):
        if match := pattern.search(text, start, start + _SLICE + len(word) - 1):
            return match
    return None


def _is_whole(text: str, end: int) -> bool:
    """Return True if a word ends at ``end``."""
    return end == len(text) or not text[end].isalnum()


@lru_cache(maxsize=256)
def _pattern(word: str) -> re.Pattern[str]:
    """Return the pattern for a word of letters and digits, which have no other meaning in patterns."""
    return re.compile(word if _WITHOUT_SPACES.search(word) else rf"(?<![^\W_]){word}")


@lru_cache(maxsize=256)
def _shown(word: str) -> re.Pattern[str]:
    """Return the pattern for a word in a text that is not in lower case."""
    return re.compile(_pattern(word).pattern, re.IGNORECASE)
