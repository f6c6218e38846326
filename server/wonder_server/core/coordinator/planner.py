"""The run planner in the shape that the loop uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from wonder_server.core.actor import gates
from wonder_server.core.actor.commands import Command, RunTask, RunWorkflow
from wonder_server.core.actor.decision_table import commanding
from wonder_server.core.actor.planner import Planner, Reload, Rows
from wonder_server.core.coordinator.model import decisions, inputs, values
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import EXECUTED_KINDS, OperationKind
from wonder_server.core.coordinator.output.decision_table import HANDLERS, apply, commands, record_changes
from wonder_server.core.coordinator.output.record import compact_row, event_count
from wonder_server.core.coordinator.plan import plan
from wonder_server.core.errors import Fault


def restore(rows: Rows) -> RunState:
    """Return the state of a run from its rows."""
    state = RunState()
    state.restore(rows)
    return state


def root(actor_id: str, state: RunState) -> str:
    """Return the conversation that the run serves, or the run's own id."""
    return (state.run.scope.conversation_id if state.run is not None else "") or actor_id


def rejection(decided: Sequence[decisions.Decision]) -> Fault | None:
    """Return the fault if the decisions reject the input, else None."""
    first = decided[0] if decided else None  # A rejection is the only decision of its input.
    return first.fault if type(first) is decisions.RefuseRun else None


def answer(state: RunState, decided: Sequence[decisions.Decision]) -> dict[str, str]:
    """Return the ids that a repeated request is answered with: of the run, its conversation and the gate.

    The conversation is the one to restore if it was archived since.
    """
    ids: dict[str, str] = {}
    for decision in decided:
        if type(decision) is decisions.StartRun or type(decision) is decisions.EndRun:
            ids["run_id"] = decision.run.id
            if state.run is not None and state.run.scope.conversation_id:
                ids["conversation_id"] = state.run.scope.conversation_id
        elif type(decision) is decisions.CloseGate:
            ids.setdefault("gate_id", decision.gate.id)
    return ids


_OUTSIDE = frozenset({OperationKind.AGENT, OperationKind.GATE, OperationKind.WAIT})


def must_commit(state: RunState, decided: Sequence[decisions.Decision]) -> bool:
    """Return True if the decisions must be committed now.

    A volatile run is committed with its answer, or earlier if it dispatches an operation that is not
    repeatable or waits for an external input.
    """
    if state.run is None or not state.run.volatile:
        return True
    for decision in decided:
        if type(decision) is decisions.DispatchNode:
            if not decision.operation.repeatable or decision.operation.kind in _OUTSIDE:
                return True
        elif type(decision) is decisions.RetryNode or type(decision) is decisions.ChargeRun:
            return True
    return False


def may_be_compact(decided: Sequence[decisions.Decision]) -> bool:
    """Return False if the decisions open a gate, since gates are listed across runs, or charge accounts."""
    return not any(type(each) is decisions.OpenGate or type(each) is decisions.ChargeRun for each in decided)


_WAITING = frozenset(OperationKind) - {OperationKind.TASK}
_WAITING_FOR_INPUT = frozenset(OperationKind) - EXECUTED_KINDS


def allows_early_dispatch(command: Command) -> bool:
    """Return True for a side-effect-free task and for the first dispatch of a child run, which may start
    before their commit. The child has no effect outside before it."""
    if type(command) is RunTask:
        return command.repeatable
    return type(command) is RunWorkflow and command.volatile and command.fresh


def waits(operation: values.Operation, has_unfinished_child: bool, _now_ms: int) -> bool:
    """Return True if a timer, a person, a signal or an unfinished child ends the operation, so that nothing
    must be dispatched again after a restart."""
    if operation.backing_off or operation.kind in _WAITING_FOR_INPUT:
        return True
    return operation.kind is OperationKind.SUBWORKFLOW and has_unfinished_child


def child_run(operation: values.Operation) -> str:
    """Return the id of the run that executes a pending operation, or an empty string."""
    is_child = operation.kind is OperationKind.SUBWORKFLOW and not operation.backing_off
    return operation.child_id if is_child else ""


def can_unload(state: RunState) -> bool:
    """Return True if the run only waits for other actors, for external input or for timers."""
    return all(each.kind in _WAITING or each.backing_off for each in state.operations.values())


def parent(state: RunState) -> str:
    """Return the id of the actor that waits for the run, or an empty string."""
    run = state.run
    return run.parent.actor_id if run is not None and run.parent is not None else ""


def size_bytes(state: RunState) -> int:
    """Return the approximate size of a waiting run in memory, in bytes, without its shared definitions."""
    values = (state.run, state.state, state.output, state.branches, list(state.executions.values()))
    return 2 * len(msgspec.json.encode(values)) + 2000 * (1 + len(state.tokens))


RUN = Planner(
    kind="run",
    prefix="run",
    root=root,
    reload=Reload(
        live=("runs", "works", "context", "tokens", "forks", "executions", "operations", "gates", "signals"),
        recent=(("executions", 1),),
        children=(("context", "tokens"),),
    ),
    new_state=RunState,
    restore=restore,
    plan=plan,
    apply=apply,
    record=record_changes,
    commands=commands,
    commanding=commanding(HANDLERS),
    rejection=rejection,
    must_commit=must_commit,
    pending=lambda state: list(state.operations),
    size_bytes=size_bytes,
    waits=waits,
    child_run=child_run,
    allows_early_dispatch=allows_early_dispatch,
    can_unload=can_unload,
    parent=parent,
    compact_row=compact_row,
    may_be_compact=may_be_compact,
    event_count=event_count,
    answer=answer,
    succeeded=lambda operation_id, output, run_id: inputs.NodeSucceeded(
        operation_id=operation_id, output=output, run_id=run_id
    ),
    failed=lambda operation_id, fault, run_id: inputs.NodeFailed(
        operation_id=operation_id, fault=fault, run_id=run_id
    ),
    timer_fired=lambda operation_id: inputs.NodeTimerFired(operation_id=operation_id),
    restarted=lambda operation_id: inputs.NodeRestarted(operation_id=operation_id),
    row_types={
        "runs": values.Run,
        "works": values.Pinned,
        "context": values.ContextValue,
        "tokens": values.Token,
        "forks": values.FanOut,
        "executions": values.NodeExecution,
        "operations": values.Operation,
        "gates": gates.Gate,
        "signals": values.Signal,
    },
    event_types={
        "workflow_started": values.Run,
        "workflow_completed": values.Run,
        "workflow_failed": values.Run,
        "workflow_cancelled": values.Run,
        "token_moved": values.Token,
        "node_started": values.NodeExecution,
        "node_completed": values.NodeExecution,
        "node_failed": values.NodeExecution,
        "node_cancelled": values.NodeExecution,
        "gate_opened": gates.Gate,
        "gate_resolved": gates.Gate,
        "signal_received": values.Signal,
        "event_emitted": values.EmittedEvent,
    },
    inputs=get_args(inputs.Input),
    decisions=get_args(decisions.Decision),
)
