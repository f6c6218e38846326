"""Executions of nodes: their start, results, retries, timeouts and restarts.

A node that begins gets a node execution and an operation with the same id. The operation stays in the outbox
until the execution has ended. The target decides what is dispatched: a task, a child run or an agent's turn.
A gate and a wait dispatch nothing; a person, a signal or a timer ends them. The node's ``retry`` repeats
transient faults. Every other fault fails the node's branch.
"""

from __future__ import annotations

from dataclasses import replace as dataclass_replace

from wonder_server.core import ids
from wonder_server.core.actor.gates import GateStatus
from wonder_server.core.coordinator.model.compiled_graph import CompiledNode
from wonder_server.core.coordinator.model.values import (
    Branch,
    ExecutionStatus,
    NodeExecution,
    Operation,
    OperationKind,
    Signal,
    Token,
    TokenStatus,
)
from wonder_server.core.coordinator.planning import evaluation, gates, token_flow
from wonder_server.core.coordinator.planning.evaluation import Problem
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.definitions.specs import GateExpiry, Node
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonValue

MAX_EXECUTIONS = 1_000_000
"""Limit of node executions in one run."""

_TASK, _COMPLETED = OperationKind.TASK, ExecutionStatus.COMPLETED
"""Module variables: reading a member of an enum class is slower, and nearly every node has these values."""


def begin(builder: PlanBuilder, token: Token, node_id: str) -> None:
    """Begin the node ``node_id`` with the token: create its execution and operation."""
    try:
        _begin(builder, token, builder.compiled[node_id])
    except Problem as problem:
        token_flow.fail(builder, replace(token, node_id=node_id), problem.fault)


def _begin(builder: PlanBuilder, token: Token, compiled: CompiledNode) -> None:
    node, kind, run, now = compiled.node, compiled.kind, builder.run, builder.now
    if builder.operations.ordinal >= MAX_EXECUTIONS:
        message = f"The run has executed {MAX_EXECUTIONS} nodes, which is as many as it may."
        raise Problem(Fault(reason=Reason.LIMIT_EXCEEDED, message=message, metadata={"node": node.id}))
    node_input = run.input
    if node.input_mapping:
        scope = builder.context.scope(token)
        node_input = evaluation.mapped(builder, node.input_mapping, scope, "input_mapping", node.id)
    # The operation's id is no key: a run that is planned again after a crash must compute the same keys.
    hops = token.hops + 1
    key = f"{run.id}/{token.id}/{hops}"
    child_id = "" if kind is _TASK else _child(builder, node, kind, key)
    operation = Operation(
        id=builder.new_id("op"),
        run_id=run.id,
        kind=kind,
        token_id=token.id,
        node_id=node.id,
        key=key,
        child_id=child_id,
        repeatable=compiled.repeatable,
        deadline_ms=compiled.deadline(now),
        until_ms=compiled.until(now),
        created_ms=now,
    )
    execution = NodeExecution(
        id=operation.id,
        run_id=run.id,
        ordinal=builder.operations.ordinal + 1,
        node_id=node.id,
        token_id=token.id,
        branch=_branch(token) if token.parent_id else None,
        target=compiled.target,
        carried_out_by=child_id,
        input=node_input,
        started_ms=now,
    )
    waiting = replace(
        token,
        node_id=node.id,
        status=compiled.waiting,
        hops=hops,
        arrival=0,
        waits_for_id=child_id,
        updated_ms=now,
    )
    builder.dispatch(waiting, execution, operation)
    if kind is _TASK:
        return
    if kind is OperationKind.GATE:
        gates.open_gate(builder, operation, node, node_input)
    elif kind is OperationKind.WAIT:
        signal = builder.signals.latest(node.wait.signal) if node.wait is not None else None
        if signal is not None:
            receive_signal(builder, operation, signal)


def _branch(token: Token) -> Branch:
    return Branch(
        parent_id=token.parent_id,
        fan_out_node_id=token.fan_out_node_id,
        name=token.branch,
        index=token.branch_index,
        count=token.branch_count,
    )


def _child(builder: PlanBuilder, node: Node, kind: OperationKind, key: str, attempt: int = 1) -> str:
    """Return the id of the run, conversation or gate that executes the node; empty for a task and a wait."""
    run, named = builder.run, f"{key}#{attempt}"
    match kind:
        case OperationKind.SUBWORKFLOW:
            return ids.derived("run", named, run.id)
        case OperationKind.AGENT if node.invocation_mode == "loop_in":
            if run.scope.conversation_id:
                return run.scope.conversation_id
            message = f"Node `{node.id}` loops an agent in, but the run belongs to no conversation."
            raise Problem(Fault(reason=Reason.RUN_FAILED, message=message, metadata={"node": node.id}))
        case OperationKind.AGENT:
            return ids.derived("conv", named, run.id)
        case OperationKind.GATE:
            return ids.derived("gate", named, run.id)
        case _:
            return ""


# --- results ----------------------------------------------------------------------------------------


def succeeded(builder: PlanBuilder, operation: Operation, result: JsonValue) -> None:
    """Record the node's result, write it into the context, and follow the node's transitions."""
    compiled, token = builder.compiled[operation.node_id], builder.tokens.get(operation.token_id)
    node = compiled.node
    builder.operations.record(operation, _COMPLETED, output=result)
    try:
        for target, value in _context_values(builder, token, node, result):
            evaluation.store(builder, token, target, value, f"output_mapping.{target}", node.id)
        evaluation.check_state(builder, node.id)
    except Problem as problem:
        token_flow.fail(builder, token, problem.fault)
        return
    token_flow.follow_transitions(builder, token, compiled)


def _context_values(
    builder: PlanBuilder, token: Token, node: Node, result: JsonValue
) -> list[tuple[str, JsonValue]]:
    """Return the targets and values to write into the context. All are computed from the context before the
    result."""
    if not node.output_mapping:
        section = "branch" if token.parent_id else "state"
        return [(f"{section}.{node.id}", result)]
    scope = builder.context.scope(token)
    scope["result"] = result
    return [
        (target, evaluation.value_of(builder, source, scope, f"output_mapping.{target}", node.id))
        for target, source in node.output_mapping.items()
    ]


def failed(builder: PlanBuilder, operation: Operation, fault: Fault) -> None:
    """Handle a failed attempt: schedule the next attempt, or fail the branch."""
    node, token = builder.compiled[operation.node_id].node, builder.tokens.get(operation.token_id)
    gate, retry = builder.gates.of_operation(operation), node.retry
    if gate is not None:
        builder.gates.close(gate, GateStatus.CANCELLED)
    if retry is not None and fault.transient and operation.attempt < retry.max_attempts:
        attempt = operation.attempt + 1
        backoff = max(retry.backoff_ms * 2 ** (operation.attempt - 1), fault.retry_after_ms or 0)
        child = _child(builder, node, operation.kind, operation.key, attempt)
        execution = replace(
            builder.operations.execution(operation), attempts=attempt, fault=fault, carried_out_by=child
        )
        later = replace(
            operation,
            attempt=attempt,
            dispatches=0,
            backing_off=True,
            child_id=child,
            until_ms=builder.now + backoff,
        )
        builder.tokens.move(replace(token, waits_for_id=""), TokenStatus.PENDING)
        builder.operations.retry(execution, later)
        return
    builder.operations.record(operation, ExecutionStatus.FAILED, fault=fault)
    located = dataclass_replace(fault, metadata={**fault.metadata, "node": operation.node_id})
    token_flow.fail(builder, token, located)


# --- time, signals, restarts ------------------------------------------------------------------------


def timer_fired(builder: PlanBuilder, operation: Operation) -> None:
    """Handle an operation's timer. Does nothing before the operation's deadline and attempt timeout."""
    compiled = builder.compiled[operation.node_id]
    node = compiled.node
    if operation.deadline_ms and builder.now >= operation.deadline_ms:
        _time_out(builder, operation, f"No result within {node.timeout_ms / 1000:g} s.", transient=False)
    elif not operation.until_ms or builder.now < operation.until_ms:
        return
    elif operation.backing_off:
        _retry_after_backoff(builder, operation, compiled)
    elif operation.kind is OperationKind.GATE:
        _gate_expired(builder, operation, node)
    elif operation.kind is OperationKind.WAIT:
        succeeded(builder, operation, {"received": False, "payload": None})
    else:
        timeout_s = node.retry.timeout_ms / 1000 if node.retry is not None else 0
        _time_out(builder, operation, f"No result within {timeout_s:g} s.", transient=True)


def _time_out(builder: PlanBuilder, operation: Operation, message: str, *, transient: bool) -> None:
    """Cancel the attempt and fail it. A repeatable attempt fails with TIMEOUT, any other with
    OUTCOME_UNKNOWN."""
    builder.operations.stop(operation)
    gate = builder.gates.of_operation(operation)
    if gate is not None:
        gates.expire(builder, gate, GateExpiry.FAIL)
    may_repeat = transient and operation.repeatable
    reason = Reason.TIMEOUT if operation.repeatable or not operation.dispatches else Reason.OUTCOME_UNKNOWN
    if reason is Reason.OUTCOME_UNKNOWN:
        message += " Whether it took effect is unknown."
    failed(builder, operation, Fault(reason=reason, message=message, transient=may_repeat))


def _gate_expired(builder: PlanBuilder, operation: Operation, node: Node) -> None:
    gate = builder.gates.of_operation(operation)
    policy = node.human_gate.on_expire if node.human_gate is not None else GateExpiry.FAIL
    result = "" if gate is None else gates.expire(builder, gate, policy)
    if isinstance(result, str):
        message = f"Gate `{node.id}` expired without an answer{result}."
        failed(builder, operation, Fault(reason=Reason.TIMEOUT, message=message))
    else:
        succeeded(builder, operation, result)


def _retry_after_backoff(builder: PlanBuilder, operation: Operation, compiled: CompiledNode) -> None:
    """Start the next attempt after the backoff."""
    token = builder.tokens.get(operation.token_id)
    builder.tokens.move(replace(token, waits_for_id=operation.child_id), compiled.waiting)
    builder.operations.redispatch(
        replace(operation, backing_off=False, dispatches=1, until_ms=compiled.until(builder.now))
    )


def receive_signal(builder: PlanBuilder, operation: Operation, signal: Signal) -> None:
    """Consume a signal and complete the node that waits for it."""
    builder.signals.take(signal)
    succeeded(builder, operation, {"received": True, "payload": signal.payload})


def restarted(builder: PlanBuilder, operation: Operation) -> None:
    """Dispatch a pending operation again after a restart of the server; fail it if it is not repeatable."""
    if operation.backing_off or operation.kind in (OperationKind.GATE, OperationKind.WAIT):
        return  # Nothing was dispatched. The row contains the time.
    if not operation.repeatable:
        message = "The server stopped while this ran; whether it took effect is unknown."
        failed(builder, operation, Fault(reason=Reason.OUTCOME_UNKNOWN, message=message))
        return
    deadline, until = operation.deadline_ms, operation.until_ms
    if operation.kind is OperationKind.TASK:
        # The task starts again, so its timeouts start again.
        compiled = builder.compiled[operation.node_id]
        deadline, until = compiled.deadline(builder.now), compiled.until(builder.now)
    builder.operations.redispatch(
        replace(operation, dispatches=operation.dispatches + 1, deadline_ms=deadline, until_ms=until)
    )
