"""Workflow runs, tokens, node executions, gates and their events as the contract says them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from wonder.v1 import coordinator_service_pb2, run_pb2, task_pb2
from wonder_server.actors.run_lookup import RunView
from wonder_server.actors.streams import NodeProgress
from wonder_server.core.commands import Scope
from wonder_server.core.coordinator.values import Emitted, Execution, Gate, GateStatus, Run, Signal, Token
from wonder_server.core.trace import of_scope
from wonder_server.ports.journal import Event
from wonder_server.ports.records import Head
from wonder_server.rpc.common_codec import enum
from wonder_server.rpc.faults import fault_to_proto
from wonder_server.rpc.fitting import ITEM_BYTES
from wonder_server.rpc.payload import dict_to_struct, json_to_value
from wonder_server.rpc.task_codec import told_to_proto
from wonder_server.rpc.times import to_timestamp

MAX_EXECUTIONS: Final = 500


def run(view: RunView) -> run_pb2.Run:
    """A run; with what the view has of its details, all but the node executions (see `add_executions`)."""
    value, head, details = view.run, view.head, view.details
    message = run_pb2.Run(
        id=value.id,
        workflow=value.workflow_ref,
        workflow_id=value.workflow_id,
        workflow_revision=_revision(value.workflow_ref),
        context=_context(value.scope),
        status=enum(run_pb2.RunStatus, "RUN_STATUS", value.status.value),
        input=dict_to_struct(value.input),
        output=dict_to_struct(value.output),
        node_execution_count=view.executions,
        last_sequence=head.sequence,
        metadata=dict_to_struct(value.metadata),
        forked_from_run_id=value.forked_from,
        deadline=to_timestamp(value.deadline_ms),
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(max(value.updated_ms, value.completed_ms, value.created_ms, head.at_ms)),
        complete_time=to_timestamp(value.completed_ms),
        etag=str(head.sequence),
        trace_id=of_scope(value.scope),
    )
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    if value.parent is not None:
        message.parent.operation_id = value.parent.operation_id
        if value.parent.actor_id.startswith("run_"):
            message.parent.run_id = value.parent.actor_id
        else:
            message.parent.turn_id = value.scope.turn_id
    if details is not None:
        message.state.CopyFrom(dict_to_struct(details.state))
        message.tokens.extend(map(token, details.tokens))
        message.pending_gates.extend(map(gate, details.gates))
        if details.parent_node_id:
            message.parent.node_id = details.parent_node_id
    _fit(message)
    return message


def _fit(message: run_pb2.Run) -> None:
    """Leave out what a client could not take with the rest; the contract says what, in this order."""
    for name in ("state", "input"):
        if message.ByteSize() > ITEM_BYTES and (name == "state" or message.output.fields):
            message.ClearField(name)


def add_executions(message: run_pb2.Run, newest_first: Sequence[Execution]) -> bool:
    """Put older node executions before those that a run has. Whether there is room for more: there are at
    most `MAX_EXECUTIONS`, and fewer where a client could not take the answer."""
    room, found = ITEM_BYTES - message.ByteSize(), list(message.node_executions)
    older: list[run_pb2.NodeExecution] = []
    is_full = False
    for value in newest_first:
        encoded = execution(value)
        room -= encoded.ByteSize() + 8
        is_full = room < 0 or len(found) + len(older) == MAX_EXECUTIONS
        if is_full:
            break
        older.append(encoded)
    del message.node_executions[:]
    message.node_executions.extend([*reversed(older), *found])
    return not is_full


def _revision(workflow_ref: str) -> int:
    name, _, revision = workflow_ref.rpartition("@")
    return int(revision) if name else 0


def _context(scope: Scope) -> task_pb2.ExecutionContext:
    return task_pb2.ExecutionContext(
        project_id=scope.project_id,
        agent_id=scope.agent_id,
        conversation_id=scope.conversation_id,
        turn_id=scope.turn_id,
    )


def token(value: Token) -> run_pb2.Token:
    return run_pb2.Token(
        id=value.id,
        node_id=value.node_id,
        status=enum(run_pb2.TokenStatus, "TOKEN_STATUS", value.status.value),
        parent_token_id=value.parent_id,
        fan_out_node_id=value.fan_out_node_id,
        branch_index=value.branch_index,
        branch_count=value.branch_count,
        branch=value.branch,
        waits_for_id=value.waits_for_id,
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(value.updated_ms),
    )


def execution(value: Execution) -> run_pb2.NodeExecution:
    message = run_pb2.NodeExecution(
        id=value.id,
        run_id=value.run_id,
        ordinal=value.ordinal,
        node_id=value.node_id,
        token_id=value.token_id,
        status=enum(run_pb2.NodeExecutionStatus, "NODE_EXECUTION_STATUS", value.status.value),
        input=dict_to_struct(value.input),
        attempts=value.attempts,
        target=value.target,
        carried_out_by=value.carried_out_by,
        create_time=to_timestamp(value.started_ms),
        complete_time=to_timestamp(value.completed_ms),
    )
    if value.branch is not None:
        branch = value.branch
        message.branch.parent_token_id = branch.parent_id
        message.branch.fan_out_node_id = branch.fan_out_node_id
        message.branch.name, message.branch.index = branch.name, branch.index
        message.branch.count = branch.count
    if value.status == "completed":
        message.output.CopyFrom(json_to_value(value.output))
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    return message


def gate(value: Gate) -> run_pb2.Gate:
    message = run_pb2.Gate(
        id=value.id,
        run_id=value.run_id,
        node_id=value.node_id,
        project_id=value.project_id,
        workflow=value.workflow_ref,
        prompt=value.prompt,
        shown=dict_to_struct(value.shown),
        shown_hash=value.shown_hash,
        user_ids=value.user_ids,
        status=enum(run_pb2.GateStatus, "GATE_STATUS", value.status.value),
        create_time=to_timestamp(value.created_ms),
        expire_time=to_timestamp(value.expires_ms),
    )
    if value.answer_schema:
        message.answer_schema.CopyFrom(dict_to_struct(value.answer_schema))
    if value.status is not GateStatus.PENDING:
        message.resolution.CopyFrom(_resolution(value))
    return message


def _resolution(value: Gate) -> run_pb2.GateResolution:
    return run_pb2.GateResolution(
        user_id=value.user_id,
        resolve_time=to_timestamp(value.resolved_ms),
        answer=dict_to_struct(value.answer) if value.answer is not None else None,
        comment=value.comment,
    )


def signal(value: Signal) -> run_pb2.Signal:
    return run_pb2.Signal(name=value.name, payload=json_to_value(value.payload), user_id=value.user_id)


def _emitted(value: Emitted) -> run_pb2.EmittedEvent:
    return run_pb2.EmittedEvent(name=value.name, payload=dict_to_struct(value.payload), node_id=value.node_id)


_PAYLOADS: Final[dict[str, Callable[[Any], Any]]] = {
    "token_moved": token,
    "node_started": execution,
    "node_completed": execution,
    "node_failed": execution,
    "node_cancelled": execution,
    "gate_opened": gate,
    "gate_resolved": gate,
    "signal_received": signal,
    "event_emitted": _emitted,
}


def event(happened: Event) -> run_pb2.RunEvent:
    """One event of a run's record."""
    emit = happened.emit
    encoded = run_pb2.RunEvent(
        sequence=happened.sequence,
        run_id=happened.actor_id,
        create_time=to_timestamp(happened.at_ms),
        name=emit.name,
    )
    if isinstance(emit.value, Run):
        payload = run(RunView(emit.value, Head(happened.sequence, happened.at_ms)))
    else:
        payload = _PAYLOADS[emit.kind](emit.value)
    getattr(encoded, emit.kind).CopyFrom(payload)
    return encoded


def progress(value: NodeProgress) -> coordinator_service_pb2.NodeProgress:
    """What a node does in its task."""
    message = coordinator_service_pb2.NodeProgress(
        node_id=value.node_id, node_execution_id=value.execution_id
    )
    told = told_to_proto(value.item)
    if told.HasField("step"):
        message.step.CopyFrom(told.step)
    else:
        message.progress.CopyFrom(told.progress.progress)
    return message
