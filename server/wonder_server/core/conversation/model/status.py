"""Status of a conversation: ``waiting`` while every active turn waits for tools, other agents or people."""

from __future__ import annotations

from collections.abc import Collection

from wonder_server.core.conversation.model.values import (
    Conversation,
    ConversationStatus,
    Operation,
    OperationKind,
    Turn,
    TurnStatus,
)

OPEN = (ConversationStatus.ACTIVE, ConversationStatus.WAITING)


def is_staged(conversation: Conversation) -> bool:
    """Return True while the history of a new conversation is incomplete. Reads do not find it then."""
    return conversation.origin is not None and conversation.origin.staged_ms > 0


_OWN_WORK = (OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.EXTRACTION, OperationKind.MEMORY)
"""Operations in which a turn works itself. A turn waits for all other kinds."""


def conversation_status(
    conversation: Conversation, turns: Collection[Turn], operations: Collection[Operation]
) -> ConversationStatus:
    """Return the status of the conversation with these turns and pending operations."""
    if conversation.status not in OPEN:
        return conversation.status
    for operation in operations:
        if operation.kind not in _OWN_WORK:
            break
    else:
        return ConversationStatus.ACTIVE
    awaited = {op.turn_id for op in operations if op.kind not in _OWN_WORK}
    active = {turn.id for turn in turns if turn.status is TurnStatus.ACTIVE}
    working = {op.turn_id for op in operations if op.kind in _OWN_WORK}
    waits = active and active <= awaited - working
    return ConversationStatus.WAITING if waits else ConversationStatus.ACTIVE
