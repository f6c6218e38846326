"""What a decision writes: rows, and the events that clients see (feature J1: the documents' names)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from wonder_server.core.budget import CHARGES
from wonder_server.core.conversation.decisions import (
    AdoptTurn,
    AgentCallEnded,
    AnswerCallAgain,
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
    ReleaseWork,
    ResumeFromTool,
    RetryOperation,
    StartConversation,
    StartTurn,
    TrackAsyncOperation,
    WorkflowBegan,
    WorkflowEnded,
    WriteMemory,
)
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
from wonder_server.core.conversation.room_record import put_room, record_room
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import (
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
from wonder_server.core.records import Change, Delete, Emit, Put


def record(state: ConversationState, decision: Decision) -> Iterator[Change]:
    """The changes that ``decision`` makes, ``state`` being the working set after it was applied."""
    if state.has_turned:
        yield from _conversation(state)
    charge = state.charge
    if charge is not None:
        yield Put(CHARGES, charge.id, charge.amount, parent=charge.agent_id)
    yield from _record(state, decision)


def _record(state: ConversationState, decision: Decision) -> Iterator[Change]:
    match decision:
        case StartConversation():
            yield from _conversation(state)
            yield Emit("conversation_started", "conversation_started", decision.conversation)
        case AddParticipant() | RemoveParticipant() | UpdateConversation() | EndConversation():
            yield from record_room(decision)
        case RecordMerge() | ResetConversation() | CloseRoom() | NoteSpent() | RemoveRecord():
            yield from record_room(decision)
        case StartTurn():
            yield from _conversation(state)
            yield _turn(decision.turn)
            yield Put("works", decision.work.turn_id, decision.work, live=True)
            yield Emit("conversation_turn", "turn_started", decision.turn, decision.turn.id)
        case AppendMessage():
            message = decision.message
            yield from _conversation(state)
            yield _message(message)
            yield Emit("message.appended", "message_appended", message, message.turn_id, message.id)
        case DispatchWorkflow() | DispatchTask() | DispatchAgent() | WriteMemory():
            yield _operation(decision.operation)
            yield from _dispatched(decision.operation)
        case DispatchModel():
            yield _operation(decision.operation)
            yield Put("requests", decision.request.turn_id, decision.request, live=True)
        case Redispatch() | RetryOperation():
            yield _operation(decision.operation)
        case ContextAssembled():
            if not state.same_turn:
                yield _turn(decision.turn)
            yield Delete("operations", decision.operation_id)
            yield _hook("context_assembly", decision.outcome, decision.turn.id)
        case AssemblyFailed():
            yield Delete("operations", decision.operation_id)
            yield _hook("context_assembly", decision.outcome, decision.turn_id)
        case RecordMove():
            yield from _conversation(state)
            yield _turn(decision.turn)
            yield _move(decision.move)
            yield Delete("operations", decision.operation_id)
            move = decision.move
            yield Emit("move.recorded", "move_recorded", move, move.turn_id, move.message_id)
        case ChargeTurn():
            yield from _conversation(state)
            yield _turn(decision.turn)
        case AgentCallEnded() | WorkflowBegan() | WorkflowEnded():
            yield _child(decision)
        case AdoptTurn():
            yield _turn(decision.turn)
        case ResumeFromTool() | AsyncOperationCompleted():
            yield from _resumed(decision)
        case CancelOperation():
            yield Delete("operations", decision.operation.id)
        case HistorySummarized():
            yield from _conversation(state)
            yield Delete("operations", decision.operation_id)
        case ReduceContext():
            yield Emit("context.reduced", "context_reduced", decision.reduction, decision.turn_id)
        case LimitReached():
            yield Emit("limit.reached", "limit_reached", decision.limit, decision.turn_id)
        case CompleteTurn() | FailTurn() | EndTurnByCancel():
            yield from _ended(decision.turn)
            if _changes_its_room(state, decision):
                yield from _conversation(state)
        case MemoryWritten():
            yield Delete("operations", decision.operation_id)
        case ExtractionEnded():
            if not state.same_turn:
                yield _turn(decision.turn)
            yield Delete("operations", decision.operation_id)
            turn, outcome = decision.turn, decision.outcome
            if outcome.fault is not None or not turn.memory_extraction_failed:
                yield _hook("memory_extraction", outcome, turn.id)
        case ReleaseWork():
            yield Delete("works", decision.turn_id)
            yield Delete("requests", decision.turn_id)
        case MarkWaiting() | TrackAsyncOperation() | AnswerCallAgain() | RefuseCall() | Refuse():
            return
        case _:
            assert_never(decision)


def _conversation(state: ConversationState) -> Iterator[Change]:
    if state.conversation is not None:
        yield put_room(state.conversation)


def _hook(name: str, outcome: HookOutcome, turn_id: str) -> Emit:
    end = "failed" if outcome.fault is not None else "completed"
    return Emit(f"{name}.{end}", f"{name}_{end}", outcome, turn_id)


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


def _operation(operation: Operation) -> Put:
    return Put(
        "operations",
        operation.id,
        operation,
        parent=operation.turn_id,
        ordinal=operation.wake_ms,
        status=operation.status.value,
        live=operation.status is not OperationStatus.DONE,
        created_ms=operation.created_ms,
    )


def _dispatched(operation: Operation) -> Iterator[Change]:
    if operation.kind in TOOL_KINDS:
        yield Emit("tool.dispatched", "tool_dispatched", operation, operation.turn_id)
    if operation.kind is OperationKind.AGENT:
        call = AgentCall(agent_id=operation.target, mode=operation.mode, operation_id=operation.id)
        yield Emit("agent_call_started", "agent_call_started", call, operation.turn_id)


def _child(decision: AgentCallEnded | WorkflowBegan | WorkflowEnded) -> Emit:
    if isinstance(decision, AgentCallEnded):
        return Emit("agent_call_completed", "agent_call_completed", decision.call, decision.turn_id)
    name = "workflow_started"
    if isinstance(decision, WorkflowEnded):
        name = "workflow_completed" if decision.run.fault is None else "workflow_failed"
    return Emit(name, name, decision.run, decision.turn_id)


def _resumed(decision: ResumeFromTool | AsyncOperationCompleted) -> Iterator[Change]:
    yield _turn(decision.turn)
    yield _move(decision.move)
    if decision.operation_id:
        yield Delete("operations", decision.operation_id)
    result = decision.invocation.result
    end = "completed" if result is not None and result.success else "failed"
    yield Emit(f"tool.{end}", f"tool_{end}", decision.invocation, decision.turn.id)
    if decision.move.completed_ms and isinstance(decision, ResumeFromTool):
        # The same move again, whole now.
        yield Emit("move.recorded", "move_recorded", decision.move, decision.turn.id)


_ENDS = {
    TurnStatus.COMPLETED: ("turn.completed", "turn_completed"),
    TurnStatus.FAILED: ("turn.failed", "turn_failed"),
    TurnStatus.CANCELLED: ("turn.cancelled", "turn_cancelled"),
}


def _changes_its_room(state: ConversationState, end: CompleteTurn | FailTurn | EndTurnByCancel) -> bool:
    """Time is counted where it is limited, and calls that got no answer are charged with the end."""
    timed = state.conversation is not None and state.conversation.budget.max_duration_ms > 0
    return timed or not isinstance(end, CompleteTurn)


def _ended(turn: Turn) -> Iterator[Change]:
    yield _turn(turn)
    name, kind = _ENDS[turn.status]
    yield Emit(name, kind, turn, turn.id)
