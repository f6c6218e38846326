"""Tests of gates of called agents and runs, shown in the conversation whose turn waits (feature M9)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    Driven,
    agent_tool,
    assembled,
    call,
    commands,
    flow_tool,
    kinds,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import Parent, ReportGate
from wonder_server.core.actor.gates import Gate, GateStatus, shown_hash
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import ShowGate
from wonder_server.core.conversation.model.values import Operation, OperationKind
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.approval.shown_gates import MAX_SHOWN
from wonder_server.core.errors import Fault, Reason


def below(kind: OperationKind = OperationKind.AGENT) -> Driven:
    """Return a conversation whose turn waits for a called agent, or for a run."""
    driven = assembled(tools=(agent_tool("colleague"), flow_tool("flow")))
    name = "colleague" if kind is OperationKind.AGENT else "flow"
    driven.answer(text_answer("", call(name, arguments={"q": "hi"})))
    return driven


def gate_of(operation: Operation, number: int = 1, **fields: Any) -> Gate:
    """Return a gate of the operation's work."""
    given = {
        "id": f"gate_{number}",
        "run_id": "",
        "operation_id": "op_below",
        "node_id": "",
        "project_id": "",
        "workflow_ref": "",
        "prompt": "Allow it?",
        "shown": {"to": "ann"},
        "shown_hash": shown_hash("Allow it?", {"to": "ann"}),
        "conversation_id": operation.run_id,
        "turn_id": "turn_below",
        **fields,
    }
    return Gate(**given)


def report(driven: Driven, gate: Gate, **where: str) -> Any:
    where = where or {"operation_id": next(iter(driven.state.operations))}
    return driven.step(inputs.GateReported(gate=gate, **where))


def shown(driven: Driven, decided: Any) -> list[tuple[str, Gate]]:
    """Return the events about gates."""
    changes = [change for each in decided for change in CONVERSATION.record(driven.state, each)]
    return [(each.name, each.value) for each in changes if getattr(each, "name", "").startswith("gate.")]


@pytest.mark.parametrize("kind", [OperationKind.AGENT, OperationKind.WORKFLOW])
def test_a_gate_below_is_shown_once_and_closes_once(kind: OperationKind) -> None:
    driven = below(kind)
    (operation,) = driven.state.operations.values()
    gate = gate_of(operation)
    assert shown(driven, report(driven, gate)) == [("gate.opened", gate)]
    assert report(driven, gate) == ()
    closed = replace(gate, status=GateStatus.REJECTED, user_id="ann")
    assert shown(driven, report(driven, closed)) == [("gate.resolved", closed)]
    assert report(driven, closed) == ()
    assert driven.state.operations[operation.id].gates_below == ()


def test_a_report_about_other_work_changes_nothing() -> None:
    driven = below()
    (operation,) = driven.state.operations.values()
    gate = gate_of(operation)
    assert report(driven, gate, operation_id="op_other") == ()
    assert report(driven, replace(gate, status=GateStatus.APPROVED)) == ()


def test_the_end_of_the_work_closes_what_is_still_shown() -> None:
    for end in ("answer", "failure", "cancel"):
        driven = below()
        (operation,) = driven.state.operations.values()
        for number in (1, 2):
            report(driven, gate_of(operation, number))
        ends: dict[str, inputs.Input] = {
            "answer": inputs.Succeeded(operation_id=operation.id, output={"answer": "Done."}),
            "failure": inputs.Failed(
                operation_id=operation.id, fault=Fault(reason=Reason.CANCELLED, message="No.")
            ),
            "cancel": inputs.CancelTurn(turn_id=driven.turn.id),
        }
        events = shown(driven, driven.step(ends[end]))
        assert [(name, gate.id, gate.status) for name, gate in events] == [
            ("gate.resolved", f"gate_{number}", GateStatus.CANCELLED) for number in (1, 2)
        ], end
        assert report(driven, gate_of(operation), operation_id=operation.id) == ()


def test_an_operation_shows_a_bounded_number_of_gates_and_keeps_no_contents() -> None:
    driven = below()
    (operation,) = driven.state.operations.values()
    for number in range(MAX_SHOWN + 5):
        report(driven, gate_of(operation, number))
    kept = driven.state.operations[operation.id].gates_below
    assert len(kept) == MAX_SHOWN and not any(gate.shown for gate in kept)


def test_a_called_turn_reports_further_up() -> None:
    driven = below()
    turn_id = driven.turn.id
    parent = Parent(actor_id="conv_above", operation_id="op_above")
    driven.state.turns[turn_id] = replace(driven.turn, parent=parent)
    (operation,) = driven.state.operations.values()
    gate = gate_of(operation)
    for each in (gate, replace(gate, status=GateStatus.APPROVED)):
        decided = report(driven, each)
        (sent,) = [command for command in commands(driven, decided) if isinstance(command, ReportGate)]
        assert sent == ReportGate(gate=each, parent=parent)


def test_a_gate_of_a_looped_in_agent_is_not_shown_twice() -> None:
    driven = below()
    (operation,) = driven.state.operations.values()
    own = gate_of(operation, conversation_id=driven.turn.conversation_id)
    decided = report(driven, own)
    assert [type(each) for each in decided] == [ShowGate] and not shown(driven, decided)


def test_gates_below_change_nothing_else() -> None:
    driven = below()
    (operation,) = driven.state.operations.values()
    report(driven, gate_of(operation))
    decided = driven.step(inputs.Succeeded(operation_id=operation.id, output={"answer": "Done."}))
    assert "DispatchModel" in kinds(decided)
