"""Objects by the hash of their content: what is too large, or too seldom read, for a database."""

from __future__ import annotations

import hashlib
import re
from typing import Final, Protocol

_KEY: Final = re.compile(r"[0-9a-f]{64}\Z")


def key_of(content: bytes) -> str:
    """The key of this content: its SHA-256 in hexadecimal, 64 characters."""
    return hashlib.sha256(content).hexdigest()


def is_key(text: str) -> bool:
    """Whether it could be a key at all; what is none is nowhere, and never part of a path."""
    return bool(_KEY.match(text))


class Blobs(Protocol):
    """A store of objects that never change. All methods raise STORAGE_UNAVAILABLE when the store fails."""

    async def put(self, content: bytes) -> str:
        """Keep it; on disk, or as safe as the store has it, when this returns. Its key. Kept twice, it is
        there once."""
        ...

    async def get(self, key: str) -> bytes | None:
        """The content, whole and checked against its key; None if there is none. What is there but damaged
        raises STORAGE_UNAVAILABLE."""
        ...

    async def exists(self, key: str) -> bool:
        """Whether it is there; not whether it is whole."""
        ...

    async def delete(self, key: str) -> None:
        """Remove it; what is not there is no error."""
        ...
