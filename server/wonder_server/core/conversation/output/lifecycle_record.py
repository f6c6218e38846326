"""What decisions about the room as a whole write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from wonder_server.core.actor.changes import Change, Emit, Erase, Put
from wonder_server.core.conversation.model.lifecycle_decisions import (
    AddParticipant,
    EndConversation,
    EraseRecord,
    LifecycleDecision,
    MarkDeleted,
    RecordMerge,
    RemoveParticipant,
    ResetConversation,
    SetStaleArchive,
    UpdateConversation,
)
from wonder_server.core.conversation.model.values import Conversation

RECOVERY_DUE_MS: Final = 1
"""When what a crash may leave half done is due: always."""


def record_lifecycle(decision: LifecycleDecision) -> Iterator[Change]:
    """The changes that ``decision`` makes."""
    match decision:
        case AddParticipant():
            yield put_conversation(decision.conversation)
            yield Emit("participant.joined", decision.participant)
        case RemoveParticipant():
            yield put_conversation(decision.conversation)
            yield Emit("participant.left", decision.participant)
        case UpdateConversation():
            yield put_conversation(decision.conversation)
            yield Emit("conversation.updated", decision.conversation)
        case RecordMerge():
            yield put_conversation(decision.conversation)
            yield Emit("branch.merged", decision.merge)
        case EndConversation():
            yield put_conversation(decision.conversation)
            yield Emit("conversation_ended", decision.conversation)
        case ResetConversation():
            yield put_conversation(decision.conversation)
            yield Emit("conversation.reset", decision.reset)
        case MarkDeleted() | SetStaleArchive():
            yield put_conversation(decision.conversation)
        case EraseRecord():
            yield Erase(children=decision.runs, whole=decision.conversation is None)
            if decision.conversation is not None:
                yield put_conversation(decision.conversation)
        case _:
            assert_never(decision)


def put_conversation(conversation: Conversation) -> Put:
    return Put(
        "conversations",
        conversation.id,
        conversation,
        parent=conversation.project_id,
        ordinal=due_ms(conversation),
        status=conversation.status.value,
        alias=conversation.external_ref,
        live=True,
        created_ms=conversation.created_ms,
    )


def due_ms(conversation: Conversation) -> int:
    """When the sweeper has to look at it: when it expires, at once if it is half deleted, half archived or
    half brought back; 0 for never."""
    if (
        conversation.deleted_ms
        or conversation.stale_archive
        or (conversation.archived_ms and not conversation.archive_key)
    ):
        return RECOVERY_DUE_MS
    return 0 if conversation.archive_key else conversation.expire_ms
