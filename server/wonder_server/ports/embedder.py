"""Embedders, which convert texts to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Converts texts to vectors of unit length.

    A vector is ``dimensions`` little-endian float32 values as bytes, the form that SQLite stores and FAISS
    reads without a copy. ``name`` changes whenever vectors of two versions cannot be compared. ``share`` is
    the weight of the cosines beside full text, from 0 to 1: low for an embedder of spelling, about 0.5 for an
    embedder of meaning.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def share(self) -> float: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector for each text, in order. Errors: EMBEDDER reasons as the adapter documents."""
        ...

    async def close(self) -> None: ...
