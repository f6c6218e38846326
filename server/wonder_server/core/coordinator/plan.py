"""The planner of workflow runs: how tokens move over the graph (document 5).

The theory. A *token* stands at a node. Standing at a node means that the node's target (a task or a
sub-workflow) is dispatched: there is exactly one operation for it in the outbox. When the result comes,
the node's output mapping writes the run's context, and the token takes the first transition, by ascending
priority, whose condition holds; where none holds it has arrived, and the run is complete.

==========================  =================================================================
token                       means
==========================  =================================================================
waiting_for_task            the node's task is with the executor
waiting_for_subworkflow     the node's sub-workflow runs as a child
completed                   it arrived: no transition led on
failed, cancelled           it ended where the run did
==========================  =================================================================

Laws (``tests/core/test_coordinator_plan.py``): same state, input and time, same decisions; `plan` never
raises; a running run has at least one operation in its outbox; a result of an operation that is not in the
outbox changes nothing, so a node's result is recorded once however often it is delivered (feature G7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from wonder_server.core import expressions, schemas
from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    Decision,
    DispatchNode,
    EndRun,
    MoveToken,
    RecordExecution,
    RedispatchNode,
    RefuseRun,
    SetContext,
    StartRun,
    StopNode,
)
from wonder_server.core.coordinator.inputs import (
    CancelRun,
    Input,
    NodeFailed,
    NodeRestarted,
    NodeSucceeded,
    NodeWoken,
    Start,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import (
    ContextValue,
    Execution,
    NodeOperation,
    Pinned,
    Run,
    RunStatus,
    Token,
    TokenStatus,
)
from wonder_server.core.definitions.specs import Node, PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import Minter
from wonder_server.core.task.repeatable import is_repeatable

Decisions = tuple[Decision, ...]


def plan(state: RunState, event: Input, now_ms: int) -> Decisions:
    """What to do about ``event``. Pure; never raises."""
    match event:
        case Start():
            return _start(state, event, now_ms)
        case NodeSucceeded():
            operation = state.operations.get(event.operation_id)
            if operation is None:
                return ()
            return _succeeded(state, operation, event, now_ms)
        case NodeFailed():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _failed(state, operation, event.fault, now_ms)
        case NodeWoken():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _woken(state, operation, now_ms)
        case NodeRestarted():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _restarted(state, operation, now_ms)
        case CancelRun():
            return _cancel(state, event, now_ms)
        case _:
            assert_never(event)


# --- beginning and end ------------------------------------------------------------------------------


def _start(state: RunState, event: Start, now: int) -> Decisions:
    if state.run is not None:
        ended = state.run.status not in (RunStatus.RUNNING, RunStatus.WAITING)
        if ended and event.parent is not None:
            return (AnswerAgain(run=state.run, parent=event.parent),)
        return ()
    workflow = event.workflow
    problems = schemas.validate(workflow.spec.input_schema, event.input)
    fault = Fault(
        reason=Reason.INPUT_INVALID,
        message=f"The input does not match the workflow's schema: {'; '.join(problems[:5])}",
        field="input",
    )
    if problems and event.parent is None:
        return (RefuseRun(fault=fault),)
    run = Run(
        id=event.run_id,
        workflow_ref=str(workflow.pin),
        workflow_id=workflow.pin.definition_id,
        scope=replace(event.scope, run_id=event.run_id),
        parent=event.parent,
        volatile=event.volatile,
        input=event.input,
        created_ms=now,
    )
    started = StartRun(run=run, pinned=Pinned(run_id=run.id, workflow=workflow))
    if problems:
        return (started, EndRun(run=_ended(run, RunStatus.FAILED, now, fault)))
    ids = Minter(event.run_id, now)
    first = workflow.spec.initial_node_id or workflow.spec.nodes[0].id
    token = Token(
        id=ids.new("tok"),
        run_id=run.id,
        node_id=first,
        status=TokenStatus.WAITING_FOR_TASK,
        created_ms=now,
    )
    scope = {"input": event.input, "state": {}, "output": {}}
    return (started, *_enter(run, workflow, token, first, scope, ids, now))


def _cancel(state: RunState, event: CancelRun, now: int) -> Decisions:
    run = state.run
    if run is None:
        return (RefuseRun(fault=Fault(reason=Reason.RUN_NOT_FOUND, message="No run has this id.")),)
    if run.status not in (RunStatus.RUNNING, RunStatus.WAITING):
        message = f"The run is already {run.status.value}; nothing to cancel."
        return (RefuseRun(fault=Fault(reason=Reason.RUN_NOT_ACTIVE, message=message)),)
    fault = Fault(reason=Reason.CANCELLED, message=event.reason or "The run was cancelled.")
    return (
        *(StopNode(operation=operation) for operation in state.operations.values()),
        *_end_executions(state, "cancelled", now),
        *_end_tokens(state, TokenStatus.CANCELLED, now),
        EndRun(run=_ended(run, RunStatus.CANCELLED, now, fault)),
    )


def _complete(run: Run, workflow: PinnedWorkflow, scope: dict[str, Any], now: int) -> Run:
    try:
        output = (
            expressions.evaluate_mapping(workflow.spec.output_mapping, scope)
            if workflow.spec.output_mapping
            else scope["output"]
        )
    except expressions.ExpressionError as problem:
        return _ended(run, RunStatus.FAILED, now, _expression(str(problem), "output_mapping"))
    problems = schemas.validate(workflow.spec.output_schema, output)
    if problems:
        message = f"The run's output does not match its schema: {'; '.join(problems[:5])}"
        fault = Fault(reason=Reason.RUN_FAILED, message=message)
        return _ended(run, RunStatus.FAILED, now, fault)
    return _ended(replace(run, output=output), RunStatus.COMPLETED, now)


def _ended(run: Run, status: RunStatus, now: int, fault: Fault | None = None) -> Run:
    return replace(run, status=status, fault=fault, completed_ms=now)


def _end_executions(state: RunState, status: str, now: int) -> Decisions:
    return tuple(
        RecordExecution(
            execution=replace(state.executions[operation.execution_id], status=status, completed_ms=now),
            operation_id=operation.id,
        )
        for operation in state.operations.values()
    )


def _end_tokens(state: RunState, status: TokenStatus, now: int) -> Decisions:
    return tuple(
        MoveToken(token=replace(token, status=status, updated_ms=now)) for token in state.tokens.values()
    )


# --- nodes ------------------------------------------------------------------------------------------


def _enter(
    run: Run,
    workflow: PinnedWorkflow,
    token: Token,
    node_id: str,
    scope: dict[str, Any],
    ids: Minter,
    now: int,
) -> Decisions:
    """Put the token at a node and hand the node's target out."""
    node = _node(workflow, node_id)
    status = TokenStatus.WAITING_FOR_TASK if node.task_id else TokenStatus.WAITING_FOR_SUBWORKFLOW
    token = replace(token, node_id=node_id, status=status, updated_ms=now)
    try:
        node_input = (
            expressions.evaluate_mapping(node.input_mapping, scope) if node.input_mapping else scope["input"]
        )
    except expressions.ExpressionError as problem:
        fault = _expression(str(problem), "input_mapping", node_id)
        failed = replace(token, status=TokenStatus.FAILED)
        return (MoveToken(token=failed), EndRun(run=_ended(run, RunStatus.FAILED, now, fault)))
    execution = Execution(
        id=ids.new("exec"),
        run_id=run.id,
        ordinal=run.executions + 1,
        node_id=node_id,
        started_ms=now,
    )
    operation = NodeOperation(
        id=ids.new("op"),
        token_id=token.id,
        execution_id=execution.id,
        node_id=node_id,
        run_id=run.id,
        ordinal=execution.ordinal,
        input=node_input,
        child_run_id="" if node.task_id else ids.child("run", run.id),
        timeout_ms=node.timeout_ms,
        wake_ms=now + node.timeout_ms if node.timeout_ms else 0,
        repeatable=not node.task_id or is_repeatable(workflow.tasks[node.task_id]),
        created_ms=now,
    )
    return (MoveToken(token=token), DispatchNode(execution=execution, operation=operation))


def _succeeded(state: RunState, operation: NodeOperation, event: NodeSucceeded, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    if run is None or pinned is None:
        return ()
    node = _node(pinned.workflow, operation.node_id)
    execution = replace(
        state.executions[operation.execution_id],
        status="completed",
        output=event.output,
        completed_ms=now,
    )
    recorded = RecordExecution(execution=execution, operation_id=operation.id)
    scope = state.context()
    try:
        scope, written = _map_output(run.id, node, scope, event.output)
        target = _next_node(pinned.workflow, node.id, scope)
    except expressions.ExpressionError as problem:
        fault = _expression(str(problem), "", node.id)
        return (recorded, *_fail_run(state, run, fault, now))
    if target == "":
        arrived = replace(state.tokens[operation.token_id], status=TokenStatus.COMPLETED, updated_ms=now)
        done = _complete(run, pinned.workflow, scope, now)
        return (recorded, *written, MoveToken(token=arrived), EndRun(run=done))
    ids = Minter(operation.id, now)
    token = state.tokens[operation.token_id]
    entered = _enter(run, pinned.workflow, token, target, scope, ids, now)
    return (recorded, *written, *entered)


def _map_output(
    run_id: str, node: Node, scope: dict[str, Any], result: Any
) -> tuple[dict[str, Any], list[SetContext]]:
    """The context after a node's output mapping, and the entries that changed."""
    mapping = node.output_mapping or {f"state.{node.id}": "result"}
    seen = {**scope, "result": result}
    changed: dict[tuple[str, str], None] = {}
    for target, source in mapping.items():
        value = expressions.evaluate(source, seen)
        scope = expressions.assign(scope, target, value)
        section, key = target.split(".")[:2]
        changed[section, key] = None
    return scope, [
        SetContext(value=ContextValue(run_id=run_id, section=section, key=key, value=scope[section][key]))
        for section, key in changed
    ]


def _next_node(workflow: PinnedWorkflow, node_id: str, scope: dict[str, Any]) -> str:
    """Where the token goes: a node's id, or "" if no transition holds and it has arrived."""
    ways = [way for way in workflow.spec.transitions if way.from_node_id == node_id]
    for way in sorted(ways, key=lambda way: way.priority):
        if not way.condition or expressions.evaluate(way.condition, scope) is True:
            return way.to_node_id
    return ""


def _failed(state: RunState, operation: NodeOperation, fault: Fault, now: int) -> Decisions:
    run = state.run
    if run is None:
        return ()
    execution = replace(
        state.executions[operation.execution_id], status="failed", fault=fault, completed_ms=now
    )
    told = replace(fault, metadata={**fault.metadata, "node": operation.node_id})
    return (
        RecordExecution(execution=execution, operation_id=operation.id),
        *_fail_run(state, run, told, now),
    )


def _fail_run(state: RunState, run: Run, fault: Fault, now: int) -> Decisions:
    return (
        *_end_tokens(state, TokenStatus.FAILED, now),
        EndRun(run=_ended(run, RunStatus.FAILED, now, fault)),
    )


def _woken(state: RunState, operation: NodeOperation, now: int) -> Decisions:
    if not operation.wake_ms or now < operation.wake_ms:
        return ()
    seconds = operation.timeout_ms / 1000
    fault = Fault(reason=Reason.TIMEOUT, message=f"No result within {seconds:g} s.", transient=True)
    return (StopNode(operation=operation), *_failed(state, operation, fault, now))


def _restarted(state: RunState, operation: NodeOperation, now: int) -> Decisions:
    if operation.repeatable:
        again = replace(
            operation,
            dispatches=operation.dispatches + 1,
            wake_ms=now + operation.timeout_ms if operation.timeout_ms else 0,
        )
        return (RedispatchNode(operation=again),)
    fault = Fault(
        reason=Reason.OUTCOME_UNKNOWN,
        message="The server stopped while this ran; whether it took effect is unknown.",
    )
    return _failed(state, operation, fault, now)


# --- pieces -----------------------------------------------------------------------------------------


def _node(workflow: PinnedWorkflow, node_id: str) -> Node:
    return next(node for node in workflow.spec.nodes if node.id == node_id)


def _expression(problem: str, field: str, node_id: str = "") -> Fault:
    place = f"node `{node_id}`" if node_id else "the workflow"
    return Fault(
        reason=Reason.EXPRESSION_FAILED,
        message=f"An expression of {place} failed: {problem}",
        field=field,
        metadata={"node": node_id} if node_id else {},
    )
