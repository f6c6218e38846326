# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import common_pb2 as _common_pb2
from wonder.v1 import definition_pb2 as _definition_pb2
from wonder.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConversationStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONVERSATION_STATUS_UNSPECIFIED: _ClassVar[ConversationStatus]
    CONVERSATION_STATUS_ACTIVE: _ClassVar[ConversationStatus]
    CONVERSATION_STATUS_WAITING: _ClassVar[ConversationStatus]
    CONVERSATION_STATUS_COMPLETED: _ClassVar[ConversationStatus]
    CONVERSATION_STATUS_FAILED: _ClassVar[ConversationStatus]

class ParticipantOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTICIPANT_ORIGIN_UNSPECIFIED: _ClassVar[ParticipantOrigin]
    PARTICIPANT_ORIGIN_CREATED: _ClassVar[ParticipantOrigin]
    PARTICIPANT_ORIGIN_ADDED: _ClassVar[ParticipantOrigin]
    PARTICIPANT_ORIGIN_LOOPED_IN: _ClassVar[ParticipantOrigin]

class TurnStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_STATUS_UNSPECIFIED: _ClassVar[TurnStatus]
    TURN_STATUS_ACTIVE: _ClassVar[TurnStatus]
    TURN_STATUS_COMPLETED: _ClassVar[TurnStatus]
    TURN_STATUS_FAILED: _ClassVar[TurnStatus]
    TURN_STATUS_CANCELLED: _ClassVar[TurnStatus]
    TURN_STATUS_QUEUED: _ClassVar[TurnStatus]

class OperationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_KIND_UNSPECIFIED: _ClassVar[OperationKind]
    OPERATION_KIND_CONTEXT_ASSEMBLY: _ClassVar[OperationKind]
    OPERATION_KIND_MODEL: _ClassVar[OperationKind]
    OPERATION_KIND_TASK: _ClassVar[OperationKind]
    OPERATION_KIND_WORKFLOW: _ClassVar[OperationKind]
    OPERATION_KIND_AGENT: _ClassVar[OperationKind]
    OPERATION_KIND_MEMORY_EXTRACTION: _ClassVar[OperationKind]
    OPERATION_KIND_MEMORY: _ClassVar[OperationKind]
    OPERATION_KIND_SUMMARY: _ClassVar[OperationKind]

class MessageRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_ROLE_UNSPECIFIED: _ClassVar[MessageRole]
    MESSAGE_ROLE_USER: _ClassVar[MessageRole]
    MESSAGE_ROLE_AGENT: _ClassVar[MessageRole]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_END: _ClassVar[StopReason]
    STOP_REASON_TOOL_CALLS: _ClassVar[StopReason]
    STOP_REASON_LENGTH: _ClassVar[StopReason]
    STOP_REASON_REFUSAL: _ClassVar[StopReason]
    STOP_REASON_OTHER: _ClassVar[StopReason]

class ToolErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_ERROR_CODE_UNSPECIFIED: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_EXECUTION_FAILED: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_TIMEOUT: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_NOT_FOUND: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_PERMISSION_DENIED: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_INVALID_INPUT: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_AGENT_DECLINED: _ClassVar[ToolErrorCode]
    TOOL_ERROR_CODE_INTERNAL_ERROR: _ClassVar[ToolErrorCode]
CONVERSATION_STATUS_UNSPECIFIED: ConversationStatus
CONVERSATION_STATUS_ACTIVE: ConversationStatus
CONVERSATION_STATUS_WAITING: ConversationStatus
CONVERSATION_STATUS_COMPLETED: ConversationStatus
CONVERSATION_STATUS_FAILED: ConversationStatus
PARTICIPANT_ORIGIN_UNSPECIFIED: ParticipantOrigin
PARTICIPANT_ORIGIN_CREATED: ParticipantOrigin
PARTICIPANT_ORIGIN_ADDED: ParticipantOrigin
PARTICIPANT_ORIGIN_LOOPED_IN: ParticipantOrigin
TURN_STATUS_UNSPECIFIED: TurnStatus
TURN_STATUS_ACTIVE: TurnStatus
TURN_STATUS_COMPLETED: TurnStatus
TURN_STATUS_FAILED: TurnStatus
TURN_STATUS_CANCELLED: TurnStatus
TURN_STATUS_QUEUED: TurnStatus
OPERATION_KIND_UNSPECIFIED: OperationKind
OPERATION_KIND_CONTEXT_ASSEMBLY: OperationKind
OPERATION_KIND_MODEL: OperationKind
OPERATION_KIND_TASK: OperationKind
OPERATION_KIND_WORKFLOW: OperationKind
OPERATION_KIND_AGENT: OperationKind
OPERATION_KIND_MEMORY_EXTRACTION: OperationKind
OPERATION_KIND_MEMORY: OperationKind
OPERATION_KIND_SUMMARY: OperationKind
MESSAGE_ROLE_UNSPECIFIED: MessageRole
MESSAGE_ROLE_USER: MessageRole
MESSAGE_ROLE_AGENT: MessageRole
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_END: StopReason
STOP_REASON_TOOL_CALLS: StopReason
STOP_REASON_LENGTH: StopReason
STOP_REASON_REFUSAL: StopReason
STOP_REASON_OTHER: StopReason
TOOL_ERROR_CODE_UNSPECIFIED: ToolErrorCode
TOOL_ERROR_CODE_EXECUTION_FAILED: ToolErrorCode
TOOL_ERROR_CODE_TIMEOUT: ToolErrorCode
TOOL_ERROR_CODE_NOT_FOUND: ToolErrorCode
TOOL_ERROR_CODE_PERMISSION_DENIED: ToolErrorCode
TOOL_ERROR_CODE_INVALID_INPUT: ToolErrorCode
TOOL_ERROR_CODE_AGENT_DECLINED: ToolErrorCode
TOOL_ERROR_CODE_INTERNAL_ERROR: ToolErrorCode

class Conversation(_message.Message):
    __slots__ = ("id", "project_id", "title", "participants", "status", "external_ref", "metadata", "last_sequence", "turn_count", "active_turn_ids", "usage", "budget", "expire_time", "archive_time", "branch", "create_time", "update_time", "etag", "created_by", "updated_by", "former_external_ref", "concurrent_turns", "forked_from")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_REF_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TURN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_TIME_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    FORMER_EXTERNAL_REF_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_TURNS_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    id: str
    project_id: str
    title: str
    participants: _containers.RepeatedCompositeFieldContainer[Participant]
    status: ConversationStatus
    external_ref: str
    metadata: _struct_pb2.Struct
    last_sequence: int
    turn_count: int
    active_turn_ids: _containers.RepeatedScalarFieldContainer[str]
    usage: _common_pb2.Usage
    budget: _common_pb2.Budget
    expire_time: _timestamp_pb2.Timestamp
    archive_time: _timestamp_pb2.Timestamp
    branch: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    created_by: _common_pb2.Principal
    updated_by: _common_pb2.Principal
    former_external_ref: str
    concurrent_turns: _definition_pb2.ConcurrentTurns
    forked_from: ForkSource
    def __init__(self, id: _Optional[str] = ..., project_id: _Optional[str] = ..., title: _Optional[str] = ..., participants: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., status: _Optional[_Union[ConversationStatus, str]] = ..., external_ref: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., last_sequence: _Optional[int] = ..., turn_count: _Optional[int] = ..., active_turn_ids: _Optional[_Iterable[str]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ..., budget: _Optional[_Union[_common_pb2.Budget, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., archive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., branch: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., created_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., former_external_ref: _Optional[str] = ..., concurrent_turns: _Optional[_Union[_definition_pb2.ConcurrentTurns, str]] = ..., forked_from: _Optional[_Union[ForkSource, _Mapping]] = ...) -> None: ...

class ForkSource(_message.Message):
    __slots__ = ("conversation_id", "message_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    message_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., message_id: _Optional[str] = ...) -> None: ...

class Participant(_message.Message):
    __slots__ = ("user", "agent", "origin", "added_by", "join_time")
    USER_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ADDED_BY_FIELD_NUMBER: _ClassVar[int]
    JOIN_TIME_FIELD_NUMBER: _ClassVar[int]
    user: UserParticipant
    agent: AgentParticipant
    origin: ParticipantOrigin
    added_by: _common_pb2.Caller
    join_time: _timestamp_pb2.Timestamp
    def __init__(self, user: _Optional[_Union[UserParticipant, _Mapping]] = ..., agent: _Optional[_Union[AgentParticipant, _Mapping]] = ..., origin: _Optional[_Union[ParticipantOrigin, str]] = ..., added_by: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., join_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class UserParticipant(_message.Message):
    __slots__ = ("user_id", "display_name")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    display_name: str
    def __init__(self, user_id: _Optional[str] = ..., display_name: _Optional[str] = ...) -> None: ...

class AgentParticipant(_message.Message):
    __slots__ = ("agent_id", "name")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("id", "conversation_id", "ordinal", "caller", "agent_id", "input", "reply_to_message_id", "status", "error", "issues", "context_assembly_run_id", "memory_extraction_run_id", "persona", "usage", "move_count", "operations", "output", "metadata", "create_time", "complete_time", "trace_id", "principal", "cancelled_by", "start_time", "overrides")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ASSEMBLY_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EXTRACTION_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PERSONA_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    MOVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TIME_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_BY_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    id: str
    conversation_id: str
    ordinal: int
    caller: _common_pb2.Caller
    agent_id: str
    input: _struct_pb2.Value
    reply_to_message_id: str
    status: TurnStatus
    error: _errors_pb2.Fault
    issues: TurnIssues
    context_assembly_run_id: str
    memory_extraction_run_id: str
    persona: str
    usage: _common_pb2.Usage
    move_count: int
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    output: _struct_pb2.Value
    metadata: _struct_pb2.Struct
    create_time: _timestamp_pb2.Timestamp
    complete_time: _timestamp_pb2.Timestamp
    trace_id: str
    principal: _common_pb2.Principal
    cancelled_by: _common_pb2.Principal
    start_time: _timestamp_pb2.Timestamp
    overrides: TurnOverrides
    def __init__(self, id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., agent_id: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., reply_to_message_id: _Optional[str] = ..., status: _Optional[_Union[TurnStatus, str]] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., issues: _Optional[_Union[TurnIssues, _Mapping]] = ..., context_assembly_run_id: _Optional[str] = ..., memory_extraction_run_id: _Optional[str] = ..., persona: _Optional[str] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ..., move_count: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., output: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trace_id: _Optional[str] = ..., principal: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., cancelled_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., overrides: _Optional[_Union[TurnOverrides, _Mapping]] = ...) -> None: ...

class TurnOverrides(_message.Message):
    __slots__ = ("model_profile_id", "tool_choice", "instructions")
    MODEL_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    model_profile_id: str
    tool_choice: str
    instructions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model_profile_id: _Optional[str] = ..., tool_choice: _Optional[str] = ..., instructions: _Optional[_Iterable[str]] = ...) -> None: ...

class TurnIssues(_message.Message):
    __slots__ = ("memory_extraction_failed", "tool_failures")
    MEMORY_EXTRACTION_FAILED_FIELD_NUMBER: _ClassVar[int]
    TOOL_FAILURES_FIELD_NUMBER: _ClassVar[int]
    memory_extraction_failed: bool
    tool_failures: int
    def __init__(self, memory_extraction_failed: _Optional[bool] = ..., tool_failures: _Optional[int] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("id", "turn_id", "kind", "is_async", "tool_call_id", "tool_name", "target", "run_id", "attempt", "create_time", "deadline", "gate_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IS_ASYNC_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    GATE_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    turn_id: str
    kind: OperationKind
    is_async: bool
    tool_call_id: str
    tool_name: str
    target: str
    run_id: str
    attempt: int
    create_time: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    gate_id: str
    def __init__(self, id: _Optional[str] = ..., turn_id: _Optional[str] = ..., kind: _Optional[_Union[OperationKind, str]] = ..., is_async: _Optional[bool] = ..., tool_call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., target: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., gate_id: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "conversation_id", "turn_id", "ordinal", "role", "author", "content", "reply_to_message_id", "partial", "create_time", "whole_bytes", "token_count", "parts")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    WHOLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    conversation_id: str
    turn_id: str
    ordinal: int
    role: MessageRole
    author: str
    content: str
    reply_to_message_id: str
    partial: bool
    create_time: _timestamp_pb2.Timestamp
    whole_bytes: int
    token_count: int
    parts: _containers.RepeatedCompositeFieldContainer[ContentPart]
    def __init__(self, id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., role: _Optional[_Union[MessageRole, str]] = ..., author: _Optional[str] = ..., content: _Optional[str] = ..., reply_to_message_id: _Optional[str] = ..., partial: _Optional[bool] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., whole_bytes: _Optional[int] = ..., token_count: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[ContentPart, _Mapping]]] = ...) -> None: ...

class ContentPart(_message.Message):
    __slots__ = ("text", "image", "file")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: FilePart
    file: FilePart
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[FilePart, _Mapping]] = ..., file: _Optional[_Union[FilePart, _Mapping]] = ...) -> None: ...

class FilePart(_message.Message):
    __slots__ = ("file_id", "media_type", "name", "size_bytes")
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    file_id: str
    media_type: str
    name: str
    size_bytes: int
    def __init__(self, file_id: _Optional[str] = ..., media_type: _Optional[str] = ..., name: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("id", "turn_id", "conversation_id", "sequence", "reasoning", "message_id", "tool_calls", "tool_results", "raw", "model", "stop_reason", "usage", "create_time", "complete_time", "provider", "model_profile")
    ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULTS_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TIME_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_PROFILE_FIELD_NUMBER: _ClassVar[int]
    id: str
    turn_id: str
    conversation_id: str
    sequence: int
    reasoning: str
    message_id: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_results: _containers.RepeatedCompositeFieldContainer[ToolResult]
    raw: _struct_pb2.Struct
    model: str
    stop_reason: StopReason
    usage: _common_pb2.Usage
    create_time: _timestamp_pb2.Timestamp
    complete_time: _timestamp_pb2.Timestamp
    provider: str
    model_profile: str
    def __init__(self, id: _Optional[str] = ..., turn_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., sequence: _Optional[int] = ..., reasoning: _Optional[str] = ..., message_id: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_results: _Optional[_Iterable[_Union[ToolResult, _Mapping]]] = ..., raw: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., model: _Optional[str] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., provider: _Optional[str] = ..., model_profile: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "tool_name", "tool_id", "input", "malformed_input", "operation_id", "is_async", "gate_id", "edited_input")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_INPUT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ASYNC_FIELD_NUMBER: _ClassVar[int]
    GATE_ID_FIELD_NUMBER: _ClassVar[int]
    EDITED_INPUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    tool_name: str
    tool_id: str
    input: _struct_pb2.Struct
    malformed_input: str
    operation_id: str
    is_async: bool
    gate_id: str
    edited_input: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., tool_name: _Optional[str] = ..., tool_id: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., malformed_input: _Optional[str] = ..., operation_id: _Optional[str] = ..., is_async: _Optional[bool] = ..., gate_id: _Optional[str] = ..., edited_input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("tool_call_id", "success", "result", "error", "create_time", "attempts", "excerpt_bytes", "result_id")
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    EXCERPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESULT_ID_FIELD_NUMBER: _ClassVar[int]
    tool_call_id: str
    success: bool
    result: _struct_pb2.Value
    error: ToolError
    create_time: _timestamp_pb2.Timestamp
    attempts: int
    excerpt_bytes: int
    result_id: str
    def __init__(self, tool_call_id: _Optional[str] = ..., success: _Optional[bool] = ..., result: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., error: _Optional[_Union[ToolError, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., excerpt_bytes: _Optional[int] = ..., result_id: _Optional[str] = ...) -> None: ...

class ToolError(_message.Message):
    __slots__ = ("code", "message", "retriable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    code: ToolErrorCode
    message: str
    retriable: bool
    def __init__(self, code: _Optional[_Union[ToolErrorCode, str]] = ..., message: _Optional[str] = ..., retriable: _Optional[bool] = ...) -> None: ...
