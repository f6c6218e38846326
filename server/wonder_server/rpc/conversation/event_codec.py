"""Codec of the events of conversations.

Every event of every turn is encoded here, in place, inside the response that carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from wonder.v1 import common_pb2, conversation_pb2, event_pb2
from wonder_server.core.conversation.model.event_payloads import (
    AgentCall,
    ContextReduction,
    HookOutcome,
    Limit,
    MemoryRefusal,
    ModelSwitch,
    OutputRejection,
    WorkflowRun,
)
from wonder_server.core.conversation.model.values import (
    BranchMerge,
    Conversation,
    HistoryReset,
    Invocation,
    Operation,
)
from wonder_server.ports.journal import Event
from wonder_server.rpc.conversation.codec import (
    conversation_to_proto,
    operation_to_proto,
    participant_to_proto,
    set_message,
    set_move,
    set_turn,
    tool_call_to_proto,
    tool_result_to_proto,
)
from wonder_server.rpc.shared.common_codec import enum_value
from wonder_server.rpc.shared.faults import fault_to_proto
from wonder_server.rpc.shared.payload import dict_to_struct
from wonder_server.rpc.shared.task_codec import gate_to_proto
from wonder_server.rpc.shared.times import set_timestamp

SetPayload = Callable[[Any, Any], None]
"""Sets the payload message in the first argument to the value in the second."""


def event_to_proto(stored: Event) -> event_pb2.Event:
    """Encode one event of a conversation."""
    encoded = event_pb2.Event()
    set_event(encoded, stored)
    return encoded


def set_event(message: event_pb2.Event, stored: Event) -> None:
    """Set ``message`` to ``stored``."""
    emit = stored.emit
    message.sequence = stored.sequence
    message.conversation_id = stored.actor_id
    message.turn_id = emit.turn_id
    set_timestamp(message.create_time, stored.at_ms)
    message.name = emit.name
    payload = getattr(message, emit.kind)
    payload.SetInParent()  # Marks a payload without fields as set.
    _PAYLOADS[emit.kind](payload, emit.value)


def _copied(encode: Callable[[Any], Message]) -> SetPayload:
    """Return a setter that encodes the value separately and copies it; for rare events."""

    def set_payload(message: Message, value: object) -> None:
        message.CopyFrom(encode(value))

    return set_payload


def _conversation(value: Conversation) -> conversation_pb2.Conversation:
    return conversation_to_proto(value, 0)


def _merge(value: BranchMerge) -> event_pb2.BranchMerged:
    return event_pb2.BranchMerged(
        repository=value.repository,
        branch=value.branch,
        target_branch=value.target_branch,
        commit=value.commit,
        user_id=value.user_id,
    )


def _reset(value: HistoryReset) -> event_pb2.ConversationReset:
    return event_pb2.ConversationReset(
        keep_system_message=value.keep_system_message, last_turn_ordinal=value.last_turn_ordinal
    )


def _hook(message: event_pb2.HookOutcome, value: HookOutcome) -> None:
    message.run_id = value.run_id
    message.workflow = value.workflow
    message.attempts = value.attempts
    message.duration_ms = value.duration_ms
    message.model_profile = value.model_profile
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))


def _dispatched(value: Operation) -> event_pb2.ToolDispatched:
    call = conversation_pb2.ToolCall(
        id=value.tool_call_id,
        tool_name=value.tool_name,
        tool_id=value.tool_id,
        operation_id=value.id,
        is_async=value.is_async,
    )
    if isinstance(value.input, dict):
        call.input.CopyFrom(dict_to_struct(value.input))
    return event_pb2.ToolDispatched(tool_call=call, operation=operation_to_proto(value))


def _tool_outcome(entry: Invocation) -> event_pb2.ToolOutcome:
    outcome = event_pb2.ToolOutcome(tool_call=tool_call_to_proto(entry, with_input=False))
    if entry.result is not None:
        outcome.tool_result.CopyFrom(tool_result_to_proto(entry.result))
        outcome.duration_ms = entry.result.duration_ms
        if entry.result.fault is not None:
            outcome.error.CopyFrom(fault_to_proto(entry.result.fault))
    return outcome


def _agent_call(value: AgentCall) -> event_pb2.AgentCallProgress:
    return event_pb2.AgentCallProgress(
        agent_id=value.agent_id,
        mode=enum_value(common_pb2.InvocationMode, "INVOCATION_MODE", value.mode),
        turn_id=value.turn_id,
        operation_id=value.operation_id,
        error=None if value.fault is None else fault_to_proto(value.fault),
        duration_ms=value.duration_ms,
    )


def _workflow_run(value: WorkflowRun) -> event_pb2.WorkflowProgress:
    return event_pb2.WorkflowProgress(
        run_id=value.run_id,
        workflow=value.workflow,
        operation_id=value.operation_id,
        error=None if value.fault is None else fault_to_proto(value.fault),
        duration_ms=value.duration_ms,
    )


def _limit_reached(value: Limit) -> event_pb2.LimitReached:
    return event_pb2.LimitReached(limit=fault_to_proto(value.fault), enforced=value.enforced)


def _output_rejected(value: OutputRejection) -> event_pb2.OutputRejected:
    return event_pb2.OutputRejected(
        message_id=value.message_id, problems=value.problems, repairing=value.repairing
    )


def _memory_operations_refused(value: MemoryRefusal) -> event_pb2.MemoryOperationsRefused:
    return event_pb2.MemoryOperationsRefused(run_id=value.run_id, reasons=value.reasons)


def _context_reduced(value: ContextReduction) -> event_pb2.ContextReduced:
    return event_pb2.ContextReduced(
        messages_left_out=value.messages_left_out,
        summarized=value.summarized,
        tokens_before=value.tokens_before,
        tokens_after=value.tokens_after,
    )


def _model_switched(value: ModelSwitch) -> event_pb2.ModelSwitched:
    return event_pb2.ModelSwitched(
        from_model_profile=value.from_profile,
        from_provider=value.from_provider,
        from_model=value.from_model,
        to_model_profile=value.to_profile,
        to_provider=value.to_provider,
        to_model=value.to_model,
        error=fault_to_proto(value.fault),
        hook=value.hook,
    )


_PAYLOADS: dict[str, SetPayload] = {
    "conversation_started": _copied(_conversation),
    "conversation_updated": _copied(_conversation),
    "conversation_ended": _copied(_conversation),
    "conversation_reset": _copied(_reset),
    "branch_merged": _copied(_merge),
    "participant_joined": _copied(participant_to_proto),
    "participant_left": _copied(participant_to_proto),
    "conversation_turn": set_turn,
    "turn_started": set_turn,
    "turn_completed": set_turn,
    "turn_failed": set_turn,
    "turn_cancelled": set_turn,
    "message_appended": set_message,
    "message_moved": set_message,
    "move_recorded": set_move,
    "limit_reached": _copied(_limit_reached),
    "output_rejected": _copied(_output_rejected),
    "model_switched": _copied(_model_switched),
    "context_reduced": _copied(_context_reduced),
    "context_assembly_completed": _hook,
    "context_assembly_failed": _hook,
    "memory_extraction_completed": _hook,
    "memory_extraction_failed": _hook,
    "memory_operations_refused": _copied(_memory_operations_refused),
    "tool_dispatched": _copied(_dispatched),
    "tool_completed": _copied(_tool_outcome),
    "tool_failed": _copied(_tool_outcome),
    "gate_opened": _copied(gate_to_proto),
    "gate_resolved": _copied(gate_to_proto),
    "workflow_started": _copied(_workflow_run),
    "workflow_completed": _copied(_workflow_run),
    "workflow_failed": _copied(_workflow_run),
    "agent_call_started": _copied(_agent_call),
    "agent_call_completed": _copied(_agent_call),
}
