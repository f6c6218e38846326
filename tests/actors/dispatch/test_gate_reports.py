"""Reports of gates that a kill lost: a start sends them again (feature M9)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from wonder_server.actors.access import InternalAccess
from wonder_server.actors.dispatch.gate_reports import GateReports
from wonder_server.core.actor.commands import Parent, ReportGate
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.conversation.model.inputs import GateReported
from wonder_server.core.conversation.model.values import Caller, Operation, OperationKind, Turn
from wonder_server.core.frozen import replace
from wonder_server.ports.journal import PendingOperation, Unfinished
from wonder_server.ports.records import Query

ABOVE, BELOW = "conv_above", "conv_below"
PARENT = Parent(actor_id=ABOVE, operation_id="op_above")
GATE = Gate(
    id="gate_1",
    run_id="",
    operation_id="op_below",
    node_id="",
    project_id="",
    workflow_ref="",
    prompt="Allow it?",
    shown={},
    shown_hash="0",
    conversation_id=BELOW,
    turn_id="turn_below",
)
CALL = Operation(id="op_above", turn_id="turn_above", kind=OperationKind.AGENT, run_id=BELOW)


def turn(turn_id: str, parent: Parent | None) -> Turn:
    return Turn(
        id=turn_id,
        conversation_id=BELOW,
        agent_id="agt",
        agent_name="a",
        persona="p",
        caller=Caller(),
        ordinal=1,
        input="",
        parent=parent,
    )


class Disk:
    """The rows of both conversations, and a directory that keeps what it sends."""

    def __init__(self, gate: Gate, call: Operation) -> None:
        self.gate, self.call = gate, call
        self.sent: list[tuple[str, Any]] = []
        self.directory = self.records = self

    def tell(self, actor_id: str, given: object) -> None:
        self.sent.append((actor_id, given))

    async def find(self, query: Query) -> list[object]:
        if query.table == "gates":
            is_open = self.gate.status is GateStatus.PENDING and BELOW in query.actors
            return [self.gate] if query.id == self.gate.id or is_open else []
        return [turn("turn_below", PARENT)] if query.table == "turns" else []

    async def get(self, table: str, _row_id: str, _actor_id: str) -> object:
        return self.call if table == "operations" else turn("turn_above", None)

    async def resumed(self) -> list[tuple[str, Any]]:
        outbox = (PendingOperation(self.call.id, self.call, 0, False),)
        waiting = replace(CALL, id="op_below", turn_id="turn_below")
        below = (PendingOperation(waiting.id, waiting, 0, False),)
        reports = GateReports(cast(InternalAccess, self))
        await reports.resume([Unfinished(ABOVE, 0, outbox), Unfinished(BELOW, 0, below)])
        return self.sent


@pytest.mark.parametrize("status", GateStatus)
@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_start_reports_what_the_caller_does_not_show(status: GateStatus, is_shown: bool) -> None:
    gate = replace(GATE, status=status)
    call = replace(CALL, gates_below=(GATE,)) if is_shown else CALL
    is_open = status is GateStatus.PENDING
    missing = [(ABOVE, GateReported(gate=gate, operation_id="op_above"))] if is_open is not is_shown else []
    assert await Disk(gate, call).resumed() == missing


def test_a_report_without_runs_in_between_is_sent_at_once() -> None:
    disk = Disk(GATE, CALL)
    reports = GateReports(cast(InternalAccess, disk))
    assert reports.report(ReportGate(gate=GATE, parent=PARENT))
    assert disk.sent == [(ABOVE, GateReported(gate=GATE, operation_id="op_above"))]
    run = Parent(actor_id="run_1", operation_id="op")
    assert not reports.report(ReportGate(gate=GATE, parent=run)) and len(disk.sent) == 1
