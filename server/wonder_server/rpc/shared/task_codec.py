"""Codec of tasks and gates: steps, progress, results, action kinds; gates of runs and of tool calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wonder.v1 import executor_service_pb2, run_pb2, task_pb2
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.core.errors import Reason, error
from wonder_server.core.task.action_effects import is_kind_repeatable
from wonder_server.rpc.shared.common_codec import enum_value, set_principal
from wonder_server.rpc.shared.faults import fault_to_proto
from wonder_server.rpc.shared.payload import dict_to_struct
from wonder_server.rpc.shared.times import to_timestamp
from wonder_server.services.actions import ActionKind
from wonder_server.services.tasks.executor import StepProgress, StepTrace, TaskOutcome
from wonder_server.services.workers import RemoteKind

_STATUS: Final = {
    "running": task_pb2.STEP_STATUS_RUNNING,
    "completed": task_pb2.STEP_STATUS_COMPLETED,
    "failed": task_pb2.STEP_STATUS_FAILED,
    "skipped": task_pb2.STEP_STATUS_SKIPPED,
}


def step_to_proto(step: StepTrace) -> task_pb2.StepTrace:
    """Encode the status and the result of a step."""
    return task_pb2.StepTrace(
        step_id=step.step_id,
        status=_STATUS[step.status],
        task_attempt=step.attempt,
        attempts=step.tries,
        error=fault_to_proto(step.fault) if step.fault is not None else None,
        start_time=to_timestamp(step.started_ms),
        duration_ms=step.duration_ms,
        action_kind=step.kind,
    )


def progress_to_proto(item: StepTrace | StepProgress) -> executor_service_pb2.StreamTaskResponse:
    """Encode an item of a running task's stream."""
    if isinstance(item, StepTrace):
        return executor_service_pb2.StreamTaskResponse(step=step_to_proto(item))
    progress = task_pb2.Progress(message=item.message, fraction=item.fraction, output=item.output)
    return executor_service_pb2.StreamTaskResponse(
        progress=executor_service_pb2.StepProgress(step_id=item.step_id, progress=progress)
    )


def result_to_proto(task: PinnedTask, outcome: TaskOutcome, duration_ms: int) -> task_pb2.TaskResult:
    """Encode the outcome of a task with its steps."""
    return task_pb2.TaskResult(
        output=dict_to_struct(outcome.output) if outcome.output is not None else None,
        error=fault_to_proto(outcome.fault) if outcome.fault is not None else None,
        steps=[step_to_proto(step) for step in outcome.steps],
        attempts=max((step.attempt for step in outcome.steps), default=1),
        task=str(task.pin),
        duration_ms=duration_ms,
    )


def with_timeout(task: PinnedTask, timeout_ms: int) -> PinnedTask:
    """Return the task with its timeout lowered to ``timeout_ms``; 0 keeps the task's own.

    Raises FIELD_INVALID for a negative timeout.
    """
    if timeout_ms < 0:
        raise error(
            Reason.FIELD_INVALID, f"timeout_ms is {timeout_ms}. It must not be negative.", field="timeout_ms"
        )
    retry = task.spec.retry
    if timeout_ms == 0 or timeout_ms >= retry.timeout_ms:
        return task
    return replace(task, spec=replace(task.spec, retry=replace(retry, timeout_ms=timeout_ms)))


def kind_to_proto(kind: ActionKind, unavailable_reason: str = "") -> task_pb2.ActionKind:
    """Encode an action kind of this server. ``unavailable_reason`` is empty for an available kind."""
    return task_pb2.ActionKind(
        name=kind.name,
        description=kind.description,
        input_schema=dict_to_struct(kind.input_schema),
        output_schema=dict_to_struct(kind.output_schema),
        idempotent=is_kind_repeatable(kind.name),
        requires_commit=not is_kind_repeatable(kind.name),
        available=not unavailable_reason,
        unavailable_reason=unavailable_reason,
    )


def remote_kind_to_proto(remote: RemoteKind) -> task_pb2.ActionKind:
    """Encode an action kind of connected workers, which steps use with the kind ``worker``."""
    kind = remote.kind
    return task_pb2.ActionKind(
        name=kind.name,
        description=kind.description,
        input_schema=dict_to_struct(kind.input_schema),
        output_schema=dict_to_struct(kind.output_schema),
        idempotent=kind.idempotent,
        requires_commit=True,
        remote=True,
        worker_count=remote.workers,
        available=True,
    )


# --- gates ---------------------------------------------------------------------------------------


def gate_to_proto(value: Gate) -> run_pb2.Gate:
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
        status=enum_value(run_pb2.GateStatus, "GATE_STATUS", value.status.value),
        create_time=to_timestamp(value.created_ms),
        expire_time=to_timestamp(value.expires_ms),
        conversation_id=value.conversation_id,
        turn_id=value.turn_id,
        tool_call_id=value.tool_call_id,
        tool_name=value.tool_name,
        tool_id=value.tool_id,
        problem=value.problem,
    )
    if value.answer_schema:
        message.answer_schema.CopyFrom(dict_to_struct(value.answer_schema))
    if value.status is not GateStatus.PENDING:
        message.resolution.CopyFrom(_resolution_to_proto(value))
    return message


def _resolution_to_proto(value: Gate) -> run_pb2.GateResolution:
    message = run_pb2.GateResolution(
        user_id=value.user_id,
        resolve_time=to_timestamp(value.resolved_ms),
        answer=dict_to_struct(value.answer) if value.answer is not None else None,
        comment=value.comment,
    )
    set_principal(message.principal, value.principal)
    return message
