"""The built-in embedder: no model file, no network, the same vectors in every process.

Feature hashing: each word of a text and each group of letters in it is hashed to one of a few hundred
dimensions, with a sign. Texts that share words, or words that share most of their letters ("deploy",
"deployments", "depoly"), get similar vectors. The vectors reflect spelling, not meaning, so search gives them
a small weight (`share`) and full text a large one.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from wonder_server.core.content.normal_text import nfkc
from wonder_server.core.memory.stop_words import STOP_WORDS

MAX_CHARACTERS: Final = 8_000
"""Maximum number of characters read. A vector of a longer text would distinguish nothing."""

_OFF_LOOP_CHARACTERS: Final = 4_000
"""Texts with more characters in total are embedded in a thread."""
_WORD: Final = re.compile(r"[^\W_]+")
_GRAM: Final = 3
_GRAM_SHARE: Final = 1.2
"""Total weight of a word's letter groups. The word itself has weight 1."""
_FULL_LENGTH: Final = 6
"""Shorter words weigh less, because short words carry little meaning in most languages."""
_COMMON_SHARE: Final = 0.1
_MAX_CACHED_WORDS: Final = 20_000
"""Maximum number of words in the cache, about 1 KB each. A full cache is cleared."""
_SHORT_TEXT_WORDS: Final = 20
"""Up to this number of distinct words, visiting only the touched dimensions is faster."""
_MAX_CACHED_WORD_LENGTH: Final = 64
"""Maximum number of characters of a word that count."""

_Features = tuple[tuple[int, float], ...]


class HashingEmbedder:
    """Implements `Embedder` by feature hashing, with sub-linear term frequency and unit length."""

    share: float = 0.05

    def __init__(self, dimensions: int = 384) -> None:
        self.name = f"hashing-2-{dimensions}"
        self.dimensions = dimensions
        self._cache: dict[str, _Features] = {}

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector per text. A text without words gets the zero vector, which is similar to
        nothing."""
        if sum(map(len, texts)) <= _OFF_LOOP_CHARACTERS:
            return [self._vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [self._vector(text) for text in texts])

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _vector(self, text: str) -> bytes:
        words = Counter(_WORD.findall(nfkc(text[:MAX_CHARACTERS]).casefold()))
        # A few words touch few dimensions, so the others are not visited.
        touched = defaultdict[int, float](float) if len(words) <= _SHORT_TEXT_WORDS else None
        values = [0.0] * self.dimensions if touched is None else touched
        for word, count in words.items():
            features = self._cache.get(word) or self._features(word)
            frequency = 1.0 + math.log(count) if count > 1 else 1.0
            for dimension, weight in features:
                values[dimension] += weight * frequency
        amounts = values if touched is None else touched.values()
        length = math.sqrt(math.fsum([value * value for value in amounts])) or 1.0
        if touched is None:
            packed = array("f", [value / length for value in amounts])
        else:
            packed = array("f", bytes(4 * self.dimensions))
            for dimension, value in touched.items():
                packed[dimension] = value / length
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def _features(self, word: str) -> _Features:
        """Return the dimensions of a word's features, with their weights."""
        letters = word[:_MAX_CACHED_WORD_LENGTH]
        weight = min(len(word), _FULL_LENGTH) / _FULL_LENGTH
        if word in STOP_WORDS:
            weight *= _COMMON_SHARE
        features = [self._feature(word.encode(), weight)]
        delimited = f"<{letters}>".encode("utf-32-le")  # Four bytes a letter: groups are whole letters.
        grams = len(letters) + 3 - _GRAM
        share = weight * _GRAM_SHARE / math.sqrt(grams)
        for start in range(0, 4 * grams, 4):
            features.append(self._feature(delimited[start : start + 4 * _GRAM], share))
        if len(self._cache) >= _MAX_CACHED_WORDS:
            self._cache.clear()
        found = self._cache[word] = tuple(features)
        return found

    def _feature(self, feature: bytes, weight: float) -> tuple[int, float]:
        code = crc32(feature)
        # The top bit is the sign, so that colliding features cancel out on average.
        return (code & 0x7FFFFFFF) % self.dimensions, weight if code >> 31 else -weight
