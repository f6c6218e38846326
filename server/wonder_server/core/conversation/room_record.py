"""What decisions about the room as a whole write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from wonder_server.core.conversation.room_decisions import (
    AddParticipant,
    CloseRoom,
    EndConversation,
    NoteSpent,
    RecordMerge,
    RemoveParticipant,
    RemoveRecord,
    ResetConversation,
    RoomDecision,
    UpdateConversation,
)
from wonder_server.core.conversation.values import Conversation
from wonder_server.core.records import Change, Emit, Erase, Put

HALF_DONE_MS: Final = 1
"""When what a crash may leave half done is due: always."""


def record_room(decision: RoomDecision) -> Iterator[Change]:
    """The changes that ``decision`` makes."""
    match decision:
        case AddParticipant():
            yield put_room(decision.conversation)
            yield Emit("participant.joined", decision.participant)
        case RemoveParticipant():
            yield put_room(decision.conversation)
            yield Emit("participant.left", decision.participant)
        case UpdateConversation():
            yield put_room(decision.conversation)
            yield Emit("conversation.updated", decision.conversation)
        case RecordMerge():
            yield put_room(decision.conversation)
            yield Emit("branch.merged", decision.merge)
        case EndConversation():
            yield put_room(decision.conversation)
            yield Emit("conversation_ended", decision.conversation)
        case ResetConversation():
            yield put_room(decision.conversation)
            yield Emit("conversation.reset", decision.reset)
        case CloseRoom() | NoteSpent():
            yield put_room(decision.conversation)
        case RemoveRecord():
            yield Erase(children=decision.runs, whole=decision.conversation is None)
            if decision.conversation is not None:
                yield put_room(decision.conversation)
        case _:
            assert_never(decision)


def put_room(room: Conversation) -> Put:
    return Put(
        "conversations",
        room.id,
        room,
        parent=room.project_id,
        ordinal=due_ms(room),
        status=room.status.value,
        alias=room.external_ref,
        live=True,
        created_ms=room.created_ms,
    )


def due_ms(room: Conversation) -> int:
    """When the sweeper has to look at it: when it expires, at once if it is half deleted, half archived or
    half brought back; 0 for never."""
    if room.deleted_ms or room.spent or (room.archived_ms and not room.archive):
        return HALF_DONE_MS
    return 0 if room.archive else room.expire_ms
