"""Memory extraction after a turn: its output and its memory operations (features D4, D5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wonder_server.core.conversation.context.hook_inputs import MAX_MEMORY_OPERATIONS
from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    ExtractionEnded,
    MemoryWritten,
    RefuseMemoryOperations,
    ReleaseTurn,
    WriteMemory,
)
from wonder_server.core.conversation.model.event_payloads import MemoryRefusal
from wonder_server.core.conversation.model.operations import (
    HOOK_ATTEMPTS,
    HOOK_BACKOFF_MS,
    HOOK_TIMEOUT_MS,
    Decisions,
    charge_hook,
    hook_outcome,
    with_hook_run,
)
from wonder_server.core.conversation.model.speakers import USER, user_of
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.values import Operation, OperationKind, Turn
from wonder_server.core.conversation.planning.hooks.side_models import own_model
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonValue

MAX_REASON_CHARS = 500
"""Maximum number of characters of the reason for a refused memory operation."""


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
    accepted, reasons = _checked(state, turn, requested[:MAX_MEMORY_OPERATIONS])
    refusal = MemoryRefusal(run_id=operation.run_id, reasons=tuple(reasons))
    refused = (RefuseMemoryOperations(turn_id=turn.id, refusal=refusal),) if reasons else ()
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
        for item in accepted
    ]
    turn, charged = charge_hook(turn, operation, output)
    if writes:
        # The extraction, and its event, end with the last of these operations.
        return (*charged, *refused, *writes, CancelOperation(operation=operation))
    return (
        *charged,
        *refused,
        _extraction_ended(state, turn, operation, now),
        ReleaseTurn(turn_id=turn.id),
    )


def _checked(
    state: ConversationState, turn: Turn, requested: Sequence[JsonDict]
) -> tuple[Sequence[JsonDict], list[str]]:
    """Return the operations to apply, and a reason for each other one."""
    if state.turn_work[turn.id].rules < 1:
        return requested, []
    given = _given_ids(state, turn)
    accepted: list[JsonDict] = []
    reasons: list[str] = []
    for position, item in enumerate(requested):
        reason = _refusal(item, given)
        if not reason:
            accepted.append(item)
        else:
            reasons.append(f"memory_operations[{position}]: {reason}"[:MAX_REASON_CHARS])
    return accepted, reasons


def _given_ids(state: ConversationState, turn: Turn) -> dict[str, tuple[str, set[str]]]:
    """Return the ids that an operation may name in each field, with the words for what they are."""
    participants = state.conversation.participants if state.conversation is not None else ()
    users = {each.id for each in participants if each.type == USER} | {user_of(turn.caller)}
    speakers = users | {each.id for each in participants} | {turn.agent_id}
    return {
        "subject": ("user who takes part in the conversation", users),
        "speaker_id": ("participant of the conversation", speakers),
        "message_id": ("message of the turn", {each.id for each in state.messages.get(turn.id, ())}),
        "move_id": ("move of the turn", {each.id for each in state.moves.get(turn.id, ())}),
    }


def _refusal(item: JsonDict, given: Mapping[str, tuple[str, set[str]]]) -> str:
    """Return why an operation is not applied; "" if it is. ``refused`` is the workflow's own reason."""
    if item.get("refused"):
        return str(item["refused"])
    for name, (what, ids) in given.items():
        value = item.get(name)
        # Other types are refused where the operation is applied.
        if isinstance(value, str) and value and value not in ids:
            return f"`{name}` is {value[:100]!r}, which is no {what}."
    return ""


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
    agent = state.turn_work[turn.id].agent
    outcome = hook_outcome(operation, agent.extraction, now, fault)
    outcome = replace(outcome, model_profile=own_model(agent, OperationKind.EXTRACTION))
    return ExtractionEnded(turn=progress_of(turn), operation_id=operation.id, outcome=outcome)
