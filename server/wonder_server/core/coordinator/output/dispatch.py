"""Commands of a run's decisions: one function for each class that has an effect outside the run."""

from __future__ import annotations

from wonder_server.core.actor.commands import (
    Answer,
    CallAgent,
    Command,
    Parent,
    ReportGate,
    RunTask,
    RunWorkflow,
    Stop,
)
from wonder_server.core.coordinator.model.compiled_graph import compile_graph
from wonder_server.core.coordinator.model.decisions import (
    AnswerAgain,
    CloseGate,
    DispatchNode,
    EndRun,
    OpenGate,
    RedispatchNode,
    StopNode,
)
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import Operation, OperationKind, Run
from wonder_server.core.frozen import replace

Commands = tuple[Command, ...]


def dispatch_node(state: RunState, decision: DispatchNode | RedispatchNode) -> Commands:
    """Execute the node's target, unless the operation has ended or waits for its backoff."""
    operation = state.operations.get(decision.operation.id)
    if operation is None or operation.backing_off:
        return ()
    run, pinned = state.run, state.pinned
    assert run is not None and pinned is not None, "only a started run dispatches"
    compiled, node_input = (
        compile_graph(pinned.workflow)[operation.node_id],
        state.executions[operation.id].input,
    )
    scope = replace(run.scope, key=operation.key)
    if compiled.task is not None:
        return (
            RunTask(
                operation_id=operation.id,
                task=compiled.task,
                input=node_input,
                scope=scope,
                repeatable=operation.repeatable and compiled.side_effect_free,
                node_id=operation.node_id,
            ),
        )
    node, parent = compiled.node, Parent(actor_id=run.id, operation_id=operation.id)
    match operation.kind:
        case OperationKind.SUBWORKFLOW:
            return (
                RunWorkflow(
                    operation_id=operation.id,
                    run_id=operation.child_id,
                    workflow=pinned.workflow.workflows[node.workflow_id],
                    input=node_input,
                    scope=scope,
                    parent=parent,
                    volatile=True,
                    fresh=operation.dispatches == 1,
                ),
            )
        case OperationKind.AGENT:
            return (
                CallAgent(
                    operation_id=operation.id,
                    agent_id=compiled.target,
                    mode=node.invocation_mode,
                    conversation_id=operation.child_id,
                    input=node_input,
                    scope=scope,
                    parent=_with_attempt(operation, parent) if node.invocation_mode == "loop_in" else parent,
                    dispatches=operation.dispatches,
                    output_schema=node.output_schema,
                ),
            )
        case _:
            return ()  # A person, a signal or a timer ends the operation.


def stop_node(_: object, decision: StopNode) -> Commands:
    """Cancel the operation's work. A gate has none."""
    operation = decision.operation
    if operation.kind is OperationKind.GATE:
        return ()
    return (Stop(operation_id=operation.id, child_id=operation.child_id),)


def report_gate(state: RunState, decision: OpenGate | CloseGate) -> Commands:
    """Report the gate of a run of a turn to the turn's conversation."""
    run = state.run
    if run is None or run.parent is None or not run.scope.turn_id:
        return ()
    return (ReportGate(gate=decision.gate, parent=run.parent),)


def end_run(state: RunState, _: EndRun) -> Commands:
    """Send the run's result to its parent, if it has one."""
    run = state.run
    return () if run is None or run.parent is None else (_answer(run, run.parent),)


def answer_again(_: object, decision: AnswerAgain) -> Commands:
    """Send the run's result to its parent again."""
    return (_answer(decision.run, decision.parent),)


def _answer(run: Run, parent: Parent) -> Answer:
    return Answer(parent=parent, run_id=run.id, output=run.output, fault=run.fault)


def _with_attempt(operation: Operation, parent: Parent) -> Parent:
    """Add the id of the waiting attempt, so that an answer of an earlier attempt is ignored."""
    return replace(parent, child_id=operation.attempt_id)
