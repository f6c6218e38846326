# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DefinitionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEFINITION_KIND_UNSPECIFIED: _ClassVar[DefinitionKind]
    DEFINITION_KIND_PERSONA: _ClassVar[DefinitionKind]
    DEFINITION_KIND_TOOL: _ClassVar[DefinitionKind]
    DEFINITION_KIND_WORKFLOW: _ClassVar[DefinitionKind]
    DEFINITION_KIND_TASK: _ClassVar[DefinitionKind]
    DEFINITION_KIND_ACTION: _ClassVar[DefinitionKind]
    DEFINITION_KIND_MODEL_PROFILE: _ClassVar[DefinitionKind]

class ConcurrentTurns(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONCURRENT_TURNS_UNSPECIFIED: _ClassVar[ConcurrentTurns]
    CONCURRENT_TURNS_PARALLEL: _ClassVar[ConcurrentTurns]
    CONCURRENT_TURNS_QUEUE: _ClassVar[ConcurrentTurns]
    CONCURRENT_TURNS_INTERRUPT: _ClassVar[ConcurrentTurns]
    CONCURRENT_TURNS_STEER: _ClassVar[ConcurrentTurns]

class ContextWindowStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTEXT_WINDOW_STRATEGY_UNSPECIFIED: _ClassVar[ContextWindowStrategy]
    CONTEXT_WINDOW_STRATEGY_SLIDING_WINDOW: _ClassVar[ContextWindowStrategy]
    CONTEXT_WINDOW_STRATEGY_SUMMARIZE: _ClassVar[ContextWindowStrategy]

class RetentionAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETENTION_ACTION_UNSPECIFIED: _ClassVar[RetentionAction]
    RETENTION_ACTION_KEEP: _ClassVar[RetentionAction]
    RETENTION_ACTION_CONSOLIDATE: _ClassVar[RetentionAction]
    RETENTION_ACTION_DELETE: _ClassVar[RetentionAction]

class TargetType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TARGET_TYPE_UNSPECIFIED: _ClassVar[TargetType]
    TARGET_TYPE_TASK: _ClassVar[TargetType]
    TARGET_TYPE_WORKFLOW: _ClassVar[TargetType]
    TARGET_TYPE_AGENT: _ClassVar[TargetType]

class ModelFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_FORMAT_UNSPECIFIED: _ClassVar[ModelFormat]
    MODEL_FORMAT_OPENAI_CHAT: _ClassVar[ModelFormat]
    MODEL_FORMAT_OPENAI_RESPONSES: _ClassVar[ModelFormat]
    MODEL_FORMAT_ANTHROPIC_MESSAGES: _ClassVar[ModelFormat]
    MODEL_FORMAT_GEMINI: _ClassVar[ModelFormat]

class OnFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_FAILURE_UNSPECIFIED: _ClassVar[OnFailure]
    ON_FAILURE_ABORT: _ClassVar[OnFailure]
    ON_FAILURE_RETRY: _ClassVar[OnFailure]
    ON_FAILURE_CONTINUE: _ClassVar[OnFailure]

class FanInMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAN_IN_MODE_UNSPECIFIED: _ClassVar[FanInMode]
    FAN_IN_MODE_ALL: _ClassVar[FanInMode]
    FAN_IN_MODE_ANY: _ClassVar[FanInMode]
    FAN_IN_MODE_M_OF_N: _ClassVar[FanInMode]

class FanInTimeoutPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAN_IN_TIMEOUT_POLICY_UNSPECIFIED: _ClassVar[FanInTimeoutPolicy]
    FAN_IN_TIMEOUT_POLICY_FAIL: _ClassVar[FanInTimeoutPolicy]
    FAN_IN_TIMEOUT_POLICY_PROCEED: _ClassVar[FanInTimeoutPolicy]

class MergeStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MERGE_STRATEGY_UNSPECIFIED: _ClassVar[MergeStrategy]
    MERGE_STRATEGY_COLLECT: _ClassVar[MergeStrategy]
    MERGE_STRATEGY_APPEND: _ClassVar[MergeStrategy]
    MERGE_STRATEGY_MERGE_OBJECT: _ClassVar[MergeStrategy]
    MERGE_STRATEGY_KEYED_BY_BRANCH: _ClassVar[MergeStrategy]
    MERGE_STRATEGY_LAST_WINS: _ClassVar[MergeStrategy]

class GateExpiryPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_EXPIRY_POLICY_UNSPECIFIED: _ClassVar[GateExpiryPolicy]
    GATE_EXPIRY_POLICY_FAIL: _ClassVar[GateExpiryPolicy]
    GATE_EXPIRY_POLICY_APPROVE: _ClassVar[GateExpiryPolicy]
    GATE_EXPIRY_POLICY_REJECT: _ClassVar[GateExpiryPolicy]
DEFINITION_KIND_UNSPECIFIED: DefinitionKind
DEFINITION_KIND_PERSONA: DefinitionKind
DEFINITION_KIND_TOOL: DefinitionKind
DEFINITION_KIND_WORKFLOW: DefinitionKind
DEFINITION_KIND_TASK: DefinitionKind
DEFINITION_KIND_ACTION: DefinitionKind
DEFINITION_KIND_MODEL_PROFILE: DefinitionKind
CONCURRENT_TURNS_UNSPECIFIED: ConcurrentTurns
CONCURRENT_TURNS_PARALLEL: ConcurrentTurns
CONCURRENT_TURNS_QUEUE: ConcurrentTurns
CONCURRENT_TURNS_INTERRUPT: ConcurrentTurns
CONCURRENT_TURNS_STEER: ConcurrentTurns
CONTEXT_WINDOW_STRATEGY_UNSPECIFIED: ContextWindowStrategy
CONTEXT_WINDOW_STRATEGY_SLIDING_WINDOW: ContextWindowStrategy
CONTEXT_WINDOW_STRATEGY_SUMMARIZE: ContextWindowStrategy
RETENTION_ACTION_UNSPECIFIED: RetentionAction
RETENTION_ACTION_KEEP: RetentionAction
RETENTION_ACTION_CONSOLIDATE: RetentionAction
RETENTION_ACTION_DELETE: RetentionAction
TARGET_TYPE_UNSPECIFIED: TargetType
TARGET_TYPE_TASK: TargetType
TARGET_TYPE_WORKFLOW: TargetType
TARGET_TYPE_AGENT: TargetType
MODEL_FORMAT_UNSPECIFIED: ModelFormat
MODEL_FORMAT_OPENAI_CHAT: ModelFormat
MODEL_FORMAT_OPENAI_RESPONSES: ModelFormat
MODEL_FORMAT_ANTHROPIC_MESSAGES: ModelFormat
MODEL_FORMAT_GEMINI: ModelFormat
ON_FAILURE_UNSPECIFIED: OnFailure
ON_FAILURE_ABORT: OnFailure
ON_FAILURE_RETRY: OnFailure
ON_FAILURE_CONTINUE: OnFailure
FAN_IN_MODE_UNSPECIFIED: FanInMode
FAN_IN_MODE_ALL: FanInMode
FAN_IN_MODE_ANY: FanInMode
FAN_IN_MODE_M_OF_N: FanInMode
FAN_IN_TIMEOUT_POLICY_UNSPECIFIED: FanInTimeoutPolicy
FAN_IN_TIMEOUT_POLICY_FAIL: FanInTimeoutPolicy
FAN_IN_TIMEOUT_POLICY_PROCEED: FanInTimeoutPolicy
MERGE_STRATEGY_UNSPECIFIED: MergeStrategy
MERGE_STRATEGY_COLLECT: MergeStrategy
MERGE_STRATEGY_APPEND: MergeStrategy
MERGE_STRATEGY_MERGE_OBJECT: MergeStrategy
MERGE_STRATEGY_KEYED_BY_BRANCH: MergeStrategy
MERGE_STRATEGY_LAST_WINS: MergeStrategy
GATE_EXPIRY_POLICY_UNSPECIFIED: GateExpiryPolicy
GATE_EXPIRY_POLICY_FAIL: GateExpiryPolicy
GATE_EXPIRY_POLICY_APPROVE: GateExpiryPolicy
GATE_EXPIRY_POLICY_REJECT: GateExpiryPolicy

class Definition(_message.Message):
    __slots__ = ("id", "library_id", "library", "kind", "name", "description", "revision", "content_hash", "labels", "create_time", "update_time", "etag", "updated_by", "persona", "tool", "workflow", "task", "action", "model_profile")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_ID_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    PERSONA_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MODEL_PROFILE_FIELD_NUMBER: _ClassVar[int]
    id: str
    library_id: str
    library: str
    kind: DefinitionKind
    name: str
    description: str
    revision: int
    content_hash: str
    labels: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    updated_by: _common_pb2.Principal
    persona: PersonaSpec
    tool: ToolSpec
    workflow: WorkflowSpec
    task: TaskSpec
    action: ActionSpec
    model_profile: ModelProfileSpec
    def __init__(self, id: _Optional[str] = ..., library_id: _Optional[str] = ..., library: _Optional[str] = ..., kind: _Optional[_Union[DefinitionKind, str]] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., revision: _Optional[int] = ..., content_hash: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., updated_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., persona: _Optional[_Union[PersonaSpec, _Mapping]] = ..., tool: _Optional[_Union[ToolSpec, _Mapping]] = ..., workflow: _Optional[_Union[WorkflowSpec, _Mapping]] = ..., task: _Optional[_Union[TaskSpec, _Mapping]] = ..., action: _Optional[_Union[ActionSpec, _Mapping]] = ..., model_profile: _Optional[_Union[ModelProfileSpec, _Mapping]] = ...) -> None: ...

class PersonaSpec(_message.Message):
    __slots__ = ("system_prompt", "instructions", "model_profile_id", "context_assembly_workflow_id", "memory_extraction_workflow_id", "recent_turns_limit", "tool_ids", "constraints", "context_window", "retention", "output_schema", "show_reasoning", "tool_sources", "concurrent_turns", "extraction_model_profile_id", "summary_model_profile_id")
    SYSTEM_PROMPT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ASSEMBLY_WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EXTRACTION_WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    RECENT_TURNS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TOOL_IDS_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_WINDOW_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SHOW_REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_SOURCES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_TURNS_FIELD_NUMBER: _ClassVar[int]
    EXTRACTION_MODEL_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_MODEL_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    system_prompt: str
    instructions: _containers.RepeatedScalarFieldContainer[str]
    model_profile_id: str
    context_assembly_workflow_id: str
    memory_extraction_workflow_id: str
    recent_turns_limit: int
    tool_ids: _containers.RepeatedScalarFieldContainer[str]
    constraints: Constraints
    context_window: ContextWindow
    retention: _containers.RepeatedCompositeFieldContainer[RetentionRule]
    output_schema: _struct_pb2.Struct
    show_reasoning: bool
    tool_sources: _containers.RepeatedCompositeFieldContainer[ToolSource]
    concurrent_turns: ConcurrentTurns
    extraction_model_profile_id: str
    summary_model_profile_id: str
    def __init__(self, system_prompt: _Optional[str] = ..., instructions: _Optional[_Iterable[str]] = ..., model_profile_id: _Optional[str] = ..., context_assembly_workflow_id: _Optional[str] = ..., memory_extraction_workflow_id: _Optional[str] = ..., recent_turns_limit: _Optional[int] = ..., tool_ids: _Optional[_Iterable[str]] = ..., constraints: _Optional[_Union[Constraints, _Mapping]] = ..., context_window: _Optional[_Union[ContextWindow, _Mapping]] = ..., retention: _Optional[_Iterable[_Union[RetentionRule, _Mapping]]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., show_reasoning: _Optional[bool] = ..., tool_sources: _Optional[_Iterable[_Union[ToolSource, _Mapping]]] = ..., concurrent_turns: _Optional[_Union[ConcurrentTurns, str]] = ..., extraction_model_profile_id: _Optional[str] = ..., summary_model_profile_id: _Optional[str] = ...) -> None: ...

class ToolSource(_message.Message):
    __slots__ = ("mcp", "include", "exclude", "timeout_ms", "approval", "approval_gate")
    MCP_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    ASYNC_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_GATE_FIELD_NUMBER: _ClassVar[int]
    mcp: str
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    approval: str
    approval_gate: ApprovalGate
    def __init__(self, mcp: _Optional[str] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ..., approval: _Optional[str] = ..., approval_gate: _Optional[_Union[ApprovalGate, _Mapping]] = ..., **kwargs) -> None: ...

class Constraints(_message.Message):
    __slots__ = ("max_moves_per_turn", "allowed_actions", "max_tokens_per_turn", "max_cost_micros_per_turn", "max_turn_ms", "max_delegation_depth", "max_tool_calls_per_answer", "max_tool_calls_per_turn")
    MAX_MOVES_PER_TURN_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_PER_TURN_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_MICROS_PER_TURN_FIELD_NUMBER: _ClassVar[int]
    MAX_TURN_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELEGATION_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_CALLS_PER_ANSWER_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_CALLS_PER_TURN_FIELD_NUMBER: _ClassVar[int]
    max_moves_per_turn: int
    allowed_actions: _containers.RepeatedScalarFieldContainer[str]
    max_tokens_per_turn: int
    max_cost_micros_per_turn: int
    max_turn_ms: int
    max_delegation_depth: int
    max_tool_calls_per_answer: int
    max_tool_calls_per_turn: int
    def __init__(self, max_moves_per_turn: _Optional[int] = ..., allowed_actions: _Optional[_Iterable[str]] = ..., max_tokens_per_turn: _Optional[int] = ..., max_cost_micros_per_turn: _Optional[int] = ..., max_turn_ms: _Optional[int] = ..., max_delegation_depth: _Optional[int] = ..., max_tool_calls_per_answer: _Optional[int] = ..., max_tool_calls_per_turn: _Optional[int] = ...) -> None: ...

class ContextWindow(_message.Message):
    __slots__ = ("strategy", "threshold", "keep_recent_messages")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    KEEP_RECENT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    strategy: ContextWindowStrategy
    threshold: float
    keep_recent_messages: int
    def __init__(self, strategy: _Optional[_Union[ContextWindowStrategy, str]] = ..., threshold: _Optional[float] = ..., keep_recent_messages: _Optional[int] = ...) -> None: ...

class RetentionRule(_message.Message):
    __slots__ = ("types", "action", "older_than_ms", "consolidation_workflow_id")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    CONSOLIDATION_WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[str]
    action: RetentionAction
    older_than_ms: int
    consolidation_workflow_id: str
    def __init__(self, types: _Optional[_Iterable[str]] = ..., action: _Optional[_Union[RetentionAction, str]] = ..., older_than_ms: _Optional[int] = ..., consolidation_workflow_id: _Optional[str] = ...) -> None: ...

class ToolSpec(_message.Message):
    __slots__ = ("name", "description", "input_schema", "target_type", "target_id", "is_async", "invocation_mode", "input_mapping", "retry", "output_schema", "max_result_bytes", "approval", "approval_gate")
    class InputMappingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TARGET_TYPE_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ASYNC_FIELD_NUMBER: _ClassVar[int]
    INVOCATION_MODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_MAPPING_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_GATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema: _struct_pb2.Struct
    target_type: TargetType
    target_id: str
    is_async: bool
    invocation_mode: _common_pb2.InvocationMode
    input_mapping: _containers.ScalarMap[str, str]
    retry: RetryPolicy
    output_schema: _struct_pb2.Struct
    max_result_bytes: int
    approval: str
    approval_gate: ApprovalGate
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., target_type: _Optional[_Union[TargetType, str]] = ..., target_id: _Optional[str] = ..., is_async: _Optional[bool] = ..., invocation_mode: _Optional[_Union[_common_pb2.InvocationMode, str]] = ..., input_mapping: _Optional[_Mapping[str, str]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., max_result_bytes: _Optional[int] = ..., approval: _Optional[str] = ..., approval_gate: _Optional[_Union[ApprovalGate, _Mapping]] = ...) -> None: ...

class ApprovalGate(_message.Message):
    __slots__ = ("user_ids", "expire_after_ms")
    USER_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    user_ids: _containers.RepeatedScalarFieldContainer[str]
    expire_after_ms: int
    def __init__(self, user_ids: _Optional[_Iterable[str]] = ..., expire_after_ms: _Optional[int] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("max_attempts", "backoff_ms", "timeout_ms")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    backoff_ms: int
    timeout_ms: int
    def __init__(self, max_attempts: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ModelProfileSpec(_message.Message):
    __slots__ = ("provider", "model", "format", "parameters", "timeout_ms", "first_token_timeout_ms", "chunk_timeout_ms", "max_attempts", "context_window_tokens", "accepts", "fallbacks")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    format: ModelFormat
    parameters: _struct_pb2.Struct
    timeout_ms: int
    first_token_timeout_ms: int
    chunk_timeout_ms: int
    max_attempts: int
    context_window_tokens: int
    accepts: _containers.RepeatedScalarFieldContainer[str]
    fallbacks: _containers.RepeatedCompositeFieldContainer[ModelFallback]
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., format: _Optional[_Union[ModelFormat, str]] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., first_token_timeout_ms: _Optional[int] = ..., chunk_timeout_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., context_window_tokens: _Optional[int] = ..., accepts: _Optional[_Iterable[str]] = ..., fallbacks: _Optional[_Iterable[_Union[ModelFallback, _Mapping]]] = ...) -> None: ...

class ModelFallback(_message.Message):
    __slots__ = ("model_profile_id", "provider", "model")
    MODEL_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model_profile_id: str
    provider: str
    model: str
    def __init__(self, model_profile_id: _Optional[str] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class ActionSpec(_message.Message):
    __slots__ = ("kind", "config", "timeout_ms", "max_attempts", "backoff_ms", "idempotent")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    config: _struct_pb2.Struct
    timeout_ms: int
    max_attempts: int
    backoff_ms: int
    idempotent: bool
    def __init__(self, kind: _Optional[str] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., idempotent: _Optional[bool] = ...) -> None: ...

class TaskSpec(_message.Message):
    __slots__ = ("steps", "input_schema", "output_schema", "retry")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    input_schema: _struct_pb2.Struct
    output_schema: _struct_pb2.Struct
    retry: RetryPolicy
    def __init__(self, steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., input_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("id", "action_id", "action", "condition", "input_mapping", "output_mapping", "on_failure")
    class InputMappingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class OutputMappingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    INPUT_MAPPING_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MAPPING_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    action_id: str
    action: ActionSpec
    condition: str
    input_mapping: _containers.ScalarMap[str, str]
    output_mapping: _containers.ScalarMap[str, str]
    on_failure: OnFailure
    def __init__(self, id: _Optional[str] = ..., action_id: _Optional[str] = ..., action: _Optional[_Union[ActionSpec, _Mapping]] = ..., condition: _Optional[str] = ..., input_mapping: _Optional[_Mapping[str, str]] = ..., output_mapping: _Optional[_Mapping[str, str]] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ...) -> None: ...

class WorkflowSpec(_message.Message):
    __slots__ = ("nodes", "transitions", "initial_node_id", "input_schema", "output_schema", "output_mapping", "timeout_ms", "state_schema", "merge_branch_on_completion")
    class OutputMappingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODES_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MAPPING_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MERGE_BRANCH_ON_COMPLETION_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    transitions: _containers.RepeatedCompositeFieldContainer[Transition]
    initial_node_id: str
    input_schema: _struct_pb2.Struct
    output_schema: _struct_pb2.Struct
    output_mapping: _containers.ScalarMap[str, str]
    timeout_ms: int
    state_schema: _struct_pb2.Struct
    merge_branch_on_completion: bool
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., transitions: _Optional[_Iterable[_Union[Transition, _Mapping]]] = ..., initial_node_id: _Optional[str] = ..., input_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output_mapping: _Optional[_Mapping[str, str]] = ..., timeout_ms: _Optional[int] = ..., state_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., merge_branch_on_completion: _Optional[bool] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "task_id", "workflow_id", "agent_id", "human_gate", "wait", "input_mapping", "output_mapping", "timeout_ms", "description", "invocation_mode", "retry", "fan_out", "fan_in", "output_schema")
    class InputMappingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class OutputMappingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    HUMAN_GATE_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    INPUT_MAPPING_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MAPPING_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INVOCATION_MODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    FAN_OUT_FIELD_NUMBER: _ClassVar[int]
    FAN_IN_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    id: str
    task_id: str
    workflow_id: str
    agent_id: str
    human_gate: HumanGate
    wait: Wait
    input_mapping: _containers.ScalarMap[str, str]
    output_mapping: _containers.ScalarMap[str, str]
    timeout_ms: int
    description: str
    invocation_mode: _common_pb2.InvocationMode
    retry: RetryPolicy
    fan_out: bool
    fan_in: FanIn
    output_schema: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., task_id: _Optional[str] = ..., workflow_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., human_gate: _Optional[_Union[HumanGate, _Mapping]] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ..., input_mapping: _Optional[_Mapping[str, str]] = ..., output_mapping: _Optional[_Mapping[str, str]] = ..., timeout_ms: _Optional[int] = ..., description: _Optional[str] = ..., invocation_mode: _Optional[_Union[_common_pb2.InvocationMode, str]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., fan_out: _Optional[bool] = ..., fan_in: _Optional[_Union[FanIn, _Mapping]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Transition(_message.Message):
    __slots__ = ("from_node_id", "to_node_id", "condition", "priority", "for_each", "loop_limit")
    FROM_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FOR_EACH_FIELD_NUMBER: _ClassVar[int]
    LOOP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    from_node_id: str
    to_node_id: str
    condition: str
    priority: int
    for_each: ForEach
    loop_limit: int
    def __init__(self, from_node_id: _Optional[str] = ..., to_node_id: _Optional[str] = ..., condition: _Optional[str] = ..., priority: _Optional[int] = ..., for_each: _Optional[_Union[ForEach, _Mapping]] = ..., loop_limit: _Optional[int] = ...) -> None: ...

class ForEach(_message.Message):
    __slots__ = ("items", "max_concurrency", "max_items")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: str
    max_concurrency: int
    max_items: int
    def __init__(self, items: _Optional[str] = ..., max_concurrency: _Optional[int] = ..., max_items: _Optional[int] = ...) -> None: ...

class FanIn(_message.Message):
    __slots__ = ("mode", "count", "timeout_ms", "on_timeout", "merges", "fan_out_node_id")
    MODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ON_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MERGES_FIELD_NUMBER: _ClassVar[int]
    FAN_OUT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    mode: FanInMode
    count: int
    timeout_ms: int
    on_timeout: FanInTimeoutPolicy
    merges: _containers.RepeatedCompositeFieldContainer[Merge]
    fan_out_node_id: str
    def __init__(self, mode: _Optional[_Union[FanInMode, str]] = ..., count: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., on_timeout: _Optional[_Union[FanInTimeoutPolicy, str]] = ..., merges: _Optional[_Iterable[_Union[Merge, _Mapping]]] = ..., fan_out_node_id: _Optional[str] = ...) -> None: ...

class Merge(_message.Message):
    __slots__ = ("source", "target", "strategy")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    strategy: MergeStrategy
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., strategy: _Optional[_Union[MergeStrategy, str]] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("signal", "duration_ms")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    signal: str
    duration_ms: int
    def __init__(self, signal: _Optional[str] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class HumanGate(_message.Message):
    __slots__ = ("prompt", "answer_schema", "user_ids", "expire_after_ms", "on_expire")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    USER_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    ON_EXPIRE_FIELD_NUMBER: _ClassVar[int]
    prompt: str
    answer_schema: _struct_pb2.Struct
    user_ids: _containers.RepeatedScalarFieldContainer[str]
    expire_after_ms: int
    on_expire: GateExpiryPolicy
    def __init__(self, prompt: _Optional[str] = ..., answer_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., user_ids: _Optional[_Iterable[str]] = ..., expire_after_ms: _Optional[int] = ..., on_expire: _Optional[_Union[GateExpiryPolicy, str]] = ...) -> None: ...
