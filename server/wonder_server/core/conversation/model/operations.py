"""Operations and decisions that several parts of the conversation planner make."""

from __future__ import annotations

from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.conversation.model.agent_tools import LOOP_IN, ended_call
from wonder_server.core.conversation.model.decisions import (
    AgentCallEnded,
    CancelOperation,
    ChargeTurn,
    CloseApproval,
    Decision,
    FailTurn,
    ReleaseTurn,
    WorkflowEnded,
    WorkflowStarted,
)
from wonder_server.core.conversation.model.event_payloads import HookOutcome, WorkflowRun
from wonder_server.core.conversation.model.inputs import ModelUsageReported
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.usage import add_usage, of_call, reported_usage
from wonder_server.core.conversation.model.values import (
    Conversation,
    Message,
    Operation,
    OperationKind,
    OperationStatus,
    Role,
    Turn,
    TurnStatus,
)
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter

HOOK_ATTEMPTS, HOOK_BACKOFF_MS, HOOK_TIMEOUT_MS = 3, 100, 30_000
"""Defaults for context assembly and memory extraction."""

_HOOKS = (OperationKind.ASSEMBLY, OperationKind.EXTRACTION, OperationKind.SUMMARY)

Decisions = tuple[Decision, ...]


def hook_operation(operation_id: str, turn: Turn, kind: OperationKind, run_id: str, now: int) -> Operation:
    """Return a new operation that runs a hook of the turn."""
    return Operation(
        id=operation_id,
        turn_id=turn.id,
        kind=kind,
        run_id=run_id,
        max_attempts=HOOK_ATTEMPTS,
        backoff_ms=HOOK_BACKOFF_MS,
        timeout_ms=HOOK_TIMEOUT_MS,
        wake_ms=now + HOOK_TIMEOUT_MS,
        created_ms=now,
    )


def retry_operation(operation: Operation, now: int) -> Operation:
    """Return the operation as dispatched once more, with a new deadline."""
    return replace(
        operation,
        status=OperationStatus.DISPATCHED,
        dispatches=operation.dispatches + 1,
        wake_ms=now + operation.timeout_ms,
        due_ms=0,
    )


def next_child(operation: Operation, ids: Minter) -> str:
    """Return the id of the run or conversation that executes the next attempt.

    Runs and delegated conversations get a new id. Other operations keep theirs.
    """
    if operation.kind in (
        OperationKind.ASSEMBLY,
        OperationKind.EXTRACTION,
        OperationKind.SUMMARY,
        OperationKind.WORKFLOW,
    ):
        return ids.child("run", operation.run_id)
    if operation.kind is OperationKind.AGENT and operation.mode != LOOP_IN:
        return ids.child("conv", operation.run_id)
    return operation.run_id


def cancel_pending(
    state: ConversationState, turn_id: str, now: int, *, except_id: str = ""
) -> list[Decision]:
    """Return the decisions that cancel the turn's pending operations, except ``except_id``."""
    decisions: list[Decision] = []
    for operation in state.pending(turn_id):
        if operation.id == except_id:
            continue
        decisions.append(CancelOperation(operation=operation))
        if operation.status is OperationStatus.APPROVAL:
            gate = state.gates.get(operation.gate_id)
            if gate is not None:
                decisions.append(CloseApproval(gate=closed_gate(gate, GateStatus.CANCELLED, now)))
        elif operation.kind is OperationKind.AGENT:
            fault = Fault(reason=Reason.CANCELLED, message="The turn that called the agent has ended.")
            decisions.append(AgentCallEnded(turn_id=turn_id, call=ended_call(operation, now, fault=fault)))
        # During backoff the last run has failed already and the next has not started.
        elif operation.kind is OperationKind.WORKFLOW and operation.status is OperationStatus.DISPATCHED:
            fault = Fault(reason=Reason.CANCELLED, message="The turn that started the run has ended.")
            decisions.append(run_ended(operation, now, fault))
    return decisions


def closed_gate(gate: Gate, status: GateStatus, now: int, answer: ResolveGate | None = None) -> Gate:
    """Return the gate as closed. ``answer`` is the person's; None if the turn ended before."""
    closed = replace(gate, status=status, resolved_ms=now)
    if answer is None:
        return closed
    return replace(
        closed,
        user_id=answer.user_id,
        answer=answer.answer,
        comment=answer.comment,
        principal=answer.principal,
    )


def run_started(operation: Operation) -> WorkflowStarted:
    """Return the decision that records the run of a tool's operation."""
    run = WorkflowRun(run_id=operation.run_id, workflow=operation.target, operation_id=operation.id)
    return WorkflowStarted(turn_id=operation.turn_id, run=run)


def run_ended(operation: Operation, now: int, fault: Fault | None = None) -> WorkflowEnded:
    """Return the decision that records the end of the run of a tool's operation."""
    run = WorkflowRun(
        run_id=operation.run_id,
        workflow=operation.target,
        operation_id=operation.id,
        fault=fault,
        duration_ms=now - operation.created_ms,
    )
    return WorkflowEnded(turn_id=operation.turn_id, run=run)


def with_hook_run(turn: Turn, operation: Operation) -> Turn:
    """Return ``turn`` with the run id of the hook's last attempt."""
    run_id = operation.run_id
    if operation.kind is OperationKind.ASSEMBLY and turn.context_assembly_run_id != run_id:
        return replace(turn, context_assembly_run_id=run_id)
    if operation.kind in (OperationKind.EXTRACTION, OperationKind.MEMORY):
        if turn.memory_extraction_run_id != run_id:
            return replace(turn, memory_extraction_run_id=run_id)
    return turn


def charge_hook(turn: Turn, operation: Operation, output: object) -> tuple[Turn, Decisions]:
    """Return the turn with the model usage that a hook's output reports, and the decision that charges it.

    A hook that was charged as its usage occurred is not charged again.
    """
    usage = None if operation.metered else reported_usage(output, None)
    if usage is None:
        return turn, ()
    charged = add_usage(turn, usage)
    return charged, (ChargeTurn(turn=progress_of(charged)),)


def charge_model_usage(state: ConversationState, event: ModelUsageReported) -> Decisions:
    """Return the decision that charges usage to its turn; nothing if the state no longer holds the turn."""
    turn, run_id = state.turns.get(event.turn_id), event.run_id
    if turn is None or state.conversation is None or state.conversation.deleted_ms:
        return ()
    charged = add_usage(
        turn, of_call(event.usage, event.calls, itemized=turn.itemized, settles=event.settles)
    )
    hooks = (op for op in state.operations.values() if op.run_id == run_id and op.kind in _HOOKS)
    own = next(hooks, None) if run_id else None
    if own is None:
        return (ChargeTurn(turn=progress_of(charged), run_id=event.account),)
    if not event.metered:
        return ()
    metered = None if own.metered else replace(own, metered=True)
    return (ChargeTurn(turn=progress_of(charged), operation=metered, run_id=event.account),)


def hook_outcome(
    operation: Operation, workflow: PinnedWorkflow | None, now: int, fault: Fault | None = None
) -> HookOutcome:
    """Return the outcome of a hook for its event."""
    return HookOutcome(
        run_id=operation.run_id,
        workflow=str(workflow.pin) if workflow is not None else "",
        attempts=operation.attempt,
        duration_ms=now - operation.created_ms,
        fault=fault,
    )


def agent_message(
    conversation: Conversation,
    turn: Turn,
    message_id: str,
    text: str,
    now: int,
    *,
    partial: bool = False,
) -> Message:
    """Return the next message of the turn's agent."""
    return Message(
        id=message_id,
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        ordinal=conversation.message_count + 1,
        role=Role.AGENT,
        author=turn.agent_id,
        content=text,
        partial=partial,
        created_ms=now,
    )


def fail_turn(turn: Turn, fault: Fault, now: int) -> Decisions:
    """Return the decisions that fail the turn and release its work."""
    failed = replace(turn, status=TurnStatus.FAILED, fault=fault, completed_ms=now)
    return (FailTurn(turn=progress_of(failed)), ReleaseTurn(turn_id=turn.id))
