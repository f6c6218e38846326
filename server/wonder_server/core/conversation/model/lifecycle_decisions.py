"""What is decided about the room as a whole. Each carries the conversation as it is from then on."""

from __future__ import annotations

from wonder_server.core.conversation.model.values import BranchMerge, Conversation, HistoryReset, Participant
from wonder_server.core.frozen import Value


class AddParticipant(Value, frozen=True, kw_only=True):
    """Someone joins the room: a user who speaks for the first time, an agent that is looped in."""

    conversation: Conversation
    participant: Participant


class RemoveParticipant(Value, frozen=True, kw_only=True):
    conversation: Conversation
    participant: Participant


class UpdateConversation(Value, frozen=True, kw_only=True):
    """What it is called or keeps has changed, or when it expires, or that it is open or archived."""

    conversation: Conversation


class RecordMerge(Value, frozen=True, kw_only=True):
    """Its work was merged."""

    conversation: Conversation
    merge: BranchMerge


class EndConversation(Value, frozen=True, kw_only=True):
    """Somebody has completed it."""

    conversation: Conversation


class ResetConversation(Value, frozen=True, kw_only=True):
    conversation: Conversation
    reset: HistoryReset


class MarkDeleted(Value, frozen=True, kw_only=True):
    """It is as good as deleted: nobody finds it any more."""

    conversation: Conversation


class SetStaleArchive(Value, frozen=True, kw_only=True):
    """An object of the archive is of no use any more, or is removed now."""

    conversation: Conversation


class EraseRecord(Value, frozen=True, kw_only=True):
    """Everything written of it goes. ``conversation`` is what stays, None for nothing at all; ``runs`` are
    those that go with it."""

    conversation: Conversation | None = None
    runs: tuple[str, ...] = ()


LifecycleDecision = (
    AddParticipant
    | RemoveParticipant
    | UpdateConversation
    | RecordMerge
    | EndConversation
    | ResetConversation
    | MarkDeleted
    | SetStaleArchive
    | EraseRecord
)
