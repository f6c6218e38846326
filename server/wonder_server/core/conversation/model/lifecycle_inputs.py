"""What can happen to the room as a whole: who takes part, what it is called, whether it is open.

``version`` is the etag that the conversation must still have, 0 for any. ``spoken`` is what messages being
streamed had said when the input arrived, by turn id.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model.values import BranchMerge, Participant, PromptSnapshot
from wonder_server.core.frozen import Value, field


class Join(Value, frozen=True, kw_only=True):
    """Somebody is to take part; one who does already stays as they are."""

    participant: Participant


class Leave(Value, frozen=True, kw_only=True):
    """Somebody is to take part no longer. ``type`` is ``user`` or ``agent``; one who does not is no error."""

    type: str
    id: str
    partial_texts: dict[str, str] = field(default_factory=dict, name="spoken")


class Update(Value, frozen=True, kw_only=True):
    """Change what is not None. ``expire_ms`` 0 is never, a budget of nothing is none."""

    title: str | None = None
    external_ref: str | None = None
    metadata: dict[str, Any] | None = None
    expire_ms: int | None = None
    version: int = 0
    budget: Budget | None = None


class ReportMerge(Value, frozen=True, kw_only=True):
    """Somebody has merged its work."""

    merge: BranchMerge


class Complete(Value, frozen=True, kw_only=True):
    """Close it: it takes no messages until reopened. ``cancel_turns``: active ones are cancelled first."""

    cancel_turns: bool = False
    version: int = 0
    partial_texts: dict[str, str] = field(default_factory=dict, name="spoken")


class Reopen(Value, frozen=True, kw_only=True):
    """Open it again; one that is open stays as it is."""

    version: int = 0


class Reset(Value, frozen=True, kw_only=True):
    """Begin anew. ``keep``: the system message stays as it was; ``prompts`` are what it was, by agent."""

    keep_system_message: bool = field(default=False, name="keep")
    prompts: tuple[PromptSnapshot, ...] = ()
    version: int = 0


class BeginDeletion(Value, frozen=True, kw_only=True):
    """It is to be deleted: stop everything, and let nobody in any more."""

    version: int = 0


class FinishDeletion(Value, frozen=True, kw_only=True):
    """Nothing of a vacated room goes on: remove it."""


class BeginArchiving(Value, frozen=True, kw_only=True):
    """Its time has come: it is to be archived, unless something is still under way. ``forced``: its time has
    come with that of the conversation that it was made for."""

    forced: bool = False


class CompleteArchiving(Value, frozen=True, kw_only=True):
    """Its record lies in the archive as ``archive``, as it was when it expired at ``archived_ms``; ``runs``
    went with it."""

    archive_key: str = field(name="archive")
    archived_ms: int
    runs: tuple[str, ...] = ()


class RestoreArchived(Value, frozen=True, kw_only=True):
    """The record of an archived room is back, out of the object ``spent``, which is of no use any more."""

    archive_object: str = field(default="", name="spent")


class ReleaseArchiveObject(Value, frozen=True, kw_only=True):
    """The object ``spent`` is removed."""

    archive_object: str = field(name="spent")


LifecycleInput = (
    Join
    | Leave
    | Update
    | ReportMerge
    | Complete
    | Reopen
    | Reset
    | BeginDeletion
    | FinishDeletion
    | BeginArchiving
    | CompleteArchiving
    | RestoreArchived
    | ReleaseArchiveObject
)
