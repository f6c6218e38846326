"""Conversations, turns, messages, moves and events as the contract says them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from google.protobuf.struct_pb2 import Struct

from wonder.v1 import common_pb2, conversation_pb2, event_pb2
from wonder_server.core.budget import Account, Budget
from wonder_server.core.conversation.spending import known_cost
from wonder_server.core.conversation.values import (
    AgentCall,
    BranchMerge,
    Caller,
    Conversation,
    HistoryReset,
    HookOutcome,
    Invocation,
    Limit,
    Message,
    Move,
    Operation,
    Participant,
    Reduction,
    ToolResult,
    Turn,
    WorkflowRun,
)
from wonder_server.core.errors import Reason, error
from wonder_server.core.trace import named_after
from wonder_server.ports.journal import Event
from wonder_server.rpc.faults import fault_to_proto
from wonder_server.rpc.payload import dict_to_struct, json_to_value, struct_to_dict
from wonder_server.rpc.times import from_timestamp, to_timestamp
from wonder_server.services.agents import check_metadata

MAX_BUDGET = 2**53

MAX_TITLE, MAX_REFERENCE, MAX_USER = 500, 256, 128
"""Bytes of a title, of an external_ref, of a user's id; of a user's name as of a reference."""


@cache
def enum(enum_type: Any, prefix: str, word: str) -> Any:
    """The number of an enum's value, from the core's word for it."""
    return enum_type.Value(f"{prefix}_{word.upper()}")


def words(enum_type: Any, prefix: str, numbers: Sequence[int], field: str) -> tuple[str, ...]:
    """The core's words for enum numbers; UNSPECIFIED is refused."""
    found = []
    for index, number in enumerate(numbers):
        word = enum_type.Name(number).removeprefix(f"{prefix}_").lower()
        if word == "unspecified":
            raise error(Reason.FIELD_INVALID, "Name a status.", field=f"{field}[{index}]")
        found.append(word)
    return tuple(found)


# --- rooms and people -------------------------------------------------------------------------------


def conversation(
    value: Conversation, head: int, active: Sequence[str] = (), branch: str = ""
) -> conversation_pb2.Conversation:
    """``head`` is the sequence of its last event; ``active`` are the ids of its active turns; ``branch`` is
    the one it works on."""
    return conversation_pb2.Conversation(
        id=value.id,
        project_id=value.project_id,
        title=value.title,
        participants=[participant(person) for person in value.participants],
        status=enum(conversation_pb2.ConversationStatus, "CONVERSATION_STATUS", value.status.value),
        external_ref=value.external_ref,
        metadata=dict_to_struct(value.metadata),
        last_sequence=head,
        turn_count=value.turn_count,
        active_turn_ids=active,
        usage=usage(value),
        budget=budget(value.budget),
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(value.updated_ms),
        etag=str(value.version),
        expire_time=to_timestamp(value.expire_ms),
        archive_time=to_timestamp(value.archived_ms),
        branch=branch,
    )


def budget(value: Budget) -> common_pb2.Budget | None:
    """What may be spent; None for as much as anybody likes."""
    if value == Budget():
        return None
    return common_pb2.Budget(
        max_tokens=value.max_tokens,
        max_cost_micros=value.max_cost_micros,
        max_duration_ms=value.max_duration_ms,
    )


def budget_of(message: common_pb2.Budget, field: str) -> Budget:
    """The same, read. Errors: FIELD_INVALID."""
    given = {name: getattr(message, name) for name in ("max_tokens", "max_cost_micros", "max_duration_ms")}
    for name, limit in given.items():
        if not 0 <= limit <= MAX_BUDGET:
            raise error(
                Reason.FIELD_INVALID,
                f"A budget lies between 0, for none, and {MAX_BUDGET}.",
                field=f"{field}.{name}",
            )
    return Budget(**given)


def usage(spender: Conversation | Turn | Account) -> common_pb2.Usage:
    """What a conversation, a turn or an agent has spent."""
    return common_pb2.Usage(
        input_tokens=spender.input_tokens,
        output_tokens=spender.output_tokens,
        cost_micros=known_cost(spender),
        model_calls=spender.model_calls or getattr(spender, "moves", 0),
    )


def participant(person: Participant) -> conversation_pb2.Participant:
    message = conversation_pb2.Participant(
        origin=enum(conversation_pb2.ParticipantOrigin, "PARTICIPANT_ORIGIN", person.origin),
        added_by=_caller(person.added_by) if person.added_by is not None else None,
        join_time=to_timestamp(person.joined_ms),
    )
    if person.type == "agent":
        message.agent.agent_id, message.agent.name = person.id, person.name
    else:
        message.user.user_id, message.user.display_name = person.id, person.name
    return message


def draft(message: conversation_pb2.Conversation, project_id: str) -> Conversation:
    """A conversation to be created. Errors: FIELD_INVALID."""
    if len(message.participants) > 100:
        raise error(
            Reason.LIMIT_EXCEEDED,
            "A conversation has at most 100 participants.",
            field="conversation.participants",
        )
    return Conversation(
        id="",
        project_id=project_id,
        title=sized(message.title, MAX_TITLE, "conversation.title"),
        participants=tuple(
            newcomer(person, f"conversation.participants[{index}]")
            for index, person in enumerate(message.participants)
        ),
        external_ref=sized(message.external_ref, MAX_REFERENCE, "conversation.external_ref"),
        metadata=metadata_of(message.metadata, "conversation.metadata"),
        budget=budget_of(message.budget, "conversation.budget"),
        expire_ms=from_timestamp(message.expire_time, "conversation.expire_time"),
    )


def newcomer(person: conversation_pb2.Participant, field: str) -> Participant:
    """Who is to take part. Errors: FIELD_INVALID."""
    if person.HasField("agent"):
        if not (person.agent.agent_id or person.agent.name):
            raise error(Reason.FIELD_INVALID, "Name the agent.", field=f"{field}.agent.agent_id")
        return Participant(type="agent", id=person.agent.agent_id, name=person.agent.name)
    if person.HasField("user"):
        if not person.user.user_id:
            raise error(Reason.FIELD_INVALID, "Name the user.", field=f"{field}.user.user_id")
        return Participant(
            type="user",
            id=sized(person.user.user_id, MAX_USER, f"{field}.user.user_id"),
            name=sized(person.user.display_name, MAX_REFERENCE, f"{field}.user.display_name"),
        )
    raise error(Reason.FIELD_INVALID, "Give a user or an agent.", field=field)


def sized(text: str, most: int, field: str) -> str:
    """``text``, at most so many bytes long. FIELD_INVALID if it is longer."""
    if len(text.encode("utf-8", "replace")) > most:
        raise error(Reason.FIELD_INVALID, f"{field} has at most {most} bytes.", field=field)
    return text


def metadata_of(message: Struct, field: str) -> dict[str, Any]:
    """What a client wants to keep with something. PAYLOAD_TOO_LARGE, those of payloads."""
    metadata = struct_to_dict(message, field)
    check_metadata(metadata, field)
    return metadata


def _caller(caller: Caller) -> common_pb2.Caller:
    message = common_pb2.Caller()
    if caller.type == "workflow":
        message.workflow.run_id = caller.run_id
    elif caller.type == "agent":
        message.agent.agent_id, message.agent.turn_id = caller.agent_id, caller.turn_id
    else:
        message.user.user_id = caller.user_id
    return message


# --- turns ------------------------------------------------------------------------------------------


def turn(value: Turn, operations: Sequence[Operation] = ()) -> conversation_pb2.Turn:
    message = conversation_pb2.Turn(
        id=value.id,
        conversation_id=value.conversation_id,
        ordinal=value.ordinal,
        caller=_caller(value.caller),
        agent_id=value.agent_id,
        reply_to_message_id=value.reply_to_message_id,
        status=enum(conversation_pb2.TurnStatus, "TURN_STATUS", value.status.value),
        issues=conversation_pb2.TurnIssues(
            memory_extraction_failed=value.memory_extraction_failed,
            tool_failures=value.tool_failures,
        ),
        context_assembly_run_id=value.context_assembly_run_id,
        memory_extraction_run_id=value.memory_extraction_run_id,
        persona=value.persona,
        usage=usage(value),
        move_count=value.moves,
        operations=[operation(item) for item in operations],
        create_time=to_timestamp(value.created_ms),
        complete_time=to_timestamp(value.completed_ms),
        trace_id=value.trace_id or named_after(value.id),
    )
    message.input.string_value = value.input
    if value.output is not None:
        message.output.string_value = value.output
    if value.metadata:
        message.metadata.CopyFrom(dict_to_struct(value.metadata))
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    return message


_OPERATION_KINDS = {
    "assembly": "CONTEXT_ASSEMBLY",
    "extraction": "MEMORY_EXTRACTION",
}


def operation(value: Operation) -> conversation_pb2.Operation:
    kind = _OPERATION_KINDS.get(value.kind.value, value.kind.value)
    encoded = conversation_pb2.Operation(
        id=value.id,
        turn_id=value.turn_id,
        kind=enum(conversation_pb2.OperationKind, "OPERATION_KIND", kind),
        tool_call_id=value.tool_call_id,
        tool_name=value.tool_name,
        target=value.target,
        # An agent's turn is carried out by a conversation.
        run_id=value.run_id if value.run_id.startswith("run_") else "",
        attempt=value.attempt,
        create_time=to_timestamp(value.created_ms),
        deadline=to_timestamp(value.wake_ms),
    )
    setattr(encoded, "async", value.is_async)
    return encoded


def message(value: Message) -> conversation_pb2.Message:
    return conversation_pb2.Message(
        id=value.id,
        conversation_id=value.conversation_id,
        turn_id=value.turn_id,
        ordinal=value.ordinal,
        role=enum(conversation_pb2.MessageRole, "MESSAGE_ROLE", value.role.value),
        author=value.author,
        content=value.content,
        reply_to_message_id=value.reply_to_message_id,
        partial=value.partial,
        create_time=to_timestamp(value.created_ms),
    )


def move(value: Move, *, with_raw: bool = True) -> conversation_pb2.Move:
    """``with_raw`` False leaves out the model's raw answer, as events do."""
    encoded = conversation_pb2.Move(
        id=value.id,
        turn_id=value.turn_id,
        conversation_id=value.conversation_id,
        sequence=value.sequence,
        reasoning=value.reasoning,
        message_id=value.message_id if value.reasoning else "",
        tool_calls=[tool_call(entry) for entry in value.invocations],
        tool_results=[tool_result(result) for result in _results(value)],
        model=value.model,
        stop_reason=enum(conversation_pb2.StopReason, "STOP_REASON", value.stop_reason),
        usage=common_pb2.Usage(
            input_tokens=value.usage.input_tokens or 0,
            output_tokens=value.usage.output_tokens or 0,
            cost_micros=value.usage.cost_micros,
            model_calls=1,
        ),
        create_time=to_timestamp(value.created_ms),
        complete_time=to_timestamp(value.completed_ms),
    )
    if with_raw:
        encoded.raw.CopyFrom(dict_to_struct(value.raw))
    return encoded


def _results(value: Move) -> list[ToolResult]:
    """What came back for the move's own calls, and what it was told of calls in the background."""
    own = [entry.result for entry in value.invocations if not entry.is_async]
    return [result for result in [*(entry.result for entry in value.told), *own] if result is not None]


def tool_call(entry: Invocation, *, with_input: bool = True) -> conversation_pb2.ToolCall:
    call = conversation_pb2.ToolCall(
        id=entry.call.id,
        tool_name=entry.call.name,
        tool_id=entry.tool_id,
        malformed_input=entry.call.malformed,
        operation_id=entry.operation_id,
    )
    setattr(call, "async", entry.is_async)
    if with_input and entry.call.arguments is not None:
        call.input.CopyFrom(dict_to_struct(entry.call.arguments))
    return call


def tool_result(value: ToolResult) -> conversation_pb2.ToolResult:
    encoded = conversation_pb2.ToolResult(
        tool_call_id=value.tool_call_id,
        success=value.success,
        create_time=to_timestamp(value.created_ms),
        attempts=value.attempts,
    )
    if value.success:
        encoded.result.CopyFrom(json_to_value(value.result))
    elif value.code is not None:
        encoded.error.code = enum(conversation_pb2.ToolErrorCode, "TOOL_ERROR_CODE", value.code.value)
        encoded.error.message = value.message
        encoded.error.retriable = value.retriable
    return encoded


# --- events -----------------------------------------------------------------------------------------


def event(happened: Event) -> event_pb2.Event:
    """One event of a conversation's record."""
    emit = happened.emit
    encoded = event_pb2.Event(
        sequence=happened.sequence,
        conversation_id=happened.actor_id,
        turn_id=emit.turn_id,
        create_time=to_timestamp(happened.at_ms),
        name=emit.name,
    )
    getattr(encoded, emit.kind).CopyFrom(_PAYLOADS[emit.kind](emit.value))
    return encoded


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


def _hook(value: HookOutcome) -> event_pb2.HookOutcome:
    return event_pb2.HookOutcome(
        run_id=value.run_id,
        workflow=value.workflow,
        attempts=value.attempts,
        duration_ms=value.duration_ms,
        error=None if value.fault is None else fault_to_proto(value.fault),
    )


def _dispatched(value: Operation) -> event_pb2.ToolDispatched:
    call = conversation_pb2.ToolCall(id=value.tool_call_id, tool_name=value.tool_name, operation_id=value.id)
    setattr(call, "async", value.is_async)
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


def _agent_call(value: AgentCall) -> event_pb2.AgentCallOutcome:
    return event_pb2.AgentCallOutcome(
        agent_id=value.agent_id,
        mode=enum(common_pb2.InvocationMode, "INVOCATION_MODE", value.mode),
        turn_id=value.turn_id,
        operation_id=value.operation_id,
        error=None if value.fault is None else fault_to_proto(value.fault),
        duration_ms=value.duration_ms,
    )


def _workflow_run(value: WorkflowRun) -> event_pb2.WorkflowOutcome:
    return event_pb2.WorkflowOutcome(
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


def _move(value: Move) -> conversation_pb2.Move:
    return move(value, with_raw=False)


_PAYLOADS: dict[str, Callable[[Any], Any]] = {
    "conversation_started": _room,
    "conversation_updated": _room,
    "conversation_ended": _room,
    "conversation_reset": _reset,
    "branch_merged": _merge,
    "participant_joined": participant,
    "participant_left": participant,
    "turn_started": turn,
    "turn_completed": turn,
    "turn_failed": turn,
    "turn_cancelled": turn,
    "message_appended": message,
    "move_recorded": _move,
    "limit_reached": _limit_reached,
    "context_reduced": _context_reduced,
    "context_assembly_completed": _hook,
    "context_assembly_failed": _hook,
    "memory_extraction_completed": _hook,
    "memory_extraction_failed": _hook,
    "tool_dispatched": _dispatched,
    "tool_completed": _tool_outcome,
    "tool_failed": _tool_outcome,
    "workflow_started": _workflow_run,
    "workflow_completed": _workflow_run,
    "workflow_failed": _workflow_run,
    "agent_call_started": _agent_call,
    "agent_call_completed": _agent_call,
}
