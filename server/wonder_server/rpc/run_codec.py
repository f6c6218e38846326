"""Workflow runs, tokens, node executions and their events as the contract says them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonder.v1 import run_pb2, task_pb2
from wonder_server.actors.runs import RunView
from wonder_server.core.commands import Scope
from wonder_server.core.coordinator.values import Execution, Run, Token
from wonder_server.ports.journal import Event
from wonder_server.rpc.conversation_codec import enum
from wonder_server.rpc.faults import fault_to_proto
from wonder_server.rpc.payload import dict_to_struct, json_to_value
from wonder_server.rpc.times import to_timestamp


def run(value: Run, view: RunView | None = None) -> run_pb2.Run:
    """A run; with ``view``, where it stands as well."""
    workflow, _, revision = value.workflow_ref.rpartition("@")
    message = run_pb2.Run(
        id=value.id,
        workflow=value.workflow_ref,
        workflow_id=value.workflow_id,
        workflow_revision=int(revision) if workflow else 0,
        context=_context(value.scope),
        status=enum(run_pb2.RunStatus, "RUN_STATUS", value.status.value),
        input=dict_to_struct(value.input),
        output=dict_to_struct(value.output),
        node_execution_count=value.executions,
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(value.completed_ms or value.created_ms),
        complete_time=to_timestamp(value.completed_ms),
        etag=str(value.version),
    )
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    if value.parent is not None:
        message.parent.operation_id = value.parent.operation_id
        if value.parent.actor_id.startswith("run_"):
            message.parent.run_id = value.parent.actor_id
        else:
            message.parent.turn_id = value.scope.turn_id
    if view is not None:
        message.state.CopyFrom(dict_to_struct(view.state))
        message.tokens.extend(token(item) for item in view.tokens)
        message.node_executions.extend(execution(item) for item in view.executions)
        message.last_sequence = view.head
    return message


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
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(value.updated_ms),
    )


def execution(value: Execution) -> run_pb2.NodeExecution:
    message = run_pb2.NodeExecution(
        id=value.id,
        run_id=value.run_id,
        ordinal=value.ordinal,
        node_id=value.node_id,
        status=enum(run_pb2.NodeExecutionStatus, "NODE_EXECUTION_STATUS", value.status),
        attempts=1,
        create_time=to_timestamp(value.started_ms),
        complete_time=to_timestamp(value.completed_ms),
    )
    if value.status == "completed":
        message.output.CopyFrom(json_to_value(value.output))
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    return message


_PAYLOADS: dict[str, Callable[[Any], Any]] = {
    "run_started": run,
    "run_ended": run,
    "token_moved": token,
    "node_started": execution,
    "node_completed": execution,
    "node_failed": execution,
    "node_cancelled": execution,
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
    getattr(encoded, emit.kind).CopyFrom(_PAYLOADS[emit.kind](emit.value))
    return encoded
