"""What a decision writes: rows, and the events that watchers of a run see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from wonder_server.core.actor.changes import Change, Delete, Emit, Put
from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    ClearTimer,
    CloseFork,
    CloseGate,
    CountBranches,
    Decision,
    DispatchNode,
    EndRun,
    JoinBranches,
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
    SetRunStatus,
    SetTimer,
    StartRun,
    StopNode,
    TakeSignal,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    ExecutionStatus,
    Gate,
    GateStatus,
    NodeExecution,
    Operation,
    OperationKind,
    Run,
    RunStatus,
    Signal,
    Token,
    TokenStatus,
)

_ENDS = {
    RunStatus.COMPLETED: "workflow_completed",
    RunStatus.FAILED: "workflow_failed",
    RunStatus.CANCELLED: "workflow.cancelled",
}

RUN_ENDED: Final = frozenset(name.replace(".", "_") for name in _ENDS.values())
"""The payloads of the event that ends a run."""


def compact_row(state: RunState) -> Put | None:
    """The row of a run that has ended."""
    return None if state.run is None or state.run.status not in _ENDS else _run(state.run)


def record(_state: RunState | None, decision: Decision) -> tuple[Change, ...]:
    """The changes that ``decision`` makes. They follow from it alone."""
    match decision:
        case DispatchNode():
            return _dispatched(decision)
        case RecordExecution():
            execution = decision.execution
            name = _STATUS_NAMES[execution.status]
            return (
                _execution(execution),
                Delete("operations", execution.id),
                Emit(f"node.{name}", execution),
            )
        case SetContext():
            return (_context(decision.value),)
        case MoveToken():
            return _token(decision.token), Emit("token.moved", decision.token)
        case CountBranches():
            return (_token(decision.token),)
        case JoinBranches():
            return tuple(map(_token, decision.tokens))
        case KeepExecution():
            return (_execution(decision.execution),)
        case RetryNode():
            return (
                _execution(decision.execution),
                _operation(decision.operation),
                Emit("node.failed", decision.execution),
            )
        case RedispatchNode() | SetTimer():
            return (_operation(decision.operation),)
        case RecordEvent():
            return _operation(decision.operation), Emit("event.emitted", decision.emitted)
        case StopNode():
            return (Delete("operations", decision.operation.id),)
        case ClearTimer():
            return (Delete("operations", decision.operation_id),)
        case OpenFork():
            return (Put("forks", decision.fork.token_id, decision.fork, live=True),)
        case CloseFork():
            return (Delete("forks", decision.token_id),)
        case OpenGate():
            return _gate(decision.gate), Emit("gate.opened", decision.gate)
        case CloseGate():
            return _gate(decision.gate), Emit("gate.resolved", decision.gate)
        case RecordSignal():
            return _signal(decision.signal), Emit("signal.received", decision.signal)
        case KeepSignal():
            signal = decision.signal
            return (Put("signals", _signal_row_id(signal), signal, live=True, created_ms=signal.received_ms),)
        case TakeSignal():
            if decision.newest:
                return (_signal(decision.signal),)
            else:
                return (Delete("signals", _signal_row_id(decision.signal)),)
        case StartRun():
            return (
                _run(decision.run),
                Put("works", decision.run.id, decision.pinned, live=True, fresh=True),
                Emit("workflow_started", decision.run),
            )
        case SetRunStatus():
            return (_run(decision.run),)
        case EndRun():
            return (
                _run(decision.run),
                Delete("works", decision.run.id),
                Emit(_ENDS[decision.run.status], decision.run),
            )
        case AnswerAgain() | RefuseRun():
            return ()
        case _:
            assert_never(decision)


_STATUS_NAMES: Mapping[str, str] = {
    word: word.value for words in (RunStatus, TokenStatus, ExecutionStatus, GateStatus) for word in words
}
"""Plain text for each status. Rows are made by the thousand, by position and from here: a word of an enum
costs as much to ask for as all the rest of a row."""

_TASK, _RUNNING = OperationKind.TASK, ExecutionStatus.RUNNING


def _dispatched(decision: DispatchNode) -> tuple[Change, ...]:
    """What a node waits for is an event of its own if it may take long; of a task, that it began says it."""
    token, execution, operation = decision.token, decision.execution, decision.operation
    rows = _execution(execution), _operation(operation, fresh=True)
    started = Emit("node.started", execution)
    if token is None:
        return *rows, started
    if operation.kind is _TASK:
        return _token(token), *rows, started
    return _token(token), Emit("token.moved", token), *rows, started


def _run(run: Run) -> Put:
    return Put(
        "runs",
        run.id,
        run,
        parent=run.scope.conversation_id,
        status=_STATUS_NAMES[run.status],
        live=True,
        created_ms=run.created_ms,
    )


def _token(token: Token) -> Put:
    status = token.status
    live = status not in ENDED_TOKEN_STATUSES
    return Put(
        "tokens", token.id, token, token.parent_id, 0, _STATUS_NAMES[status], "", live, token.created_ms
    )


def _execution(execution: NodeExecution) -> Put:
    status, ordinal, began = execution.status, execution.ordinal, execution.started_ms
    live = status is _RUNNING
    return Put(
        "executions",
        execution.id,
        execution,
        execution.node_id,
        ordinal,
        _STATUS_NAMES[status],
        "",
        live,
        began,
    )


def _operation(operation: Operation, *, fresh: bool = False) -> Put:
    status = "backoff" if operation.backing_off else "dispatched"
    wake, token_id = operation.wake_ms, operation.token_id
    return Put(
        "operations", operation.id, operation, token_id, wake, status, "", True, operation.created_ms, fresh
    )


def _context(value: ContextValue) -> Put:
    """What a branch has written is only read again while its token is live."""
    token_id, key = value.token_id, value.key
    if token_id:
        return Put("context", f"branch.{token_id}.{key}", value, token_id)
    return Put("context", f"{value.section}.{key}", value, live=True)


def _gate(gate: Gate) -> Put:
    return Put(
        "gates",
        gate.id,
        gate,
        parent=gate.project_id,
        alias=gate.node_id,
        status=_STATUS_NAMES[gate.status],
        live=gate.status is GateStatus.PENDING,
        created_ms=gate.created_ms,
    )


def _signal(signal: Signal) -> Put:
    return Put("signals", signal.name, signal, live=True, created_ms=signal.received_ms)


def _signal_row_id(signal: Signal) -> str:
    return f"{signal.name}/{signal.number}"
