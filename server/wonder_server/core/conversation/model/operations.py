"""Small pieces that every part of the conversation planner uses."""

from __future__ import annotations

from wonder_server.core.conversation.model.agent_tools import LOOP_IN, ended_call
from wonder_server.core.conversation.model.decisions import (
    AgentCallEnded,
    CancelOperation,
    ChargeTurn,
    Decision,
    FailTurn,
    ReleaseTurn,
    WorkflowEnded,
    WorkflowStarted,
)
from wonder_server.core.conversation.model.inputs import ModelUsageReported
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import add_usage, of_call, reported_usage
from wonder_server.core.conversation.model.values import (
    Conversation,
    HookOutcome,
    Message,
    Operation,
    OperationKind,
    OperationStatus,
    Role,
    Turn,
    TurnStatus,
    WorkflowRun,
)
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter

HOOK_ATTEMPTS, HOOK_BACKOFF_MS, HOOK_TIMEOUT_MS = 3, 100, 30_000
"""Platform defaults for context assembly and memory extraction (document 1)."""

_HOOKS = (OperationKind.ASSEMBLY, OperationKind.EXTRACTION, OperationKind.SUMMARY)

Decisions = tuple[Decision, ...]


def hook_operation(operation_id: str, turn: Turn, kind: OperationKind, run_id: str, now: int) -> Operation:
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
    return replace(
        operation,
        status=OperationStatus.DISPATCHED,
        dispatches=operation.dispatches + 1,
        wake_ms=now + operation.timeout_ms,
    )


def next_child(operation: Operation, ids: Minter) -> str:
    """What carries the next attempt out: a new run, a new conversation; where an agent is looped in, and
    where neither does it, the same as before."""
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
    """The turn ends: nobody waits any more for what it has pending, ``but`` for one that is dealt with."""
    decisions: list[Decision] = []
    for operation in state.pending(turn_id):
        if operation.id == except_id:
            continue
        decisions.append(CancelOperation(operation=operation))
        if operation.kind is OperationKind.AGENT:
            fault = Fault(reason=Reason.CANCELLED, message="The turn that called the agent has ended.")
            decisions.append(AgentCallEnded(turn_id=turn_id, call=ended_call(operation, now, fault=fault)))
        # While it backs off, its last run has failed already and the next has not begun.
        elif operation.kind is OperationKind.WORKFLOW and operation.status is OperationStatus.DISPATCHED:
            fault = Fault(reason=Reason.CANCELLED, message="The turn that started the run has ended.")
            decisions.append(run_ended(operation, now, fault))
    return decisions


def run_started(operation: Operation) -> WorkflowStarted:
    """A run carries out a tool's operation from now on."""
    run = WorkflowRun(run_id=operation.run_id, workflow=operation.target, operation_id=operation.id)
    return WorkflowStarted(turn_id=operation.turn_id, run=run)


def run_ended(operation: Operation, now: int, fault: Fault | None = None) -> WorkflowEnded:
    """The run that carries out a tool's operation has ended."""
    run = WorkflowRun(
        run_id=operation.run_id,
        workflow=operation.target,
        operation_id=operation.id,
        fault=fault,
        duration_ms=now - operation.created_ms,
    )
    return WorkflowEnded(turn_id=operation.turn_id, run=run)


def with_hook_run(turn: Turn, operation: Operation) -> Turn:
    """``turn``, linked to the run that a hook's last attempt was."""
    run_id = operation.run_id
    if operation.kind is OperationKind.ASSEMBLY and turn.context_assembly_run_id != run_id:
        return replace(turn, context_assembly_run_id=run_id)
    if operation.kind in (OperationKind.EXTRACTION, OperationKind.MEMORY):
        if turn.memory_extraction_run_id != run_id:
            return replace(turn, memory_extraction_run_id=run_id)
    return turn


def charge_hook(turn: Turn, operation: Operation, output: object) -> tuple[Turn, Decisions]:
    """The turn that has paid for the models that a hook of it asked, if the hook says so in ``usage`` and
    they were not charged as they were asked."""
    usage = None if operation.metered else reported_usage(output, None)
    if usage is None:
        return turn, ()
    paid = add_usage(turn, usage)
    return paid, (ChargeTurn(turn=paid),)


def charge_model_usage(state: ConversationState, asked: ModelUsageReported) -> Decisions:
    """The turn that has paid for a model that its tool has asked, as long as it is at hand."""
    turn, run_id = state.turns.get(asked.turn_id), asked.run_id
    if turn is None or state.conversation is None or state.conversation.deleted_ms:
        return ()
    paid = add_usage(turn, of_call(asked.usage, asked.calls, settles=asked.settles))
    hooks = (op for op in state.operations.values() if op.run_id == run_id and op.kind in _HOOKS)
    own = next(hooks, None) if run_id else None
    if own is None:
        return (ChargeTurn(turn=paid),)
    if not asked.metered:
        return ()
    return (ChargeTurn(turn=paid, operation=None if own.metered else replace(own, metered=True)),)


def hook_outcome(
    operation: Operation, workflow: PinnedWorkflow | None, now: int, fault: Fault | None = None
) -> HookOutcome:
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
    failed = replace(turn, status=TurnStatus.FAILED, fault=fault, completed_ms=now)
    return (FailTurn(turn=failed), ReleaseTurn(turn_id=turn.id))
