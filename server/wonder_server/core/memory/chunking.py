"""Chunks of long texts. Each chunk has its own vector, since one vector of a long text is too unspecific."""

from __future__ import annotations

from typing import Final

CHUNK_CHARACTERS: Final = 1_200
"""About 200 words."""
OVERLAP_CHARACTERS: Final = 120
"""Characters that a chunk repeats from the one before, so that no sentence is only found in two halves."""
MAX_CHUNKS: Final = 64
"""Limit of chunks of one text. Chunks of a longer text are longer."""


def chunks(text: str) -> list[str]:
    """Return the chunks of a text in order. A short text is one chunk. Cuts are at white space where
    possible."""
    size = max(CHUNK_CHARACTERS, -(-len(text) // MAX_CHUNKS) + OVERLAP_CHARACTERS)
    found, start = [], 0
    while len(text) - start > size:
        end = text.rfind(" ", start + size // 2, start + size)
        end = end if end > 0 else start + size
        found.append(text[start:end])
        start = end - OVERLAP_CHARACTERS
        space = text.find(" ", start, end)
        start = space + 1 if space >= 0 else end
    return [*found, text[start:]][:MAX_CHUNKS] if found else [text]
