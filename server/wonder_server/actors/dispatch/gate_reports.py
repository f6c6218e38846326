"""Reports of gates to the conversations whose turns wait for the work (feature M9).

A report is sent after the commit that opens or closes the gate. A kill in between loses it, so a start
reports again what the conversations above do not show yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wonder_server.actors.access import InternalAccess
from wonder_server.core.actor.commands import Parent, ReportGate
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.conversation.model.inputs import GateReported
from wonder_server.core.conversation.model.values import Operation, Turn, TurnStatus
from wonder_server.core.coordinator.model.values import Run
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.journal import Unfinished
from wonder_server.ports.records import Query

_log = logger("actors")

MAX_GATES = 100_000
"""Limit above the number of open gates of a page of actors."""


class GateReports:
    """Reports gates to the conversations above them."""

    def __init__(self, access: InternalAccess) -> None:
        self._directory = access.directory
        self._records = access.records
        self._parents: dict[str, Parent] = {}
        """Operation in the conversation above an open gate with runs in between, by gate id."""

    def report(self, command: ReportGate) -> bool:
        """Report a gate at once. Return False if `report_through_runs` must, since a run is in between."""
        gate, parent = command.gate, command.parent
        if gate.status is not GateStatus.PENDING:
            # Read at its opening: the report of its end must arrive before the result of the work.
            parent = self._parents.pop(gate.id, parent)
        if not parent.actor_id.startswith("conv_"):
            return False
        self._directory.tell(parent.actor_id, GateReported(gate=gate, operation_id=parent.operation_id))
        return True

    async def report_through_runs(self, command: ReportGate) -> None:
        """Report a gate to the conversation above the runs in between. Without one there is no report."""
        try:
            found = await self._above(command)
        except WonderError as problem:
            _log.warning("gate_not_reported", gate=command.gate.id, problem=problem.fault.message)
            return
        if found is not None:
            self.report(found)

    async def resume(self, actors: Sequence[Unfinished]) -> None:
        """Report the gates of these actors after a start, as far as the conversations above do not show it.
        Damaged records are skipped.
        """
        for command in await self._missing(actors):
            found = await self._above(command)
            if found is not None and not await self._is_shown(found):
                self.report(found)

    async def _missing(self, actors: Sequence[Unfinished]) -> list[ReportGate]:
        """Return the reports that a kill may have lost."""
        ids = tuple(actor.actor_id for actor in actors)
        open_gates: list[Gate] = await self._records.find(
            Query(
                table="gates", actors=ids, statuses=(GateStatus.PENDING.value,), limit=MAX_GATES, lenient=True
            )
        )
        missing = await self._of_own(open_gates) if open_gates else []
        for parent, turn_id, kept in _shown_below(actors):
            query = Query(table="gates", id=kept.id, colocated_with=kept.id, limit=1, lenient=True)
            for gate in await self._records.find(query):
                # Either the report of its end is lost, or that of its opening to the caller of this turn.
                missing.append(ReportGate(gate=gate, parent=parent))
                turn = await self._records.get("turns", turn_id, parent.actor_id)
                missing += _to_parent(gate, turn if isinstance(turn, Turn) else None)
        return missing

    async def _of_own(self, gates: Sequence[Gate]) -> list[ReportGate]:
        """Return the reports of open gates to what waits for their own actors."""
        actors = tuple({gate.actor_id for gate in gates})
        called = (("parent.actor_id", ()),)
        runs: list[Run] = await self._records.find(
            Query(table="runs", actors=actors, fields=called, limit=len(actors), lenient=True)
        )
        turns: list[Turn] = await self._records.find(
            Query(
                table="turns",
                actors=actors,
                statuses=(TurnStatus.ACTIVE.value,),
                fields=called,
                limit=MAX_GATES,
                lenient=True,
            )
        )
        found: dict[str, Run | Turn] = {run.id: run for run in runs}
        found.update((turn.id, turn) for turn in turns)
        return [each for gate in gates for each in _to_parent(gate, found.get(gate.run_id or gate.turn_id))]

    async def _above(self, command: ReportGate) -> ReportGate | None:
        """Return the report to the nearest conversation above; None if no turn waits for the runs."""
        parent: Parent | None = command.parent
        while parent is not None and not parent.actor_id.startswith("conv_"):
            run = await self._records.get("runs", parent.actor_id, parent.actor_id)
            parent = run.parent if isinstance(run, Run) else None
        if parent is None:
            return None
        if parent != command.parent and command.gate.status is GateStatus.PENDING:
            self._parents[command.gate.id] = parent
        return ReportGate(gate=command.gate, parent=parent)

    async def _is_shown(self, command: ReportGate) -> bool:
        """Return True if the conversation has seen the report."""
        parent = command.parent
        waiting = await self._records.get("operations", parent.operation_id, parent.actor_id)
        kept = waiting.gates_below if isinstance(waiting, Operation) else ()
        return any(gate.id == command.gate.id for gate in kept) is (command.gate.status is GateStatus.PENDING)


def _to_parent(gate: Gate, work: Run | Turn | None) -> list[ReportGate]:
    """Return the report to what waits for the turn or run, if something does."""
    return [] if work is None or work.parent is None else [ReportGate(gate=gate, parent=work.parent)]


def _shown_below(actors: Sequence[Unfinished]) -> Iterator[tuple[Parent, str, Gate]]:
    """Yield the gates that the conversations among these actors show, with the operations and turns."""
    for actor in actors:
        for each in actor.operations:
            if isinstance(each.value, Operation):
                for gate in each.value.gates_below:
                    yield Parent(actor_id=actor.actor_id, operation_id=each.id), each.value.turn_id, gate
