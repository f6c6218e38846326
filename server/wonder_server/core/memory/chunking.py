"""Long texts in passages, each of which gets a vector of its own: one for the whole would be a blur."""

from __future__ import annotations

from typing import Final

CHUNK_CHARACTERS: Final = 1_200
"""About 200 words."""
OVERLAP_CHARACTERS: Final = 120
"""What a passage takes of the one before, so that nothing is cut in two."""
MAX_CHUNKS: Final = 64
"""Of a longer text the passages are longer."""


def chunks(text: str) -> list[str]:
    """The text in its order; a short one is one passage. Cuts lie at white space where there is some."""
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
