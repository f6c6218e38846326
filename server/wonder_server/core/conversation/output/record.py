"""Rows and events of decisions about turns and operations.

`wonder_server.core.conversation.output.decision_table` names the function of each decision class. The names
of the events are those of docs/events.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.actor.changes import Change, Delete, Emit, Put
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.conversation.model.decisions import (
    AdoptTurn,
    AgentCallEnded,
    AppendMessage,
    AssemblyFailed,
    AsyncOperationCompleted,
    BeginTurn,
    CancelOperation,
    ChargeTurn,
    CloseApproval,
    CompleteTurn,
    ContextAssembled,
    DispatchModel,
    EndTurnByCancel,
    ExtendDeadline,
    ExtractionEnded,
    FailTurn,
    HistorySummarized,
    LimitReached,
    MemoryWritten,
    MoveMessage,
    PostMessage,
    RecordMove,
    ReduceContext,
    RefuseMemoryOperations,
    RejectOutput,
    ReleaseTurn,
    RequestApproval,
    ResumeFromTool,
    ShowGate,
    StartConversation,
    StartTurn,
    SteerTurn,
    SwitchModel,
    WorkflowEnded,
    WorkflowStarted,
)
from wonder_server.core.conversation.model.event_payloads import AgentCall, HookOutcome
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    TOOL_KINDS,
    Message,
    Move,
    Operation,
    OperationKind,
    OperationStatus,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.output.lifecycle_record import put_conversation
from wonder_server.core.conversation.output.state_changes import WithOperation

Changes = Sequence[Change]


def conversation_started(state: ConversationState, decision: StartConversation) -> Changes:
    return (*conversation_rows(state), Emit("conversation_started", decision.conversation))


def turn_started(state: ConversationState, decision: StartTurn) -> Changes:
    turn, work = decision.turn, decision.work
    return (
        *conversation_rows(state),
        put_turn(turn),
        Put("works", work.turn_id, work, live=True),
        Emit("conversation_turn", turn, turn.id),
    )


def turn_begun(state: ConversationState, decision: BeginTurn) -> Changes:
    turn = state.turns[decision.turn.id]
    return (*conversation_rows(state), put_turn(turn), Emit("turn.started", turn, turn.id))


def turn_steered(state: ConversationState, decision: SteerTurn) -> Changes:
    work, message = decision.work, decision.message
    return (
        *conversation_rows(state),
        Put("works", work.turn_id, work, live=True),
        put_message(message),
        Emit("message.appended", message, message.turn_id, message.id),
    )


def message_moved(state: ConversationState, decision: MoveMessage) -> Changes:
    message = decision.message
    return (put_message(message), Emit("message.moved", message, message.turn_id, message.id))


def message_posted(state: ConversationState, decision: PostMessage) -> Changes:
    message = decision.message
    return (
        *conversation_rows(state),
        put_turn(decision.turn),
        put_message(message),
        Emit("message.appended", message, message.turn_id, message.id),
    )


def message_appended(state: ConversationState, decision: AppendMessage) -> Changes:
    message = decision.message
    return (
        *conversation_rows(state),
        put_message(message),
        Emit("message.appended", message, message.turn_id, message.id),
    )


def operation_dispatched(state: ConversationState, decision: WithOperation) -> Changes:
    operation = decision.operation
    # A call that waited for approval has a row.
    row = put_operation(operation, fresh=not operation.gate_id)
    if operation.kind not in TOOL_KINDS:
        return (row,)
    dispatched = Emit("tool.dispatched", operation, operation.turn_id)
    if operation.kind is not OperationKind.AGENT:
        return (row, dispatched)
    call = AgentCall(agent_id=operation.target, mode=operation.mode, operation_id=operation.id)
    return (row, dispatched, Emit("agent_call_started", call, operation.turn_id))


def approval_requested(state: ConversationState, decision: RequestApproval) -> Changes:
    gate = decision.gate
    return (
        put_operation(decision.operation, fresh=True),
        put_gate(gate),
        Emit("gate.opened", gate, gate.turn_id),
    )


def approval_closed(state: ConversationState, decision: CloseApproval) -> Changes:
    gate, move = decision.gate, decision.move
    changes = (turn_row(state, gate.turn_id), put_gate(gate), Emit("gate.resolved", gate, gate.turn_id))
    return changes if move is None else (put_move(move), *changes)


def gate_shown(state: ConversationState, decision: ShowGate) -> Changes:
    gate, operation = decision.gate, decision.operation
    row = () if operation is None else (put_operation(operation),)
    if state.conversation is not None and gate.conversation_id == state.conversation.id:
        return row  # The gate of an agent that was looped in: its own turn shows it.
    name = "gate.opened" if gate.status is GateStatus.PENDING else "gate.resolved"
    return (*row, Emit(name, gate, decision.turn_id))


def deadline_extended(state: ConversationState, decision: ExtendDeadline) -> Changes:
    return (put_operation(decision.operation), turn_row(state, decision.operation.turn_id))


def model_dispatched(state: ConversationState, decision: DispatchModel) -> Changes:
    request = decision.request
    return (
        put_operation(decision.operation, fresh=True),
        Put("requests", request.turn_id, request, live=True),
    )


def operation_row(state: ConversationState, decision: WithOperation) -> Changes:
    return (put_operation(decision.operation),)


def operation_cancelled(state: ConversationState, decision: CancelOperation) -> Changes:
    return (Delete("operations", decision.operation.id),)


def operation_removed(state: ConversationState, decision: MemoryWritten) -> Changes:
    return (Delete("operations", decision.operation_id),)


def context_assembled(state: ConversationState, decision: ContextAssembled) -> Changes:
    turn_id = decision.turn.id
    closed = Delete("operations", decision.operation_id)
    outcome = _hook_event("context_assembly", decision.outcome, turn_id)
    return (closed, outcome) if state.turn_unchanged else (turn_row(state, turn_id), closed, outcome)


def assembly_failed(state: ConversationState, decision: AssemblyFailed) -> Changes:
    outcome = _hook_event("context_assembly", decision.outcome, decision.turn_id)
    return (Delete("operations", decision.operation_id), outcome)


def history_summarized(state: ConversationState, decision: HistorySummarized) -> Changes:
    return (*conversation_rows(state), Delete("operations", decision.operation_id))


def extraction_ended(state: ConversationState, decision: ExtractionEnded) -> Changes:
    turn, outcome = decision.turn, decision.outcome
    closed = Delete("operations", decision.operation_id)
    changes: Changes = (closed,) if state.turn_unchanged else (turn_row(state, turn.id), closed)
    if outcome.fault is None and turn.memory_extraction_failed:
        return changes
    return (*changes, _hook_event("memory_extraction", outcome, turn.id))


def move_recorded(state: ConversationState, decision: RecordMove) -> Changes:
    move = decision.move
    return (
        *conversation_rows(state),
        turn_row(state, move.turn_id),
        put_move(move),
        Delete("operations", decision.operation_id),
        Emit("move.recorded", move, move.turn_id, move.message_id),
    )


def tool_call_completed(
    state: ConversationState, decision: ResumeFromTool | AsyncOperationCompleted
) -> Changes:
    move, result = decision.move, decision.invocation.result
    changes: list[Change] = [turn_row(state, move.turn_id), put_move(move)]
    if decision.operation_id:
        changes.append(Delete("operations", decision.operation_id))
    end = "completed" if result is not None and result.success else "failed"
    changes.append(Emit(f"tool.{end}", decision.invocation, move.turn_id))
    if move.completed_ms and isinstance(decision, ResumeFromTool):
        # The move is complete now: emit it again with all results.
        changes.append(Emit("move.recorded", move, move.turn_id))
    return changes


def agent_call_ended(state: ConversationState, decision: AgentCallEnded) -> Changes:
    return (Emit("agent_call_completed", decision.call, decision.turn_id),)


def workflow_started(state: ConversationState, decision: WorkflowStarted) -> Changes:
    return (Emit("workflow_started", decision.run, decision.turn_id),)


def workflow_ended(state: ConversationState, decision: WorkflowEnded) -> Changes:
    name = "workflow_completed" if decision.run.fault is None else "workflow_failed"
    return (Emit(name, decision.run, decision.turn_id),)


def model_switched(_: ConversationState, decision: SwitchModel) -> Changes:
    return (
        Put("works", decision.turn_id, decision.work, live=True),
        Emit("model.switched", decision.switch, decision.turn_id),
    )


def context_reduced(state: ConversationState, decision: ReduceContext) -> Changes:
    return (Emit("context.reduced", decision.reduction, decision.turn_id),)


def limit_reached(state: ConversationState, decision: LimitReached) -> Changes:
    return (Emit("limit.reached", decision.limit, decision.turn_id),)


def memory_operations_refused(_: ConversationState, decision: RefuseMemoryOperations) -> Changes:
    return (Emit("memory_operations.refused", decision.refusal, decision.turn_id),)


def output_rejected(state: ConversationState, decision: RejectOutput) -> Changes:
    return (Emit("output.rejected", decision.rejection, decision.turn_id),)


def turn_charged(state: ConversationState, decision: ChargeTurn) -> Changes:
    changes = (*conversation_rows(state), turn_row(state, decision.turn.id))
    return changes if decision.operation is None else (*changes, put_operation(decision.operation))


def turn_adopted(state: ConversationState, decision: AdoptTurn) -> Changes:
    return (turn_row(state, decision.turn.id),)


_TURN_END_EVENTS = {
    TurnStatus.COMPLETED: "turn.completed",
    TurnStatus.FAILED: "turn.failed",
    TurnStatus.CANCELLED: "turn.cancelled",
}


def turn_ended(state: ConversationState, decision: CompleteTurn | FailTurn | EndTurnByCancel) -> Changes:
    turn = state.turns[decision.turn.id]
    changes = (put_turn(turn), Emit(_TURN_END_EVENTS[turn.status], turn, turn.id))
    # The end counts busy time if a budget limits it, and charges calls that were abandoned.
    timed = state.conversation is not None and state.conversation.budget.max_duration_ms > 0
    if timed or not isinstance(decision, CompleteTurn):
        return (*changes, *conversation_rows(state))
    return changes


def turn_released(state: ConversationState, decision: ReleaseTurn) -> Changes:
    return (Delete("works", decision.turn_id), Delete("requests", decision.turn_id))


# --- rows -------------------------------------------------------------------------------------------


def conversation_rows(state: ConversationState) -> Changes:
    """Return the row of the conversation in the state, if there is one."""
    return () if state.conversation is None else (put_conversation(state.conversation),)


def turn_row(state: ConversationState, turn_id: str) -> Put:
    """Return the row of a turn in the state."""
    return put_turn(state.turns[turn_id])


def put_turn(turn: Turn) -> Put:
    """Return the row of the turn."""
    return Put(
        "turns",
        turn.id,
        turn,
        parent=turn.conversation_id,
        ordinal=turn.ordinal,
        status=turn.status.value,
        # A parent that repeats its call finds the turn by this alias.
        alias=turn.parent.operation_id if turn.parent is not None else "",
        created_ms=turn.created_ms,
    )


def put_message(message: Message) -> Put:
    """Return the row of the message."""
    return Put(
        "messages",
        message.id,
        message,
        parent=message.turn_id,
        ordinal=message.ordinal,
        status=message.role.value,
        created_ms=message.created_ms,
    )


def put_move(move: Move) -> Put:
    """Return the row of the move."""
    return Put(
        "moves",
        move.id,
        move,
        parent=move.turn_id,
        ordinal=move.sequence,
        created_ms=move.created_ms,
    )


def put_operation(operation: Operation, *, fresh: bool = False) -> Put:
    """Return the row of the operation. ``fresh``: the row has never been written."""
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


def put_gate(gate: Gate) -> Put:
    """Return the row of the gate of a tool call."""
    return Put(
        "gates",
        gate.id,
        gate,
        parent=gate.project_id,
        alias=gate.turn_id,
        status=gate.status.value,
        live=gate.status is GateStatus.PENDING,
        created_ms=gate.created_ms,
    )


def _hook_event(name: str, outcome: HookOutcome, turn_id: str) -> Emit:
    end = "failed" if outcome.fault is not None else "completed"
    return Emit(f"{name}.{end}", outcome, turn_id)
