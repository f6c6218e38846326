"""What can happen to the room as a whole: who takes part, what it is called, whether it is open.

``version`` is the etag that the conversation must still have, 0 for any. ``spoken`` is what messages being
streamed had said when the input arrived, by turn id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.values import KeptPrompt, Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Somebody is to take part; one who does already stays as they are."""

    participant: Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Somebody is to take part no longer. ``type`` is ``user`` or ``agent``; one who does not is no error."""

    type: str
    id: str
    spoken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revise:
    """Change what is not None. ``expire_ms`` 0 is never, a budget of nothing is none."""

    title: str | None = None
    external_ref: str | None = None
    metadata: dict[str, Any] | None = None
    expire_ms: int | None = None
    version: int = 0
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Close it: it takes no messages until reopened. ``cancel_turns``: active ones are cancelled first."""

    cancel_turns: bool = False
    version: int = 0
    spoken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """Open it again; one that is open stays as it is."""

    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Begin anew. ``keep``: the system message stays as it was; ``prompts`` are what it was, by agent."""

    keep: bool = False
    prompts: tuple[KeptPrompt, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacate:
    """It is to be deleted: stop everything, and let nobody in any more."""

    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demolish:
    """Nothing of a vacated room goes on: remove it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """Its time has come: it is to be archived, unless something is still under way. ``forced``: its time has
    come with that of the conversation that it was made for."""

    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAway:
    """Its record lies in the archive as ``archive``, as it was when it expired at ``archived_ms``; ``runs``
    went with it."""

    archive: str
    archived_ms: int
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rouse:
    """The record of an archived room is back, out of the object ``spent``, which is of no use any more."""

    spent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """The object ``spent`` is removed."""

    spent: str


RoomInput = (
    Join | Leave | Revise | Complete | Reopen | Reset | Vacate | Demolish | Expire | PutAway | Rouse | Discard
)
