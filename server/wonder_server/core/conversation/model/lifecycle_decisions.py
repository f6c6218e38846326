"""Decisions about the conversation as a whole. Each carries the changed conversation."""

from __future__ import annotations

from wonder_server.core.conversation.model.values import BranchMerge, Conversation, HistoryReset, Participant
from wonder_server.core.frozen import Value


class AddParticipant(Value, frozen=True, kw_only=True):
    """Add a participant: by request, at a user's first message, or when an agent is looped in."""

    conversation: Conversation
    participant: Participant


class RemoveParticipant(Value, frozen=True, kw_only=True):
    """Remove a participant."""

    conversation: Conversation
    participant: Participant


class UpdateConversation(Value, frozen=True, kw_only=True):
    """Change properties of the conversation: title, metadata, expiry, budget, open or archived."""

    conversation: Conversation


class RecordMerge(Value, frozen=True, kw_only=True):
    """Record a merge of the conversation's branch."""

    conversation: Conversation
    merge: BranchMerge


class EndConversation(Value, frozen=True, kw_only=True):
    """Complete the conversation."""

    conversation: Conversation


class ResetConversation(Value, frozen=True, kw_only=True):
    """Hide all earlier turns from the agents."""

    conversation: Conversation
    reset: HistoryReset


class MarkDeleted(Value, frozen=True, kw_only=True):
    """Mark the conversation as deleted. Reads no longer find it."""

    conversation: Conversation


class SetStaleArchive(Value, frozen=True, kw_only=True):
    """Set or clear the archive object that is to be removed."""

    conversation: Conversation


class EraseRecord(Value, frozen=True, kw_only=True):
    """Remove the record of the conversation and of ``runs``.

    ``conversation`` is the row that remains; None if nothing remains.
    """

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
