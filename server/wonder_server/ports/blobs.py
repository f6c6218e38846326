"""Objects by the hash of their content, for contents that are too large or too rarely read for a database."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

_KEY: Final = re.compile(r"[0-9a-f]{64}\Z")


def key_of(content: bytes) -> str:
    """Return the key of a content: its SHA-256 in hexadecimal, 64 characters."""
    return hashlib.sha256(content).hexdigest()


def is_key(text: str) -> bool:
    """Return True if the text has the form of a key. Other texts are never used in a path."""
    return bool(_KEY.match(text))


class Blobs(Protocol):
    """A store of immutable objects. All methods raise STORAGE_UNAVAILABLE if the store fails."""

    async def put(self, content: bytes) -> str:
        """Store a content durably and return its key. Storing it again changes nothing."""
        ...

    async def get(self, key: str) -> bytes | None:
        """Return the content, verified by its key, or None. Raises STORAGE_UNAVAILABLE for a damaged
        object."""
        ...

    async def exists(self, key: str) -> bool:
        """Return True if the object exists. Its content is not verified."""
        ...

    async def delete(self, key: str) -> None:
        """Delete the object if it exists."""
        ...


@dataclass(frozen=True, slots=True)
class UnreferencedObject:
    """An object to which no record refers. ``owner_id`` is the agent or the project that it was written for;
    "" in records of earlier versions."""

    key: str
    owner_id: str


class UnreferencedObjects(Protocol):
    """The list of objects that no record refers to.

    An object is *unreferenced* before it is written until a record refers to it, and again after the last
    reference is removed.
    """

    async def add_unreferenced(self, owner_id: str, keys: Sequence[str]) -> None:
        """Record objects that are about to be written for an agent or a project."""
        ...

    async def unreferenced(self, after: str = "") -> list[UnreferencedObject]:
        """Return some recorded objects that no record refers to, by key, with keys above ``after``; empty if
        there are none."""
        ...

    async def remove_unreferenced(self, keys: Sequence[str]) -> None:
        """Remove the records of deleted objects."""
        ...
