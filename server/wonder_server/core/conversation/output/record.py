"""What a decision writes: rows, and the events that clients see (feature J1: the documents' names)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from wonder_server.core.actor.changes import Change, Delete, Emit, Put
from wonder_server.core.budget import CHARGES
from wonder_server.core.conversation.model.class_dispatch import typed_handler
from wonder_server.core.conversation.model.decisions import (
    AdoptTurn,
    AgentCallEnded,
    AppendMessage,
    AssemblyFailed,
    AsyncOperationCompleted,
    CancelOperation,
    ChargeTurn,
    CompleteTurn,
    ContextAssembled,
    Decision,
    DispatchAgent,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    EndTurnByCancel,
    ExtractionEnded,
    FailTurn,
    HistorySummarized,
    LimitReached,
    MarkWaiting,
    MemoryWritten,
    RecordMove,
    Redispatch,
    ReduceContext,
    Refuse,
    RefuseCall,
    ReleaseTurn,
    RepeatAnswer,
    ResumeFromTool,
    RetryOperation,
    StartConversation,
    StartTurn,
    TrackAsyncOperation,
    WorkflowEnded,
    WorkflowStarted,
    WriteMemory,
)
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
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    TOOL_KINDS,
    AgentCall,
    HookOutcome,
    Message,
    Move,
    Operation,
    OperationKind,
    OperationStatus,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.output.lifecycle_record import put_conversation, record_lifecycle

Changes = Sequence[Change]
Handler = Callable[[ConversationState, Any], Changes]


def record(state: ConversationState, decision: Decision) -> Changes:
    """The changes that ``decision`` makes, ``state`` being the working set after it was applied."""
    handler = _handlers.get(type(decision))
    if handler is None:
        handler = _handlers[type(decision)] = _handler(decision)
    changes, charge = handler(state, decision), state.charge
    if charge is not None:
        changes = (Put(CHARGES, charge.id, charge.amount, parent=charge.agent_id), *changes)
    return (*_conversation(state), *changes) if state.status_changed else changes


_handlers: dict[type, Handler] = {}
"""What records decisions of a class; see `suited`."""


def _handler(decision: Decision) -> Handler:
    match decision:
        case StartConversation():
            return typed_handler(decision, _started)
        case AddParticipant() | RemoveParticipant() | UpdateConversation() | EndConversation():
            return typed_handler(decision, _lifecycle)
        case RecordMerge() | ResetConversation() | MarkDeleted() | SetStaleArchive() | EraseRecord():
            return typed_handler(decision, _lifecycle)
        case StartTurn():
            return typed_handler(decision, _turn_started)
        case AppendMessage():
            return typed_handler(decision, _appended)
        case DispatchWorkflow() | DispatchTask() | DispatchAgent() | WriteMemory():
            return typed_handler(decision, _dispatched)
        case DispatchModel():
            return typed_handler(decision, _model_dispatched)
        case Redispatch() | RetryOperation():
            return typed_handler(decision, lambda _, it: (_operation(it.operation),))
        case ContextAssembled():
            return typed_handler(decision, _assembled)
        case AssemblyFailed():
            return typed_handler(decision, _not_assembled)
        case RecordMove():
            return typed_handler(decision, _moved)
        case ChargeTurn():
            return typed_handler(decision, _charged)
        case AgentCallEnded() | WorkflowStarted() | WorkflowEnded():
            return typed_handler(decision, lambda _, it: (_child(it),))
        case AdoptTurn():
            return typed_handler(decision, lambda _, it: (_turn(it.turn),))
        case ResumeFromTool() | AsyncOperationCompleted():
            return typed_handler(decision, _resumed)
        case CancelOperation():
            return typed_handler(decision, lambda _, it: (Delete("operations", it.operation.id),))
        case HistorySummarized():
            return typed_handler(
                decision, lambda state, it: (*_conversation(state), Delete("operations", it.operation_id))
            )
        case ReduceContext():
            return typed_handler(decision, _reduced)
        case LimitReached():
            return typed_handler(decision, _limited)
        case CompleteTurn() | FailTurn() | EndTurnByCancel():
            return typed_handler(decision, _ended)
        case MemoryWritten():
            return typed_handler(decision, lambda _, it: (Delete("operations", it.operation_id),))
        case ExtractionEnded():
            return typed_handler(decision, _extracted)
        case ReleaseTurn():
            return typed_handler(decision, _released)
        case MarkWaiting() | TrackAsyncOperation() | RepeatAnswer() | RefuseCall() | Refuse():
            return _nothing
        case _:
            assert_never(decision)


def _nothing(state: ConversationState, decision: Decision) -> Changes:
    return ()


def _started(state: ConversationState, decision: StartConversation) -> Changes:
    opened = Emit("conversation_started", decision.conversation)
    return (*_conversation(state), opened)


def _lifecycle(state: ConversationState, decision: LifecycleDecision) -> Changes:
    return tuple(record_lifecycle(decision))


def _turn_started(state: ConversationState, decision: StartTurn) -> Changes:
    turn, work = decision.turn, decision.work
    return (
        *_conversation(state),
        _turn(turn),
        Put("works", work.turn_id, work, live=True),
        Emit("conversation_turn", turn, turn.id),
    )


def _appended(state: ConversationState, decision: AppendMessage) -> Changes:
    message = decision.message
    return (
        *_conversation(state),
        _message(message),
        Emit("message.appended", message, message.turn_id, message.id),
    )


def _dispatched(
    state: ConversationState, decision: DispatchWorkflow | DispatchTask | DispatchAgent | WriteMemory
) -> Changes:
    operation = decision.operation
    written = _operation(operation, fresh=True)
    if operation.kind not in TOOL_KINDS:
        return (written,)
    dispatched = Emit("tool.dispatched", operation, operation.turn_id)
    if operation.kind is not OperationKind.AGENT:
        return (written, dispatched)
    call = AgentCall(agent_id=operation.target, mode=operation.mode, operation_id=operation.id)
    called = Emit("agent_call_started", call, operation.turn_id)
    return (written, dispatched, called)


def _model_dispatched(state: ConversationState, decision: DispatchModel) -> Changes:
    request = decision.request
    return (_operation(decision.operation, fresh=True), Put("requests", request.turn_id, request, live=True))


def _assembled(state: ConversationState, decision: ContextAssembled) -> Changes:
    turn = decision.turn
    closed = Delete("operations", decision.operation_id)
    said = _hook("context_assembly", decision.outcome, turn.id)
    return (closed, said) if state.turn_unchanged else (_turn(turn), closed, said)


def _not_assembled(state: ConversationState, decision: AssemblyFailed) -> Changes:
    said = _hook("context_assembly", decision.outcome, decision.turn_id)
    return (Delete("operations", decision.operation_id), said)


def _moved(state: ConversationState, decision: RecordMove) -> Changes:
    move = decision.move
    return (
        *_conversation(state),
        _turn(decision.turn),
        _move(move),
        Delete("operations", decision.operation_id),
        Emit("move.recorded", move, move.turn_id, move.message_id),
    )


def _reduced(state: ConversationState, decision: ReduceContext) -> Changes:
    return (Emit("context.reduced", decision.reduction, decision.turn_id),)


def _limited(state: ConversationState, decision: LimitReached) -> Changes:
    return (Emit("limit.reached", decision.limit, decision.turn_id),)


def _extracted(state: ConversationState, decision: ExtractionEnded) -> Changes:
    turn, outcome = decision.turn, decision.outcome
    closed = Delete("operations", decision.operation_id)
    changes: Changes = (closed,) if state.turn_unchanged else (_turn(turn), closed)
    if outcome.fault is None and turn.memory_extraction_failed:
        return changes
    return (*changes, _hook("memory_extraction", outcome, turn.id))


def _released(state: ConversationState, decision: ReleaseTurn) -> Changes:
    return (Delete("works", decision.turn_id), Delete("requests", decision.turn_id))


def _conversation(state: ConversationState) -> Changes:
    return () if state.conversation is None else (put_conversation(state.conversation),)


def _hook(name: str, outcome: HookOutcome, turn_id: str) -> Emit:
    end = "failed" if outcome.fault is not None else "completed"
    return Emit(f"{name}.{end}", outcome, turn_id)


def _turn(turn: Turn) -> Put:
    return Put(
        "turns",
        turn.id,
        turn,
        parent=turn.conversation_id,
        ordinal=turn.ordinal,
        status=turn.status.value,
        # A parent that asks again finds its turn by this.
        alias=turn.parent.operation_id if turn.parent is not None else "",
        created_ms=turn.created_ms,
    )


def _message(message: Message) -> Put:
    return Put(
        "messages",
        message.id,
        message,
        parent=message.turn_id,
        ordinal=message.ordinal,
        status=message.role.value,
        created_ms=message.created_ms,
    )


def _move(move: Move) -> Put:
    return Put(
        "moves",
        move.id,
        move,
        parent=move.turn_id,
        ordinal=move.sequence,
        created_ms=move.created_ms,
    )


def _operation(operation: Operation, *, fresh: bool = False) -> Put:
    return Put(
        "operations",
        operation.id,
        operation,
        parent=operation.turn_id,
        ordinal=operation.wake_ms,
        status=operation.status.value,
        live=operation.status is not OperationStatus.DONE,
        created_ms=operation.created_ms,
        fresh=fresh,
    )


def _charged(state: ConversationState, decision: ChargeTurn) -> Changes:
    changes = (*_conversation(state), _turn(decision.turn))
    return changes if decision.operation is None else (*changes, _operation(decision.operation))


def _child(decision: AgentCallEnded | WorkflowStarted | WorkflowEnded) -> Emit:
    if isinstance(decision, AgentCallEnded):
        return Emit("agent_call_completed", decision.call, decision.turn_id)
    name = "workflow_started"
    if isinstance(decision, WorkflowEnded):
        name = "workflow_completed" if decision.run.fault is None else "workflow_failed"
    return Emit(name, decision.run, decision.turn_id)


def _resumed(state: ConversationState, decision: ResumeFromTool | AsyncOperationCompleted) -> Changes:
    turn, move, result = decision.turn, decision.move, decision.invocation.result
    changes: list[Change] = [_turn(turn), _move(move)]
    if decision.operation_id:
        changes.append(Delete("operations", decision.operation_id))
    end = "completed" if result is not None and result.success else "failed"
    changes.append(Emit(f"tool.{end}", decision.invocation, turn.id))
    if move.completed_ms and isinstance(decision, ResumeFromTool):
        # The same move again, whole now.
        changes.append(Emit("move.recorded", move, turn.id))
    return changes


_ENDS = {
    TurnStatus.COMPLETED: "turn.completed",
    TurnStatus.FAILED: "turn.failed",
    TurnStatus.CANCELLED: "turn.cancelled",
}


def _ended(state: ConversationState, decision: CompleteTurn | FailTurn | EndTurnByCancel) -> Changes:
    turn = decision.turn
    changes = (_turn(turn), Emit(_ENDS[turn.status], turn, turn.id))
    return (*changes, *_conversation(state)) if _changes_conversation(state, decision) else changes


def _changes_conversation(state: ConversationState, end: CompleteTurn | FailTurn | EndTurnByCancel) -> bool:
    """Time is counted where it is limited, and calls that got no answer are charged with the end."""
    timed = state.conversation is not None and state.conversation.budget.max_duration_ms > 0
    return timed or not isinstance(end, CompleteTurn)
