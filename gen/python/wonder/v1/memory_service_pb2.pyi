# mypy: ignore-errors
import datetime

from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import access_pb2 as _access_pb2
from wonder.v1 import memory_pb2 as _memory_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WriteMemoryRequest(_message.Message):
    __slots__ = ("agent_id", "memory", "unless_known", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    UNLESS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    memory: _memory_pb2.Memory
    unless_known: bool
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ..., unless_known: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class WriteMemoryResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: _memory_pb2.Memory
    def __init__(self, memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ...) -> None: ...

class BatchWriteMemoriesRequest(_message.Message):
    __slots__ = ("agent_id", "memories", "unless_known", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    UNLESS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    memories: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Memory]
    unless_known: bool
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., memories: _Optional[_Iterable[_Union[_memory_pb2.Memory, _Mapping]]] = ..., unless_known: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class BatchWriteMemoriesResponse(_message.Message):
    __slots__ = ("memories",)
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    memories: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Memory]
    def __init__(self, memories: _Optional[_Iterable[_Union[_memory_pb2.Memory, _Mapping]]] = ...) -> None: ...

class GetMemoryRequest(_message.Message):
    __slots__ = ("agent_id", "memory_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    memory_id: str
    def __init__(self, agent_id: _Optional[str] = ..., memory_id: _Optional[str] = ...) -> None: ...

class GetMemoryResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: _memory_pb2.Memory
    def __init__(self, memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ...) -> None: ...

class UpdateMemoryRequest(_message.Message):
    __slots__ = ("agent_id", "memory", "update_mask", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    memory: _memory_pb2.Memory
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdateMemoryResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: _memory_pb2.Memory
    def __init__(self, memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ...) -> None: ...

class DeleteMemoryRequest(_message.Message):
    __slots__ = ("agent_id", "memory_id", "etag", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    memory_id: str
    etag: str
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., memory_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteMemoryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MemoryFilter(_message.Message):
    __slots__ = ("types", "metadata", "conversation_id", "turn_id", "start_time", "end_time", "include_superseded", "said_start_time", "said_end_time", "subject")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    SAID_START_TIME_FIELD_NUMBER: _ClassVar[int]
    SAID_END_TIME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[str]
    metadata: _struct_pb2.Struct
    conversation_id: str
    turn_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    include_superseded: bool
    said_start_time: _timestamp_pb2.Timestamp
    said_end_time: _timestamp_pb2.Timestamp
    subject: str
    def __init__(self, types: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., include_superseded: _Optional[bool] = ..., said_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., said_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., subject: _Optional[str] = ...) -> None: ...

class ListMemoriesRequest(_message.Message):
    __slots__ = ("agent_id", "filter", "page_size", "page_token")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    filter: MemoryFilter
    page_size: int
    page_token: str
    def __init__(self, agent_id: _Optional[str] = ..., filter: _Optional[_Union[MemoryFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMemoriesResponse(_message.Message):
    __slots__ = ("memories", "next_page_token")
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    memories: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Memory]
    next_page_token: str
    def __init__(self, memories: _Optional[_Iterable[_Union[_memory_pb2.Memory, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SearchMemoriesRequest(_message.Message):
    __slots__ = ("agent_id", "query", "limit", "filter", "weights", "across_agents", "project_id", "min_score", "min_relevance", "now")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ACROSS_AGENTS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    MIN_RELEVANCE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    query: str
    limit: int
    filter: MemoryFilter
    weights: SearchWeights
    across_agents: bool
    project_id: str
    min_score: float
    min_relevance: float
    now: _timestamp_pb2.Timestamp
    def __init__(self, agent_id: _Optional[str] = ..., query: _Optional[str] = ..., limit: _Optional[int] = ..., filter: _Optional[_Union[MemoryFilter, _Mapping]] = ..., weights: _Optional[_Union[SearchWeights, _Mapping]] = ..., across_agents: _Optional[bool] = ..., project_id: _Optional[str] = ..., min_score: _Optional[float] = ..., min_relevance: _Optional[float] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SearchWeights(_message.Message):
    __slots__ = ("relevance", "significance", "recency", "vector")
    RELEVANCE_FIELD_NUMBER: _ClassVar[int]
    SIGNIFICANCE_FIELD_NUMBER: _ClassVar[int]
    RECENCY_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    relevance: float
    significance: float
    recency: float
    vector: float
    def __init__(self, relevance: _Optional[float] = ..., significance: _Optional[float] = ..., recency: _Optional[float] = ..., vector: _Optional[float] = ...) -> None: ...

class SearchMemoriesResponse(_message.Message):
    __slots__ = ("hits",)
    HITS_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[_memory_pb2.SearchHit]
    def __init__(self, hits: _Optional[_Iterable[_Union[_memory_pb2.SearchHit, _Mapping]]] = ...) -> None: ...

class SupersedeMemoryRequest(_message.Message):
    __slots__ = ("agent_id", "memory_id", "memory", "etag", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    memory_id: str
    memory: _memory_pb2.Memory
    etag: str
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., memory_id: _Optional[str] = ..., memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class SupersedeMemoryResponse(_message.Message):
    __slots__ = ("memory", "superseded")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    memory: _memory_pb2.Memory
    superseded: _memory_pb2.Memory
    def __init__(self, memory: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ..., superseded: _Optional[_Union[_memory_pb2.Memory, _Mapping]] = ...) -> None: ...

class GetMemoryBlockRequest(_message.Message):
    __slots__ = ("agent_id", "label", "subject")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    label: str
    subject: str
    def __init__(self, agent_id: _Optional[str] = ..., label: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class GetMemoryBlockResponse(_message.Message):
    __slots__ = ("block",)
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    block: _memory_pb2.MemoryBlock
    def __init__(self, block: _Optional[_Union[_memory_pb2.MemoryBlock, _Mapping]] = ...) -> None: ...

class ListMemoryBlocksRequest(_message.Message):
    __slots__ = ("agent_id", "subject", "page_size", "page_token")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    subject: str
    page_size: int
    page_token: str
    def __init__(self, agent_id: _Optional[str] = ..., subject: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMemoryBlocksResponse(_message.Message):
    __slots__ = ("blocks", "next_page_token")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[_memory_pb2.MemoryBlock]
    next_page_token: str
    def __init__(self, blocks: _Optional[_Iterable[_Union[_memory_pb2.MemoryBlock, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SetMemoryBlockRequest(_message.Message):
    __slots__ = ("agent_id", "block", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    block: _memory_pb2.MemoryBlock
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., block: _Optional[_Union[_memory_pb2.MemoryBlock, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class SetMemoryBlockResponse(_message.Message):
    __slots__ = ("block",)
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    block: _memory_pb2.MemoryBlock
    def __init__(self, block: _Optional[_Union[_memory_pb2.MemoryBlock, _Mapping]] = ...) -> None: ...

class DeleteMemoryBlockRequest(_message.Message):
    __slots__ = ("agent_id", "label", "subject", "etag", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    label: str
    subject: str
    etag: str
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., label: _Optional[str] = ..., subject: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteMemoryBlockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMemoryBlockChangesRequest(_message.Message):
    __slots__ = ("agent_id", "label", "subject", "page_size", "page_token")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    label: str
    subject: str
    page_size: int
    page_token: str
    def __init__(self, agent_id: _Optional[str] = ..., label: _Optional[str] = ..., subject: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMemoryBlockChangesResponse(_message.Message):
    __slots__ = ("changes", "next_page_token")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[_memory_pb2.MemoryBlockChange]
    next_page_token: str
    def __init__(self, changes: _Optional[_Iterable[_Union[_memory_pb2.MemoryBlockChange, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
