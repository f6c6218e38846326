"""From a run's decisions to the commands that carry them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wonder_server.core.actor.commands import Answer, CallAgent, Command, Parent, RunTask, RunWorkflow, Stop
from wonder_server.core.coordinator.compiled_graph import compile_graph
from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    Decision,
    DispatchNode,
    EndRun,
    RedispatchNode,
    StopNode,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import Operation, OperationKind, Run
from wonder_server.core.frozen import replace


def commands(state: RunState, decision: Decision) -> tuple[Command, ...]:
    """What is to be carried out once ``decision`` is on disk."""
    lead = _COMMANDS.get(type(decision))
    command = None if lead is None else lead(state, decision)
    return () if command is None else (command,)


def _dispatched(state: RunState, decision: DispatchNode | RedispatchNode) -> Command | None:
    operation = state.operations.get(decision.operation.id)
    if operation is None or operation.backing_off:
        return None
    run, pinned = state.run, state.pinned
    assert run is not None and pinned is not None, "only a started run dispatches"
    workflow, compiled = pinned.workflow, compile_graph(pinned.workflow)[operation.node_id]
    node, node_input = compiled.node, state.executions[operation.id].input
    scope = replace(run.scope, key=operation.key)
    if compiled.task is not None:
        return RunTask(
            operation_id=operation.id,
            task=compiled.task,
            input=node_input,
            scope=scope,
            repeatable=operation.repeatable and compiled.side_effect_free,
            node_id=node.id,
        )
    parent = Parent(actor_id=run.id, operation_id=operation.id)
    match operation.kind:
        case OperationKind.SUBWORKFLOW:
            return RunWorkflow(
                operation_id=operation.id,
                run_id=operation.child_id,
                workflow=workflow.workflows[node.workflow_id],
                input=node_input,
                scope=scope,
                parent=parent,
                volatile=True,
                fresh=operation.dispatches == 1,
            )
        case OperationKind.AGENT:
            return CallAgent(
                operation_id=operation.id,
                agent_id=compiled.target,
                mode=node.invocation_mode,
                conversation_id=operation.child_id,
                input=node_input,
                scope=scope,
                parent=_with_attempt(operation, parent) if node.invocation_mode == "loop_in" else parent,
                dispatches=operation.dispatches,
            )
        case _:
            return None  # A person, a signal or the time ends it.


def _stopped(_: RunState, decision: StopNode) -> Command | None:
    operation = decision.operation
    if operation.kind is OperationKind.GATE:
        return None
    return Stop(operation_id=operation.id, child_id=operation.child_id)


def _ended(_: RunState, decision: EndRun) -> Command | None:
    return None if decision.run.parent is None else _answer(decision.run, decision.run.parent)


def _repeated_answer(_: RunState, decision: AnswerAgain) -> Command:
    return _answer(decision.run, decision.parent)


_COMMANDS: Mapping[type[Decision], Callable[[RunState, Any], Command | None]] = {
    DispatchNode: _dispatched,
    RedispatchNode: _dispatched,
    StopNode: _stopped,
    EndRun: _ended,
    AnswerAgain: _repeated_answer,
}
"""By class: the cases of a match are asked one after the other, and each costs as much as this does."""


def _answer(run: Run, parent: Parent) -> Answer:
    return Answer(parent=parent, run_id=run.id, output=run.output, fault=run.fault)


def _with_attempt(operation: Operation, parent: Parent) -> Parent:
    """The same, with the attempt that waits: a late answer of an earlier one must not count for it."""
    return replace(parent, child_id=operation.attempt_id)
