"""From a run's decisions to the commands that carry them out."""

from __future__ import annotations

from wonder_server.core.commands import Answer, CallAgent, Command, Parent, RunTask, RunWorkflow, Stop
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
from wonder_server.core.definitions.graph import graph_of
from wonder_server.core.frozen import replace

_LEADS_TO_COMMANDS = frozenset({DispatchNode, RedispatchNode, StopNode, EndRun, AnswerAgain})


def commands(state: RunState, decision: Decision) -> tuple[Command, ...]:
    """What is to be carried out once ``decision`` is on disk."""
    command = _command(state, decision) if type(decision) in _LEADS_TO_COMMANDS else None
    return () if command is None else (command,)


def _command(state: RunState, decision: Decision) -> Command | None:
    match decision:
        case DispatchNode() | RedispatchNode():
            operation = state.operations.get(decision.operation.id)
            if operation is not None and not operation.backing_off:
                return _handed_out(state, operation)
        case StopNode():
            operation = decision.operation
            if operation.kind is not OperationKind.GATE:
                return Stop(operation_id=operation.id, child_id=operation.child_id)
        case EndRun():
            if decision.run.parent is not None:
                return _answer(decision.run, decision.run.parent)
        case AnswerAgain():
            return _answer(decision.run, decision.parent)
    return None


def _handed_out(state: RunState, operation: Operation) -> Command | None:
    run, pinned = state.run, state.pinned
    assert run is not None and pinned is not None, "only a started run dispatches"
    workflow = pinned.workflow
    node = graph_of(workflow.spec).nodes[operation.node_id]
    node_input = state.executions[operation.id].input
    scope = replace(run.scope, key=operation.key)
    parent = Parent(actor_id=run.id, operation_id=operation.id)
    match operation.kind:
        case OperationKind.TASK:
            return RunTask(
                operation_id=operation.id,
                task=workflow.tasks[node.task_id],
                input=node_input,
                scope=scope,
                repeatable=operation.repeatable,
                node_id=node.id,
            )
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
                agent_id=workflow.agents.get(node.agent_id, node.agent_id),
                mode=node.invocation_mode,
                conversation_id=operation.child_id,
                input=node_input,
                scope=scope,
                parent=_told_apart(operation, parent) if node.invocation_mode == "loop_in" else parent,
                dispatches=operation.dispatches,
            )
        case _:
            return None  # A person, a signal or the time ends it.


def _answer(run: Run, parent: Parent) -> Answer:
    return Answer(parent=parent, run_id=run.id, output=run.output, fault=run.fault)


def _told_apart(operation: Operation, parent: Parent) -> Parent:
    """The same, with the attempt that waits: a late answer of an earlier one must not count for it."""
    return replace(parent, child_id=operation.attempt_id)
