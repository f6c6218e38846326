"""Codec of workflow runs, tokens, node executions, gates and their events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from wonder.v1 import coordinator_service_pb2, run_pb2, task_pb2
from wonder_server.actors.runs.lookup import RunView
from wonder_server.actors.streaming.items import NodeProgress
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.trace import scope_trace_id
from wonder_server.core.budget import Account
from wonder_server.core.coordinator.model.values import EmittedEvent, NodeExecution, Run, Signal, Token
from wonder_server.ports.journal import Event
from wonder_server.ports.records import Head
from wonder_server.rpc.shared.common_codec import enum_value, set_principal, usage_to_proto
from wonder_server.rpc.shared.faults import fault_to_proto
from wonder_server.rpc.shared.message_trimming import MAX_ITEM_BYTES
from wonder_server.rpc.shared.payload import dict_to_struct, json_to_value
from wonder_server.rpc.shared.task_codec import gate_to_proto, progress_to_proto
from wonder_server.rpc.shared.times import to_timestamp

MAX_EXECUTIONS: Final = 500


def run_to_proto(view: RunView) -> run_pb2.Run:
    """Encode a run, with the view's details except the node executions (see `add_executions`)."""
    value, head, details = view.run, view.head, view.details
    message = run_pb2.Run(
        id=value.id,
        workflow=value.workflow_ref,
        workflow_id=value.workflow_id,
        workflow_revision=_revision(value.workflow_ref),
        context=_context_to_proto(value.scope),
        status=enum_value(run_pb2.RunStatus, "RUN_STATUS", value.status.value),
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
        trace_id=scope_trace_id(value.scope),
    )
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    if value.parent is not None:
        message.parent.operation_id = value.parent.operation_id
        if value.parent.actor_id.startswith("run_"):
            message.parent.run_id = value.parent.actor_id
        else:
            message.parent.turn_id = value.scope.turn_id
    set_principal(message.principal, value.scope.principal)
    set_principal(message.cancelled_by, value.cancelled_by)
    if details is not None:
        message.state.CopyFrom(dict_to_struct(details.state))
        message.tokens.extend(map(token_to_proto, details.tokens))
        message.pending_gates.extend(map(gate_to_proto, details.gates))
        if details.parent_node_id:
            message.parent.node_id = details.parent_node_id
    _omit_large_fields(message)
    return message


def set_run_usage(message: run_pb2.Run, account: Account | None) -> None:
    """Set the usage of a run to that of its account, if there is one with a model call."""
    if account is not None and account.model_calls:
        message.usage.CopyFrom(usage_to_proto(account))


def _omit_large_fields(message: run_pb2.Run) -> None:
    """Omit fields until a client can receive the message: first state, then input."""
    for name in ("state", "input"):
        if message.ByteSize() > MAX_ITEM_BYTES and (name == "state" or message.output.fields):
            message.ClearField(name)


def add_executions(message: run_pb2.Run, newest_first: Sequence[NodeExecution]) -> bool:
    """Insert older node executions before those of the run. Return True if there is space for more.

    A run has at most `MAX_EXECUTIONS`, and fewer if the message would exceed `MAX_ITEM_BYTES`.
    """
    remaining, found = MAX_ITEM_BYTES - message.ByteSize(), list(message.node_executions)
    older: list[run_pb2.NodeExecution] = []
    is_full = False
    for value in newest_first:
        encoded = execution_to_proto(value)
        remaining -= encoded.ByteSize() + 8
        is_full = remaining < 0 or len(found) + len(older) == MAX_EXECUTIONS
        if is_full:
            break
        older.append(encoded)
    del message.node_executions[:]
    message.node_executions.extend([*reversed(older), *found])
    return not is_full


def _revision(workflow_ref: str) -> int:
    name, _, revision = workflow_ref.rpartition("@")
    return int(revision) if name else 0


def _context_to_proto(scope: Scope) -> task_pb2.ExecutionContext:
    return task_pb2.ExecutionContext(
        project_id=scope.project_id,
        agent_id=scope.agent_id,
        conversation_id=scope.conversation_id,
        turn_id=scope.turn_id,
    )


def token_to_proto(value: Token) -> run_pb2.Token:
    return run_pb2.Token(
        id=value.id,
        node_id=value.node_id,
        status=enum_value(run_pb2.TokenStatus, "TOKEN_STATUS", value.status.value),
        parent_token_id=value.parent_id,
        fan_out_node_id=value.fan_out_node_id,
        branch_index=value.branch_index,
        branch_count=value.branch_count,
        branch=value.branch,
        waits_for_id=value.waits_for_id,
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(value.updated_ms),
    )


def execution_to_proto(value: NodeExecution) -> run_pb2.NodeExecution:
    message = run_pb2.NodeExecution(
        id=value.id,
        run_id=value.run_id,
        ordinal=value.ordinal,
        node_id=value.node_id,
        token_id=value.token_id,
        status=enum_value(run_pb2.NodeExecutionStatus, "NODE_EXECUTION_STATUS", value.status.value),
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


def signal_to_proto(value: Signal) -> run_pb2.Signal:
    message = run_pb2.Signal(name=value.name, payload=json_to_value(value.payload), user_id=value.user_id)
    set_principal(message.principal, value.principal)
    return message


def _emitted_to_proto(value: EmittedEvent) -> run_pb2.EmittedEvent:
    return run_pb2.EmittedEvent(name=value.name, payload=dict_to_struct(value.payload), node_id=value.node_id)


_PAYLOADS: Final[dict[str, Callable[[Any], Message]]] = {
    "token_moved": token_to_proto,
    "node_started": execution_to_proto,
    "node_completed": execution_to_proto,
    "node_failed": execution_to_proto,
    "node_cancelled": execution_to_proto,
    "gate_opened": gate_to_proto,
    "gate_resolved": gate_to_proto,
    "signal_received": signal_to_proto,
    "event_emitted": _emitted_to_proto,
}


def event_to_proto(stored: Event) -> run_pb2.RunEvent:
    """Encode one event of a run."""
    emit = stored.emit
    encoded = run_pb2.RunEvent(
        sequence=stored.sequence,
        run_id=stored.actor_id,
        create_time=to_timestamp(stored.at_ms),
        name=emit.name,
    )
    if isinstance(emit.value, Run):
        payload: Message = run_to_proto(RunView(emit.value, Head(stored.sequence, stored.at_ms)))
    else:
        payload = _PAYLOADS[emit.kind](emit.value)
    getattr(encoded, emit.kind).CopyFrom(payload)
    return encoded


def node_progress_to_proto(value: NodeProgress) -> coordinator_service_pb2.NodeProgress:
    """Encode the progress of a node's task."""
    message = coordinator_service_pb2.NodeProgress(
        node_id=value.node_id, node_execution_id=value.execution_id
    )
    item = progress_to_proto(value.item)
    if item.HasField("step"):
        message.step.CopyFrom(item.step)
    else:
        message.progress.CopyFrom(item.progress.progress)
    return message
