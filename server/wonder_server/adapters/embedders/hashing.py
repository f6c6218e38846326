"""The built-in embedder: no model file, no network, the same vectors in every process.

Feature hashing: a text's words and the letter groups inside them are each hashed to one of a few
hundred dimensions, with a sign. Texts that share words, or words that share most of their letters
("deploy", "deployments", "depoly"), come out close. It knows spelling, not meaning: search counts it for
little (`share`), and full text leads.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from wonder_server.core.memory.stop_words import STOP_WORDS

MAX_CHARACTERS: Final = 8_000
"""What of a text is read; a vector of more would be a blur anyway."""

_OFF_LOOP_CHARACTERS: Final = 4_000
_WORD: Final = re.compile(r"[^\W_]+")
_GRAM: Final = 3
_GRAM_SHARE: Final = 1.2
"""The weight of all of a word's letter groups together, the word itself counting 1."""
_FULL_LENGTH: Final = 6
"""Shorter words count for less: in most languages they are the ones that say little."""
_COMMON_SHARE: Final = 0.1
_MAX_CACHED_WORDS: Final = 20_000
"""How many words' features are remembered; then it begins anew. Some 1 KB each."""
_SHORT_TEXT_WORDS: Final = 20
"""Up to so many different ones it is quicker to go by the dimensions that they touch."""
_MAX_CACHED_WORD_LENGTH: Final = 64
"""What of a longer word is read."""

_Features = tuple[tuple[int, float], ...]


class HashingEmbedder:
    """`Embedder` by feature hashing, with sub-linear term frequency and unit length."""

    share: float = 0.15

    def __init__(self, dimensions: int = 384) -> None:
        self.name = f"hashing-2-{dimensions}"
        self.dimensions = dimensions
        self._cache: dict[str, _Features] = {}

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text. A text without a word gets the zero vector, near to nothing."""
        if sum(map(len, texts)) <= _OFF_LOOP_CHARACTERS:
            return [self._vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [self._vector(text) for text in texts])

    async def close(self) -> None:
        """Nothing to close."""

    def _vector(self, text: str) -> bytes:
        words = Counter(_WORD.findall(unicodedata.normalize("NFKC", text[:MAX_CHARACTERS]).casefold()))
        # A few words touch few of the dimensions: the others need not be gone through.
        touched = defaultdict[int, float](float) if len(words) <= _SHORT_TEXT_WORDS else None
        values = [0.0] * self.dimensions if touched is None else touched
        for word, count in words.items():
            features = self._cache.get(word) or self._features(word)
            frequency = 1.0 + math.log(count) if count > 1 else 1.0
            for place, weight in features:
                values[place] += weight * frequency
        amounts = values if touched is None else touched.values()
        length = math.sqrt(math.fsum([value * value for value in amounts])) or 1.0
        if touched is None:
            packed = array("f", [value / length for value in amounts])
        else:
            packed = array("f", bytes(4 * self.dimensions))
            for place, value in touched.items():
                packed[place] = value / length
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def _features(self, word: str) -> _Features:
        """Where a word goes, and with which weight."""
        read = word[:_MAX_CACHED_WORD_LENGTH]
        weight = min(len(word), _FULL_LENGTH) / _FULL_LENGTH
        if word in STOP_WORDS:
            weight *= _COMMON_SHARE
        features = [self._feature(word.encode(), weight)]
        marked = f"<{read}>".encode("utf-32-le")  # Four bytes a letter: groups are whole letters.
        grams = len(read) + 3 - _GRAM
        share = weight * _GRAM_SHARE / math.sqrt(grams)
        for start in range(0, 4 * grams, 4):
            features.append(self._feature(marked[start : start + 4 * _GRAM], share))
        if len(self._cache) >= _MAX_CACHED_WORDS:
            self._cache.clear()
        found = self._cache[word] = tuple(features)
        return found

    def _feature(self, feature: bytes, weight: float) -> tuple[int, float]:
        code = crc32(feature)
        # The top bit is the sign, so that features that collide cancel out on average.
        return (code & 0x7FFFFFFF) % self.dimensions, weight if code >> 31 else -weight
