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
between is taken up by the sweeper (``actors/rooms.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.decisions import (
    AppendMessage,
    CancelOperation,
    Decision,
    EndTurnByCancel,
    Refuse,
    ReleaseWork,
)
from wonder_server.core.conversation.pieces import Decisions, abandoned, agent_message
from wonder_server.core.conversation.room_decisions import (
    AddParticipant,
    CloseRoom,
    EndConversation,
    NoteSpent,
    RecordMerge,
    RemoveParticipant,
    RemoveRecord,
    ResetConversation,
    UpdateConversation,
)
from wonder_server.core.conversation.room_inputs import (
    Complete,
    Demolish,
    Discard,
    Expire,
    Join,
    Leave,
    NoteMerge,
    PutAway,
    Reopen,
    Reset,
    Revise,
    RoomInput,
    Rouse,
    Vacate,
)
from wonder_server.core.conversation.standing import OPEN
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import (
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


def plan_room(state: ConversationState, event: RoomInput, now: int) -> Decisions:
    """What to do about what concerns the room."""
    room = state.conversation
    missing = None if isinstance(event, Demolish | Rouse | PutAway | Discard) else absent(room)
    if missing is not None:
        return (Refuse(fault=missing),)
    if room is None:
        return ()
    version = getattr(event, "version", 0)
    if version and version != room.version:
        return _refuse(Reason.ETAG_MISMATCH, "The conversation has changed; read it again.", "etag")
    match event:
        case Demolish():
            return () if not room.deleted_ms or state.operations else (RemoveRecord(),)
        case Vacate():
            return _vacate(state, room, now)
        case Expire():
            return _expire(state, room, event, now)
        case PutAway():
            if room.archived_ms != event.archived_ms or room.deleted_ms or state.operations:
                # Something was done with it meanwhile.
                return (NoteSpent(conversation=replace(room, spent=event.archive)),)
            return (RemoveRecord(conversation=replace(room, archive=event.archive), runs=event.runs),)
        case Discard():
            return () if room.spent != event.spent else (NoteSpent(conversation=replace(room, spent="")),)
        case Join() | Leave() | Revise() | NoteMerge() | Complete() | Reopen() | Reset() | Rouse():
            woken, room = rouse(room, now, event.spent if isinstance(event, Rouse) else "")
            decided = _change(state, room, event, now)
            refused = any(isinstance(decision, Refuse) for decision in decided)
            return decided if refused else (*woken, *decided)
        case _:
            assert_never(event)


def absent(room: Conversation | None) -> Fault | None:
    """Why nothing can be done with the room: there is none, or it lies in the archive."""
    if room is None or room.deleted_ms:
        return Fault(
            reason=Reason.CONVERSATION_NOT_FOUND,
            message="No conversation has this id.",
            field="conversation_id",
        )
    if room.archive:
        return Fault(
            reason=Reason.CONVERSATION_NOT_ACTIVE,
            message="The conversation lies in the archive; it is brought back when it is read.",
            metadata={"archived": "true"},
            transient=True,
        )
    return None


def rouse(room: Conversation, now: int, spent: str = "") -> tuple[Decisions, Conversation]:
    """The room as it is when something is done with it, were it about to be archived; what leads there.
    ``spent``: the object that it comes back from."""
    if not room.archived_ms:
        return (), room
    again = now + room.expire_after_ms if room.expire_after_ms else 0
    room = replace(
        room, archived_ms=0, archive="", spent=spent or room.spent, expire_ms=again, updated_ms=now
    )
    return (UpdateConversation(conversation=room),), room


# --- changes ----------------------------------------------------------------------------------------


def _change(
    state: ConversationState,
    room: Conversation,
    event: Join | Leave | Revise | NoteMerge | Complete | Reopen | Reset | Rouse,
    now: int,
) -> Decisions:
    changed = replace(room, version=room.version + 1, updated_ms=max(now, room.updated_ms))
    match event:
        case Join():
            return _join(room, changed, event, now)
        case Leave():
            return _leave(state, room, changed, event, now)
        case Revise():
            return _revise(state, room, changed, event, now)
        case NoteMerge():
            return (RecordMerge(conversation=changed, merge=event.merge),)
        case Complete():
            return _complete(state, room, changed, event, now)
        case Reopen():
            if room.status in OPEN:
                return ()
            opened = replace(changed, status=ConversationStatus.ACTIVE)
            return (UpdateConversation(conversation=opened),)
        case Reset():
            return _reset(state, changed, event)
        case Rouse():
            return ()
        case _:
            assert_never(event)


def _join(room: Conversation, changed: Conversation, event: Join, now: int) -> Decisions:
    if room.status not in OPEN:
        return _not_open(room)
    newcomer = replace(event.participant, joined_ms=now)
    if any((one.type, one.id) == (newcomer.type, newcomer.id) for one in room.participants):
        return ()
    if len(room.participants) >= MAX_PARTICIPANTS:
        message = f"The conversation already has {MAX_PARTICIPANTS} participants; remove one."
        return _refuse(Reason.LIMIT_EXCEEDED, message, "participant")
    joined = replace(changed, participants=(*room.participants, newcomer))
    return (AddParticipant(conversation=joined, participant=newcomer),)


def _leave(
    state: ConversationState, room: Conversation, changed: Conversation, event: Leave, now: int
) -> Decisions:
    leaving = next((one for one in room.participants if (one.type, one.id) == (event.type, event.id)), None)
    if leaving is None:
        return ()
    left = replace(changed, participants=tuple(one for one in room.participants if one is not leaving))
    ended: list[Decision] = []
    if leaving.type == "agent":
        fault = Fault(reason=Reason.CANCELLED, message="The agent was removed from the conversation.")
        turns = [turn for turn in state.active_turns() if turn.agent_id == leaving.id]
        ended = cancel_turns(state, turns, fault, event.spoken, now)
    return (RemoveParticipant(conversation=left, participant=leaving), *ended)


def _revise(
    state: ConversationState, room: Conversation, changed: Conversation, event: Revise, now: int
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
        given |= _budgeted(state, room, event.budget, now)
    revised = replace(changed, **given)
    if replace(revised, version=room.version, updated_ms=room.updated_ms) == room:
        return ()
    return (UpdateConversation(conversation=revised),)


def _budgeted(state: ConversationState, room: Conversation, budget: Budget, now: int) -> dict[str, Any]:
    """What changes with the room's budget: time is counted as long as that asks for it."""
    counted, counts = room.budget.max_duration_ms > 0, budget.max_duration_ms > 0
    since, busy = room.busy_since_ms, room.busy_ms
    if counts and not counted:
        since = now if state.active_turns() else 0
    elif counted and not counts and since:
        since, busy = 0, busy + max(0, now - since)
    return {"budget": budget, "busy_since_ms": since, "busy_ms": busy}


def _complete(
    state: ConversationState, room: Conversation, changed: Conversation, event: Complete, now: int
) -> Decisions:
    if room.status not in OPEN:
        return _not_open(room)
    active = state.active_turns()
    if active and not event.cancel_turns:
        return _busy(active)
    fault = Fault(reason=Reason.CANCELLED, message="The conversation was completed.")
    ended = cancel_turns(state, active, fault, event.spoken, now)
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
    done = HistoryReset(keep_system_message=event.keep, last_turn_ordinal=changed.turn_count)
    prompts = event.prompts if event.keep else ()
    anew = replace(changed, reset_ordinal=changed.turn_count, prompts=prompts)
    return (ResetConversation(conversation=anew, reset=done),)


# --- the end ----------------------------------------------------------------------------------------


def _vacate(state: ConversationState, room: Conversation, now: int) -> Decisions:
    fault = Fault(reason=Reason.CANCELLED, message="The conversation was deleted.")
    active = state.active_turns()
    ended = cancel_turns(state, active, fault, {}, now)
    turns = {turn.id for turn in active}
    # Memory that is still being extracted of turns that have ended.
    late = [op for _, op in sorted(state.operations.items()) if op.turn_id not in turns]
    stopped: list[Decision] = [CancelOperation(operation=op) for op in late]
    stopped += [ReleaseWork(turn_id=turn_id) for turn_id in state.works if turn_id not in turns]
    # Its name is free again from now on.
    closed = replace(room, deleted_ms=now, external_ref="", version=room.version + 1)
    return (*ended, *stopped, CloseRoom(conversation=closed))


def _expire(state: ConversationState, room: Conversation, event: Expire, now: int) -> Decisions:
    due = event.forced or 0 < room.expire_ms <= now
    if room.archived_ms or not due or state.operations or state.active_turns():
        return ()
    return (UpdateConversation(conversation=replace(room, archived_ms=now, updated_ms=now)),)


# --- pieces -----------------------------------------------------------------------------------------


def cancel_turns(
    state: ConversationState, turns: list[Turn], fault: Fault, spoken: Mapping[str, str], now: int
) -> list[Decision]:
    """End these active turns; what their models had said stands as partial messages."""
    decisions: list[Decision] = []
    room = state.conversation
    assert room is not None, "turns are in a room"
    for turn in turns:
        decisions += abandoned(state, turn.id, now)
        model = next((op for op in state.pending(turn.id) if op.kind is OperationKind.MODEL), None)
        if model is not None and spoken.get(turn.id):
            message = agent_message(room, turn, model.message_id, spoken[turn.id], now, partial=True)
            room = replace(room, message_count=room.message_count + 1)
            decisions.append(AppendMessage(message=message))
        ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
        decisions += [EndTurnByCancel(turn=ended), ReleaseWork(turn_id=turn.id)]
    return decisions


def _not_open(room: Conversation) -> Decisions:
    message = f"The conversation is {room.status.value}; reopen it first."
    return _refuse(Reason.CONVERSATION_NOT_ACTIVE, message)


def _busy(active: list[Turn]) -> Decisions:
    message = f"{len(active)} turns are active; wait for them or cancel them."
    if len(active) == 1:
        message = "A turn is active; wait for it or cancel it."
    fault = Fault(reason=Reason.RESOURCE_IN_USE, message=message, metadata={"turn": active[0].id})
    return (Refuse(fault=fault),)


def _refuse(reason: Reason, message: str, field: str = "") -> Decisions:
    return (Refuse(fault=Fault(reason=reason, message=message, field=field)),)
