"""Planned changes of a run's outbox: node executions, operations, timers and gates."""

from __future__ import annotations

from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.coordinator.model.compiled_graph import CompiledGraph
from wonder_server.core.coordinator.model.decisions import (
    ClearTimer,
    CloseGate,
    Decision,
    DispatchNode,
    KeepExecution,
    OpenGate,
    RecordExecution,
    RedispatchNode,
    RetryNode,
    SetTimer,
    StopNode,
)
from wonder_server.core.coordinator.model.progress import ExecutionEnd
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import (
    ExecutionStatus,
    NodeExecution,
    Operation,
    OperationKind,
    Token,
)
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonValue


class PlannedOperations:
    """Operations and node executions of a run, with the changes planned so far."""

    __slots__ = (
        "_by_token",
        "_decided",
        "_executions",
        "_now",
        "_operations",
        "_run_id",
        "_state",
        "ordinal",
    )

    def __init__(self, state: RunState, run_id: str, now: int, decided: list[Decision]) -> None:
        self.ordinal = state.ordinal
        """Number of the newest node execution."""
        self._state = state
        self._run_id = run_id
        self._now = now
        self._decided = decided
        self._operations: dict[str, Operation | None] = {}
        self._by_token: dict[str, str] = {}
        self._executions: dict[str, NodeExecution] = {}

    def get(self, operation_id: str) -> Operation | None:
        """Return a pending operation, or None."""
        if operation_id in self._operations:
            return self._operations[operation_id]
        return self._state.operations.get(operation_id)

    def of_token(self, token: Token) -> Operation | None:
        """Return the operation that the token's node waits for, or None."""
        return self.get(self._by_token.get(token.id) or self._state.operation_of.get(token.id, ""))

    def execution(self, operation: Operation) -> NodeExecution:
        """Return the node execution of a pending operation."""
        return self._executions.get(operation.id) or self._state.executions[operation.id]

    def waiting_for_signal(self, name: str, compiled: CompiledGraph) -> list[Operation]:
        """Return the operations that wait for a signal, in an order that a restart does not change."""
        found = [
            each
            for each in self._state.operations.values()
            if each.kind is OperationKind.WAIT
            and (wait := compiled[each.node_id].node.wait) is not None
            and wait.signal == name
        ]
        return sorted(found, key=lambda each: (each.created_ms, each.key))

    def dispatch(self, token: Token, execution: NodeExecution, operation: Operation) -> None:
        """Start a node execution; the token waits for its operation."""
        self.ordinal = execution.ordinal
        self._executions[operation.id] = execution
        self._operations[operation.id] = operation
        self._by_token[operation.token_id] = operation.id
        self._decided.append(DispatchNode(execution=execution, operation=operation, token=token))

    def retry(self, execution: NodeExecution, operation: Operation) -> None:
        """Schedule the next attempt of a node execution."""
        self._executions[operation.id] = execution
        self._operations[operation.id] = operation
        self._decided.append(RetryNode(execution=execution, operation=operation))

    def redispatch(self, operation: Operation) -> None:
        """Dispatch a pending operation again."""
        self._operations[operation.id] = operation
        self._decided.append(RedispatchNode(operation=operation))

    def stop(self, operation: Operation) -> None:
        """Cancel the operation's work. The caller records the node execution."""
        self._decided.append(StopNode(operation=operation))

    def record(
        self,
        operation: Operation,
        status: ExecutionStatus,
        output: JsonValue = None,
        fault: Fault | None = None,
    ) -> None:
        """Record the end of a node execution and remove its operation from the outbox."""
        end = ExecutionEnd(id=operation.id, status=status, output=output, fault=fault, completed_ms=self._now)
        self._operations[operation.id] = None
        self._decided.append(RecordExecution(execution=end))

    def keep_execution(self, execution: NodeExecution) -> None:
        """Copy a completed node execution of another run."""
        self.ordinal = max(self.ordinal, execution.ordinal)
        self._decided.append(KeepExecution(execution=execution))

    def timer(self, token: Token | None) -> Operation | None:
        """Return the running timer of the token's fan-out, or of the run if ``token`` is None."""
        return self.get(_timer_id(self._run_id, token))

    def set_timer(self, kind: OperationKind, token: Token | None, until_ms: int) -> None:
        """Start a timer of the token's fan-out, or of the run if ``token`` is None."""
        operation = Operation(
            id=_timer_id(self._run_id, token),
            run_id=self._run_id,
            kind=kind,
            token_id=token.id if token else "",
            until_ms=until_ms,
            created_ms=self._now,
        )
        self._operations[operation.id] = operation
        self._decided.append(SetTimer(operation=operation))

    def clear_timer(self, token: Token | None) -> None:
        """Stop the timer of the token's fan-out, or of the run, if it is running."""
        operation = self.timer(token)
        if operation is not None:
            self._operations[operation.id] = None
            self._decided.append(ClearTimer(operation_id=operation.id))


def _timer_id(run_id: str, token: Token | None) -> str:
    return f"{run_id}/timer" if token is None else f"{run_id}/{token.id}/{token.hops}/timer"


class PlannedGates:
    """Open gates of a run, with the changes planned so far."""

    __slots__ = (
        "_decided",
        "_gates",
        "_now",
        "_state",
    )

    def __init__(self, state: RunState, now: int, decided: list[Decision]) -> None:
        self._state = state
        self._now = now
        self._decided = decided
        self._gates: dict[str, Gate | None] = {}

    def of_operation(self, operation: Operation) -> Gate | None:
        """Return the open gate that an operation waits at, or None."""
        gate_id = operation.child_id
        return self._gates[gate_id] if gate_id in self._gates else self._state.gates.get(gate_id)

    def open(self, gate: Gate) -> None:
        """Open a gate."""
        self._gates[gate.id] = gate
        self._decided.append(OpenGate(gate=gate))

    def close(
        self,
        gate: Gate,
        status: GateStatus,
        resolution: ResolveGate | None = None,
    ) -> Gate:
        """Close a gate and return it. ``resolution`` is a person's answer; None if the gate expired or was
        cancelled."""
        closed = replace(gate, status=status, resolved_ms=self._now)
        if resolution is not None:
            closed = replace(
                closed,
                user_id=resolution.user_id,
                answer=resolution.answer,
                comment=resolution.comment,
                principal=resolution.principal,
            )
        self._gates[gate.id] = None
        self._decided.append(CloseGate(gate=closed))
        return closed
