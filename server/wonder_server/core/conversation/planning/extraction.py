"""Memory extraction after a turn: its output and its memory operations (features D4, D5)."""

from __future__ import annotations

from wonder_server.core.conversation.context.hook_inputs import MAX_MEMORY_OPERATIONS
from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    ExtractionEnded,
    MemoryWritten,
    ReleaseTurn,
    WriteMemory,
)
from wonder_server.core.conversation.model.operations import (
    HOOK_ATTEMPTS,
    HOOK_BACKOFF_MS,
    HOOK_TIMEOUT_MS,
    Decisions,
    charge_hook,
    hook_outcome,
    with_hook_run,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationKind, Turn
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonValue


def extracted(
    state: ConversationState, operation: Operation, output: JsonValue, ids: Minter, now: int
) -> Decisions | Fault:
    """Dispatch the memory operations in the extraction's output. Returns a fault for invalid output."""
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    requested = output.get("memory_operations", []) if isinstance(output, dict) else []
    if not isinstance(requested, list) or not all(isinstance(item, dict) for item in requested):
        return Fault(
            reason=Reason.MEMORY_EXTRACTION_FAILED,
            message="The output of the memory-extraction workflow is invalid: `memory_operations` must be "
            "a list of objects.",
        )
    writes = [
        WriteMemory(
            operation=Operation(
                id=ids.new("op"),
                turn_id=turn.id,
                kind=OperationKind.MEMORY,
                input=item,
                run_id=operation.run_id,
                max_attempts=HOOK_ATTEMPTS,
                backoff_ms=HOOK_BACKOFF_MS,
                timeout_ms=HOOK_TIMEOUT_MS,
                wake_ms=now + HOOK_TIMEOUT_MS,
                created_ms=now,
            )
        )
        for item in requested[:MAX_MEMORY_OPERATIONS]
    ]
    turn, charged = charge_hook(turn, operation, output)
    if writes:
        # The extraction, and its event, end with the last of these operations.
        return (*charged, *writes, CancelOperation(operation=operation))
    return (
        *charged,
        _extraction_ended(state, turn, operation, now),
        ReleaseTurn(turn_id=turn.id),
    )


def memory_written(state: ConversationState, operation: Operation, output: object, now: int) -> Decisions:
    """Record a memory operation. The last one ends the extraction."""
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    others = [op for op in state.pending(turn.id) if op.id != operation.id]
    if others:
        return (MemoryWritten(operation_id=operation.id, output=output),)
    return (
        MemoryWritten(operation_id=operation.id, output=output),
        _extraction_ended(state, turn, operation, now),
        ReleaseTurn(turn_id=turn.id),
    )


def extraction_failed(state: ConversationState, operation: Operation, fault: Fault, now: int) -> Decisions:
    """Mark the turn as failed in extraction. The last operation ends the extraction."""
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    turn = replace(turn, memory_extraction_failed=True)
    others = [op for op in state.pending(turn.id) if op.id != operation.id]
    ended = _extraction_ended(state, turn, operation, now, fault)
    return (ended,) if others else (ended, ReleaseTurn(turn_id=turn.id))


def _extraction_ended(
    state: ConversationState, turn: Turn, operation: Operation, now: int, fault: Fault | None = None
) -> ExtractionEnded:
    outcome = hook_outcome(operation, state.turn_work[turn.id].agent.extraction, now, fault)
    return ExtractionEnded(turn=turn, operation_id=operation.id, outcome=outcome)
