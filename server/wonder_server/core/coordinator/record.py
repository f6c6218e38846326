"""Rows and events of a run's decisions: one function for each class that writes something.

The functions do not read the state, so the rows of a compact run can be derived from its journal alone
(docs/adr/0017-compact-runs.md). Watchers of a run receive the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wonder_server.core.actor.changes import Change, Delete, Emit, Put
from wonder_server.core.coordinator.decisions import (
    ClearTimer,
    CloseFork,
    CloseGate,
    CountBranches,
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

Changes = tuple[Change, ...]

_ENDS = {
    RunStatus.COMPLETED: "workflow_completed",
    RunStatus.FAILED: "workflow_failed",
    RunStatus.CANCELLED: "workflow.cancelled",
}

RUN_ENDED: Final = frozenset(name.replace(".", "_") for name in _ENDS.values())
"""Payloads of the events that end a run."""


def compact_row(state: RunState) -> Put | None:
    """Return the row of a run that has ended, else None."""
    return None if state.run is None or state.run.status not in _ENDS else _run(state.run)


_STATUS_NAMES: Mapping[str, str] = {
    word: word.value for words in (RunStatus, TokenStatus, ExecutionStatus, GateStatus) for word in words
}
"""Text of each status. Rows are made by the thousand, and reading the value of an enum member costs as much
as all the rest of a row. Rows are built with positional arguments for the same reason."""

_TASK, _RUNNING = OperationKind.TASK, ExecutionStatus.RUNNING


def start_run(_: object, decision: StartRun) -> Changes:
    """Write the run and its workflow."""
    return (
        _run(decision.run),
        Put("works", decision.run.id, decision.pinned, live=True, fresh=True),
        Emit("workflow_started", decision.run),
    )


def set_run(_: object, decision: SetRunStatus) -> Changes:
    """Write the run."""
    return (_run(decision.run),)


def end_run(_: object, decision: EndRun) -> Changes:
    """Write the run and delete its workflow."""
    run = decision.run
    return _run(run), Delete("works", run.id), Emit(_ENDS[run.status], run)


def move_token(_: object, decision: MoveToken) -> Changes:
    """Write the token."""
    return _token(decision.token), Emit("token.moved", decision.token)


def count_branches(_: object, decision: CountBranches) -> Changes:
    """Write the token. Its counters are internal, so there is no event."""
    return (_token(decision.token),)


def join_branches(_: object, decision: JoinBranches) -> Changes:
    """Write the joined tokens. The node that begins next has the event."""
    return tuple(map(_token, decision.tokens))


def open_fork(_: object, decision: OpenFork) -> Changes:
    """Write the fan-out."""
    return (Put("forks", decision.fork.token_id, decision.fork, live=True),)


def close_fork(_: object, decision: CloseFork) -> Changes:
    """Delete the fan-out."""
    return (Delete("forks", decision.token_id),)


def dispatch_node(_: object, decision: DispatchNode) -> Changes:
    """Write the node execution, its operation and the token that waits.

    `token.moved` is emitted for targets that may take long. For a task, `node.started` says the same.
    """
    token, execution, operation = decision.token, decision.execution, decision.operation
    rows = _execution(execution), _operation(operation, fresh=True)
    started = Emit("node.started", execution)
    if token is None:
        return *rows, started
    if operation.kind is _TASK:
        return _token(token), *rows, started
    return _token(token), Emit("token.moved", token), *rows, started


def record_execution(_: object, decision: RecordExecution) -> Changes:
    """Write the node execution and delete its operation."""
    execution = decision.execution
    name = _STATUS_NAMES[execution.status]
    return _execution(execution), Delete("operations", execution.id), Emit(f"node.{name}", execution)


def keep_execution(_: object, decision: KeepExecution) -> Changes:
    """Write the copied node execution."""
    return (_execution(decision.execution),)


def retry_node(_: object, decision: RetryNode) -> Changes:
    """Write the node execution and its operation."""
    execution = decision.execution
    return _execution(execution), _operation(decision.operation), Emit("node.failed", execution)


def put_operation(_: object, decision: RedispatchNode | SetTimer) -> Changes:
    """Write the operation."""
    return (_operation(decision.operation),)


def record_event(_: object, decision: RecordEvent) -> Changes:
    """Write the operation, which lists the keys of the events that were emitted."""
    return _operation(decision.operation), Emit("event.emitted", decision.emitted)


def stop_node(_: object, decision: StopNode) -> Changes:
    """Delete the operation."""
    return (Delete("operations", decision.operation.id),)


def clear_timer(_: object, decision: ClearTimer) -> Changes:
    """Delete the timer."""
    return (Delete("operations", decision.operation_id),)


def set_context(_: object, decision: SetContext) -> Changes:
    """Write the entry of the context."""
    return (_context(decision.value),)


def open_gate(_: object, decision: OpenGate) -> Changes:
    """Write the gate."""
    return _gate(decision.gate), Emit("gate.opened", decision.gate)


def close_gate(_: object, decision: CloseGate) -> Changes:
    """Write the gate."""
    return _gate(decision.gate), Emit("gate.resolved", decision.gate)


def record_signal(_: object, decision: RecordSignal) -> Changes:
    """Write the signal as the newest of its name."""
    return _signal(decision.signal), Emit("signal.received", decision.signal)


def keep_signal(_: object, decision: KeepSignal) -> Changes:
    """Write the signal to the queue of its name."""
    signal = decision.signal
    return (Put("signals", _signal_row_id(signal), signal, live=True, created_ms=signal.received_ms),)


def take_signal(_: object, decision: TakeSignal) -> Changes:
    """Write the newest signal as consumed, or delete an older one from the queue."""
    if decision.newest:
        return (_signal(decision.signal),)
    return (Delete("signals", _signal_row_id(decision.signal)),)


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
    """Return the row of a context entry. Entries of a branch are loaded only while its token is live."""
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
