"""The planner of conversations: the decisions of the agent loop.

A turn is a state machine driven by results::

    Send ─▶ assembly ─▶ model ─▶ (no tool calls) ─▶ completed ─▶ extraction ─▶ released
                ▲         │  ▲
              retry       ▼  │ every call that the turn waits for has a result,
                        tools  or an asynchronous result has arrived

Each arrow is an *operation* in the outbox. The runtime dispatches it after a commit, and an input with its
id answers it. So the pending operations are the whole state of a turn, and a turn continues from them after
a crash. A result of an operation that is not pending changes nothing, so every dispatch can be repeated.

Laws (``tests/core/conversation/test_laws.py``):

- The same state, input and time give the same decisions.
- `plan` never raises. A rejection is the decision `Refuse`.
- An active turn always has a pending operation, so no turn is ever stuck.
- A turn ends exactly once.

The planner retries transient faults with persisted backoff: assembly and extraction 3 × (100, 200, 400 ms),
models 3 × (500 ms, 1 s, 2 s), tools as they declare (feature I3). Any other fault is final: in assembly it
fails the turn, in extraction it marks the turn, in a tool it is the result for the model.
"""

from __future__ import annotations

import dataclasses
from typing import assert_never

from wonder_server.core.actor.gates import ResolveGate
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
    Refuse,
    ReleaseTurn,
    RetryOperation,
    StartConversation,
)
from wonder_server.core.conversation.model.event_payloads import Limit
from wonder_server.core.conversation.model.inputs import (
    JITTER,
    BudgetNearlyExhausted,
    CancelCall,
    CancelTurn,
    Create,
    Failed,
    GateReported,
    Input,
    ModelAnswered,
    ModelUsageReported,
    Post,
    Restarted,
    Send,
    Succeeded,
    TimerFired,
    WaitsMeasured,
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
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.usage import RULES_OF_ESTIMATED_REQUESTS, UsageDelta, add_usage
from wonder_server.core.conversation.model.values import (
    Operation,
    OperationKind,
    OperationStatus,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.output.provisional import provisional
from wonder_server.core.conversation.planning import assembly, tool_calls
from wonder_server.core.conversation.planning.abandoned_calls import charge_abandoned_calls
from wonder_server.core.conversation.planning.agent_calls import called_turn
from wonder_server.core.conversation.planning.agent_loop import (
    agent_ended,
    model_answered,
    tool_ended,
    waits_for_results,
)
from wonder_server.core.conversation.planning.approval.answers import expire_gate, resolve_gate
from wonder_server.core.conversation.planning.approval.shown_gates import close_shown_gates, show_gate
from wonder_server.core.conversation.planning.approval.waits import extend_deadline, measure_waits
from wonder_server.core.conversation.planning.concurrency import begin_waiting, receive
from wonder_server.core.conversation.planning.histories.staging import plan_whole
from wonder_server.core.conversation.planning.hooks.extraction import (
    extracted,
    extraction_failed,
    memory_written,
)
from wonder_server.core.conversation.planning.hooks.side_models import switch_hook
from wonder_server.core.conversation.planning.limits import clamp_timers, handle_turn_timeout
from wonder_server.core.conversation.planning.model_requests import (
    call_model,
    request_of,
    retry_shortened,
    retry_wrap_up,
)
from wonder_server.core.conversation.planning.start_turn import post, refuse
from wonder_server.core.conversation.planning.summarization import (
    history_truncation,
    summarized,
    summary_failed,
)
from wonder_server.core.errors import Fault, Reason, not_found
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.model import explained
from wonder_server.core.token_estimates import json_tokens


def plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    """Return the decisions for ``event``. Pure; never raises."""
    decided = begin_waiting(state, _plan(state, event, now_ms), now_ms, provisional)
    decided = close_shown_gates(state, charge_abandoned_calls(state, decided), now_ms)
    return clamp_timers(state, decided, now_ms)


def _plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    # Classes are tested in this order: those of every turn first.
    match event:
        case Succeeded() | ModelAnswered() | Failed() | BudgetNearlyExhausted() | TimerFired() | Restarted():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _plan_operation(state, operation, event, now_ms)
        case Send():
            return receive(state, event, now_ms, provisional)
        case Post():
            return post(state, event, now_ms)
        case Create():
            return _create(state, event)
        case CancelTurn():
            return _cancel(state, event, now_ms)
        case CancelCall():
            turn = called_turn(state, event.operation_id)
            return () if turn is None else _cancel_call(state, turn, event, now_ms)
        case ModelUsageReported():
            return charge_model_usage(state, event)
        case ResolveGate() | GateReported() | WaitsMeasured():
            return _plan_gate(state, event, now_ms)
        case _:
            return plan_whole(state, event, now_ms)


def _plan_gate(
    state: ConversationState, event: ResolveGate | GateReported | WaitsMeasured, now: int
) -> Decisions:
    match event:
        case ResolveGate():
            return resolve_gate(state, event, now)
        case GateReported():
            return show_gate(state, event)
        case WaitsMeasured():
            return _waits_measured(state, event, now)
        case _:
            assert_never(event)


def _plan_operation(
    state: ConversationState,
    operation: Operation,
    event: Succeeded | ModelAnswered | Failed | BudgetNearlyExhausted | TimerFired | Restarted,
    now: int,
) -> Decisions:
    """Return the decisions for an input about a pending operation."""
    if operation.status is OperationStatus.APPROVAL:
        # Only a person, the gate's expiry or the end of the turn ends the wait.
        return expire_gate(state, operation, now) if isinstance(event, TimerFired) else ()
    is_model = operation.kind is OperationKind.MODEL
    match event:
        case Succeeded():
            if _is_of_another_attempt(operation, event):
                return ()
            return _succeeded(state, operation, event, now)
        case ModelAnswered():
            return model_answered(state, operation, event, now) if is_model else ()
        case Failed():
            if _is_of_another_attempt(operation, event):
                return ()
            return _failed(state, operation, event, now)
        case BudgetNearlyExhausted():
            return retry_wrap_up(state, operation, event.fault, now) if is_model else ()
        case TimerFired():
            return _timer_fired(state, operation, event.partial_text, now)
        case Restarted():
            return _restarted(state, operation, now, metered=event.metered)
        case _:
            assert_never(event)


# --- creation and cancellation ----------------------------------------------------------------------


def _create(state: ConversationState, event: Create) -> Decisions:
    if state.conversation is not None:
        return refuse(Reason.ALREADY_EXISTS, "This conversation already exists.")
    return (StartConversation(conversation=event.conversation),)


def _partial_message(
    state: ConversationState, operation: Operation, turn: Turn, partial_text: str, now: int
) -> Decisions:
    """Return the text that an interrupted model call had streamed, as a partial message."""
    if not partial_text or operation.kind is not OperationKind.MODEL or state.conversation is None:
        return ()
    message = agent_message(state.conversation, turn, operation.message_id, partial_text, now, partial=True)
    return (AppendMessage(message=message),)


def _cancel(state: ConversationState, event: CancelTurn, now: int) -> Decisions:
    turn = state.turns.get(event.turn_id)
    if turn is None:
        missing = not_found(Reason.TURN_NOT_FOUND, event.turn_id, place=" in this conversation")
        return (Refuse(fault=missing.fault),)
    if turn.status not in (TurnStatus.ACTIVE, TurnStatus.QUEUED):
        return refuse(Reason.TURN_NOT_ACTIVE, f"The turn is already {turn.status.value}; nothing to cancel.")
    fault = Fault(reason=Reason.CANCELLED, message=event.reason or "The turn was cancelled.")
    return _end_by_cancel(state, replace(turn, cancelled_by=event.principal), fault, event.partial_text, now)


def _cancel_call(state: ConversationState, turn: Turn, event: CancelCall, now: int) -> Decisions:
    if turn.status is not TurnStatus.ACTIVE:
        return ()
    fault = Fault(reason=Reason.CANCELLED, message="The caller no longer waits for the turn.")
    cancelled = replace(turn, parent=None, cancelled_by=event.principal)
    return _end_by_cancel(state, cancelled, fault, event.partial_text, now)


def _end_by_cancel(
    state: ConversationState, turn: Turn, fault: Fault, partial_text: str, now: int
) -> Decisions:
    decisions = cancel_pending(state, turn.id, now)
    for operation in state.pending(turn.id):
        decisions.extend(_partial_message(state, operation, turn, partial_text, now))
    ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
    return (*decisions, EndTurnByCancel(turn=progress_of(ended)), ReleaseTurn(turn_id=turn.id))


# --- results ----------------------------------------------------------------------------------------


def _is_of_another_attempt(operation: Operation, event: Succeeded | Failed) -> bool:
    """Return True if the input reports on an earlier attempt: a stopped run still reports its end.

    A failure during backoff is of the earlier attempt too. A success during backoff is accepted.
    """
    # A looped-in turn of an earlier server version reports the conversation id alone.
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
            decided = extracted(state, operation, event.output, ids, now)
            return (
                _failed(state, operation, _failure(operation, decided), now)
                if isinstance(decided, Fault)
                else decided
            )
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
    request = request_of(event.output, state.turns[operation.turn_id], agent)
    if isinstance(request, Fault):
        return _failed(state, operation, _failure(operation, request), now)
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    turn, charged = charge_hook(turn, operation, event.output)
    outcome = hook_outcome(operation, agent.assembly, now)
    assembled = ContextAssembled(turn=progress_of(turn), operation_id=operation.id, outcome=outcome)
    prepared = assembly.continued(state, turn, agent, request, history_truncation(operation))
    if waits_for_results(state, turn, state.moves[turn.id], prepared.body, now):
        return (*charged, assembled)
    return (*charged, assembled, *call_model(state, turn, agent, prepared, ids, now))


# --- failures, waits, restarts ----------------------------------------------------------------------


def _failure(operation: Operation, fault: Fault, partial_text: str = "") -> Failed:
    """Return the failure that the planner itself finds."""
    return Failed(operation_id=operation.id, fault=fault, partial_text=partial_text)


def _failed(state: ConversationState, operation: Operation, event: Failed, now: int) -> Decisions:
    """Retry the operation, or apply its final failure to the turn."""
    fault = event.fault
    # The attempt is part of the seed, since an operation can fail more than once.
    ids = Minter(f"{operation.id}/{operation.attempt}", now)
    switched = switch_hook(state, operation, fault, ids, now)
    if switched:
        return switched
    if _may_retry(operation, fault):
        return (_retry(operation, event, ids, now), *_run_end(operation, now, fault))
    match operation.kind:
        case OperationKind.ASSEMBLY:
            return _assembly_failed(state, operation, fault, now)
        case OperationKind.MODEL:
            shorter = retry_shortened(state, operation, fault, ids, now)
            if shorter:
                return (CancelOperation(operation=operation), *shorter)
            switched = assembly.switch_model(state, operation, fault, ids, now)
            return switched or _model_failed(state, operation, fault, now, event.partial_text)
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


def _may_retry(operation: Operation, fault: Fault) -> bool:
    """Return True if the fault is transient, attempts are left, and the requested pause is short enough.

    A pause may last as long as one attempt.
    """
    pause = fault.retry_after_ms or 0
    is_short = not operation.timeout_ms or pause <= operation.timeout_ms
    return fault.transient and operation.attempt < operation.max_attempts and is_short


def _retry(operation: Operation, event: Failed, ids: Minter, now: int) -> RetryOperation:
    """Return the decision to retry after the backoff."""
    retried = replace(
        operation,
        status=OperationStatus.BACKOFF,
        attempt=operation.attempt + 1,
        run_id=next_child(operation, ids),
        due_ms=0,
        held_ms=0,
        held_at_ms=0,
        wake_ms=now + _pause_ms(operation, event),
    )
    return RetryOperation(operation=retried, fault=event.fault, run_id=operation.run_id)


def _pause_ms(operation: Operation, event: Failed) -> int:
    """Return the pause before the next attempt.

    The limit of the backoff doubles with each attempt. With chance the backoff is anywhere below it (full
    jitter), and follows the pause that the provider asks for: calls that failed together then return one by
    one.
    """
    limit: int = operation.backoff_ms * 2 ** (operation.attempt - 1)
    asked = event.fault.retry_after_ms or 0
    if event.jitter is None:
        return max(limit, asked)
    return asked + limit * min(max(event.jitter, 0), JITTER) // JITTER


def _assembly_failed(state: ConversationState, operation: Operation, fault: Fault, now: int) -> Decisions:
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    turn_fault = dataclasses.replace(
        fault,
        reason=Reason.CONTEXT_ASSEMBLY_FAILED,
        message=f"The context could not be assembled: {fault.message}",
        metadata={**fault.metadata, "cause": fault.reason.value},
    )
    outcome = hook_outcome(operation, state.turn_work[turn.id].agent.assembly, now, fault)
    failed = AssemblyFailed(turn_id=turn.id, operation_id=operation.id, outcome=outcome)
    # A later assembly of the turn may fail while asynchronous tools run.
    cancelled = cancel_pending(state, turn.id, now, except_id=operation.id)
    return (CancelOperation(operation=operation), failed, *cancelled, *fail_turn(turn, turn_fault, now))


def _model_failed(
    state: ConversationState, operation: Operation, fault: Fault, now: int, partial_text: str
) -> Decisions:
    turn = state.turns[operation.turn_id]
    limited: Decisions = ()
    if fault.reason is Reason.BUDGET_EXHAUSTED or fault.reason is Reason.COST_UNKNOWN:
        # This attempt was rejected before the call, so it is not charged.
        operation = replace(operation, status=OperationStatus.BACKOFF)
    if fault.reason is Reason.BUDGET_EXHAUSTED:
        limited = (LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True)),)
    return (
        CancelOperation(operation=operation),
        *_partial_message(state, operation, turn, partial_text, now),
        *limited,
        *cancel_pending(state, turn.id, now, except_id=operation.id),
        *fail_turn(turn, explained(fault, str(state.turn_work[turn.id].agent.profile.pin)), now),
    )


def _run_end(operation: Operation, now: int, fault: Fault | None = None) -> Decisions:
    """Return the decision that records the end of a tool's run; nothing without a run or during backoff."""
    if operation.kind is not OperationKind.WORKFLOW or operation.status is not OperationStatus.DISPATCHED:
        return ()
    return (run_ended(operation, now, fault),)


def _timer_fired(state: ConversationState, operation: Operation, partial_text: str, now: int) -> Decisions:
    if now < operation.wake_ms:
        return ()
    return measure_waits(state, operation, now) or _deadline_passed(state, operation, partial_text, now)


def _waits_measured(state: ConversationState, event: WaitsMeasured, now: int) -> Decisions:
    operation = state.operations.get(event.operation_id)
    if operation is None or not operation.due_ms:
        return ()
    return extend_deadline(operation, event, now) or _deadline_passed(state, operation, "", now)


def _deadline_passed(
    state: ConversationState, operation: Operation, partial_text: str, now: int
) -> Decisions:
    late = handle_turn_timeout(state, operation, now)
    if isinstance(late, Fault):
        return (
            CancelOperation(operation=operation),
            *_failed(state, operation, _failure(operation, late), now),
        )
    if late is not None:
        return (*_partial_message(state, operation, state.turns[operation.turn_id], partial_text, now), *late)
    if operation.status is OperationStatus.BACKOFF:
        started = (run_started(operation),) if operation.kind is OperationKind.WORKFLOW else ()
        return (Redispatch(operation=retry_operation(operation, now)), *started)
    seconds = operation.timeout_ms / 1000
    fault = Fault(reason=Reason.TIMEOUT, message=f"No result within {seconds:g} s.", transient=True)
    failed = _failed(state, operation, _failure(operation, fault, partial_text), now)
    if any(isinstance(decision, RetryOperation | CancelOperation) for decision in failed):
        return failed
    # Stop the work of the operation, which still runs.
    return (CancelOperation(operation=operation), *failed)


def _restarted(
    state: ConversationState, operation: Operation, now: int, *, metered: bool = False
) -> Decisions:
    if operation.status is OperationStatus.BACKOFF:
        return ()
    if operation.repeatable:
        lost: Decisions = ()
        if metered and operation.kind is OperationKind.MODEL:
            # The server stopped during this call, so the provider may have executed it: its answer is lost.
            knows = state.turn_work[operation.turn_id].rules >= RULES_OF_ESTIMATED_REQUESTS
            tokens = json_tokens(state.requests[operation.turn_id].body) if knows else 0
            spent = UsageDelta(input_tokens=tokens, model_calls=1, unpriced_calls=1)
            lost = (ChargeTurn(turn=progress_of(add_usage(state.turns[operation.turn_id], spent))),)
        return (*lost, Redispatch(operation=retry_operation(operation, now)))
    fault = Fault(
        reason=Reason.OUTCOME_UNKNOWN,
        message="The server stopped while this ran; whether it took effect is unknown.",
    )
    return _failed(state, operation, _failure(operation, fault), now)
