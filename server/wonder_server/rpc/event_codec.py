"""Events of conversations as the contract says them.

Every event of every turn goes this way, so it is filled in where it stands, in the response that carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonder.v1 import common_pb2, conversation_pb2, event_pb2
from wonder_server.core.conversation.values import (
    AgentCall,
    BranchMerge,
    Conversation,
    HistoryReset,
    HookOutcome,
    Invocation,
    Limit,
    Operation,
    Reduction,
    WorkflowRun,
)
from wonder_server.ports.journal import Event
from wonder_server.rpc.common_codec import enum
from wonder_server.rpc.conversation_codec import (
    conversation,
    fill_message,
    fill_move,
    fill_turn,
    operation,
    participant,
    tool_call,
    tool_result,
)
from wonder_server.rpc.faults import fault_to_proto
from wonder_server.rpc.payload import dict_to_struct
from wonder_server.rpc.times import fill_timestamp

Fill = Callable[[Any, Any], None]
"""Says a value in the payload given first."""


def event(happened: Event) -> event_pb2.Event:
    """One event of a conversation's record."""
    encoded = event_pb2.Event()
    fill_event(encoded, happened)
    return encoded


def fill_event(into: event_pb2.Event, happened: Event) -> None:
    """Say ``happened`` in ``into``."""
    emit = happened.emit
    into.sequence = happened.sequence
    into.conversation_id = happened.actor_id
    into.turn_id = emit.turn_id
    fill_timestamp(into.create_time, happened.at_ms)
    into.name = emit.name
    payload = getattr(into, emit.kind)
    payload.SetInParent()  # One without a single word is a payload too.
    _PAYLOADS[emit.kind](payload, emit.value)


def _made(make: Callable[[Any], Any]) -> Fill:
    """For what happens rarely, and can as well be made and then copied."""

    def fill(into: Any, value: Any) -> None:
        into.CopyFrom(make(value))

    return fill


def _room(value: Conversation) -> conversation_pb2.Conversation:
    return conversation(value, 0)


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


def _hook(into: event_pb2.HookOutcome, value: HookOutcome) -> None:
    into.run_id = value.run_id
    into.workflow = value.workflow
    into.attempts = value.attempts
    into.duration_ms = value.duration_ms
    if value.fault is not None:
        into.error.CopyFrom(fault_to_proto(value.fault))


def _dispatched(value: Operation) -> event_pb2.ToolDispatched:
    call = conversation_pb2.ToolCall(
        id=value.tool_call_id, tool_name=value.tool_name, operation_id=value.id, is_async=value.is_async
    )
    if isinstance(value.input, dict):
        call.input.CopyFrom(dict_to_struct(value.input))
    return event_pb2.ToolDispatched(tool_call=call, operation=operation(value))


def _tool_outcome(entry: Invocation) -> event_pb2.ToolOutcome:
    outcome = event_pb2.ToolOutcome(tool_call=tool_call(entry, with_input=False))
    if entry.result is not None:
        outcome.tool_result.CopyFrom(tool_result(entry.result))
        outcome.duration_ms = entry.result.duration_ms
        if entry.result.fault is not None:
            outcome.error.CopyFrom(fault_to_proto(entry.result.fault))
    return outcome


def _agent_call(value: AgentCall) -> event_pb2.AgentCallProgress:
    return event_pb2.AgentCallProgress(
        agent_id=value.agent_id,
        mode=enum(common_pb2.InvocationMode, "INVOCATION_MODE", value.mode),
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


def _context_reduced(value: Reduction) -> event_pb2.ContextReduced:
    return event_pb2.ContextReduced(
        messages_left_out=value.messages_left_out,
        summarized=value.summarized,
        tokens_before=value.tokens_before,
        tokens_after=value.tokens_after,
    )


_PAYLOADS: dict[str, Fill] = {
    "conversation_started": _made(_room),
    "conversation_updated": _made(_room),
    "conversation_ended": _made(_room),
    "conversation_reset": _made(_reset),
    "branch_merged": _made(_merge),
    "participant_joined": _made(participant),
    "participant_left": _made(participant),
    "conversation_turn": fill_turn,
    "turn_completed": fill_turn,
    "turn_failed": fill_turn,
    "turn_cancelled": fill_turn,
    "message_appended": fill_message,
    "move_recorded": fill_move,
    "limit_reached": _made(_limit_reached),
    "context_reduced": _made(_context_reduced),
    "context_assembly_completed": _hook,
    "context_assembly_failed": _hook,
    "memory_extraction_completed": _hook,
    "memory_extraction_failed": _hook,
    "tool_dispatched": _made(_dispatched),
    "tool_completed": _made(_tool_outcome),
    "tool_failed": _made(_tool_outcome),
    "workflow_started": _made(_workflow_run),
    "workflow_completed": _made(_workflow_run),
    "workflow_failed": _made(_workflow_run),
    "agent_call_started": _made(_agent_call),
    "agent_call_completed": _made(_agent_call),
}
