"""Unicode normalization in linear time.

``unicodedata.normalize`` puts combining marks into order with an insertion sort, and holds the interpreter's
lock meanwhile: 64 KB of marks in the wrong order stop every thread for 9 s. `nfkc` gives the same result. It
sorts long runs of marks before the normalization, which then has nothing to move, and normalizes a long text
in pieces, between which other threads run.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Final

PIECE: Final = 10_000
"""Characters that are normalized at once. One character becomes up to 18, so a piece takes up to 15 ms."""
_SHORT_RUN: Final = 10
"""Marks in a row that the library sorts itself. Few languages write more than three."""

_DISGUISED: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")
"""Characters of class 0 that become nothing but combining marks."""
_LOW_MARKS: Final = "".join(each for each in map(chr, range(0x300, 0x10000)) if unicodedata.combining(each))
# A class of a pattern tests characters above U+FFFF one range after the other. One wide range replaces 70;
# `_sorted_runs` distinguishes its characters.
_LONG_RUN: Final = re.compile(
    f"[{_LOW_MARKS}{''.join(_DISGUISED)}\U000101fd-\U0001efff]{{{_SHORT_RUN + 1},}}"
)


def nfkc(text: str) -> str:
    """Return the text in Unicode's form NFKC, in time in proportion to its length."""
    if text.isascii():
        return text
    # A text with marks in the wrong order fails the quick check, so no long sort happens here.
    if unicodedata.is_normalized("NFKC", text):
        return text
    ordered = with_sorted_runs(text)
    if len(ordered) <= PIECE:
        return unicodedata.normalize("NFKC", ordered)
    pieces = (ordered[start:end] for start, end in pairwise(_cuts(ordered)))
    return "".join([unicodedata.normalize("NFKC", piece) for piece in pieces])


def with_sorted_runs(text: str) -> str:
    """Return the text with the marks of each long run decomposed and in the order of the normal form."""
    return _LONG_RUN.sub(_sorted_runs, text)


def _sorted_runs(match: re.Match[str]) -> str:
    """Return the text of a match with each run of marks decomposed and in the order of their classes."""
    done: list[str] = []
    run: dict[int, list[str]] = {}
    for each in match[0]:
        if not _is_mark(each):
            done += _in_order(run)
            done.append(each)
            run = {}
            continue
        for mark in unicodedata.normalize("NFKD", each):
            run.setdefault(unicodedata.combining(mark), []).append(mark)
    return "".join(done + _in_order(run))


def _in_order(run: dict[int, list[str]]) -> list[str]:
    """Return marks by class. Marks of one class keep their order, which has a meaning."""
    return [mark for combining_class in sorted(run) for mark in run[combining_class]]


def _is_mark(character: str) -> bool:
    return unicodedata.combining(character) != 0 or character in _DISGUISED


def _cuts(text: str) -> list[int]:
    """Return the places that divide a text into pieces of about `PIECE` characters, with 0 and its end.

    Each piece begins with a character that never merges with the text before it.
    """
    cuts = [0]
    place = PIECE
    while place < len(text):
        if begins_anew(text[place]):
            cuts.append(place)
            place += PIECE
        else:
            place += 1
    return [*cuts, len(text)]


def begins_anew(character: str) -> bool:
    """Return True if the normal form of a text is that of the text before this character and that of the
    rest. False for marks, for the vowels and final consonants of Hangul, and for some that would do."""
    if character.isascii():
        return True
    first = unicodedata.normalize("NFKD", character)[0]
    if "\u1160" <= first <= "\u11ff" or "\U00016d63" <= first <= "\U00016d6a":
        return False
    return not unicodedata.category(first).startswith("M")
