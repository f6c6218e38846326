"""What a decision writes: rows, and the events that watchers of a run see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    ClearTimer,
    CloseFork,
    CloseGate,
    CountBranches,
    Decision,
    DispatchNode,
    EndRun,
    KeepExecution,
    KeepSignal,
    MoveToken,
    OpenFork,
    OpenGate,
    RecordEvent,
    RecordExecution,
    RecordSignal,
    RedispatchNode,
    RefuseRun,
    RetryNode,
    SetContext,
    SetRun,
    SetTimer,
    StartRun,
    StopNode,
    TakeSignal,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import (
    ENDED_TOKEN,
    ContextValue,
    Execution,
    ExecutionStatus,
    Gate,
    GateStatus,
    Operation,
    Run,
    RunStatus,
    Signal,
    Token,
)
from wonder_server.core.records import Change, Delete, Emit, Put

_ENDS = {
    RunStatus.COMPLETED: "workflow_completed",
    RunStatus.FAILED: "workflow_failed",
    RunStatus.CANCELLED: "workflow_cancelled",
}


def record(state: RunState, decision: Decision) -> Iterator[Change]:
    """The changes that ``decision`` makes, ``state`` being the working set after it was applied."""
    match decision:
        case MoveToken():
            yield _token(decision.token)
            yield Emit("token.moved", "token_moved", decision.token)
        case CountBranches():
            yield _token(decision.token)
        case DispatchNode():
            yield _execution(decision.execution)
            yield _operation(decision.operation)
            yield Emit("node.started", "node_started", decision.execution)
        case RecordExecution():
            execution = decision.execution
            yield _execution(execution)
            yield Delete("operations", execution.id)
            name = execution.status.value
            yield Emit(f"node.{name}", f"node_{name}", execution)
        case KeepExecution():
            yield _execution(decision.execution)
        case SetContext():
            yield _context(decision.value)
        case RetryNode():
            yield _execution(decision.execution)
            yield _operation(decision.operation)
            yield Emit("node.failed", "node_failed", decision.execution)
        case RedispatchNode() | SetTimer():
            yield _operation(decision.operation)
        case RecordEvent():
            yield _operation(decision.operation)
            yield Emit("event.emitted", "event_emitted", decision.emitted)
        case StopNode():
            yield Delete("operations", decision.operation.id)
        case ClearTimer():
            yield Delete("operations", decision.operation_id)
        case OpenFork():
            yield Put("forks", decision.fork.token_id, decision.fork, live=True)
        case CloseFork():
            yield Delete("forks", decision.token_id)
        case OpenGate():
            yield _gate(decision.gate)
            yield Emit("gate.opened", "gate_opened", decision.gate)
        case CloseGate():
            yield _gate(decision.gate)
            yield Emit("gate.resolved", "gate_resolved", decision.gate)
        case RecordSignal():
            yield _signal(decision.signal)
            yield Emit("signal.received", "signal_received", decision.signal)
        case KeepSignal():
            signal = decision.signal
            yield Put("signals", _in_line(signal), signal, live=True, created_ms=signal.received_ms)
        case TakeSignal():
            if decision.newest:
                yield _signal(decision.signal)
            else:
                yield Delete("signals", _in_line(decision.signal))
        case StartRun():
            yield _run(decision.run)
            yield Put("works", decision.run.id, decision.pinned, live=True)
            yield Emit("workflow_started", "run_started", decision.run)
        case SetRun():
            yield _run(decision.run)
        case EndRun():
            yield _run(decision.run)
            yield Delete("works", decision.run.id)
            yield Emit(_ENDS[decision.run.status], "run_ended", decision.run)
        case AnswerAgain() | RefuseRun():
            return
        case _:
            assert_never(decision)


def _run(run: Run) -> Put:
    return Put(
        "runs",
        run.id,
        run,
        parent=run.scope.conversation_id,
        status=run.status.value,
        live=True,
        created_ms=run.created_ms,
    )


def _token(token: Token) -> Put:
    return Put(
        "tokens",
        token.id,
        token,
        parent=token.parent_id,
        status=token.status.value,
        live=token.status not in ENDED_TOKEN,
        created_ms=token.created_ms,
    )


def _execution(execution: Execution) -> Put:
    return Put(
        "executions",
        execution.id,
        execution,
        parent=execution.node_id,
        ordinal=execution.ordinal,
        status=execution.status.value,
        live=execution.status is ExecutionStatus.RUNNING,
        created_ms=execution.started_ms,
    )


def _operation(operation: Operation) -> Put:
    return Put(
        "operations",
        operation.id,
        operation,
        parent=operation.token_id,
        ordinal=operation.wake_ms,
        status="backoff" if operation.backing_off else "dispatched",
        live=True,
        created_ms=operation.created_ms,
    )


def _context(value: ContextValue) -> Put:
    """What a branch has written is only read again while its token is live."""
    if value.token_id:
        return Put("context", f"branch.{value.token_id}.{value.key}", value, parent=value.token_id)
    return Put("context", f"{value.section}.{value.key}", value, live=True)


def _gate(gate: Gate) -> Put:
    return Put(
        "gates",
        gate.id,
        gate,
        parent=gate.project_id,
        alias=gate.node_id,
        status=gate.status.value,
        live=gate.status is GateStatus.PENDING,
        created_ms=gate.created_ms,
    )


def _signal(signal: Signal) -> Put:
    return Put("signals", signal.name, signal, live=True, created_ms=signal.received_ms)


def _in_line(signal: Signal) -> str:
    return f"{signal.name}/{signal.number}"
