"""Weights of words in the full-text score (BM25F). The constants of `ranking` and these belong together."""

from __future__ import annotations

import math
from typing import Final

K1: Final = 0.9
"""Saturation of repeated words, as usual in passage retrieval (Anserini's default)."""
B: Final = 0.2
"""Weight of a text's length relative to the average. FTS5's 0.75 favours the shortest texts."""
NEIGHBOUR_WEIGHT: Final = 0.3
"""Weight of the words of neighbours, up to two messages away: an answer seldom repeats the question."""
SPEAKER_WEIGHT: Final = 0.4
"""Part by which the whole text of a speaker, or of a side, counts more if the query asks for it."""
STOP_WORD_WEIGHT: Final = 0.25
LONG_WORDS: Final = 300
"""Number of words from which a text is long. A long text contains more of any query's words."""
LONG_EXPONENT: Final = 0.15
MIN_COUNT: Final = 100
"""Smallest number of memories that rarity is computed with. Among three memories no word is rare, and yet a
match of a name says much."""
QUERY_PAD: Final = 2.0
"""Added to the weight of a whole query: a query without telling words cannot be matched completely."""


def rarity(count: float, holders: float) -> float:
    """Return the weight of a word that ``holders`` of ``count`` memories contain, above 0 (BM25's IDF)."""
    count = max(count, MIN_COUNT)
    return math.log(1 + max(count - holders + 0.5, 0.5) / (max(holders, 1) + 0.5))


def name_holders(texts: float, by_speaker: float) -> float:
    """Return the number of memories that a word of a name counts as being in.

    ``texts`` contain the word, ``by_speaker`` are by a speaker with that name. The speaker's own texts rarely
    contain it, so ``texts`` alone would let the name outweigh the rest of the query. ``by_speaker`` alone
    would let it count for nothing in a conversation of two. The geometric mean is between both.
    """
    if by_speaker <= texts:
        return texts
    return math.sqrt(max(texts, 1) * by_speaker)


def long_text_divisor(words: float) -> float:
    """Return the divisor of the score of a text: 1 up to `LONG_WORDS`, then slowly more."""
    return math.pow(max(1.0, words / LONG_WORDS), LONG_EXPONENT)
