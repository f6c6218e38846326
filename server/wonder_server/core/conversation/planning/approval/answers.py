"""Answers of people at the gates of tool calls (feature M9): approve, edit, reject; gates that expire."""

from __future__ import annotations

import dataclasses

from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate, refusal
from wonder_server.core.conversation.model.decisions import CloseApproval, Refuse
from wonder_server.core.conversation.model.operations import Decisions, closed_gate
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    Invocation,
    Move,
    Operation,
    ToolErrorCode,
    ToolResult,
)
from wonder_server.core.conversation.planning import tool_calls
from wonder_server.core.conversation.planning.agent_loop import dispatched, tool_ended
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter

EXPIRED = "No person approved this call in time, so that it was not carried out."
REJECTED = "A person rejected this call, so that it was not carried out."


def resolve_gate(state: ConversationState, event: ResolveGate, now: int) -> Decisions:
    """Dispatch the call that waits at the gate, or answer it with the rejection."""
    gate = state.gates.get(event.gate_id)
    fault = refusal(gate, event)
    operation = state.operations.get(gate.operation_id) if gate is not None else None
    if fault is None and (gate is None or operation is None):
        fault = Fault(reason=Reason.GATE_RESOLVED, message="The gate is no longer open.", field="gate_id")
    if fault is not None or gate is None or operation is None:
        return (Refuse(fault=fault),) if fault is not None else ()
    # Results derive their ids from their operation's id too.
    ids = Minter(f"{operation.id}/approval", now)
    if not event.approve:
        closed = closed_gate(gate, GateStatus.REJECTED, now, event)
        return _ended(state, operation, closed, _rejection(operation, event), ids, now)
    return _approve(state, operation, gate, event, ids, now)


def expire_gate(state: ConversationState, operation: Operation, now: int) -> Decisions:
    """Answer a call whose gate has expired with the reason; nothing before its time."""
    gate = state.gates.get(operation.gate_id)
    if gate is None or not gate.expires_ms or now < gate.expires_ms:
        return ()
    seconds = (gate.expires_ms - gate.created_ms) / 1000
    result = ToolResult(
        tool_call_id=operation.tool_call_id,
        success=False,
        code=ToolErrorCode.TIMEOUT,
        message=f"{EXPIRED} It waited {seconds:g} s for approval.",
        retriable=False,
    )
    closed = closed_gate(gate, GateStatus.EXPIRED, now)
    return _ended(state, operation, closed, result, Minter(f"{operation.id}/approval", now), now)


def _approve(
    state: ConversationState, operation: Operation, gate: Gate, event: ResolveGate, ids: Minter, now: int
) -> Decisions:
    turn = state.turns[operation.turn_id]
    move, place = _place(state, operation)
    entry = move.invocations[place]
    call = entry.call
    is_edited = event.answer is not None and event.answer != call.arguments
    if is_edited:
        call = dataclasses.replace(call, arguments=event.answer)
    prepared = tool_calls.prepare(state.turn_work[turn.id].agent, call, turn, ids, now)
    fresh = prepared.operation
    if fresh is not None and fresh.mode != operation.mode:
        return _refused("The mode of the agent's call cannot be edited. Reject the call instead.")
    if fresh is None and is_edited:
        reason = prepared.refusal.message if prepared.refusal is not None else "The arguments are invalid."
        return _refused(reason)
    closed = closed_gate(gate, GateStatus.APPROVED, now, event)
    if fresh is None:
        result = prepared.refusal
        assert result is not None, "a prepared call has an operation or a refusal"
        return _ended(state, operation, closed, result, ids, now)
    released = replace(
        fresh,
        id=operation.id,
        tool_id=operation.tool_id,
        is_async=operation.is_async,
        gate_id=operation.gate_id,
    )
    edited = _with_edit(move, place, entry, event) if is_edited else None
    return (CloseApproval(gate=closed, move=edited), *dispatched(released))


def _with_edit(move: Move, place: int, entry: Invocation, event: ResolveGate) -> Move:
    entries = list(move.invocations)
    entries[place] = replace(entry, edited=event.answer)
    return replace(move, invocations=tuple(entries))


def _ended(
    state: ConversationState, operation: Operation, closed: Gate, result: ToolResult, ids: Minter, now: int
) -> Decisions:
    turn = state.turns[operation.turn_id]
    return (CloseApproval(gate=closed), *tool_ended(state, turn, operation, result, ids, now))


def _rejection(operation: Operation, event: ResolveGate) -> ToolResult:
    reason = event.comment.strip()
    return ToolResult(
        tool_call_id=operation.tool_call_id,
        success=False,
        code=ToolErrorCode.PERMISSION_DENIED,
        message=f"{REJECTED} Reason: {reason}" if reason else f"{REJECTED} No reason was given.",
        retriable=False,
    )


def _place(state: ConversationState, operation: Operation) -> tuple[Move, int]:
    """Return the move of the operation's call, and the place of the call in it."""
    return next(
        (move, place)
        for move in state.moves[operation.turn_id]
        for place, entry in enumerate(move.invocations)
        if entry.operation_id == operation.id
    )


def _refused(message: str) -> Decisions:
    return (Refuse(fault=Fault(reason=Reason.INPUT_INVALID, message=message, field="answer")),)
