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

class Hook(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOOK_UNSPECIFIED: _ClassVar[Hook]
    HOOK_CONTEXT_ASSEMBLY: _ClassVar[Hook]
    HOOK_MEMORY_EXTRACTION: _ClassVar[Hook]
    HOOK_SUMMARIZATION: _ClassVar[Hook]
HOOK_UNSPECIFIED: Hook
HOOK_CONTEXT_ASSEMBLY: Hook
HOOK_MEMORY_EXTRACTION: Hook
HOOK_SUMMARIZATION: Hook

class Library(_message.Message):
    __slots__ = ("id", "name", "description", "definition_count", "create_time", "update_time", "etag", "updated_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    description: str
    definition_count: int
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., definition_count: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ...) -> None: ...

class Agent(_message.Message):
    __slots__ = ("id", "name", "project_ids", "persona_id", "persona", "description", "metadata", "budget", "usage", "create_time", "update_time", "etag", "updated_by", "failing_hooks")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    PERSONA_ID_FIELD_NUMBER: _ClassVar[int]
    PERSONA_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    FAILING_HOOKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    project_ids: _containers.RepeatedScalarFieldContainer[str]
    persona_id: str
    persona: _definition_pb2.PersonaSpec
    description: str
    metadata: _struct_pb2.Struct
    budget: _common_pb2.Budget
    usage: _common_pb2.Usage
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    failing_hooks: _containers.RepeatedCompositeFieldContainer[HookFailure]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., project_ids: _Optional[_Iterable[str]] = ..., persona_id: _Optional[str] = ..., persona: _Optional[_Union[_definition_pb2.PersonaSpec, _Mapping]] = ..., description: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., budget: _Optional[_Union[_common_pb2.Budget, _Mapping]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., failing_hooks: _Optional[_Iterable[_Union[HookFailure, _Mapping]]] = ...) -> None: ...

class HookFailure(_message.Message):
    __slots__ = ("hook", "count", "first_time", "last_time", "workflow", "conversation_id", "turn_id", "run_id", "error")
    HOOK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    hook: Hook
    count: int
    first_time: _timestamp_pb2.Timestamp
    last_time: _timestamp_pb2.Timestamp
    workflow: str
    conversation_id: str
    turn_id: str
    run_id: str
    error: _errors_pb2.Fault
    def __init__(self, hook: _Optional[_Union[Hook, str]] = ..., count: _Optional[int] = ..., first_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., workflow: _Optional[str] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., run_id: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ...) -> None: ...

class Project(_message.Message):
    __slots__ = ("id", "name", "description", "repositories", "network", "metadata", "create_time", "update_time", "etag", "updated_by", "usage")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    REPOSITORIES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    description: str
    repositories: _containers.RepeatedCompositeFieldContainer[Repository]
    network: NetworkPolicy
    metadata: _struct_pb2.Struct
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    usage: _common_pb2.Usage
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., repositories: _Optional[_Iterable[_Union[Repository, _Mapping]]] = ..., network: _Optional[_Union[NetworkPolicy, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ...) -> None: ...

class Repository(_message.Message):
    __slots__ = ("name", "url", "default_branch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    default_branch: str
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., default_branch: _Optional[str] = ...) -> None: ...

class NetworkPolicy(_message.Message):
    __slots__ = ("http_allow", "http_only_allowed", "shell_network")
    HTTP_ALLOW_FIELD_NUMBER: _ClassVar[int]
    HTTP_ONLY_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    SHELL_NETWORK_FIELD_NUMBER: _ClassVar[int]
    http_allow: _containers.RepeatedScalarFieldContainer[str]
    http_only_allowed: bool
    shell_network: bool
    def __init__(self, http_allow: _Optional[_Iterable[str]] = ..., http_only_allowed: _Optional[bool] = ..., shell_network: _Optional[bool] = ...) -> None: ...
