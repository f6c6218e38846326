"""After the turn: what memory extraction returned, and what became of it (features D4, D5)."""

from __future__ import annotations

from typing import Any

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


def extracted(
    state: ConversationState, operation: Operation, output: Any, ids: Minter, now: int
) -> Decisions | Fault:
    """Extraction has put out ``output``; a fault if that is not what the contract says."""
    turn = with_hook_run(state.turns[operation.turn_id], operation)
    asked = output.get("memory_operations", []) if isinstance(output, dict) else []
    if not isinstance(asked, list) or not all(isinstance(item, dict) for item in asked):
        return Fault(
            reason=Reason.MEMORY_EXTRACTION_FAILED,
            message="The memory-extraction workflow put out `memory_operations` that are no list of objects.",
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
        for item in asked[:MAX_MEMORY_OPERATIONS]
    ]
    turn, paid = charge_hook(turn, operation, output)
    if writes:
        # The turn's extraction is over when the last of these is; the event waits for it.
        return (*paid, *writes, CancelOperation(operation=operation))
    return (
        *paid,
        _extraction_ended(state, turn, operation, now),
        ReleaseTurn(turn_id=turn.id),
    )


def memory_written(state: ConversationState, operation: Operation, output: object, now: int) -> Decisions:
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
