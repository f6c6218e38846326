"""Embedders: text in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Turns texts into unit-length vectors.

    A vector is ``dimensions`` little-endian float32 values as bytes: what SQLite stores and FAISS
    reads, with no copy in between. ``name`` changes whenever vectors of two versions do not compare.
    """

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[bytes]: ...
