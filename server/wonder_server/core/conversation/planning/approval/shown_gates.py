"""Gates of work that a turn waits for, shown in the turn's conversation (feature M9).

A called agent, or a run behind a tool, waits at gates of its own. Each that opens or closes is reported to
the conversation above (`GateReported`), which emits it as an event of its own and reports it further up. The
operation of the work keeps the gates that it shows, so that each opens and closes once: a report may arrive
twice, after a restart, or not at all if the work has ended before.
"""

from __future__ import annotations

from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.conversation.model.decisions import (
    AsyncOperationCompleted,
    CancelOperation,
    Decision,
    ResumeFromTool,
    RetryOperation,
    ShowGate,
)
from wonder_server.core.conversation.model.inputs import GateReported
from wonder_server.core.conversation.model.operations import Decisions, closed_gate
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationStatus
from wonder_server.core.frozen import replace

MAX_SHOWN = 20
"""Open gates of one operation that a conversation shows at the same time. Further ones are in the inbox."""


def show_gate(state: ConversationState, event: GateReported) -> Decisions:
    """Show a gate that has opened or closed, unless the conversation shows it as that already."""
    gate = event.gate
    shows = next((op for op in state.operations.values() if _shown(op, gate.id) is not None), None)
    if gate.status is not GateStatus.PENDING:
        if shows is None:
            return ()
        left = tuple(each for each in shows.gates_below if each.id != gate.id)
        return (ShowGate(turn_id=shows.turn_id, gate=gate, operation=replace(shows, gates_below=left)),)
    operation = state.operations.get(event.operation_id)
    if shows is not None or operation is None or operation.status is not OperationStatus.DISPATCHED:
        return ()
    if len(operation.gates_below) >= MAX_SHOWN:
        return ()
    # What a gate shows may be large, and the row is written for each gate.
    kept = replace(gate, shown={}, answer_schema={})
    showing = replace(operation, gates_below=(*operation.gates_below, kept))
    return (ShowGate(turn_id=operation.turn_id, gate=gate, operation=showing),)


def close_shown_gates(state: ConversationState, decisions: Decisions, now: int) -> Decisions:
    """Return the decisions with the shown gates closed of work that ends, or of an attempt that failed."""
    for working in state.operations.values():
        if working.gates_below:
            break
    else:  # As for almost every input.
        return decisions
    showing = {op.id: op for op in state.operations.values() if op.gates_below}
    closed: list[Decision] = []
    for decision in decisions:
        operation = showing.pop(_ended(decision), None)
        if operation is not None:
            for gate in operation.gates_below:
                ended = closed_gate(gate, GateStatus.CANCELLED, now)
                closed.append(ShowGate(turn_id=operation.turn_id, gate=ended))
            if type(decision) is RetryOperation:
                decision = replace(decision, operation=replace(decision.operation, gates_below=()))
        closed.append(decision)
    return tuple(closed)


def _shown(operation: Operation, gate_id: str) -> Gate | None:
    return next((gate for gate in operation.gates_below if gate.id == gate_id), None)


def _ended(decision: Decision) -> str:
    """Return the id of the operation whose work the decision ends; "" if it ends none."""
    match decision:
        case CancelOperation() | RetryOperation():
            return decision.operation.id
        case ResumeFromTool() | AsyncOperationCompleted():
            return decision.operation_id
        case _:
            return ""
