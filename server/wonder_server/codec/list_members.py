"""The encoded members of a conversation's long lists, found again by identity.

The lists that a turn stores mostly have the members of the lists of the turn before: the same objects in
memory, which never change. Their references to parts and messages stay valid, since these are stored as long
as the conversation. So members of a write that has succeeded need no encoding in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from wonder_server.codec.fields import StoredValue

MIN_LENGTH: Final = 8
"""Shorter lists are encoded: they cost less than the look-up of their members saves."""
MIN_AVERAGE_BYTES: Final = 96
"""Lists whose members have less JSON on average are encoded too."""
MAX_OTHERS: Final = 512
"""Number of known members above which lists without any of them replace them."""

Member = tuple[StoredValue, bytes]
"""A member and its encoded body. It holds the member, since an id is valid only while its object exists."""

KnownMembers = Mapping[int, Member]
"""Members that earlier writes of a conversation have encoded, by id."""

NO_MEMBERS: Final[KnownMembers] = {}


class ListMembers:
    """The members of the lists that are written together."""

    __slots__ = ("_continues", "_found", "_known")

    def __init__(self, known: KnownMembers = NO_MEMBERS) -> None:
        self._known = known
        self._found: dict[int, Member] = {}
        """The members of this write's lists: those of a request are in two of them."""
        self._continues = False
        """True if one of the lists has members of earlier writes."""

    def bodies(
        self, items: Sequence[StoredValue], encode: Callable[[Sequence[StoredValue]], tuple[list[bytes], int]]
    ) -> list[bytes]:
        """Return the encoded members of a list.

        ``encode`` encodes those that are not known, and returns their bodies and the size of their JSON.
        """
        found, known = self._found, self._known
        known_members = [found.get(id(item)) or known.get(id(item)) for item in items]
        new: Iterator[Member] = iter(())
        if None in known_members:
            missing = [item for item, member in zip(items, known_members, strict=True) if member is None]
            bodies, size = encode(missing)
            if len(missing) == len(items) and size < MIN_AVERAGE_BYTES * len(items):
                return bodies
            new = zip(missing, bodies, strict=True)
        members = [member or next(new) for member in known_members]
        by_id = dict(zip(map(id, items), members, strict=True))
        found.update(by_id)
        self._continues = self._continues or not known.keys().isdisjoint(by_id)
        return [body for _, body in members]

    def kept(self) -> KnownMembers:
        """Return the members to keep once the write has succeeded; none if the known ones stay."""
        if self._continues or not self._known or not self._found or len(self._known) >= MAX_OTHERS:
            return self._found
        # Lists of another kind, such as those of a tool's result, do not replace a history.
        return {**self._known, **self._found}
