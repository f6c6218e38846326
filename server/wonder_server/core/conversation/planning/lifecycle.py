"""The conversation as a whole: participants, completion, expiry, archiving, deletion (features B1, B8, B10,
B11).

::

    active / waiting ──Complete──▶ completed ──Reopen──▶ active
         │  BeginArchiving (idle)
         ▼
    expired ──CompleteArchiving──▶ archived ──RestoreArchived──▶ active
         └────────────── any message or change ────────────────────▲

    any ──BeginDeletion──▶ deleting ──FinishDeletion──▶ deleted

An archived conversation has only one row here. The planner rejects every input except the restoring one,
with ``archived`` in the fault's metadata. The caller then restores the conversation and repeats its
request.

Archiving and deletion take two steps each. Between them the runtime copies the record to the archive, or
waits for the end of the conversation's work. The expiry sweeper resumes after a crash
(``actors/conversation/lifecycle.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model.decisions import (
    AppendMessage,
    CancelOperation,
    Decision,
    EndTurnByCancel,
    Refuse,
    ReleaseTurn,
)
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
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginArchiving,
    BeginDeletion,
    Complete,
    CompleteArchiving,
    FinishDeletion,
    Join,
    Leave,
    LifecycleInput,
    ReleaseArchiveObject,
    ReleaseExternalRef,
    Reopen,
    ReportMerge,
    Reset,
    RestoreArchived,
    Update,
)
from wonder_server.core.conversation.model.operations import Decisions, agent_message, cancel_pending
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import OPEN, is_staged
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.values import (
    Conversation,
    ConversationStatus,
    HistoryReset,
    OperationKind,
    Turn,
    TurnStatus,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace

MAX_PARTICIPANTS = 100
"""Maximum number of users and agents in one conversation."""


_INPUTS_OF_ARCHIVED = (
    FinishDeletion | RestoreArchived | CompleteArchiving | ReleaseArchiveObject | ReleaseExternalRef
)
"""Inputs that an archived or deleted conversation takes."""


def plan_lifecycle(state: ConversationState, event: LifecycleInput, now: int) -> Decisions:
    """Return the decisions for an input about the conversation as a whole."""
    conversation = state.conversation
    if not isinstance(event, _INPUTS_OF_ARCHIVED):
        missing = unavailable(conversation)
        if missing is not None:
            return (Refuse(fault=missing),)
    if conversation is None:
        return ()
    version = getattr(event, "version", 0)
    if version and version != conversation.version:
        return _refuse(Reason.ETAG_MISMATCH, "The conversation has changed; read it again.", "etag")
    match event:
        case FinishDeletion():
            return () if not conversation.deleted_ms or state.operations else (EraseRecord(),)
        case BeginDeletion():
            return _begin_deletion(state, conversation, event.principal, now)
        case BeginArchiving() | CompleteArchiving() | ReleaseArchiveObject() | ReleaseExternalRef():
            return _plan_archiving(state, conversation, event, now)
        case _:
            archive_object = event.archive_object if isinstance(event, RestoreArchived) else ""
            reactivated, conversation = reactivate(conversation, now, archive_object)
            changes = _change(state, conversation, event, now)
            rejected = any(isinstance(decision, Refuse) for decision in changes)
            return changes if rejected else (*reactivated, *changes)


def unavailable(conversation: Conversation | None) -> Fault | None:
    """Return the fault of a conversation that is deleted, missing, staged or archived; None for any other."""
    if conversation is None or conversation.deleted_ms or is_staged(conversation):
        return Fault(
            reason=Reason.CONVERSATION_NOT_FOUND,
            message="The conversation does not exist or was deleted.",
            field="conversation_id",
        )
    if conversation.archive_key:
        return Fault(
            reason=Reason.CONVERSATION_NOT_ACTIVE,
            message="The conversation is archived. Name it by conversation_id in a request to restore it.",
            metadata={"archived": "true"},
            transient=True,
        )
    return None


def reactivate(
    conversation: Conversation, now: int, archive_object: str = ""
) -> tuple[Decisions, Conversation]:
    """Return the decisions that end archiving, and the conversation after them.

    ``archive_object`` is the object that the conversation was restored from.
    """
    if not conversation.archived_ms:
        return (), conversation
    expire_ms = now + conversation.expire_after_ms if conversation.expire_after_ms else 0
    conversation = replace(
        conversation,
        archived_ms=0,
        archive_key="",
        stale_archive=archive_object or conversation.stale_archive,
        expire_ms=expire_ms,
        updated_ms=now,
    )
    return (UpdateConversation(conversation=conversation),), conversation


# --- changes ----------------------------------------------------------------------------------------


def _change(
    state: ConversationState,
    conversation: Conversation,
    event: Join | Leave | Update | ReportMerge | Complete | Reopen | Reset | RestoreArchived,
    now: int,
) -> Decisions:
    changed = replace(
        conversation,
        version=conversation.version + 1,
        updated_ms=max(now, conversation.updated_ms),
        updated_by=getattr(event, "principal", ""),
    )
    match event:
        case Join():
            return _join(conversation, changed, event, now)
        case Leave():
            return _leave(state, conversation, changed, event, now)
        case Update():
            return _update(state, conversation, changed, event, now)
        case ReportMerge():
            return (RecordMerge(conversation=changed, merge=event.merge),)
        case Complete():
            return _complete(state, conversation, changed, event, now)
        case Reopen():
            if conversation.status in OPEN:
                return ()
            opened = replace(changed, status=ConversationStatus.ACTIVE)
            return (UpdateConversation(conversation=opened),)
        case Reset():
            return _reset(state, changed, event)
        case RestoreArchived():
            return ()
        case _:
            assert_never(event)


def _join(conversation: Conversation, changed: Conversation, event: Join, now: int) -> Decisions:
    if conversation.status not in OPEN:
        return _not_open(conversation)
    participant = replace(event.participant, joined_ms=now)
    if any((one.type, one.id) == (participant.type, participant.id) for one in conversation.participants):
        return ()
    if len(conversation.participants) >= MAX_PARTICIPANTS:
        message = f"The conversation already has {MAX_PARTICIPANTS} participants; remove one."
        return _refuse(Reason.LIMIT_EXCEEDED, message, "participant")
    joined = replace(changed, participants=(*conversation.participants, participant))
    return (AddParticipant(conversation=joined, participant=participant),)


def _leave(
    state: ConversationState, conversation: Conversation, changed: Conversation, event: Leave, now: int
) -> Decisions:
    leaving = next(
        (one for one in conversation.participants if (one.type, one.id) == (event.type, event.id)), None
    )
    if leaving is None:
        return ()
    remaining = replace(
        changed, participants=tuple(one for one in conversation.participants if one is not leaving)
    )
    ended: list[Decision] = []
    if leaving.type == "agent":
        fault = Fault(reason=Reason.CANCELLED, message="The agent was removed from the conversation.")
        turns = [turn for turn in _unfinished(state) if turn.agent_id == leaving.id]
        turns = [replace(turn, cancelled_by=event.principal) for turn in turns]
        ended = cancel_turns(state, turns, fault, event.partial_texts, now)
    return (RemoveParticipant(conversation=remaining, participant=leaving), *ended)


def _update(
    state: ConversationState, conversation: Conversation, changed: Conversation, event: Update, now: int
) -> Decisions:
    given: dict[str, object] = {
        name: getattr(event, name)
        for name in ("title", "external_ref", "metadata", "expire_ms", "concurrent_turns")
        if getattr(event, name) is not None
    }
    if event.expire_ms is not None:
        if event.expire_ms and event.expire_ms <= now:
            message = "expire_time must be in the future. Leave it unset to never expire."
            return _refuse(Reason.FIELD_INVALID, message, "conversation.expire_time")
        given["expire_after_ms"] = event.expire_ms - now if event.expire_ms else 0
    if event.budget is not None:
        given |= _budget_fields(state, conversation, event.budget, now)
    updated = replace(changed, **given)
    unchanged = replace(
        updated,
        version=conversation.version,
        updated_ms=conversation.updated_ms,
        updated_by=conversation.updated_by,
    )
    if unchanged == conversation:
        return ()
    return (UpdateConversation(conversation=updated),)


def _budget_fields(
    state: ConversationState, conversation: Conversation, budget: Budget, now: int
) -> dict[str, object]:
    """Return the fields that change with the budget. Busy time is counted only while a budget limits it."""
    was_counted, is_counted = conversation.budget.max_duration_ms > 0, budget.max_duration_ms > 0
    since, busy = conversation.busy_since_ms, conversation.busy_ms
    if is_counted and not was_counted:
        since = now if state.active_turns() else 0
    elif was_counted and not is_counted and since:
        since, busy = 0, busy + max(0, now - since)
    return {"budget": budget, "busy_since_ms": since, "busy_ms": busy}


def _complete(
    state: ConversationState, conversation: Conversation, changed: Conversation, event: Complete, now: int
) -> Decisions:
    if conversation.status not in OPEN:
        return _not_open(conversation)
    active = state.active_turns()
    if active and not event.cancel_turns:
        return _busy(active)
    fault = Fault(reason=Reason.CANCELLED, message="The conversation was completed.")
    cancelled = [replace(turn, cancelled_by=event.principal) for turn in _unfinished(state)]
    ended = cancel_turns(state, cancelled, fault, event.partial_texts, now)
    completed = replace(
        changed,
        status=ConversationStatus.COMPLETED,
        message_count=changed.message_count + sum(isinstance(d, AppendMessage) for d in ended),
    )
    return (*ended, EndConversation(conversation=completed))


def _reset(state: ConversationState, changed: Conversation, event: Reset) -> Decisions:
    active = state.active_turns()
    if active:
        return _busy(active)
    reset = HistoryReset(keep_system_message=event.keep_system_message, last_turn_ordinal=changed.turn_count)
    prompts = event.prompts if event.keep_system_message else ()
    hidden = replace(changed, reset_ordinal=changed.turn_count, prompts=prompts)
    if event.rules:
        hidden = replace(hidden, reset_messages=changed.message_count)
    return (ResetConversation(conversation=hidden, reset=reset),)


# --- deletion and archiving -------------------------------------------------------------------------


def _begin_deletion(
    state: ConversationState, conversation: Conversation, principal: str, now: int
) -> Decisions:
    fault = Fault(reason=Reason.CANCELLED, message="The conversation was deleted.")
    active = [replace(turn, cancelled_by=principal) for turn in _unfinished(state)]
    ended = cancel_turns(state, active, fault, {}, now)
    turns = {turn.id for turn in active}
    # Operations of ended turns: memory extraction.
    extractions = [op for _, op in sorted(state.operations.items()) if op.turn_id not in turns]
    stopped: list[Decision] = [CancelOperation(operation=op) for op in extractions]
    stopped += [ReleaseTurn(turn_id=turn_id) for turn_id in state.turn_work if turn_id not in turns]
    # Another conversation may use the external_ref from now on.
    deleted = replace(
        conversation,
        deleted_ms=now,
        external_ref="",
        version=conversation.version + 1,
        updated_by=principal,
    )
    return (*ended, *stopped, MarkDeleted(conversation=deleted))


def _plan_archiving(
    state: ConversationState,
    conversation: Conversation,
    event: BeginArchiving | CompleteArchiving | ReleaseArchiveObject | ReleaseExternalRef,
    now: int,
) -> Decisions:
    match event:
        case BeginArchiving():
            return _begin_archiving(state, conversation, event, now)
        case CompleteArchiving():
            return _complete_archiving(state, conversation, event)
        case ReleaseArchiveObject():
            return _release_archive_object(conversation, event)
        case ReleaseExternalRef():
            return _release_external_ref(state, conversation, event, now)


def _begin_archiving(
    state: ConversationState, conversation: Conversation, event: BeginArchiving, now: int
) -> Decisions:
    due = event.forced or has_expired(conversation, now)
    if conversation.archived_ms or not due or state.operations or state.active_turns():
        return ()
    return (UpdateConversation(conversation=replace(conversation, archived_ms=now, updated_ms=now)),)


def _complete_archiving(
    state: ConversationState, conversation: Conversation, event: CompleteArchiving
) -> Decisions:
    if conversation.archived_ms != event.archived_ms or conversation.deleted_ms or state.operations:
        # The conversation has changed since archiving began, so the object is stale.
        return (SetStaleArchive(conversation=replace(conversation, stale_archive=event.archive_key)),)
    archived = replace(conversation, archive_key=event.archive_key)
    return (EraseRecord(conversation=archived, runs=event.runs),)


def _release_archive_object(conversation: Conversation, event: ReleaseArchiveObject) -> Decisions:
    if conversation.stale_archive != event.archive_object:
        return ()
    return (SetStaleArchive(conversation=replace(conversation, stale_archive="")),)


def _release_external_ref(
    state: ConversationState, conversation: Conversation, event: ReleaseExternalRef, now: int
) -> Decisions:
    is_busy = bool(state.operations or state.active_turns())
    is_holder = bool(event.external_ref) and conversation.external_ref == event.external_ref
    if not is_holder or is_busy or conversation.deleted_ms or not has_expired(conversation, now):
        return ()
    released = replace(
        conversation,
        external_ref="",
        former_external_ref=event.external_ref,
        version=conversation.version + 1,
        updated_ms=max(now, conversation.updated_ms),
        updated_by=event.principal,
    )
    return (UpdateConversation(conversation=released),)


def has_expired(conversation: Conversation, now_ms: int) -> bool:
    """Return True if the conversation is archived, or due for it."""
    return conversation.archived_ms > 0 or 0 < conversation.expire_ms <= now_ms


def _unfinished(state: ConversationState) -> list[Turn]:
    return [*state.active_turns(), *state.queued_turns()]


# --- shared functions -------------------------------------------------------------------------------


def cancel_turns(
    state: ConversationState, turns: list[Turn], fault: Fault, partial_texts: Mapping[str, str], now: int
) -> list[Decision]:
    """Return the decisions that cancel these active turns. Texts that models had streamed become partial
    messages.
    """
    decisions: list[Decision] = []
    conversation = state.conversation
    assert conversation is not None, "an active turn has a conversation"
    for turn in turns:
        decisions += cancel_pending(state, turn.id, now)
        model = next((op for op in state.pending(turn.id) if op.kind is OperationKind.MODEL), None)
        if model is not None and partial_texts.get(turn.id):
            message = agent_message(
                conversation, turn, model.message_id, partial_texts[turn.id], now, partial=True
            )
            conversation = replace(conversation, message_count=conversation.message_count + 1)
            decisions.append(AppendMessage(message=message))
        ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
        decisions += [EndTurnByCancel(turn=progress_of(ended)), ReleaseTurn(turn_id=turn.id)]
    return decisions


def _not_open(conversation: Conversation) -> Decisions:
    message = f"The conversation is {conversation.status.value}; reopen it first."
    return _refuse(Reason.CONVERSATION_NOT_ACTIVE, message)


def _busy(active: list[Turn]) -> Decisions:
    message = f"{len(active)} turns are active; wait for them or cancel them."
    if len(active) == 1:
        message = "A turn is active; wait for it or cancel it."
    fault = Fault(reason=Reason.RESOURCE_IN_USE, message=message, metadata={"turn": active[0].id})
    return (Refuse(fault=fault),)


def _refuse(reason: Reason, message: str, field: str = "") -> Decisions:
    return (Refuse(fault=Fault(reason=reason, message=message, field=field)),)
