"""From a run's decisions to the commands that carry them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wonder_server.core.commands import Answer, Command, Parent, RunTask, RunWorkflow, Stop
from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    Decision,
    DispatchNode,
    EndRun,
    RedispatchNode,
    StopNode,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import NodeOperation, Run


def commands(state: RunState, decision: Decision) -> Iterator[Command]:
    """What is to be carried out once ``decision`` is on disk."""
    match decision:
        case DispatchNode() | RedispatchNode():
            if decision.operation.id in state.operations:
                yield _command(state, decision.operation)
        case StopNode():
            yield Stop(operation_id=decision.operation.id, run_id=decision.operation.child_run_id)
        case EndRun():
            if decision.run.parent is not None:
                yield _answer(decision.run, decision.run.parent)
        case AnswerAgain():
            yield _answer(decision.run, decision.parent)
        case _:
            return


def _command(state: RunState, operation: NodeOperation) -> Command:
    run, pinned = state.run, state.pinned
    assert run is not None and pinned is not None, "only a started run dispatches"
    node = next(node for node in pinned.workflow.spec.nodes if node.id == operation.node_id)
    # Not the operation's id: a volatile run that starts over after a crash must come to the same keys.
    scope = replace(run.scope, key=f"{run.id}/{node.id}/{operation.ordinal}")
    if node.task_id:
        return RunTask(
            operation_id=operation.id,
            task=pinned.workflow.tasks[node.task_id],
            input=operation.input,
            scope=scope,
        )
    return RunWorkflow(
        operation_id=operation.id,
        run_id=operation.child_run_id,
        workflow=pinned.workflow.workflows[node.workflow_id],
        input=operation.input,
        scope=scope,
        parent=Parent(actor_id=run.id, operation_id=operation.id),
        volatile=True,
        fresh=operation.dispatches == 1,
    )


def _answer(run: Run, parent: Parent) -> Answer:
    return Answer(parent=parent, run_id=run.id, output=run.output, fault=run.fault)
