"""Inputs about the conversation as a whole: participants, properties, completion, archiving, deletion.

``version`` is the etag that the conversation must have; 0 accepts any. ``partial_texts`` are the texts that
messages have streamed, by turn id. The loop adds them as it plans the input. ``principal`` is the
authenticated caller that makes the change, as in `Scope`.
"""

from __future__ import annotations

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model.exchange import PromptSnapshot
from wonder_server.core.conversation.model.values import BranchMerge, Participant
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict


class Join(Value, frozen=True, kw_only=True):
    """Add a participant. A participant that is present already stays unchanged."""

    participant: Participant
    principal: str = ""


class Leave(Value, frozen=True, kw_only=True):
    """Remove a participant. ``type`` is ``user`` or ``agent``. An absent participant is no error."""

    type: str
    id: str
    partial_texts: dict[str, str] = field(default_factory=dict, name="spoken")
    principal: str = ""


class Update(Value, frozen=True, kw_only=True):
    """Change the fields that are not None. ``expire_ms`` 0 removes the expiry; an empty budget removes the
    budget, and an empty ``concurrent_turns`` the policy.
    """

    title: str | None = None
    external_ref: str | None = None
    metadata: JsonDict | None = None
    expire_ms: int | None = None
    version: int = 0
    budget: Budget | None = None
    principal: str = ""
    concurrent_turns: str | None = None


class ReportMerge(Value, frozen=True, kw_only=True):
    """Record that the conversation's branch was merged."""

    merge: BranchMerge
    principal: str = ""


class Complete(Value, frozen=True, kw_only=True):
    """Complete the conversation. It accepts no messages until it is reopened.

    ``cancel_turns``: cancel active turns first. Otherwise active turns reject the input.
    """

    cancel_turns: bool = False
    version: int = 0
    partial_texts: dict[str, str] = field(default_factory=dict, name="spoken")
    principal: str = ""


class Reopen(Value, frozen=True, kw_only=True):
    """Reopen the conversation. An open conversation stays unchanged."""

    version: int = 0
    principal: str = ""


class Reset(Value, frozen=True, kw_only=True):
    """Hide all earlier turns from the agents.

    ``keep_system_message``: the agents keep the system messages in ``prompts``, one for each agent.
    ``rules`` are those of turns (`TURN_RULES`): a replay of a reset without them decides as it did.
    """

    keep_system_message: bool = field(default=False, name="keep")
    prompts: tuple[PromptSnapshot, ...] = ()
    version: int = 0
    principal: str = ""
    rules: int = 0


class BeginDeletion(Value, frozen=True, kw_only=True):
    """Cancel all work of the conversation and reject further inputs, before its record is removed."""

    version: int = 0
    principal: str = ""


class FinishDeletion(Value, frozen=True, kw_only=True):
    """Remove the record of a conversation whose deletion has begun and whose work has ended."""


class BeginArchiving(Value, frozen=True, kw_only=True):
    """Mark the conversation for archiving, if it has expired and is idle.

    ``forced``: archive it before its own expiry, together with the conversation that it was created for.
    """

    forced: bool = False


class CompleteArchiving(Value, frozen=True, kw_only=True):
    """Remove the record, which the object ``archive_key`` holds now.

    ``archived_ms`` is the time at which archiving began; a later change of the conversation makes the
    object stale. ``runs`` are the runs in the object.
    """

    archive_key: str = field(name="archive")
    archived_ms: int
    runs: tuple[str, ...] = ()


class RestoreArchived(Value, frozen=True, kw_only=True):
    """Make a restored conversation active. ``archive_object`` is the object that it was restored from."""

    archive_object: str = field(default="", name="spent")


class ReleaseArchiveObject(Value, frozen=True, kw_only=True):
    """Record that the stale object ``archive_object`` was removed."""

    archive_object: str = field(name="spent")


class ReleaseExternalRef(Value, frozen=True, kw_only=True):
    """Take the external reference away from an expired conversation, so that a new one can have it.

    A conversation that has not expired, has work in progress, or has another reference stays unchanged.
    """

    external_ref: str
    principal: str = ""


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
    | ReleaseExternalRef
)
