"""The built-in embedder: no model file, no network, the same vectors in every process.

Feature hashing: a text's words and the letter groups inside them are each hashed to one of a few
hundred dimensions, with a sign. Texts that share words, or words that share most of their letters
("deploy", "deployments", "depoly"), come out close. It knows spelling, not meaning.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final
from zlib import crc32

MAX_CHARACTERS: Final = 8_000
"""What of a text is read; a vector of more would be a blur anyway."""

_OFF_LOOP_CHARACTERS: Final = 2_000
_WORD: Final = re.compile(r"[^\W_]+")
_GRAM: Final = 3
_GRAM_SHARE: Final = 0.6
"""The weight of all of a word's letter groups together, the word itself counting 1."""
_FULL_LENGTH: Final = 6
"""Shorter words count for less: in most languages they are the ones that say little."""


class HashingEmbedder:
    """`Embedder` by feature hashing, with sub-linear term frequency and unit length."""

    def __init__(self, dimensions: int = 384) -> None:
        self.name = f"hashing-1-{dimensions}"
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text. A text without a word gets the zero vector, near to nothing."""
        if sum(map(len, texts)) <= _OFF_LOOP_CHARACTERS:
            return [self._vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [self._vector(text) for text in texts])

    def _vector(self, text: str) -> bytes:
        words = Counter(_WORD.findall(unicodedata.normalize("NFKC", text[:MAX_CHARACTERS]).casefold()))
        values = [0.0] * self.dimensions
        for word, count in words.items():
            weight = (1.0 + math.log(count)) * min(len(word), _FULL_LENGTH) / _FULL_LENGTH
            self._put(values, word.encode(), weight)
            marked = f"<{word}>".encode("utf-32-le")  # Four bytes a letter: groups are whole letters.
            grams = len(word) + 3 - _GRAM
            share = weight * _GRAM_SHARE / math.sqrt(grams)
            for start in range(0, 4 * grams, 4):
                self._put(values, marked[start : start + 4 * _GRAM], share)
        length = math.sqrt(math.fsum(value * value for value in values))
        if length > 0.0:
            values = [value / length for value in values]
        packed = array("f", values)
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def _put(self, values: list[float], feature: bytes, weight: float) -> None:
        code = crc32(feature)
        # The top bit is the sign, so that features that collide cancel out on average.
        values[(code & 0x7FFFFFFF) % self.dimensions] += weight if code >> 31 else -weight
