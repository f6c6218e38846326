"""Memories of agents (features E1, E3, E4, E6).

A memory belongs to exactly one agent. Its *significance* is its importance on its own; ``ranking.py``
combines it with relevance and recency.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final, Literal

from wonder_server.core.content.normal_text import nfkc
from wonder_server.core.json_types import JsonDict

Role = Literal["", "user", "agent"]
"""Side of a conversation; "" is unknown."""
USER: Final[Role] = "user"
AGENT: Final[Role] = "agent"
ROLES: Final[tuple[Role, ...]] = ("", USER, AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of a memory (feature E6). An empty field does not apply."""

    conversation_id: str = ""
    turn_id: str = ""
    message_id: str = ""
    move_id: str = ""
    run_id: str = ""
    speaker: str = ""
    """Name of the participant who wrote the message."""
    speaker_id: str = ""
    """Id of that participant: of a user or of an agent, by ``role``."""
    ordinal: int = 0
    """Number of the message in the conversation, from 1; 0 is unknown."""
    role: Role = ""
    """Side of the speaker: ``user`` for a person, ``agent`` for an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One stored memory. ``type`` is a name that the library chooses. ``significance`` is between 0 and 1.
    ``version`` starts at 1 and increases with each change, including changes of links.

    A content that is too long for a row is stored in the object ``content_ref``. The store then leaves it
    out, and the memory service adds it. ``size_bytes`` is its length in UTF-8.

    ``said_ms`` is the time at which the content was said: given by the writer, else ``created_ms``.
    """

    id: str
    agent_id: str
    type: str
    content: str
    significance: float
    metadata: JsonDict
    source: Source
    created_ms: int
    updated_ms: int
    said_ms: int
    version: int
    content_ref: str = ""
    size_bytes: int = 0
    supersedes_id: str = ""
    superseded_by_id: str = ""
    contradicts_ids: tuple[str, ...] = ()
    archived_ms: int = 0
    """Time of archiving; 0 if it is not archived."""
    subject: str = ""
    """Id of the user whom the memory is about; "" if it is about no user or the writer gave none."""

    @property
    def etag(self) -> str:
        """Value that a caller returns to change exactly the version it has read."""
        return str(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be written.

    ``idempotency_key``: the same key of the same agent writes once; later writes return the first record.
    ``unless_known``: if a memory of the same type and subject has the same content except for case and white
    space, return that memory and write nothing. Extraction sets it.
    ``said_ms``: the time at which the content was said; None: now.
    """

    type: str
    content: str
    significance: float = 0.5
    metadata: JsonDict = field(default_factory=dict)
    source: Source = Source()
    contradicts_ids: tuple[str, ...] = ()
    archives_ids: tuple[str, ...] = ()
    """Memories that this one replaces: they are archived in the same commit."""
    idempotency_key: str = ""
    unless_known: bool = False
    said_ms: int | None = None
    subject: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "significance", _without_negative_zero(self.significance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values for a stored memory; None leaves a field unchanged."""

    type: str | None = None
    content: str | None = None
    significance: float | None = None
    metadata: JsonDict | None = None
    contradicts_ids: tuple[str, ...] | None = None
    archived_ms: int | None = None
    said_ms: int | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.significance is not None:
            object.__setattr__(self, "significance", _without_negative_zero(self.significance))


def _without_negative_zero(number: float) -> float:
    """Return 0.0 for -0.0: stores may return either for it, and a seal over one does not match the other."""
    return number + 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filter of a list or a search. An empty field or None does not filter.

    ``metadata``: memories whose metadata contains all of these fields with these values; nested objects
    likewise. ``start_ms``: written at or after; ``end_ms``: written before. ``said_start_ms`` and
    ``said_end_ms``: likewise for the time at which it was said. Superseded and archived memories are omitted
    unless ``set_aside``. ``other_types``: types to omit.
    """

    types: tuple[str, ...] = ()
    other_types: tuple[str, ...] = ()
    metadata: JsonDict = field(default_factory=dict)
    conversation_id: str = ""
    turn_id: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    said_start_ms: int | None = None
    said_end_ms: int | None = None
    set_aside: bool = False
    subject: str = ""

    @property
    def narrows(self) -> bool:
        """True if the filter excludes more than superseded and archived memories."""
        return self != Filter(set_aside=self.set_aside)


EVERYTHING: Final = Filter(set_aside=True)


def fingerprint(kind: str, content: str, subject: str = "") -> bytes:
    """Return a hash that is equal for contents that differ only in case, white space and Unicode spelling.

    Equal contents about different users have different hashes: "I like tea" is true of one of them only.
    """
    words = " ".join(nfkc(content).casefold().split())
    text = f"{kind}\n{words}\n{subject}" if subject else f"{kind}\n{words}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
