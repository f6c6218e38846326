"""Codec of conversations, turns, messages and moves; `event_codec` encodes their events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wonder.v1 import common_pb2, conversation_pb2, definition_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.message_parts import PartRequest
from wonder_server.core.actor.trace import root_trace_id
from wonder_server.core.content.parts import IMAGE, TEXT, ContentPart, Parts, content_tokens, with_texts
from wonder_server.core.conversation.model.values import (
    Caller,
    Conversation,
    Invocation,
    Message,
    Move,
    Operation,
    OperationStatus,
    Participant,
    ToolResult,
    Turn,
)
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.errors import Reason, error
from wonder_server.rpc.shared.common_codec import (
    budget_from_proto,
    budget_to_proto,
    check_text_size,
    enum_names,
    enum_value,
    metadata_from_proto,
    set_principal,
    set_usage,
    usage_to_proto,
)
from wonder_server.rpc.shared.faults import fault_to_proto
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.payload import dict_to_struct, json_to_value
from wonder_server.rpc.shared.times import from_timestamp, set_timestamp, to_timestamp

MAX_TITLE_BYTES, MAX_REFERENCE_BYTES, MAX_USER_BYTES = 500, 256, 128
"""Maximum bytes of a title; of an external_ref and a user's display name; of a user's id."""


# --- conversations and participants -----------------------------------------------------------------


def conversation_to_proto(
    value: Conversation, last_sequence: int, active: Sequence[str] = (), branch: str = ""
) -> conversation_pb2.Conversation:
    """Encode a conversation.

    ``last_sequence`` is the sequence of its last event, ``active`` the ids of its active turns, ``branch``
    the branch on which it works.
    """
    message = conversation_pb2.Conversation(
        id=value.id,
        project_id=value.project_id,
        title=value.title,
        participants=[participant_to_proto(person) for person in value.participants],
        status=enum_value(conversation_pb2.ConversationStatus, "CONVERSATION_STATUS", value.status.value),
        external_ref=value.external_ref,
        metadata=dict_to_struct(value.metadata),
        last_sequence=last_sequence,
        turn_count=value.turn_count,
        active_turn_ids=active,
        usage=usage_to_proto(value),
        budget=budget_to_proto(value.budget),
        create_time=to_timestamp(value.created_ms),
        update_time=to_timestamp(value.updated_ms),
        etag=str(value.version),
        expire_time=to_timestamp(value.expire_ms),
        archive_time=to_timestamp(value.archived_ms),
        branch=branch,
        former_external_ref=value.former_external_ref,
    )
    if value.concurrent_turns:
        message.concurrent_turns = enum_value(
            definition_pb2.ConcurrentTurns, "CONCURRENT_TURNS", value.concurrent_turns
        )
    if value.origin is not None and value.origin.conversation_id:
        forked, source = message.forked_from, value.origin
        forked.conversation_id, forked.message_id = source.conversation_id, source.message_id
    set_principal(message.created_by, value.created_by)
    set_principal(message.updated_by, value.updated_by)
    return message


def participant_to_proto(person: Participant) -> conversation_pb2.Participant:
    message = conversation_pb2.Participant(
        origin=enum_value(conversation_pb2.ParticipantOrigin, "PARTICIPANT_ORIGIN", person.origin),
        join_time=to_timestamp(person.joined_ms),
    )
    if person.added_by is not None:
        _set_caller(message.added_by, person.added_by)
    if person.type == "agent":
        message.agent.agent_id, message.agent.name = person.id, person.name
    else:
        message.user.user_id, message.user.display_name = person.id, person.name
    return message


def conversation_from_proto(message: conversation_pb2.Conversation, project_id: str) -> Conversation:
    """Decode a conversation to create. Raises FIELD_INVALID or LIMIT_EXCEEDED."""
    if len(message.participants) > 100:
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"The conversation has {len(message.participants)} participants; the maximum is 100.",
            field="conversation.participants",
        )
    return Conversation(
        id="",
        project_id=project_id,
        title=check_text_size(message.title, MAX_TITLE_BYTES, "conversation.title"),
        participants=tuple(
            participant_from_proto(person, f"conversation.participants[{index}]")
            for index, person in enumerate(message.participants)
        ),
        external_ref=check_text_size(message.external_ref, MAX_REFERENCE_BYTES, "conversation.external_ref"),
        metadata=metadata_from_proto(message.metadata, "conversation.metadata"),
        budget=budget_from_proto(message.budget, "conversation.budget"),
        expire_ms=from_timestamp(message.expire_time, "conversation.expire_time"),
        concurrent_turns=concurrent_turns_from_proto(message, "conversation.concurrent_turns"),
    )


def concurrent_turns_from_proto(message: conversation_pb2.Conversation, field: str) -> str:
    """Decode a policy for concurrent turns; "" for none. Raises FIELD_INVALID."""
    if not message.concurrent_turns:
        return ""
    names = enum_names(definition_pb2.ConcurrentTurns, "CONCURRENT_TURNS", [message.concurrent_turns], field)
    return names[0]


def participant_from_proto(person: conversation_pb2.Participant, field: str) -> Participant:
    """Decode a participant. Raises FIELD_INVALID."""
    if person.HasField("agent"):
        if not (person.agent.agent_id or person.agent.name):
            raise error(
                Reason.FIELD_INVALID,
                f"{field} has no agent. Set agent_id or name.",
                field=f"{field}.agent.agent_id",
            )
        return Participant(type="agent", id=person.agent.agent_id, name=person.agent.name)
    if person.HasField("user"):
        if not person.user.user_id:
            raise error(
                Reason.FIELD_INVALID, f"{field}.user.user_id is required.", field=f"{field}.user.user_id"
            )
        return Participant(
            type="user",
            id=check_text_size(person.user.user_id, MAX_USER_BYTES, f"{field}.user.user_id"),
            name=check_text_size(person.user.display_name, MAX_REFERENCE_BYTES, f"{field}.user.display_name"),
        )
    raise error(Reason.FIELD_INVALID, f"{field} is empty. Set user or agent.", field=field)


def _set_caller(message: common_pb2.Caller, caller: Caller) -> None:
    if caller.type == "workflow":
        message.workflow.run_id = caller.run_id
    elif caller.type == "agent":
        agent = message.agent
        agent.agent_id, agent.turn_id = caller.agent_id, caller.turn_id
    else:
        message.user.user_id = caller.user_id


# --- turns ------------------------------------------------------------------------------------------


def turn_to_proto(value: Turn, operations: Sequence[Operation] = ()) -> conversation_pb2.Turn:
    message = conversation_pb2.Turn(operations=[operation_to_proto(item) for item in operations])
    set_turn(message, value)
    return message


# Turns, messages and moves are most of the traffic. They are encoded in place, inside the message that
# carries them: a separate message would be copied, which costs as much as encoding it.


def set_turn(message: conversation_pb2.Turn, value: Turn) -> None:
    """Set ``message`` to ``value``, except for its operations."""
    message.id = value.id
    message.conversation_id = value.conversation_id
    message.ordinal = value.ordinal
    _set_caller(message.caller, value.caller)
    message.agent_id = value.agent_id
    message.reply_to_message_id = value.reply_to_message_id
    message.status = enum_value(conversation_pb2.TurnStatus, "TURN_STATUS", value.status.value)
    issues = message.issues
    issues.memory_extraction_failed = value.memory_extraction_failed
    issues.tool_failures = value.tool_failures
    message.context_assembly_run_id = value.context_assembly_run_id
    message.memory_extraction_run_id = value.memory_extraction_run_id
    message.persona = value.persona
    set_usage(message.usage, value)
    message.move_count = value.moves
    set_timestamp(message.create_time, value.created_ms)
    set_timestamp(message.complete_time, value.completed_ms)
    if value.started_ms:
        set_timestamp(message.start_time, value.started_ms)
    message.trace_id = value.trace_id or root_trace_id(value.id)
    message.input.string_value = value.input
    if isinstance(value.output, str):
        message.output.string_value = value.output
    elif value.output is not None:
        message.output.CopyFrom(json_to_value(value.output))
    if value.metadata:
        message.metadata.CopyFrom(dict_to_struct(value.metadata))
    if value.fault is not None:
        message.error.CopyFrom(fault_to_proto(value.fault))
    if value.overrides is not None:
        message.overrides.model_profile_id = value.overrides.model_profile_id
        message.overrides.tool_choice = value.overrides.tool_choice
        message.overrides.instructions.extend(value.overrides.instructions)
    set_principal(message.principal, value.principal)
    if value.cancelled_by:
        set_principal(message.cancelled_by, value.cancelled_by)


def overrides_from_proto(request: pb.ConverseSend | pb.CallAgentRequest) -> TurnOverrides | None:
    """Return the settings of a message for its turn; None if it sets nothing."""
    given = request.overrides
    overrides = TurnOverrides(
        model_profile_id=given.model_profile_id,
        tool_choice=given.tool_choice,
        instructions=tuple(given.instructions),
    )
    return None if overrides == TurnOverrides() else overrides


_OPERATION_KINDS = {
    "assembly": "CONTEXT_ASSEMBLY",
    "extraction": "MEMORY_EXTRACTION",
}


def operation_to_proto(value: Operation) -> conversation_pb2.Operation:
    kind = _OPERATION_KINDS.get(value.kind.value, value.kind.value)
    encoded = conversation_pb2.Operation(
        id=value.id,
        turn_id=value.turn_id,
        kind=enum_value(conversation_pb2.OperationKind, "OPERATION_KIND", kind),
        tool_call_id=value.tool_call_id,
        tool_name=value.tool_name,
        target=value.target,
        # A conversation executes an agent's turn, so its id is not a run's.
        run_id=value.run_id if value.run_id.startswith("run_") else "",
        attempt=value.attempt,
        create_time=to_timestamp(value.created_ms),
        deadline=to_timestamp(value.wake_ms),
    )
    encoded.is_async = value.is_async
    if value.status is OperationStatus.APPROVAL:
        encoded.gate_id = value.gate_id
    return encoded


def message_to_proto(value: Message) -> conversation_pb2.Message:
    encoded = conversation_pb2.Message()
    set_message(encoded, value)
    return encoded


def set_message(message: conversation_pb2.Message, value: Message) -> None:
    """Set ``message`` to ``value``."""
    message.id = value.id
    message.conversation_id = value.conversation_id
    message.turn_id = value.turn_id
    message.ordinal = value.ordinal
    message.role = enum_value(conversation_pb2.MessageRole, "MESSAGE_ROLE", value.role.value)
    message.author = value.author
    message.content = value.content
    message.reply_to_message_id = value.reply_to_message_id
    message.partial = value.partial
    message.whole_bytes = value.whole_bytes
    message.token_count = content_tokens(value.content, value.parts)
    if value.parts:
        message.parts.extend(parts_to_proto(value.content, value.parts))
    set_timestamp(message.create_time, value.created_ms)


def parts_to_proto(content: str, parts: Parts) -> list[conversation_pb2.ContentPart]:
    """Encode the parts of a message with this content."""
    return [_part_to_proto(part, text) for part, text in with_texts(content, parts)]


def _part_to_proto(part: ContentPart, text: str) -> conversation_pb2.ContentPart:
    if part.type == TEXT:
        return conversation_pb2.ContentPart(text=text)
    described = conversation_pb2.FilePart(
        file_id=part.file_id, media_type=part.media_type, name=part.name, size_bytes=part.size_bytes
    )
    if part.type == IMAGE:
        return conversation_pb2.ContentPart(image=described)
    return conversation_pb2.ContentPart(file=described)


def parts_from_proto(parts: Iterable[conversation_pb2.ContentPart]) -> tuple[PartRequest, ...]:
    """Decode the parts of a message to send. Errors: FIELD_INVALID."""
    return tuple([_part_from_proto(part, index) for index, part in enumerate(parts)])


def _part_from_proto(part: conversation_pb2.ContentPart, index: int) -> PartRequest:
    kind = part.WhichOneof("part")
    if kind is None:
        message = "The part is empty. Set text, image or file."
        raise error(Reason.FIELD_INVALID, message, field=f"parts[{index}]")
    if kind == TEXT:
        return PartRequest(type=TEXT, text=part.text)
    file_id = required(getattr(part, kind).file_id, f"parts[{index}].{kind}.file_id")
    return PartRequest(type=kind, file_id=file_id)


def move_to_proto(value: Move) -> conversation_pb2.Move:
    encoded = conversation_pb2.Move()
    set_move(encoded, value)
    encoded.raw.CopyFrom(dict_to_struct(value.raw))
    return encoded


def set_move(message: conversation_pb2.Move, value: Move) -> None:
    """Set ``message`` to ``value``, except for the model's raw answer."""
    message.id = value.id
    message.turn_id = value.turn_id
    message.conversation_id = value.conversation_id
    message.sequence = value.sequence
    message.reasoning = value.reasoning
    message.message_id = value.message_id if value.reasoning else ""
    message.tool_calls.extend(map(tool_call_to_proto, value.invocations))
    message.tool_results.extend(map(tool_result_to_proto, _tool_results(value)))
    message.model = value.model
    message.provider = value.provider
    message.model_profile = value.model_profile
    message.stop_reason = enum_value(conversation_pb2.StopReason, "STOP_REASON", value.stop_reason)
    usage = message.usage
    usage.input_tokens = value.usage.input_tokens or 0
    usage.output_tokens = value.usage.output_tokens or 0
    usage.cached_input_tokens = value.usage.cached_input_tokens or 0
    usage.cache_write_input_tokens = value.usage.cache_write_input_tokens or 0
    usage.reasoning_tokens = value.usage.reasoning_tokens or 0
    usage.cost_unknown = int(value.usage.cost_micros is None or value.usage.estimated)
    if value.usage.cost_micros is not None and not value.usage.estimated:
        usage.cost_micros = value.usage.cost_micros
    usage.model_calls = 1
    set_timestamp(message.create_time, value.created_ms)
    set_timestamp(message.complete_time, value.completed_ms)


def _tool_results(value: Move) -> list[ToolResult]:
    """Return the results of the move's own calls and the reported results of asynchronous calls."""
    own = [entry.result for entry in value.invocations if not entry.is_async]
    return [result for result in [*(entry.result for entry in value.reported), *own] if result is not None]


def tool_call_to_proto(entry: Invocation, *, with_input: bool = True) -> conversation_pb2.ToolCall:
    call = conversation_pb2.ToolCall(
        id=entry.call.id,
        tool_name=entry.call.name,
        tool_id=entry.tool_id,
        malformed_input=entry.call.malformed,
        operation_id=entry.operation_id,
    )
    call.is_async = entry.is_async
    call.gate_id = entry.gate_id
    if entry.edited is not None:
        call.edited_input.CopyFrom(dict_to_struct(entry.edited))
    if with_input and entry.call.arguments is not None:
        call.input.CopyFrom(dict_to_struct(entry.call.arguments))
    return call


def tool_result_to_proto(value: ToolResult) -> conversation_pb2.ToolResult:
    encoded = conversation_pb2.ToolResult(
        tool_call_id=value.tool_call_id,
        success=value.success,
        create_time=to_timestamp(value.created_ms),
        attempts=value.attempts,
    )
    if value.excerpt is not None:
        encoded.excerpt_bytes, encoded.result_id = value.excerpt.max_bytes, value.excerpt.result_id
    if value.success:
        encoded.result.CopyFrom(json_to_value(value.result))
    elif value.code is not None:
        encoded.error.code = enum_value(conversation_pb2.ToolErrorCode, "TOOL_ERROR_CODE", value.code.value)
        encoded.error.message = value.message
        encoded.error.retriable = value.retriable
    return encoded
