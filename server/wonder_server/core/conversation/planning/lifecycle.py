"""The room as a whole: who takes part, whether it is open, its expiry, its end (features B1, B8, B10, B11).

::

    active / waiting ──Complete──▶ completed ──Reopen──▶ active
         │  Expire (nothing under way)
         ▼
    expired ──PutAway──▶ archived ──(its record is brought back)── Rouse ──▶ active
         └──────────── anything said or changed ──────────────────────────────▲

    any ──Vacate──▶ vacated ──Demolish──▶ nothing

An archived conversation has no record here: every input but what brings it back is refused with ``archived``
in the metadata, and whoever asked brings it back and asks again. Archiving and deleting take two steps each,
so that between them its record can be carried away, or what it started can come to its end; a crash in
between is taken up by the sweeper (``actors/conversation/lifecycle.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

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
    Reopen,
    ReportMerge,
    Reset,
    RestoreArchived,
    Update,
)
from wonder_server.core.conversation.model.operations import Decisions, agent_message, cancel_pending
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import OPEN
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
"""Users and agents that may take part in one conversation."""


def plan_lifecycle(state: ConversationState, event: LifecycleInput, now: int) -> Decisions:
    """What to do about what concerns the room."""
    conversation = state.conversation
    missing = (
        None
        if isinstance(event, FinishDeletion | RestoreArchived | CompleteArchiving | ReleaseArchiveObject)
        else unavailable(conversation)
    )
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
            return _begin_deletion(state, conversation, now)
        case BeginArchiving():
            return _begin_archiving(state, conversation, event, now)
        case CompleteArchiving():
            if conversation.archived_ms != event.archived_ms or conversation.deleted_ms or state.operations:
                # Something was done with it meanwhile.
                return (SetStaleArchive(conversation=replace(conversation, stale_archive=event.archive_key)),)
            return (
                EraseRecord(
                    conversation=replace(conversation, archive_key=event.archive_key), runs=event.runs
                ),
            )
        case ReleaseArchiveObject():
            return (
                ()
                if conversation.stale_archive != event.archive_object
                else (SetStaleArchive(conversation=replace(conversation, stale_archive="")),)
            )
        case (
            Join() | Leave() | Update() | ReportMerge() | Complete() | Reopen() | Reset() | RestoreArchived()
        ):
            reactivated, conversation = reactivate(
                conversation, now, event.archive_object if isinstance(event, RestoreArchived) else ""
            )
            decided = _change(state, conversation, event, now)
            refused = any(isinstance(decision, Refuse) for decision in decided)
            return decided if refused else (*reactivated, *decided)
        case _:
            assert_never(event)


def unavailable(conversation: Conversation | None) -> Fault | None:
    """Why nothing can be done with the room: there is none, or it lies in the archive."""
    if conversation is None or conversation.deleted_ms:
        return Fault(
            reason=Reason.CONVERSATION_NOT_FOUND,
            message="No conversation has this id.",
            field="conversation_id",
        )
    if conversation.archive_key:
        return Fault(
            reason=Reason.CONVERSATION_NOT_ACTIVE,
            message="The conversation lies in the archive; it is brought back when it is read.",
            metadata={"archived": "true"},
            transient=True,
        )
    return None


def reactivate(
    conversation: Conversation, now: int, archive_object: str = ""
) -> tuple[Decisions, Conversation]:
    """The room as it is when something is done with it, were it about to be archived; what leads there.
    ``spent``: the object that it comes back from."""
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
        conversation, version=conversation.version + 1, updated_ms=max(now, conversation.updated_ms)
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
        turns = [turn for turn in state.active_turns() if turn.agent_id == leaving.id]
        ended = cancel_turns(state, turns, fault, event.partial_texts, now)
    return (RemoveParticipant(conversation=remaining, participant=leaving), *ended)


def _update(
    state: ConversationState, conversation: Conversation, changed: Conversation, event: Update, now: int
) -> Decisions:
    given: dict[str, Any] = {
        name: getattr(event, name)
        for name in ("title", "external_ref", "metadata", "expire_ms")
        if getattr(event, name) is not None
    }
    if event.expire_ms is not None:
        if event.expire_ms and event.expire_ms <= now:
            message = "The time of expiry must lie ahead; leave it unset for never."
            return _refuse(Reason.FIELD_INVALID, message, "conversation.expire_time")
        given["expire_after_ms"] = event.expire_ms - now if event.expire_ms else 0
    if event.budget is not None:
        given |= _budgeted(state, conversation, event.budget, now)
    revised = replace(changed, **given)
    if replace(revised, version=conversation.version, updated_ms=conversation.updated_ms) == conversation:
        return ()
    return (UpdateConversation(conversation=revised),)


def _budgeted(
    state: ConversationState, conversation: Conversation, budget: Budget, now: int
) -> dict[str, Any]:
    """What changes with the room's budget: time is counted as long as that asks for it."""
    counted, counts = conversation.budget.max_duration_ms > 0, budget.max_duration_ms > 0
    since, busy = conversation.busy_since_ms, conversation.busy_ms
    if counts and not counted:
        since = now if state.active_turns() else 0
    elif counted and not counts and since:
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
    ended = cancel_turns(state, active, fault, event.partial_texts, now)
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
    done = HistoryReset(keep_system_message=event.keep_system_message, last_turn_ordinal=changed.turn_count)
    prompts = event.prompts if event.keep_system_message else ()
    anew = replace(changed, reset_ordinal=changed.turn_count, prompts=prompts)
    return (ResetConversation(conversation=anew, reset=done),)


# --- the end ----------------------------------------------------------------------------------------


def _begin_deletion(state: ConversationState, conversation: Conversation, now: int) -> Decisions:
    fault = Fault(reason=Reason.CANCELLED, message="The conversation was deleted.")
    active = state.active_turns()
    ended = cancel_turns(state, active, fault, {}, now)
    turns = {turn.id for turn in active}
    # Memory that is still being extracted of turns that have ended.
    late = [op for _, op in sorted(state.operations.items()) if op.turn_id not in turns]
    stopped: list[Decision] = [CancelOperation(operation=op) for op in late]
    stopped += [ReleaseTurn(turn_id=turn_id) for turn_id in state.turn_work if turn_id not in turns]
    # Its name is free again from now on.
    closed = replace(conversation, deleted_ms=now, external_ref="", version=conversation.version + 1)
    return (*ended, *stopped, MarkDeleted(conversation=closed))


def _begin_archiving(
    state: ConversationState, conversation: Conversation, event: BeginArchiving, now: int
) -> Decisions:
    due = event.forced or 0 < conversation.expire_ms <= now
    if conversation.archived_ms or not due or state.operations or state.active_turns():
        return ()
    return (UpdateConversation(conversation=replace(conversation, archived_ms=now, updated_ms=now)),)


# --- pieces -----------------------------------------------------------------------------------------


def cancel_turns(
    state: ConversationState, turns: list[Turn], fault: Fault, partial_texts: Mapping[str, str], now: int
) -> list[Decision]:
    """End these active turns; what their models had said stands as partial messages."""
    decisions: list[Decision] = []
    conversation = state.conversation
    assert conversation is not None, "turns are in a room"
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
        decisions += [EndTurnByCancel(turn=ended), ReleaseTurn(turn_id=turn.id)]
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
