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

Laws (``tests/core/conversation/test_plan.py``): same state, input and time, same decisions; `plan` never
raises, a refusal is the value `Refuse`; an active turn always has a pending operation, so nothing is ever
stuck; a turn ends exactly once.

Infrastructure faults (``transient``) are tried again here, with persisted waits: assembly and extraction
3 × (100, 200, 400 ms), models 3 × (500 ms, 1 s, 2 s), tools as they say (feature I3). Everything else is
a business fault: assembly fails the turn, extraction marks it, a tool's fault goes to the model.
"""

from __future__ import annotations

import dataclasses
from typing import assert_never

from wonder_server.core.conversation.model.agent_tools import attempt_id
from wonder_server.core.conversation.model.decisions import (
    AppendMessage,
    AssemblyFailed,
    CancelOperation,
    ChargeTurn,
    ContextAssembled,
    EndTurnByCancel,
    LimitReached,
    Redispatch,
    ReleaseTurn,
    RetryOperation,
    StartConversation,
)
from wonder_server.core.conversation.model.inputs import (
    BudgetNearlyExhausted,
    CancelCall,
    CancelTurn,
    Create,
    Failed,
    Input,
    ModelAnswered,
    ModelUsageReported,
    Restarted,
    Send,
    Succeeded,
    TimerFired,
)
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginArchiving,
    BeginDeletion,
    Complete,
    CompleteArchiving,
    FinishDeletion,
    Join,
    Leave,
    ReleaseArchiveObject,
    Reopen,
    ReportMerge,
    Reset,
    RestoreArchived,
    Update,
)
from wonder_server.core.conversation.model.operations import (
    Decisions,
    agent_message,
    cancel_pending,
    charge_hook,
    charge_model_usage,
    fail_turn,
    hook_outcome,
    next_child,
    retry_operation,
    run_ended,
    run_started,
    with_hook_run,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import UsageDelta, add_usage
from wonder_server.core.conversation.model.values import (
    Limit,
    Operation,
    OperationKind,
    OperationStatus,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planning import tool_calls
from wonder_server.core.conversation.planning.abandoned_calls import charge_abandoned_calls
from wonder_server.core.conversation.planning.agent_calls import called_turn
from wonder_server.core.conversation.planning.agent_loop import (
    agent_ended,
    call_model,
    model_answered,
    request_of,
    retry_shortened,
    retry_wrap_up,
    tool_ended,
)
from wonder_server.core.conversation.planning.extraction import extracted, extraction_failed, memory_written
from wonder_server.core.conversation.planning.lifecycle import plan_lifecycle
from wonder_server.core.conversation.planning.limits import clamp_timers, handle_turn_timeout
from wonder_server.core.conversation.planning.start_turn import refuse, start_turn
from wonder_server.core.conversation.planning.summarization import (
    history_truncation,
    summarized,
    summary_failed,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter


def plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    """What to do about ``event``. Pure; never raises."""
    return clamp_timers(state, charge_abandoned_calls(state, _plan(state, event, now_ms)))


def _plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    match event:
        # What every turn is made of first: each question takes its time.
        case Succeeded():
            operation = state.operations.get(event.operation_id)
            if operation is None or _is_of_another_attempt(operation, event):
                return ()
            return _succeeded(state, operation, event, now_ms)
        case Send():
            return start_turn(state, event, now_ms)
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
            return _failed(state, operation, event.fault, now_ms, event.partial_text)
        case ModelUsageReported():
            return charge_model_usage(state, event)
        case BudgetNearlyExhausted():
            operation = state.operations.get(event.operation_id)
            if operation is None or operation.kind is not OperationKind.MODEL:
                return ()
            return retry_wrap_up(state, operation, event.fault, now_ms)
        case TimerFired():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _timer_fired(state, operation, event.partial_text, now_ms)
        case Restarted():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _restarted(state, operation, now_ms, metered=event.metered)
        case Join() | Leave() | Update() | ReportMerge() | Complete() | Reopen() | Reset():
            return plan_lifecycle(state, event, now_ms)
        case (
            BeginDeletion()
            | FinishDeletion()
            | BeginArchiving()
            | CompleteArchiving()
            | RestoreArchived()
            | ReleaseArchiveObject()
        ):
            return plan_lifecycle(state, event, now_ms)
        case _:
            assert_never(event)


# --- the room ---------------------------------------------------------------------------------------


def _create(state: ConversationState, event: Create) -> Decisions:
    if state.conversation is not None:
        return refuse(Reason.ALREADY_EXISTS, "This conversation already exists.")
    return (StartConversation(conversation=event.conversation),)


def _partial_message(
    state: ConversationState, operation: Operation, turn: Turn, partial_text: str, now: int
) -> Decisions:
    """What a model call had said before it was cut off stands as a partial message."""
    if not partial_text or operation.kind is not OperationKind.MODEL or state.conversation is None:
        return ()
    message = agent_message(state.conversation, turn, operation.message_id, partial_text, now, partial=True)
    return (AppendMessage(message=message),)


def _cancel(state: ConversationState, event: CancelTurn, now: int) -> Decisions:
    turn = state.turns.get(event.turn_id)
    if turn is None:
        return refuse(Reason.TURN_NOT_FOUND, "No turn of this conversation has this id.")
    if turn.status is not TurnStatus.ACTIVE:
        return refuse(Reason.TURN_NOT_ACTIVE, f"The turn is already {turn.status.value}; nothing to cancel.")
    fault = Fault(reason=Reason.CANCELLED, message=event.reason or "The turn was cancelled.")
    return _end_by_cancel(state, turn, fault, event.partial_text, now)


def _cancel_call(state: ConversationState, turn: Turn, event: CancelCall, now: int) -> Decisions:
    if turn.status is not TurnStatus.ACTIVE:
        return ()
    fault = Fault(reason=Reason.CANCELLED, message="Nobody waits for the turn any more.")
    return _end_by_cancel(state, replace(turn, parent=None), fault, event.partial_text, now)


def _end_by_cancel(
    state: ConversationState, turn: Turn, fault: Fault, partial_text: str, now: int
) -> Decisions:
    decisions = cancel_pending(state, turn.id, now)
    for operation in state.pending(turn.id):
        decisions.extend(_partial_message(state, operation, turn, partial_text, now))
    ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
    return (*decisions, EndTurnByCancel(turn=ended), ReleaseTurn(turn_id=turn.id))


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
            result = tool_calls.success(operation, event.output, now)
            ended = tool_ended(state, state.turns[operation.turn_id], operation, result, ids, now)
            return (*_run_end(operation, now), *ended)
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
    agent = state.turn_work[operation.turn_id].agent
    request = request_of(event.output, agent)
    if isinstance(request, Fault):
        return _failed(state, operation, request, now)
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    turn, paid = charge_hook(turn, operation, event.output)
    return (
        *paid,
        ContextAssembled(
            turn=turn,
            operation_id=operation.id,
            outcome=hook_outcome(operation, agent.assembly, now),
        ),
        *call_model(state, turn, agent, request, ids, now, truncation=history_truncation(operation)),
    )


# --- failures, waits, restarts ----------------------------------------------------------------------


def _failed(
    state: ConversationState, operation: Operation, fault: Fault, now: int, partial_text: str = ""
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
        return (again_later, *_run_end(operation, now, fault))
    match operation.kind:
        case OperationKind.ASSEMBLY:
            turn = with_hook_run(state.turns[operation.turn_id], operation)
            told = dataclasses.replace(
                fault,
                reason=Reason.CONTEXT_ASSEMBLY_FAILED,
                message=f"The context could not be assembled: {fault.message}",
                metadata={**fault.metadata, "cause": fault.reason.value},
            )
            agent = state.turn_work[turn.id].agent
            failed = AssemblyFailed(
                turn_id=turn.id,
                operation_id=operation.id,
                outcome=hook_outcome(operation, agent.assembly, now, fault),
            )
            return (CancelOperation(operation=operation), failed, *fail_turn(turn, told, now))
        case OperationKind.MODEL:
            turn = state.turns[operation.turn_id]
            shorter = retry_shortened(state, operation, fault, ids, now)
            if shorter:
                return (CancelOperation(operation=operation), *shorter)
            limited: Decisions = ()
            if fault.reason is Reason.BUDGET_EXHAUSTED:
                # By its agent's own budget: this attempt was not made.
                operation = replace(operation, status=OperationStatus.BACKOFF)
                limited = (LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True)),)
            return (
                CancelOperation(operation=operation),
                *_partial_message(state, operation, turn, partial_text, now),
                *limited,
                *cancel_pending(state, turn.id, now, except_id=operation.id),
                *fail_turn(turn, fault, now),
            )
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = tool_calls.failure(operation, fault, now)
            ended = tool_ended(state, state.turns[operation.turn_id], operation, result, ids, now)
            return (*_run_end(operation, now, fault), *ended)
        case OperationKind.AGENT:
            return agent_ended(state, operation, ids, now, fault=fault)
        case OperationKind.SUMMARY:
            return summary_failed(state, operation, ids, now)
        case OperationKind.EXTRACTION | OperationKind.MEMORY:
            return extraction_failed(state, operation, fault, now)
        case _:
            assert_never(operation.kind)


def _run_end(operation: Operation, now: int, fault: Fault | None = None) -> Decisions:
    """That the run of a tool call has ended, if a run carries it out; between two attempts none does."""
    if operation.kind is not OperationKind.WORKFLOW or operation.status is not OperationStatus.DISPATCHED:
        return ()
    return (run_ended(operation, now, fault),)


def _timer_fired(state: ConversationState, operation: Operation, partial_text: str, now: int) -> Decisions:
    if now < operation.wake_ms:
        return ()
    late = handle_turn_timeout(state, operation, now)
    if isinstance(late, Fault):
        return (CancelOperation(operation=operation), *_failed(state, operation, late, now))
    if late is not None:
        return (*_partial_message(state, operation, state.turns[operation.turn_id], partial_text, now), *late)
    if operation.status is OperationStatus.BACKOFF:
        began = (run_started(operation),) if operation.kind is OperationKind.WORKFLOW else ()
        return (Redispatch(operation=retry_operation(operation, now)), *began)
    seconds = operation.timeout_ms / 1000
    fault = Fault(reason=Reason.TIMEOUT, message=f"No result within {seconds:g} s.", transient=True)
    failed = _failed(state, operation, fault, now, partial_text)
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
            spent = UsageDelta(model_calls=1, unpriced_calls=1)
            lost = (ChargeTurn(turn=add_usage(state.turns[operation.turn_id], spent)),)
        return (*lost, Redispatch(operation=retry_operation(operation, now)))
    fault = Fault(
        reason=Reason.OUTCOME_UNKNOWN,
        message="The server stopped while this ran; whether it took effect is unknown.",
    )
    return _failed(state, operation, fault, now)
