"""The planner of conversations: what the agent loop decides (document 1).

The theory. A turn is a small machine driven by results::

    Send ─▶ assembly ─▶ model ─▶ (no tool calls) ─▶ completed ─▶ extraction ─▶ released
                ▲         │  ▲
              retry       ▼  │ every call that is waited for has its result,
                        tools  or one in the background has come back

Each arrow is an *operation* in the outbox: dispatched after a commit, answered by an input that carries
its id. So the whole state of a turn is "which operations are pending", and a crash at any point leaves a
state from which the same arrows go on. An answer to an operation that is not pending changes nothing:
that is what makes every dispatch safe to repeat.

Laws (``tests/core/test_conversation_plan.py``): same state, input and time, same decisions; `plan` never
raises, a refusal is the value `Refuse`; an active turn always has a pending operation, so nothing is ever
stuck; a turn ends exactly once.

Infrastructure faults (``transient``) are tried again here, with persisted waits: assembly and extraction
3 × (100, 200, 400 ms), models 3 × (500 ms, 1 s, 2 s), tools as they say (feature I3). Everything else is
a business fault: assembly fails the turn, extraction marks it, a tool's fault goes to the model.
"""

from __future__ import annotations

import dataclasses
from typing import assert_never

from wonder_server.core.conversation import tools
from wonder_server.core.conversation.agent_tools import attempt_id
from wonder_server.core.conversation.answering import (
    agent_ended,
    call_model,
    model_answered,
    request_of,
    shortened,
    tool_ended,
    wrapped_up,
)
from wonder_server.core.conversation.calls import called_turn
from wonder_server.core.conversation.decisions import (
    AppendMessage,
    AssemblyFailed,
    CancelOperation,
    ChargeTurn,
    ContextAssembled,
    EndTurnByCancel,
    LimitReached,
    Redispatch,
    ReleaseWork,
    RetryOperation,
    StartConversation,
)
from wonder_server.core.conversation.extraction import extracted, extraction_failed, memory_written
from wonder_server.core.conversation.inputs import (
    CancelCall,
    CancelTurn,
    Create,
    Failed,
    Frugal,
    Input,
    ModelAnswered,
    ModelAsked,
    Restarted,
    Send,
    Succeeded,
    Woken,
)
from wonder_server.core.conversation.limits import time_is_up, within_time
from wonder_server.core.conversation.pieces import (
    Decisions,
    abandoned,
    again,
    agent_message,
    fail_turn,
    hook_paid,
    linked,
    next_child,
    outcome_of,
    paid_by_turn,
    run_began,
    run_ended,
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
    Rouse,
    Vacate,
)
from wonder_server.core.conversation.rooms import plan_room
from wonder_server.core.conversation.sending import refuse, send
from wonder_server.core.conversation.spending import Spent, charged
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.summaries import cut_of, summarized, summary_failed
from wonder_server.core.conversation.unanswered import with_unanswered
from wonder_server.core.conversation.values import (
    Limit,
    Operation,
    OperationKind,
    OperationStatus,
    Turn,
    TurnStatus,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter


def plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    """What to do about ``event``. Pure; never raises."""
    return within_time(state, with_unanswered(state, _plan(state, event, now_ms)))


def _plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    match event:
        # What every turn is made of first: each question takes its time.
        case Succeeded():
            operation = state.operations.get(event.operation_id)
            if operation is None or _is_of_another_attempt(operation, event):
                return ()
            return _succeeded(state, operation, event, now_ms)
        case Send():
            return send(state, event, now_ms)
        case ModelAnswered():
            operation = state.operations.get(event.operation_id)
            if operation is None or operation.kind is not OperationKind.MODEL:
                return ()
            return model_answered(state, operation, event, now_ms)
        case Create():
            return _create(state, event)
        case CancelTurn():
            return _cancel(state, event, now_ms)
        case CancelCall():
            turn = called_turn(state, event.operation_id)
            return () if turn is None else _cancel_call(state, turn, event, now_ms)
        case Failed():
            operation = state.operations.get(event.operation_id)
            if operation is None or _is_of_another_attempt(operation, event):
                return ()
            return _failed(state, operation, event.fault, now_ms, event.spoken)
        case ModelAsked():
            return paid_by_turn(state, event)
        case Frugal():
            operation = state.operations.get(event.operation_id)
            if operation is None or operation.kind is not OperationKind.MODEL:
                return ()
            return wrapped_up(state, operation, event.fault, now_ms)
        case Woken():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _woken(state, operation, event.spoken, now_ms)
        case Restarted():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _restarted(state, operation, now_ms, metered=event.metered)
        case Join() | Leave() | Revise() | NoteMerge() | Complete() | Reopen() | Reset():
            return plan_room(state, event, now_ms)
        case Vacate() | Demolish() | Expire() | PutAway() | Rouse() | Discard():
            return plan_room(state, event, now_ms)
        case _:
            assert_never(event)


# --- the room ---------------------------------------------------------------------------------------


def _create(state: ConversationState, event: Create) -> Decisions:
    if state.conversation is not None:
        return refuse(Reason.ALREADY_EXISTS, "This conversation already exists.")
    return (StartConversation(conversation=event.conversation),)


def _half_said(
    state: ConversationState, operation: Operation, turn: Turn, spoken: str, now: int
) -> Decisions:
    """What a model call had said before it was cut off stands as a partial message."""
    if not spoken or operation.kind is not OperationKind.MODEL or state.conversation is None:
        return ()
    message = agent_message(state.conversation, turn, operation.message_id, spoken, now, partial=True)
    return (AppendMessage(message=message),)


def _cancel(state: ConversationState, event: CancelTurn, now: int) -> Decisions:
    turn = state.turns.get(event.turn_id)
    if turn is None:
        return refuse(Reason.TURN_NOT_FOUND, "No turn of this conversation has this id.")
    if turn.status is not TurnStatus.ACTIVE:
        return refuse(Reason.TURN_NOT_ACTIVE, f"The turn is already {turn.status.value}; nothing to cancel.")
    fault = Fault(reason=Reason.CANCELLED, message=event.reason or "The turn was cancelled.")
    return _end_by_cancel(state, turn, fault, event.spoken, now)


def _cancel_call(state: ConversationState, turn: Turn, event: CancelCall, now: int) -> Decisions:
    if turn.status is not TurnStatus.ACTIVE:
        return ()
    fault = Fault(reason=Reason.CANCELLED, message="Nobody waits for the turn any more.")
    return _end_by_cancel(state, replace(turn, parent=None), fault, event.spoken, now)


def _end_by_cancel(state: ConversationState, turn: Turn, fault: Fault, spoken: str, now: int) -> Decisions:
    decisions = abandoned(state, turn.id, now)
    for operation in state.pending(turn.id):
        decisions.extend(_half_said(state, operation, turn, spoken, now))
    ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
    return (*decisions, EndTurnByCancel(turn=ended), ReleaseWork(turn_id=turn.id))


# --- results ----------------------------------------------------------------------------------------


def _is_of_another_attempt(operation: Operation, event: Succeeded | Failed) -> bool:
    """Whether an attempt that was given up says so: its run, being stopped, still answers. Nothing can
    fail between two attempts either; a late success is welcome."""
    # A turn that was looped in by an earlier server names the room alone.
    if event.run_id not in ("", operation.run_id, attempt_id(operation)):
        return True
    return isinstance(event, Failed) and operation.status is OperationStatus.BACKOFF


def _succeeded(state: ConversationState, operation: Operation, event: Succeeded, now: int) -> Decisions:
    ids = Minter(operation.id, now)
    match operation.kind:
        case OperationKind.ASSEMBLY:
            return _assembled(state, operation, event, ids, now)
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = tools.success(operation, event.output, now)
            ended = tool_ended(state, state.turns[operation.turn_id], operation, result, ids, now)
            return (*_run_told(operation, now), *ended)
        case OperationKind.AGENT:
            return agent_ended(state, operation, ids, now, output=event.output)
        case OperationKind.SUMMARY:
            return summarized(state, operation, event.output, ids, now)
        case OperationKind.EXTRACTION:
            done = extracted(state, operation, event.output, ids, now)
            return _failed(state, operation, done, now) if isinstance(done, Fault) else done
        case OperationKind.MEMORY:
            return memory_written(state, operation, event.output, now)
        case OperationKind.MODEL:
            return ()
        case _:
            assert_never(operation.kind)


def _assembled(
    state: ConversationState, operation: Operation, event: Succeeded, ids: Minter, now: int
) -> Decisions:
    agent = state.works[operation.turn_id].agent
    request = request_of(event.output, agent)
    if isinstance(request, Fault):
        return _failed(state, operation, request, now)
    turn = linked(state.turns[operation.turn_id], operation)
    turn, paid = hook_paid(turn, operation, event.output)
    return (
        *paid,
        ContextAssembled(
            turn=turn,
            operation_id=operation.id,
            outcome=outcome_of(operation, agent.assembly, now),
        ),
        *call_model(state, turn, agent, request, ids, now, cut=cut_of(operation)),
    )


# --- failures, waits, restarts ----------------------------------------------------------------------


def _failed(
    state: ConversationState, operation: Operation, fault: Fault, now: int, spoken: str = ""
) -> Decisions:
    # The attempt is part of the seed, for an operation can fail more than once.
    ids = Minter(f"{operation.id}/{operation.attempt}", now)
    pause = fault.retry_after_ms or 0
    # Whoever asks for a longer pause than an attempt may last is not waited for, or nobody knows how long.
    patient = not operation.timeout_ms or pause <= operation.timeout_ms
    if fault.transient and operation.attempt < operation.max_attempts and patient:
        wait = operation.backoff_ms * 2 ** (operation.attempt - 1)
        retried = replace(
            operation,
            status=OperationStatus.BACKOFF,
            attempt=operation.attempt + 1,
            run_id=next_child(operation, ids),
            wake_ms=now + max(wait, pause),
        )
        again_later = RetryOperation(operation=retried, fault=fault, run_id=operation.run_id)
        return (again_later, *_run_told(operation, now, fault))
    match operation.kind:
        case OperationKind.ASSEMBLY:
            turn = linked(state.turns[operation.turn_id], operation)
            told = dataclasses.replace(
                fault,
                reason=Reason.CONTEXT_ASSEMBLY_FAILED,
                message=f"The context could not be assembled: {fault.message}",
                metadata={**fault.metadata, "cause": fault.reason.value},
            )
            agent = state.works[turn.id].agent
            failed = AssemblyFailed(
                turn_id=turn.id,
                operation_id=operation.id,
                outcome=outcome_of(operation, agent.assembly, now, fault),
            )
            return (CancelOperation(operation=operation), failed, *fail_turn(turn, told, now))
        case OperationKind.MODEL:
            turn = state.turns[operation.turn_id]
            shorter = shortened(state, operation, fault, ids, now)
            if shorter:
                return (CancelOperation(operation=operation), *shorter)
            limited: Decisions = ()
            if fault.reason is Reason.BUDGET_EXHAUSTED:
                # By its agent's own budget: this attempt was not made.
                operation = replace(operation, status=OperationStatus.BACKOFF)
                limited = (LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True)),)
            return (
                CancelOperation(operation=operation),
                *_half_said(state, operation, turn, spoken, now),
                *limited,
                *abandoned(state, turn.id, now, but=operation.id),
                *fail_turn(turn, fault, now),
            )
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = tools.failure(operation, fault, now)
            ended = tool_ended(state, state.turns[operation.turn_id], operation, result, ids, now)
            return (*_run_told(operation, now, fault), *ended)
        case OperationKind.AGENT:
            return agent_ended(state, operation, ids, now, fault=fault)
        case OperationKind.SUMMARY:
            return summary_failed(state, operation, ids, now)
        case OperationKind.EXTRACTION | OperationKind.MEMORY:
            return extraction_failed(state, operation, fault, now)
        case _:
            assert_never(operation.kind)


def _run_told(operation: Operation, now: int, fault: Fault | None = None) -> Decisions:
    """That the run of a tool call has ended, if a run carries it out; between two attempts none does."""
    if operation.kind is not OperationKind.WORKFLOW or operation.status is not OperationStatus.DISPATCHED:
        return ()
    return (run_ended(operation, now, fault),)


def _woken(state: ConversationState, operation: Operation, spoken: str, now: int) -> Decisions:
    if now < operation.wake_ms:
        return ()
    late = time_is_up(state, operation, now)
    if isinstance(late, Fault):
        return (CancelOperation(operation=operation), *_failed(state, operation, late, now))
    if late is not None:
        return (*_half_said(state, operation, state.turns[operation.turn_id], spoken, now), *late)
    if operation.status is OperationStatus.BACKOFF:
        began = (run_began(operation),) if operation.kind is OperationKind.WORKFLOW else ()
        return (Redispatch(operation=again(operation, now)), *began)
    seconds = operation.timeout_ms / 1000
    fault = Fault(reason=Reason.TIMEOUT, message=f"No result within {seconds:g} s.", transient=True)
    failed = _failed(state, operation, fault, now, spoken)
    if any(isinstance(decision, RetryOperation | CancelOperation) for decision in failed):
        return failed
    # What it did goes on: nobody waits for it any more.
    return (CancelOperation(operation=operation), *failed)


def _restarted(
    state: ConversationState, operation: Operation, now: int, *, metered: bool = False
) -> Decisions:
    if operation.status is OperationStatus.BACKOFF:
        return ()
    if operation.repeatable:
        lost: Decisions = ()
        if metered and operation.kind is OperationKind.MODEL:
            # The call that was under way when the server stopped: its provider may have been asked.
            spent = Spent(model_calls=1, unpriced_calls=1)
            lost = (ChargeTurn(turn=charged(state.turns[operation.turn_id], spent)),)
        return (*lost, Redispatch(operation=again(operation, now)))
    fault = Fault(
        reason=Reason.OUTCOME_UNKNOWN,
        message="The server stopped while this ran; whether it took effect is unknown.",
    )
    return _failed(state, operation, fault, now)
