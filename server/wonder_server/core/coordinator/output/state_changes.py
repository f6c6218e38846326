"""Changes of a run's state, one function per kind of decision.

`wonder_server.core.coordinator.output.decision_table` names the function of each decision class.
"""

from __future__ import annotations

from wonder_server.core.coordinator.model.decisions import (
    ClearTimer,
    CloseFanOut,
    CloseGate,
    CountBranches,
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
from wonder_server.core.coordinator.model.progress import ended, with_progress
from wonder_server.core.coordinator.model.state import RunState


def start_run(state: RunState, decision: StartRun) -> None:
    """Set the run and its workflow."""
    state.run, state.pinned = decision.run, decision.pinned


def set_run(state: RunState, decision: SetRunStatus | EndRun) -> None:
    """Change the run's progress."""
    assert state.run is not None, "only a started run changes"
    state.run = with_progress(state.run, decision.run)


def end_run(state: RunState, decision: EndRun) -> None:
    """Change the run's progress and drop its workflow."""
    set_run(state, decision)
    state.pinned = None


def put_token(state: RunState, decision: MoveToken | CountBranches) -> None:
    """Replace a token."""
    state.put_token(decision.token)


def join_branches(state: RunState, decision: JoinBranches) -> None:
    """Remove the joined tokens."""
    for token in decision.tokens:
        state.put_token(token)


def open_fan_out(state: RunState, decision: OpenFanOut) -> None:
    """Add a fan-out."""
    state.fan_outs[decision.fan_out.token_id] = decision.fan_out


def close_fan_out(state: RunState, decision: CloseFanOut) -> None:
    """Remove a fan-out with its branches."""
    state.fan_outs.pop(decision.token_id, None)
    state.arrived.pop(decision.token_id, None)
    state.children.pop(decision.token_id, None)


def dispatch_node(state: RunState, decision: DispatchNode) -> None:
    """Add a node execution and its operation, and replace the token that waits."""
    if decision.token is not None:
        state.put_token(decision.token)
    state.put_execution(decision.execution)
    state.put_operation(decision.operation)


def record_execution(state: RunState, decision: RecordExecution) -> None:
    """Remove a node execution that ended, and its operation."""
    end = decision.execution
    state.ended_execution = ended(state.executions.pop(end.id), end)
    state.remove_operation(end.id)


def keep_execution(state: RunState, decision: KeepExecution) -> None:
    """Continue the numbering after a copied node execution."""
    state.ordinal = max(state.ordinal, decision.execution.ordinal)


def retry_node(state: RunState, decision: RetryNode) -> None:
    """Replace a node execution and its operation."""
    state.put_execution(decision.execution)
    state.put_operation(decision.operation)


def put_operation(state: RunState, decision: RedispatchNode | SetTimer | RecordEvent) -> None:
    """Replace an operation."""
    state.put_operation(decision.operation)


def stop_node(state: RunState, decision: StopNode) -> None:
    """Remove a cancelled operation."""
    state.remove_operation(decision.operation.id)


def clear_timer(state: RunState, decision: ClearTimer) -> None:
    """Remove a timer."""
    state.remove_operation(decision.operation_id)


def open_gate(state: RunState, decision: OpenGate) -> None:
    """Add a gate."""
    state.gates[decision.gate.id] = decision.gate


def close_gate(state: RunState, decision: CloseGate) -> None:
    """Remove a gate."""
    state.gates.pop(decision.gate.id, None)


def record_signal(state: RunState, decision: RecordSignal) -> None:
    """Replace the newest signal of a name."""
    state.put_signal(decision.signal)


def keep_signal(state: RunState, decision: KeepSignal) -> None:
    """Queue a signal."""
    state.queue_signal(decision.signal)


def take_signal(state: RunState, decision: TakeSignal) -> None:
    """Mark the newest signal as consumed, or remove an older one from the queue."""
    if decision.newest:
        state.put_signal(decision.signal)
    else:
        state.dequeue_signal(decision.signal)


def set_context(state: RunState, decision: SetContext) -> None:
    """Write an entry of the context."""
    state.put_context(decision.value)
