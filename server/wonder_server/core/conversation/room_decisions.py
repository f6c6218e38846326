"""What is decided about the room as a whole. Each carries the conversation as it is from then on."""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.core.conversation.values import Conversation, HistoryReset, Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class AddParticipant:
    """Someone joins the room: a user who speaks for the first time, an agent that is looped in."""

    conversation: Conversation
    participant: Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveParticipant:
    conversation: Conversation
    participant: Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConversation:
    """What it is called or keeps has changed, or when it expires, or that it is open or archived."""

    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class EndConversation:
    """Somebody has completed it."""

    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConversation:
    conversation: Conversation
    reset: HistoryReset


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRoom:
    """It is as good as deleted: nobody finds it any more."""

    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSpent:
    """An object of the archive is of no use any more, or is removed now."""

    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRecord:
    """Everything written of it goes. ``conversation`` is what stays, None for nothing at all; ``runs`` are
    those that go with it."""

    conversation: Conversation | None = None
    runs: tuple[str, ...] = ()


RoomDecision = (
    AddParticipant
    | RemoveParticipant
    | UpdateConversation
    | EndConversation
    | ResetConversation
    | CloseRoom
    | NoteSpent
    | RemoveRecord
)
