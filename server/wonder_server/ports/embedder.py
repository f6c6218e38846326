"""Embedders: text in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Turns texts into unit-length vectors.

    A vector is ``dimensions`` little-endian float32 values as bytes: what SQLite stores and FAISS
    reads, with no copy in between. ``name`` changes whenever vectors of two versions do not compare.
    ``share`` is what its cosines are worth beside full text, from 0 to 1: little for one that knows
    spelling, about half for one that knows meaning.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def share(self) -> float: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in their order. Errors: EMBEDDER reasons as the adapter says."""
        ...

    async def close(self) -> None: ...
