# mypy: ignore-errors
import datetime

from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import access_pb2 as _access_pb2
from wonder.v1 import common_pb2 as _common_pb2
from wonder.v1 import conversation_pb2 as _conversation_pb2
from wonder.v1 import errors_pb2 as _errors_pb2
from wonder.v1 import event_pb2 as _event_pb2
from wonder.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeltaKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELTA_KIND_UNSPECIFIED: _ClassVar[DeltaKind]
    DELTA_KIND_REASONING: _ClassVar[DeltaKind]
    DELTA_KIND_TOOL_ARGUMENTS: _ClassVar[DeltaKind]

class StreamEndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_END_REASON_UNSPECIFIED: _ClassVar[StreamEndReason]
    STREAM_END_REASON_DETACHED: _ClassVar[StreamEndReason]
    STREAM_END_REASON_DRAINING: _ClassVar[StreamEndReason]
    STREAM_END_REASON_DELETED: _ClassVar[StreamEndReason]
    STREAM_END_REASON_COMPLETED: _ClassVar[StreamEndReason]
    STREAM_END_REASON_MOVED: _ClassVar[StreamEndReason]

class OnDisconnect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_DISCONNECT_UNSPECIFIED: _ClassVar[OnDisconnect]
    ON_DISCONNECT_CONTINUE: _ClassVar[OnDisconnect]
    ON_DISCONNECT_CANCEL: _ClassVar[OnDisconnect]

class MessageOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_ORDER_UNSPECIFIED: _ClassVar[MessageOrder]
    MESSAGE_ORDER_NEWEST: _ClassVar[MessageOrder]
    MESSAGE_ORDER_BEST: _ClassVar[MessageOrder]

class ContextSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTEXT_SOURCE_UNSPECIFIED: _ClassVar[ContextSource]
    CONTEXT_SOURCE_PERSONA: _ClassVar[ContextSource]
    CONTEXT_SOURCE_MEMORY: _ClassVar[ContextSource]
    CONTEXT_SOURCE_TURN: _ClassVar[ContextSource]
    CONTEXT_SOURCE_ARTIFACT: _ClassVar[ContextSource]
    CONTEXT_SOURCE_REPOSITORY: _ClassVar[ContextSource]
    CONTEXT_SOURCE_TOOL: _ClassVar[ContextSource]
    CONTEXT_SOURCE_ACTIVE_TURN: _ClassVar[ContextSource]
    CONTEXT_SOURCE_MESSAGE: _ClassVar[ContextSource]
    CONTEXT_SOURCE_PARTICIPANT: _ClassVar[ContextSource]
    CONTEXT_SOURCE_TIME: _ClassVar[ContextSource]

class FileChange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_CHANGE_UNSPECIFIED: _ClassVar[FileChange]
    FILE_CHANGE_ADDED: _ClassVar[FileChange]
    FILE_CHANGE_MODIFIED: _ClassVar[FileChange]
    FILE_CHANGE_DELETED: _ClassVar[FileChange]
    FILE_CHANGE_RENAMED: _ClassVar[FileChange]
DELTA_KIND_UNSPECIFIED: DeltaKind
DELTA_KIND_REASONING: DeltaKind
DELTA_KIND_TOOL_ARGUMENTS: DeltaKind
STREAM_END_REASON_UNSPECIFIED: StreamEndReason
STREAM_END_REASON_DETACHED: StreamEndReason
STREAM_END_REASON_DRAINING: StreamEndReason
STREAM_END_REASON_DELETED: StreamEndReason
STREAM_END_REASON_COMPLETED: StreamEndReason
STREAM_END_REASON_MOVED: StreamEndReason
ON_DISCONNECT_UNSPECIFIED: OnDisconnect
ON_DISCONNECT_CONTINUE: OnDisconnect
ON_DISCONNECT_CANCEL: OnDisconnect
MESSAGE_ORDER_UNSPECIFIED: MessageOrder
MESSAGE_ORDER_NEWEST: MessageOrder
MESSAGE_ORDER_BEST: MessageOrder
CONTEXT_SOURCE_UNSPECIFIED: ContextSource
CONTEXT_SOURCE_PERSONA: ContextSource
CONTEXT_SOURCE_MEMORY: ContextSource
CONTEXT_SOURCE_TURN: ContextSource
CONTEXT_SOURCE_ARTIFACT: ContextSource
CONTEXT_SOURCE_REPOSITORY: ContextSource
CONTEXT_SOURCE_TOOL: ContextSource
CONTEXT_SOURCE_ACTIVE_TURN: ContextSource
CONTEXT_SOURCE_MESSAGE: ContextSource
CONTEXT_SOURCE_PARTICIPANT: ContextSource
CONTEXT_SOURCE_TIME: ContextSource
FILE_CHANGE_UNSPECIFIED: FileChange
FILE_CHANGE_ADDED: FileChange
FILE_CHANGE_MODIFIED: FileChange
FILE_CHANGE_DELETED: FileChange
FILE_CHANGE_RENAMED: FileChange

class CreateConversationRequest(_message.Message):
    __slots__ = ("conversation", "request_id", "validate_only", "return_existing", "messages")
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    RETURN_EXISTING_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    request_id: str
    validate_only: bool
    return_existing: bool
    messages: _containers.RepeatedCompositeFieldContainer[HistoryMessage]
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., return_existing: _Optional[bool] = ..., messages: _Optional[_Iterable[_Union[HistoryMessage, _Mapping]]] = ...) -> None: ...

class HistoryMessage(_message.Message):
    __slots__ = ("user_id", "agent_id", "other_agent", "content", "parts", "tool_calls", "create_time")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    OTHER_AGENT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    agent_id: str
    other_agent: str
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[_conversation_pb2.ContentPart]
    tool_calls: _containers.RepeatedCompositeFieldContainer[HistoryToolCall]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, user_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., other_agent: _Optional[str] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[_conversation_pb2.ContentPart, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[HistoryToolCall, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class HistoryToolCall(_message.Message):
    __slots__ = ("id", "tool_name", "input", "result", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    tool_name: str
    input: _struct_pb2.Struct
    result: _struct_pb2.Value
    error: str
    def __init__(self, id: _Optional[str] = ..., tool_name: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., result: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class ForkConversationRequest(_message.Message):
    __slots__ = ("conversation_id", "message_id", "before", "conversation", "send", "regenerate", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    REGENERATE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    message_id: str
    before: bool
    conversation: _conversation_pb2.Conversation
    send: ConverseSend
    regenerate: bool
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., message_id: _Optional[str] = ..., before: _Optional[bool] = ..., conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., send: _Optional[_Union[ConverseSend, _Mapping]] = ..., regenerate: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class ForkConversationResponse(_message.Message):
    __slots__ = ("conversation", "turn")
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    turn: _conversation_pb2.Turn
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ...) -> None: ...

class CreateConversationResponse(_message.Message):
    __slots__ = ("conversation", "existed")
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    existed: bool
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., existed: _Optional[bool] = ...) -> None: ...

class GetConversationRequest(_message.Message):
    __slots__ = ("conversation_id", "external_ref", "project_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_REF_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    external_ref: str
    project_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., external_ref: _Optional[str] = ..., project_id: _Optional[str] = ...) -> None: ...

class GetConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class ListConversationsRequest(_message.Message):
    __slots__ = ("project_id", "agent_id", "user_id", "statuses", "include_archived", "page_size", "page_token")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    agent_id: str
    user_id: str
    statuses: _containers.RepeatedScalarFieldContainer[_conversation_pb2.ConversationStatus]
    include_archived: bool
    page_size: int
    page_token: str
    def __init__(self, project_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., user_id: _Optional[str] = ..., statuses: _Optional[_Iterable[_Union[_conversation_pb2.ConversationStatus, str]]] = ..., include_archived: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListConversationsResponse(_message.Message):
    __slots__ = ("conversations", "next_page_token")
    CONVERSATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversations: _containers.RepeatedCompositeFieldContainer[_conversation_pb2.Conversation]
    next_page_token: str
    def __init__(self, conversations: _Optional[_Iterable[_Union[_conversation_pb2.Conversation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateConversationRequest(_message.Message):
    __slots__ = ("conversation", "update_mask", "request_id")
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdateConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class DeleteConversationRequest(_message.Message):
    __slots__ = ("conversation_id", "etag", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    etag: str
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteConversationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CompleteConversationRequest(_message.Message):
    __slots__ = ("conversation_id", "cancel_turns", "etag", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_TURNS_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    cancel_turns: bool
    etag: str
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., cancel_turns: _Optional[bool] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class CompleteConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class ReopenConversationRequest(_message.Message):
    __slots__ = ("conversation_id", "etag", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    etag: str
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ReopenConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class ResetConversationRequest(_message.Message):
    __slots__ = ("conversation_id", "keep_system_message", "etag", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_SYSTEM_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    keep_system_message: bool
    etag: str
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., keep_system_message: _Optional[bool] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ResetConversationResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class AddParticipantRequest(_message.Message):
    __slots__ = ("conversation_id", "participant", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    participant: _conversation_pb2.Participant
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., participant: _Optional[_Union[_conversation_pb2.Participant, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class AddParticipantResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class RemoveParticipantRequest(_message.Message):
    __slots__ = ("conversation_id", "user_id", "agent_id", "request_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    user_id: str
    agent_id: str
    request_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., user_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RemoveParticipantResponse(_message.Message):
    __slots__ = ("conversation",)
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class ConverseRequest(_message.Message):
    __slots__ = ("attach", "send", "cancel", "ack", "detach")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    attach: ConverseAttach
    send: ConverseSend
    cancel: ConverseCancel
    ack: ConverseAck
    detach: ConverseDetach
    def __init__(self, attach: _Optional[_Union[ConverseAttach, _Mapping]] = ..., send: _Optional[_Union[ConverseSend, _Mapping]] = ..., cancel: _Optional[_Union[ConverseCancel, _Mapping]] = ..., ack: _Optional[_Union[ConverseAck, _Mapping]] = ..., detach: _Optional[_Union[ConverseDetach, _Mapping]] = ...) -> None: ...

class ConverseAttach(_message.Message):
    __slots__ = ("conversation_id", "after_sequence", "tail_only", "group_events", "delta_kinds")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TAIL_ONLY_FIELD_NUMBER: _ClassVar[int]
    GROUP_EVENTS_FIELD_NUMBER: _ClassVar[int]
    DELTA_KINDS_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    after_sequence: int
    tail_only: bool
    group_events: bool
    delta_kinds: _containers.RepeatedScalarFieldContainer[DeltaKind]
    def __init__(self, conversation_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., tail_only: _Optional[bool] = ..., group_events: _Optional[bool] = ..., delta_kinds: _Optional[_Iterable[_Union[DeltaKind, str]]] = ...) -> None: ...

class ConverseSend(_message.Message):
    __slots__ = ("content", "reply_to_message_id", "request_id", "agent_id", "user_id", "metadata", "parts", "start_turn", "overrides")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    START_TURN_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    content: str
    reply_to_message_id: str
    request_id: str
    agent_id: str
    user_id: str
    metadata: _struct_pb2.Struct
    parts: _containers.RepeatedCompositeFieldContainer[_conversation_pb2.ContentPart]
    start_turn: bool
    overrides: _conversation_pb2.TurnOverrides
    def __init__(self, content: _Optional[str] = ..., reply_to_message_id: _Optional[str] = ..., request_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., user_id: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[_conversation_pb2.ContentPart, _Mapping]]] = ..., start_turn: _Optional[bool] = ..., overrides: _Optional[_Union[_conversation_pb2.TurnOverrides, _Mapping]] = ...) -> None: ...

class ConverseCancel(_message.Message):
    __slots__ = ("turn_id", "request_id")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    request_id: str
    def __init__(self, turn_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ConverseAck(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class ConverseDetach(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConverseResponse(_message.Message):
    __slots__ = ("event", "delta", "message_restarted", "attached", "caught_up", "heartbeat", "draining", "end", "sent", "cancelled", "refused", "tool_progress", "events")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RESTARTED_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TOOL_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    event: _event_pb2.Event
    delta: MessageDelta
    message_restarted: MessageRestarted
    attached: ConverseAttached
    caught_up: CaughtUp
    heartbeat: StreamHeartbeat
    draining: StreamDraining
    end: StreamEnd
    sent: ConverseSent
    cancelled: ConverseCancelled
    refused: ConverseRefused
    tool_progress: ToolProgress
    events: EventGroup
    def __init__(self, event: _Optional[_Union[_event_pb2.Event, _Mapping]] = ..., delta: _Optional[_Union[MessageDelta, _Mapping]] = ..., message_restarted: _Optional[_Union[MessageRestarted, _Mapping]] = ..., attached: _Optional[_Union[ConverseAttached, _Mapping]] = ..., caught_up: _Optional[_Union[CaughtUp, _Mapping]] = ..., heartbeat: _Optional[_Union[StreamHeartbeat, _Mapping]] = ..., draining: _Optional[_Union[StreamDraining, _Mapping]] = ..., end: _Optional[_Union[StreamEnd, _Mapping]] = ..., sent: _Optional[_Union[ConverseSent, _Mapping]] = ..., cancelled: _Optional[_Union[ConverseCancelled, _Mapping]] = ..., refused: _Optional[_Union[ConverseRefused, _Mapping]] = ..., tool_progress: _Optional[_Union[ToolProgress, _Mapping]] = ..., events: _Optional[_Union[EventGroup, _Mapping]] = ...) -> None: ...

class EventGroup(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ...) -> None: ...

class MessageDelta(_message.Message):
    __slots__ = ("message_id", "turn_id", "offset", "text", "kind", "tool_call_index", "tool_call_id", "tool_name")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    turn_id: str
    offset: int
    text: str
    kind: DeltaKind
    tool_call_index: int
    tool_call_id: str
    tool_name: str
    def __init__(self, message_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ..., kind: _Optional[_Union[DeltaKind, str]] = ..., tool_call_index: _Optional[int] = ..., tool_call_id: _Optional[str] = ..., tool_name: _Optional[str] = ...) -> None: ...

class MessageRestarted(_message.Message):
    __slots__ = ("message_id", "turn_id", "attempt")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    turn_id: str
    attempt: int
    def __init__(self, message_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ConverseAttached(_message.Message):
    __slots__ = ("conversation", "last_sequence")
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    conversation: _conversation_pb2.Conversation
    last_sequence: int
    def __init__(self, conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class CaughtUp(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class StreamHeartbeat(_message.Message):
    __slots__ = ("last_sequence", "time")
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    last_sequence: int
    time: _timestamp_pb2.Timestamp
    def __init__(self, last_sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StreamDraining(_message.Message):
    __slots__ = ("reason", "reconnect_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    reconnect_after_ms: int
    def __init__(self, reason: _Optional[str] = ..., reconnect_after_ms: _Optional[int] = ...) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ("reason", "resume_after_sequence")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESUME_AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    reason: StreamEndReason
    resume_after_sequence: int
    def __init__(self, reason: _Optional[_Union[StreamEndReason, str]] = ..., resume_after_sequence: _Optional[int] = ...) -> None: ...

class ConverseSent(_message.Message):
    __slots__ = ("request_id", "turn_id", "message_id", "sequence")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    turn_id: str
    message_id: str
    sequence: int
    def __init__(self, request_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., message_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ConverseCancelled(_message.Message):
    __slots__ = ("request_id", "turn_id", "sequence")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    turn_id: str
    sequence: int
    def __init__(self, request_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ConverseRefused(_message.Message):
    __slots__ = ("request_id", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error: _errors_pb2.Fault
    def __init__(self, request_id: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ...) -> None: ...

class ToolProgress(_message.Message):
    __slots__ = ("turn_id", "tool_call_id", "progress")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    tool_call_id: str
    progress: _task_pb2.Progress
    def __init__(self, turn_id: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., progress: _Optional[_Union[_task_pb2.Progress, _Mapping]] = ...) -> None: ...

class SendMessageRequest(_message.Message):
    __slots__ = ("conversation_id", "send")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    send: ConverseSend
    def __init__(self, conversation_id: _Optional[str] = ..., send: _Optional[_Union[ConverseSend, _Mapping]] = ...) -> None: ...

class SendMessageResponse(_message.Message):
    __slots__ = ("turn", "message", "sequence")
    TURN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    turn: _conversation_pb2.Turn
    message: _conversation_pb2.Message
    sequence: int
    def __init__(self, turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., message: _Optional[_Union[_conversation_pb2.Message, _Mapping]] = ..., sequence: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("attach",)
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    attach: ConverseAttach
    def __init__(self, attach: _Optional[_Union[ConverseAttach, _Mapping]] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("event", "delta", "message_restarted", "attached", "caught_up", "heartbeat", "draining", "end", "tool_progress", "events")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RESTARTED_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TOOL_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    event: _event_pb2.Event
    delta: MessageDelta
    message_restarted: MessageRestarted
    attached: ConverseAttached
    caught_up: CaughtUp
    heartbeat: StreamHeartbeat
    draining: StreamDraining
    end: StreamEnd
    tool_progress: ToolProgress
    events: EventGroup
    def __init__(self, event: _Optional[_Union[_event_pb2.Event, _Mapping]] = ..., delta: _Optional[_Union[MessageDelta, _Mapping]] = ..., message_restarted: _Optional[_Union[MessageRestarted, _Mapping]] = ..., attached: _Optional[_Union[ConverseAttached, _Mapping]] = ..., caught_up: _Optional[_Union[CaughtUp, _Mapping]] = ..., heartbeat: _Optional[_Union[StreamHeartbeat, _Mapping]] = ..., draining: _Optional[_Union[StreamDraining, _Mapping]] = ..., end: _Optional[_Union[StreamEnd, _Mapping]] = ..., tool_progress: _Optional[_Union[ToolProgress, _Mapping]] = ..., events: _Optional[_Union[EventGroup, _Mapping]] = ...) -> None: ...

class StreamTurnRequest(_message.Message):
    __slots__ = ("conversation_id", "new_conversation", "send", "after_sequence", "delta_kinds", "on_disconnect", "group_events")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DELTA_KINDS_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    GROUP_EVENTS_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    new_conversation: _conversation_pb2.Conversation
    send: ConverseSend
    after_sequence: int
    delta_kinds: _containers.RepeatedScalarFieldContainer[DeltaKind]
    on_disconnect: OnDisconnect
    group_events: bool
    def __init__(self, conversation_id: _Optional[str] = ..., new_conversation: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., send: _Optional[_Union[ConverseSend, _Mapping]] = ..., after_sequence: _Optional[int] = ..., delta_kinds: _Optional[_Iterable[_Union[DeltaKind, str]]] = ..., on_disconnect: _Optional[_Union[OnDisconnect, str]] = ..., group_events: _Optional[bool] = ...) -> None: ...

class StreamTurnResponse(_message.Message):
    __slots__ = ("event", "delta", "message_restarted", "heartbeat", "events", "accepted", "turn")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RESTARTED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    event: _event_pb2.Event
    delta: MessageDelta
    message_restarted: MessageRestarted
    heartbeat: StreamHeartbeat
    events: EventGroup
    accepted: TurnAccepted
    turn: _conversation_pb2.Turn
    def __init__(self, event: _Optional[_Union[_event_pb2.Event, _Mapping]] = ..., delta: _Optional[_Union[MessageDelta, _Mapping]] = ..., message_restarted: _Optional[_Union[MessageRestarted, _Mapping]] = ..., heartbeat: _Optional[_Union[StreamHeartbeat, _Mapping]] = ..., events: _Optional[_Union[EventGroup, _Mapping]] = ..., accepted: _Optional[_Union[TurnAccepted, _Mapping]] = ..., turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ...) -> None: ...

class TurnAccepted(_message.Message):
    __slots__ = ("conversation_id", "turn_id", "message_id", "sequence", "after_sequence")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    turn_id: str
    message_id: str
    sequence: int
    after_sequence: int
    def __init__(self, conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., message_id: _Optional[str] = ..., sequence: _Optional[int] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class CallAgentRequest(_message.Message):
    __slots__ = ("agent_id", "input", "mode", "conversation_id", "caller", "project_id", "branch", "timeout_ms", "budget", "request_id", "output_schema", "overrides")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    input: _struct_pb2.Value
    mode: _common_pb2.InvocationMode
    conversation_id: str
    caller: _common_pb2.Caller
    project_id: str
    branch: str
    timeout_ms: int
    budget: _common_pb2.Budget
    request_id: str
    output_schema: _struct_pb2.Struct
    overrides: _conversation_pb2.TurnOverrides
    def __init__(self, agent_id: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., mode: _Optional[_Union[_common_pb2.InvocationMode, str]] = ..., conversation_id: _Optional[str] = ..., caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., project_id: _Optional[str] = ..., branch: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., budget: _Optional[_Union[_common_pb2.Budget, _Mapping]] = ..., request_id: _Optional[str] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., overrides: _Optional[_Union[_conversation_pb2.TurnOverrides, _Mapping]] = ...) -> None: ...

class CallAgentResponse(_message.Message):
    __slots__ = ("turn", "error")
    TURN_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    turn: _conversation_pb2.Turn
    error: _conversation_pb2.ToolError
    def __init__(self, turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., error: _Optional[_Union[_conversation_pb2.ToolError, _Mapping]] = ...) -> None: ...

class CancelTurnRequest(_message.Message):
    __slots__ = ("turn_id", "conversation_id", "request_id")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    conversation_id: str
    request_id: str
    def __init__(self, turn_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class CancelTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _conversation_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ...) -> None: ...

class GetTurnRequest(_message.Message):
    __slots__ = ("turn_id", "conversation_id")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    conversation_id: str
    def __init__(self, turn_id: _Optional[str] = ..., conversation_id: _Optional[str] = ...) -> None: ...

class GetTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _conversation_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ...) -> None: ...

class ListTurnsRequest(_message.Message):
    __slots__ = ("conversation_id", "statuses", "agent_id", "page_size", "page_token")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    statuses: _containers.RepeatedScalarFieldContainer[_conversation_pb2.TurnStatus]
    agent_id: str
    page_size: int
    page_token: str
    def __init__(self, conversation_id: _Optional[str] = ..., statuses: _Optional[_Iterable[_Union[_conversation_pb2.TurnStatus, str]]] = ..., agent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTurnsResponse(_message.Message):
    __slots__ = ("turns", "next_page_token")
    TURNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    turns: _containers.RepeatedCompositeFieldContainer[_conversation_pb2.Turn]
    next_page_token: str
    def __init__(self, turns: _Optional[_Iterable[_Union[_conversation_pb2.Turn, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListMessagesRequest(_message.Message):
    __slots__ = ("conversation_id", "turn_id", "oldest_first", "page_size", "page_token")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    turn_id: str
    oldest_first: bool
    page_size: int
    page_token: str
    def __init__(self, conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., oldest_first: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_conversation_pb2.Message]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_conversation_pb2.Message, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SearchMessagesRequest(_message.Message):
    __slots__ = ("query", "conversation_id", "agent_id", "user_id", "project_id", "start_time", "end_time", "order", "page_size", "page_token")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    query: str
    conversation_id: str
    agent_id: str
    user_id: str
    project_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    order: MessageOrder
    page_size: int
    page_token: str
    def __init__(self, query: _Optional[str] = ..., conversation_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., user_id: _Optional[str] = ..., project_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., order: _Optional[_Union[MessageOrder, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class SearchMessagesResponse(_message.Message):
    __slots__ = ("matches", "next_page_token", "older_omitted")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OLDER_OMITTED_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[MessageMatch]
    next_page_token: str
    older_omitted: bool
    def __init__(self, matches: _Optional[_Iterable[_Union[MessageMatch, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., older_omitted: _Optional[bool] = ...) -> None: ...

class MessageMatch(_message.Message):
    __slots__ = ("message", "snippet", "score")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    message: _conversation_pb2.Message
    snippet: str
    score: float
    def __init__(self, message: _Optional[_Union[_conversation_pb2.Message, _Mapping]] = ..., snippet: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class ListMovesRequest(_message.Message):
    __slots__ = ("conversation_id", "turn_id", "oldest_first", "page_size", "page_token")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    turn_id: str
    oldest_first: bool
    page_size: int
    page_token: str
    def __init__(self, conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., oldest_first: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMovesResponse(_message.Message):
    __slots__ = ("moves", "next_page_token")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[_conversation_pb2.Move]
    next_page_token: str
    def __init__(self, moves: _Optional[_Iterable[_Union[_conversation_pb2.Move, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReadMessageRequest(_message.Message):
    __slots__ = ("conversation_id", "message_id", "offset")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    message_id: str
    offset: int
    def __init__(self, conversation_id: _Optional[str] = ..., message_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadMessageResponse(_message.Message):
    __slots__ = ("content", "offset", "size_bytes")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    content: str
    offset: int
    size_bytes: int
    def __init__(self, content: _Optional[str] = ..., offset: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("conversation_id", "after_sequence", "names", "turn_id", "project_id", "start_time", "end_time", "page_size", "page_token")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    after_sequence: int
    names: _containers.RepeatedScalarFieldContainer[str]
    turn_id: str
    project_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, conversation_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., turn_id: _Optional[str] = ..., project_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListDecisionsRequest(_message.Message):
    __slots__ = ("conversation_id", "turn_id", "types", "page_size", "page_token")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    turn_id: str
    types: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    def __init__(self, conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDecisionsResponse(_message.Message):
    __slots__ = ("decisions", "next_page_token")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    next_page_token: str
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("sequence", "index", "type", "create_time", "turn_id", "operation_id", "cause", "summary")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    index: int
    type: str
    create_time: _timestamp_pb2.Timestamp
    turn_id: str
    operation_id: str
    cause: str
    summary: str
    def __init__(self, sequence: _Optional[int] = ..., index: _Optional[int] = ..., type: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., turn_id: _Optional[str] = ..., operation_id: _Optional[str] = ..., cause: _Optional[str] = ..., summary: _Optional[str] = ...) -> None: ...

class PreviewContextRequest(_message.Message):
    __slots__ = ("conversation_id", "send")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    send: ConverseSend
    def __init__(self, conversation_id: _Optional[str] = ..., send: _Optional[_Union[ConverseSend, _Mapping]] = ...) -> None: ...

class PreviewContextResponse(_message.Message):
    __slots__ = ("request", "provider", "model", "format", "blocks", "input_tokens", "context_window_tokens", "workflow", "tool_sources", "extraction_model", "summary_model")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    TOOL_SOURCES_FIELD_NUMBER: _ClassVar[int]
    EXTRACTION_MODEL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_MODEL_FIELD_NUMBER: _ClassVar[int]
    request: _struct_pb2.Struct
    provider: str
    model: str
    format: str
    blocks: _containers.RepeatedCompositeFieldContainer[ContextBlock]
    input_tokens: int
    context_window_tokens: int
    workflow: str
    tool_sources: _containers.RepeatedCompositeFieldContainer[ToolSourceState]
    extraction_model: SideModel
    summary_model: SideModel
    def __init__(self, request: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., format: _Optional[str] = ..., blocks: _Optional[_Iterable[_Union[ContextBlock, _Mapping]]] = ..., input_tokens: _Optional[int] = ..., context_window_tokens: _Optional[int] = ..., workflow: _Optional[str] = ..., tool_sources: _Optional[_Iterable[_Union[ToolSourceState, _Mapping]]] = ..., extraction_model: _Optional[_Union[SideModel, _Mapping]] = ..., summary_model: _Optional[_Union[SideModel, _Mapping]] = ...) -> None: ...

class SideModel(_message.Message):
    __slots__ = ("model_profile", "provider", "model")
    MODEL_PROFILE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model_profile: str
    provider: str
    model: str
    def __init__(self, model_profile: _Optional[str] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class ToolSourceState(_message.Message):
    __slots__ = ("mcp", "tool_count", "tools_hash", "notices")
    MCP_FIELD_NUMBER: _ClassVar[int]
    TOOL_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOOLS_HASH_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    mcp: str
    tool_count: int
    tools_hash: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, mcp: _Optional[str] = ..., tool_count: _Optional[int] = ..., tools_hash: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class ContextBlock(_message.Message):
    __slots__ = ("path", "source", "source_id", "excerpt", "tokens")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    EXCERPT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    path: str
    source: ContextSource
    source_id: str
    excerpt: str
    tokens: int
    def __init__(self, path: _Optional[str] = ..., source: _Optional[_Union[ContextSource, str]] = ..., source_id: _Optional[str] = ..., excerpt: _Optional[str] = ..., tokens: _Optional[int] = ...) -> None: ...

class DiffBranchRequest(_message.Message):
    __slots__ = ("conversation_id", "repository", "base_branch", "paths", "run_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    BASE_BRANCH_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    repository: str
    base_branch: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    run_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., repository: _Optional[str] = ..., base_branch: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., run_id: _Optional[str] = ...) -> None: ...

class DiffBranchResponse(_message.Message):
    __slots__ = ("branch", "head_commit", "base_branch", "base_commit", "files", "truncated")
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    HEAD_COMMIT_FIELD_NUMBER: _ClassVar[int]
    BASE_BRANCH_FIELD_NUMBER: _ClassVar[int]
    BASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    branch: str
    head_commit: str
    base_branch: str
    base_commit: str
    files: _containers.RepeatedCompositeFieldContainer[FileDiff]
    truncated: bool
    def __init__(self, branch: _Optional[str] = ..., head_commit: _Optional[str] = ..., base_branch: _Optional[str] = ..., base_commit: _Optional[str] = ..., files: _Optional[_Iterable[_Union[FileDiff, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class FileDiff(_message.Message):
    __slots__ = ("path", "old_path", "change", "additions", "deletions", "patch")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    ADDITIONS_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    path: str
    old_path: str
    change: FileChange
    additions: int
    deletions: int
    patch: str
    def __init__(self, path: _Optional[str] = ..., old_path: _Optional[str] = ..., change: _Optional[_Union[FileChange, str]] = ..., additions: _Optional[int] = ..., deletions: _Optional[int] = ..., patch: _Optional[str] = ...) -> None: ...

class MergeBranchRequest(_message.Message):
    __slots__ = ("conversation_id", "repository", "target_branch", "message", "expected_head_commit", "user_id", "validate_only", "request_id", "resolutions", "remove_branch", "run_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    TARGET_BRANCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_COMMIT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLUTIONS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_BRANCH_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    repository: str
    target_branch: str
    message: str
    expected_head_commit: str
    user_id: str
    validate_only: bool
    request_id: str
    resolutions: _containers.RepeatedCompositeFieldContainer[_common_pb2.MergeResolution]
    remove_branch: bool
    run_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., repository: _Optional[str] = ..., target_branch: _Optional[str] = ..., message: _Optional[str] = ..., expected_head_commit: _Optional[str] = ..., user_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[str] = ..., resolutions: _Optional[_Iterable[_Union[_common_pb2.MergeResolution, _Mapping]]] = ..., remove_branch: _Optional[bool] = ..., run_id: _Optional[str] = ...) -> None: ...

class MergeBranchResponse(_message.Message):
    __slots__ = ("merged", "commit", "conflicts", "nothing_to_merge", "branch_kept")
    MERGED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    NOTHING_TO_MERGE_FIELD_NUMBER: _ClassVar[int]
    BRANCH_KEPT_FIELD_NUMBER: _ClassVar[int]
    merged: bool
    commit: str
    conflicts: _containers.RepeatedCompositeFieldContainer[_common_pb2.MergeConflict]
    nothing_to_merge: bool
    branch_kept: bool
    def __init__(self, merged: _Optional[bool] = ..., commit: _Optional[str] = ..., conflicts: _Optional[_Iterable[_Union[_common_pb2.MergeConflict, _Mapping]]] = ..., nothing_to_merge: _Optional[bool] = ..., branch_kept: _Optional[bool] = ...) -> None: ...
