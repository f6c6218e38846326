# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import conversation_pb2 as _conversation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemoryBlockChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_BLOCK_CHANGE_KIND_UNSPECIFIED: _ClassVar[MemoryBlockChangeKind]
    MEMORY_BLOCK_CHANGE_KIND_SET: _ClassVar[MemoryBlockChangeKind]
    MEMORY_BLOCK_CHANGE_KIND_REPLACE: _ClassVar[MemoryBlockChangeKind]
    MEMORY_BLOCK_CHANGE_KIND_APPEND: _ClassVar[MemoryBlockChangeKind]
    MEMORY_BLOCK_CHANGE_KIND_DELETE: _ClassVar[MemoryBlockChangeKind]
MEMORY_BLOCK_CHANGE_KIND_UNSPECIFIED: MemoryBlockChangeKind
MEMORY_BLOCK_CHANGE_KIND_SET: MemoryBlockChangeKind
MEMORY_BLOCK_CHANGE_KIND_REPLACE: MemoryBlockChangeKind
MEMORY_BLOCK_CHANGE_KIND_APPEND: MemoryBlockChangeKind
MEMORY_BLOCK_CHANGE_KIND_DELETE: MemoryBlockChangeKind

class Memory(_message.Message):
    __slots__ = ("id", "agent_id", "type", "content", "significance", "metadata", "source", "supersedes_id", "superseded_by_id", "contradicts_ids", "size_bytes", "archive_time", "create_time", "update_time", "etag", "said_at", "subject")
    ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SIGNIFICANCE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDES_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_BY_ID_FIELD_NUMBER: _ClassVar[int]
    CONTRADICTS_IDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_TIME_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    SAID_AT_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    id: str
    agent_id: str
    type: str
    content: str
    significance: float
    metadata: _struct_pb2.Struct
    source: MemorySource
    supersedes_id: str
    superseded_by_id: str
    contradicts_ids: _containers.RepeatedScalarFieldContainer[str]
    size_bytes: int
    archive_time: _timestamp_pb2.Timestamp
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    said_at: _timestamp_pb2.Timestamp
    subject: str
    def __init__(self, id: _Optional[str] = ..., agent_id: _Optional[str] = ..., type: _Optional[str] = ..., content: _Optional[str] = ..., significance: _Optional[float] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., source: _Optional[_Union[MemorySource, _Mapping]] = ..., supersedes_id: _Optional[str] = ..., superseded_by_id: _Optional[str] = ..., contradicts_ids: _Optional[_Iterable[str]] = ..., size_bytes: _Optional[int] = ..., archive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., said_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., subject: _Optional[str] = ...) -> None: ...

class MemorySource(_message.Message):
    __slots__ = ("conversation_id", "turn_id", "move_id", "run_id", "speaker", "ordinal", "role", "message_id", "speaker_id")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_ID_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    turn_id: str
    move_id: str
    run_id: str
    speaker: str
    ordinal: int
    role: _conversation_pb2.MessageRole
    message_id: str
    speaker_id: str
    def __init__(self, conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., move_id: _Optional[str] = ..., run_id: _Optional[str] = ..., speaker: _Optional[str] = ..., ordinal: _Optional[int] = ..., role: _Optional[_Union[_conversation_pb2.MessageRole, str]] = ..., message_id: _Optional[str] = ..., speaker_id: _Optional[str] = ...) -> None: ...

class SearchHit(_message.Message):
    __slots__ = ("memory", "score", "relevance", "significance", "recency")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    RELEVANCE_FIELD_NUMBER: _ClassVar[int]
    SIGNIFICANCE_FIELD_NUMBER: _ClassVar[int]
    RECENCY_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    score: float
    relevance: float
    significance: float
    recency: float
    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]] = ..., score: _Optional[float] = ..., relevance: _Optional[float] = ..., significance: _Optional[float] = ..., recency: _Optional[float] = ...) -> None: ...

class MemoryBlock(_message.Message):
    __slots__ = ("agent_id", "label", "subject", "description", "content", "max_characters", "read_only", "create_time", "update_time", "etag")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    label: str
    subject: str
    description: str
    content: str
    max_characters: int
    read_only: bool
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    def __init__(self, agent_id: _Optional[str] = ..., label: _Optional[str] = ..., subject: _Optional[str] = ..., description: _Optional[str] = ..., content: _Optional[str] = ..., max_characters: _Optional[int] = ..., read_only: _Optional[bool] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class MemoryBlockChange(_message.Message):
    __slots__ = ("etag", "kind", "content", "principal", "user_id", "conversation_id", "turn_id", "move_id", "change_time")
    ETAG_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGE_TIME_FIELD_NUMBER: _ClassVar[int]
    etag: str
    kind: MemoryBlockChangeKind
    content: str
    principal: str
    user_id: str
    conversation_id: str
    turn_id: str
    move_id: str
    change_time: _timestamp_pb2.Timestamp
    def __init__(self, etag: _Optional[str] = ..., kind: _Optional[_Union[MemoryBlockChangeKind, str]] = ..., content: _Optional[str] = ..., principal: _Optional[str] = ..., user_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., move_id: _Optional[str] = ..., change_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
