"""Rows and events of decisions about the conversation as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.actor.changes import Change, Emit, Erase, Put
from wonder_server.core.conversation.model.histories.staging import PublishConversation
from wonder_server.core.conversation.model.lifecycle_decisions import (
    AddParticipant,
    EndConversation,
    EraseRecord,
    MarkDeleted,
    RecordMerge,
    RemoveParticipant,
    ResetConversation,
    SetStaleArchive,
    UpdateConversation,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import is_staged
from wonder_server.core.conversation.model.values import Conversation

RECOVERY_DUE_MS: Final = 1
"""Due time of a conversation that a crash may leave half made, deleted or archived: always in the past."""


def participant_added(_: ConversationState, decision: AddParticipant) -> Sequence[Change]:
    return put_conversation(decision.conversation), Emit("participant.joined", decision.participant)


def participant_removed(_: ConversationState, decision: RemoveParticipant) -> Sequence[Change]:
    return put_conversation(decision.conversation), Emit("participant.left", decision.participant)


def conversation_updated(
    _: ConversationState, decision: UpdateConversation | PublishConversation
) -> Sequence[Change]:
    return put_conversation(decision.conversation), Emit("conversation.updated", decision.conversation)


def branch_merged(_: ConversationState, decision: RecordMerge) -> Sequence[Change]:
    return put_conversation(decision.conversation), Emit("branch.merged", decision.merge)


def conversation_ended(_: ConversationState, decision: EndConversation) -> Sequence[Change]:
    return put_conversation(decision.conversation), Emit("conversation_ended", decision.conversation)


def conversation_reset(_: ConversationState, decision: ResetConversation) -> Sequence[Change]:
    return put_conversation(decision.conversation), Emit("conversation.reset", decision.reset)


def conversation_row(_: ConversationState, decision: MarkDeleted | SetStaleArchive) -> Sequence[Change]:
    return (put_conversation(decision.conversation),)


def record_erased(_: ConversationState, decision: EraseRecord) -> Sequence[Change]:
    erase = Erase(children=decision.runs, whole=decision.conversation is None)
    if decision.conversation is None:
        return (erase,)
    return erase, put_conversation(decision.conversation)


def put_conversation(conversation: Conversation) -> Put:
    """Return the row of the conversation."""
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
    """Return the time at which the expiry sweeper processes the conversation; 0 for never.

    The time is that of its expiry, or `RECOVERY_DUE_MS` while creation, deletion, archiving or restoring is
    incomplete.
    """
    if (
        is_staged(conversation)
        or conversation.deleted_ms
        or conversation.stale_archive
        or (conversation.archived_ms and not conversation.archive_key)
    ):
        return RECOVERY_DUE_MS
    return 0 if conversation.archive_key else conversation.expire_ms
