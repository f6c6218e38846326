"""Rows and events of a run's decisions: one function for each class that writes something.

Each function reads the state right after its decision. The rows of a compact run are derived from its
journal, whose decisions are applied again (docs/adr/0017-compact-runs.md). Watchers of a run receive the
events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wonder_server.core.actor.changes import Change, Delete, Emit, Put
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.budget import CHARGES
from wonder_server.core.coordinator.model.decisions import (
    ChargeRun,
    ClearTimer,
    CloseFanOut,
    CloseGate,
    CountBranches,
    Decision,
    DispatchNode,
    EndRun,
    JoinBranches,
    KeepExecution,
    KeepSignal,
    MoveToken,
    OpenFanOut,
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
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    ExecutionStatus,
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


def event_count(decisions: Iterable[Decision]) -> int:
    """Return the number of events that the functions of this module record for ``decisions``."""
    count = 0
    for decision in decisions:
        if type(decision) is DispatchNode:
            count += 1 + _shows_waiting_token(decision)
        else:
            count += _EVENT_COUNTS.get(type(decision), 0)
    return count


_STATUS_NAMES: Mapping[str, str] = {
    word: word.value for words in (RunStatus, TokenStatus, ExecutionStatus, GateStatus) for word in words
}
"""Text of each status. Rows are made by the thousand, and reading the value of an enum member costs as much
as all the rest of a row. Rows are built with positional arguments for the same reason."""

_EVENT_COUNTS: Final[Mapping[type, int]] = dict.fromkeys(
    (
        *(StartRun, EndRun, MoveToken, RecordExecution, RetryNode),
        *(RecordEvent, OpenGate, CloseGate, RecordSignal),
    ),
    1,
)
"""Number of events of the decision classes that record the same number for every decision. Classes that are
not listed record none, except `DispatchNode`."""

_TASK, _RUNNING = OperationKind.TASK, ExecutionStatus.RUNNING


def start_run(_: object, decision: StartRun) -> Changes:
    """Write the run and its workflow."""
    return (
        _run(decision.run),
        Put("works", decision.run.id, decision.pinned, live=True, fresh=True),
        Emit("workflow_started", decision.run),
    )


def set_run(state: RunState, _: SetRunStatus) -> Changes:
    """Write the run."""
    assert state.run is not None, "only a started run changes"
    return (_run(state.run),)


def end_run(state: RunState, _: EndRun) -> Changes:
    """Write the run and delete its workflow."""
    run = state.run
    assert run is not None, "only a started run ends"
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


def open_fan_out(_: object, decision: OpenFanOut) -> Changes:
    """Write the fan-out."""
    return (Put("forks", decision.fan_out.token_id, decision.fan_out, live=True),)


def close_fan_out(_: object, decision: CloseFanOut) -> Changes:
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
    if not _shows_waiting_token(decision):
        return _token(token), *rows, started
    return _token(token), Emit("token.moved", token), *rows, started


def _shows_waiting_token(decision: DispatchNode) -> bool:
    """Return True if the decision records `token.moved` besides `node.started`."""
    return decision.token is not None and decision.operation.kind is not _TASK


def record_execution(state: RunState, _: RecordExecution) -> Changes:
    """Write the node execution and delete its operation."""
    execution = state.ended_execution
    assert execution is not None, "the decision has just ended an execution"
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


def charge_run(_: object, decision: ChargeRun) -> Changes:
    """Add the usage to each account."""
    return tuple(
        Put(CHARGES, f"{decision.charge_id}/{account}", decision.amount, parent=account)
        for account in decision.accounts
    )


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
        ordinal=run.executions,
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
