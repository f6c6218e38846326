# mypy: ignore-errors
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InvocationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INVOCATION_MODE_UNSPECIFIED: _ClassVar[InvocationMode]
    INVOCATION_MODE_DELEGATE: _ClassVar[InvocationMode]
    INVOCATION_MODE_LOOP_IN: _ClassVar[InvocationMode]

class PrincipalKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRINCIPAL_KIND_UNSPECIFIED: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_ANONYMOUS: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_TOKEN: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_SERVER: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_USER: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_SERVICE: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_WORKER: _ClassVar[PrincipalKind]
    PRINCIPAL_KIND_NODE: _ClassVar[PrincipalKind]

class MergeConflictKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MERGE_CONFLICT_KIND_UNSPECIFIED: _ClassVar[MergeConflictKind]
    MERGE_CONFLICT_KIND_CONTENT: _ClassVar[MergeConflictKind]
    MERGE_CONFLICT_KIND_BOTH_ADDED: _ClassVar[MergeConflictKind]
    MERGE_CONFLICT_KIND_DELETED: _ClassVar[MergeConflictKind]
    MERGE_CONFLICT_KIND_BINARY: _ClassVar[MergeConflictKind]
INVOCATION_MODE_UNSPECIFIED: InvocationMode
INVOCATION_MODE_DELEGATE: InvocationMode
INVOCATION_MODE_LOOP_IN: InvocationMode
PRINCIPAL_KIND_UNSPECIFIED: PrincipalKind
PRINCIPAL_KIND_ANONYMOUS: PrincipalKind
PRINCIPAL_KIND_TOKEN: PrincipalKind
PRINCIPAL_KIND_SERVER: PrincipalKind
PRINCIPAL_KIND_USER: PrincipalKind
PRINCIPAL_KIND_SERVICE: PrincipalKind
PRINCIPAL_KIND_WORKER: PrincipalKind
PRINCIPAL_KIND_NODE: PrincipalKind
MERGE_CONFLICT_KIND_UNSPECIFIED: MergeConflictKind
MERGE_CONFLICT_KIND_CONTENT: MergeConflictKind
MERGE_CONFLICT_KIND_BOTH_ADDED: MergeConflictKind
MERGE_CONFLICT_KIND_DELETED: MergeConflictKind
MERGE_CONFLICT_KIND_BINARY: MergeConflictKind

class Caller(_message.Message):
    __slots__ = ("user", "workflow", "agent")
    USER_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    user: UserCaller
    workflow: WorkflowCaller
    agent: AgentCaller
    def __init__(self, user: _Optional[_Union[UserCaller, _Mapping]] = ..., workflow: _Optional[_Union[WorkflowCaller, _Mapping]] = ..., agent: _Optional[_Union[AgentCaller, _Mapping]] = ...) -> None: ...

class UserCaller(_message.Message):
    __slots__ = ("user_id",)
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    def __init__(self, user_id: _Optional[str] = ...) -> None: ...

class WorkflowCaller(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class AgentCaller(_message.Message):
    __slots__ = ("agent_id", "turn_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ...) -> None: ...

class Principal(_message.Message):
    __slots__ = ("kind", "subject")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    kind: PrincipalKind
    subject: str
    def __init__(self, kind: _Optional[_Union[PrincipalKind, str]] = ..., subject: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cost_micros", "model_calls", "cached_input_tokens", "cache_write_input_tokens", "reasoning_tokens", "cost_unknown")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cost_micros: int
    model_calls: int
    cached_input_tokens: int
    cache_write_input_tokens: int
    reasoning_tokens: int
    cost_unknown: int
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cost_micros: _Optional[int] = ..., model_calls: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., cache_write_input_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., cost_unknown: _Optional[int] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("max_tokens", "max_cost_micros", "max_duration_ms")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    max_cost_micros: int
    max_duration_ms: int
    def __init__(self, max_tokens: _Optional[int] = ..., max_cost_micros: _Optional[int] = ..., max_duration_ms: _Optional[int] = ...) -> None: ...

class MergeConflict(_message.Message):
    __slots__ = ("path", "kind", "base", "ours", "theirs", "truncated")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    OURS_FIELD_NUMBER: _ClassVar[int]
    THEIRS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: MergeConflictKind
    base: str
    ours: str
    theirs: str
    truncated: bool
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[_Union[MergeConflictKind, str]] = ..., base: _Optional[str] = ..., ours: _Optional[str] = ..., theirs: _Optional[str] = ..., truncated: _Optional[bool] = ...) -> None: ...

class MergeResolution(_message.Message):
    __slots__ = ("path", "content", "deletion")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    DELETION_FIELD_NUMBER: _ClassVar[int]
    path: str
    content: bytes
    deletion: bool
    def __init__(self, path: _Optional[str] = ..., content: _Optional[bytes] = ..., deletion: _Optional[bool] = ...) -> None: ...
