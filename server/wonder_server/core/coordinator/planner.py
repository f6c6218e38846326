"""The run planner in the shape that the loop uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from wonder_server.core.actor.commands import Command, RunTask
from wonder_server.core.actor.planner import Planner, Reload, Rows
from wonder_server.core.coordinator import decisions, inputs, values
from wonder_server.core.coordinator.decision_table import apply, commands, record_changes
from wonder_server.core.coordinator.plan import plan
from wonder_server.core.coordinator.record import compact_row
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import OperationKind
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


def answer(decided: Sequence[decisions.Decision]) -> dict[str, str]:
    """Return the ids that a repeated request is answered with: the run's id and the gate's id."""
    ids: dict[str, str] = {}
    for decision in decided:
        if type(decision) is decisions.StartRun or type(decision) is decisions.EndRun:
            ids["run_id"] = decision.run.id
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
        elif type(decision) is decisions.RetryNode:
            return True
    return False


_WAITING = frozenset(OperationKind) - {OperationKind.TASK}


def allows_early_dispatch(command: Command) -> bool:
    """Return True for a side-effect-free task, which may be executed before its commit."""
    return type(command) is RunTask and command.repeatable


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
    rejection=rejection,
    must_commit=must_commit,
    pending=lambda state: list(state.operations),
    size_bytes=size_bytes,
    allows_early_dispatch=allows_early_dispatch,
    can_unload=can_unload,
    parent=parent,
    compact_row=compact_row,
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
        "forks": values.Fork,
        "executions": values.NodeExecution,
        "operations": values.Operation,
        "gates": values.Gate,
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
        "gate_opened": values.Gate,
        "gate_resolved": values.Gate,
        "signal_received": values.Signal,
        "event_emitted": values.EmittedEvent,
    },
    inputs=get_args(inputs.Input),
    decisions=get_args(decisions.Decision),
)
