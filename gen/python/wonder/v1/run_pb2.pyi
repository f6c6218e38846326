# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import common_pb2 as _common_pb2
from wonder.v1 import errors_pb2 as _errors_pb2
from wonder.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATUS_UNSPECIFIED: _ClassVar[RunStatus]
    RUN_STATUS_RUNNING: _ClassVar[RunStatus]
    RUN_STATUS_WAITING: _ClassVar[RunStatus]
    RUN_STATUS_COMPLETED: _ClassVar[RunStatus]
    RUN_STATUS_FAILED: _ClassVar[RunStatus]
    RUN_STATUS_CANCELLED: _ClassVar[RunStatus]

class TokenStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_STATUS_UNSPECIFIED: _ClassVar[TokenStatus]
    TOKEN_STATUS_PENDING: _ClassVar[TokenStatus]
    TOKEN_STATUS_WAITING_FOR_TASK: _ClassVar[TokenStatus]
    TOKEN_STATUS_WAITING_FOR_SUBWORKFLOW: _ClassVar[TokenStatus]
    TOKEN_STATUS_WAITING_FOR_AGENT: _ClassVar[TokenStatus]
    TOKEN_STATUS_WAITING_FOR_HUMAN: _ClassVar[TokenStatus]
    TOKEN_STATUS_WAITING_FOR_SIBLINGS: _ClassVar[TokenStatus]
    TOKEN_STATUS_COMPLETED: _ClassVar[TokenStatus]
    TOKEN_STATUS_FAILED: _ClassVar[TokenStatus]
    TOKEN_STATUS_CANCELLED: _ClassVar[TokenStatus]
    TOKEN_STATUS_WAITING_FOR_SIGNAL: _ClassVar[TokenStatus]
    TOKEN_STATUS_FORKED: _ClassVar[TokenStatus]

class NodeExecutionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_EXECUTION_STATUS_UNSPECIFIED: _ClassVar[NodeExecutionStatus]
    NODE_EXECUTION_STATUS_RUNNING: _ClassVar[NodeExecutionStatus]
    NODE_EXECUTION_STATUS_COMPLETED: _ClassVar[NodeExecutionStatus]
    NODE_EXECUTION_STATUS_FAILED: _ClassVar[NodeExecutionStatus]
    NODE_EXECUTION_STATUS_CANCELLED: _ClassVar[NodeExecutionStatus]

class GateStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_STATUS_UNSPECIFIED: _ClassVar[GateStatus]
    GATE_STATUS_PENDING: _ClassVar[GateStatus]
    GATE_STATUS_APPROVED: _ClassVar[GateStatus]
    GATE_STATUS_REJECTED: _ClassVar[GateStatus]
    GATE_STATUS_EXPIRED: _ClassVar[GateStatus]
    GATE_STATUS_CANCELLED: _ClassVar[GateStatus]
RUN_STATUS_UNSPECIFIED: RunStatus
RUN_STATUS_RUNNING: RunStatus
RUN_STATUS_WAITING: RunStatus
RUN_STATUS_COMPLETED: RunStatus
RUN_STATUS_FAILED: RunStatus
RUN_STATUS_CANCELLED: RunStatus
TOKEN_STATUS_UNSPECIFIED: TokenStatus
TOKEN_STATUS_PENDING: TokenStatus
TOKEN_STATUS_WAITING_FOR_TASK: TokenStatus
TOKEN_STATUS_WAITING_FOR_SUBWORKFLOW: TokenStatus
TOKEN_STATUS_WAITING_FOR_AGENT: TokenStatus
TOKEN_STATUS_WAITING_FOR_HUMAN: TokenStatus
TOKEN_STATUS_WAITING_FOR_SIBLINGS: TokenStatus
TOKEN_STATUS_COMPLETED: TokenStatus
TOKEN_STATUS_FAILED: TokenStatus
TOKEN_STATUS_CANCELLED: TokenStatus
TOKEN_STATUS_WAITING_FOR_SIGNAL: TokenStatus
TOKEN_STATUS_FORKED: TokenStatus
NODE_EXECUTION_STATUS_UNSPECIFIED: NodeExecutionStatus
NODE_EXECUTION_STATUS_RUNNING: NodeExecutionStatus
NODE_EXECUTION_STATUS_COMPLETED: NodeExecutionStatus
NODE_EXECUTION_STATUS_FAILED: NodeExecutionStatus
NODE_EXECUTION_STATUS_CANCELLED: NodeExecutionStatus
GATE_STATUS_UNSPECIFIED: GateStatus
GATE_STATUS_PENDING: GateStatus
GATE_STATUS_APPROVED: GateStatus
GATE_STATUS_REJECTED: GateStatus
GATE_STATUS_EXPIRED: GateStatus
GATE_STATUS_CANCELLED: GateStatus

class Run(_message.Message):
    __slots__ = ("id", "workflow", "workflow_id", "workflow_revision", "context", "parent", "status", "input", "output", "state", "error", "tokens", "node_executions", "node_execution_count", "pending_gates", "last_sequence", "metadata", "forked_from_run_id", "deadline", "create_time", "update_time", "complete_time", "etag", "trace_id", "principal", "cancelled_by", "usage")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NODE_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    NODE_EXECUTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_GATES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_BY_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    workflow: str
    workflow_id: str
    workflow_revision: int
    context: _task_pb2.ExecutionContext
    parent: RunParent
    status: RunStatus
    input: _struct_pb2.Struct
    output: _struct_pb2.Struct
    state: _struct_pb2.Struct
    error: _errors_pb2.Fault
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    node_executions: _containers.RepeatedCompositeFieldContainer[NodeExecution]
    node_execution_count: int
    pending_gates: _containers.RepeatedCompositeFieldContainer[Gate]
    last_sequence: int
    metadata: _struct_pb2.Struct
    forked_from_run_id: str
    deadline: _timestamp_pb2.Timestamp
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    complete_time: _timestamp_pb2.Timestamp
    etag: str
    trace_id: str
    principal: _common_pb2.Principal
    cancelled_by: _common_pb2.Principal
    usage: _common_pb2.Usage
    def __init__(self, id: _Optional[str] = ..., workflow: _Optional[str] = ..., workflow_id: _Optional[str] = ..., workflow_revision: _Optional[int] = ..., context: _Optional[_Union[_task_pb2.ExecutionContext, _Mapping]] = ..., parent: _Optional[_Union[RunParent, _Mapping]] = ..., status: _Optional[_Union[RunStatus, str]] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., state: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., node_executions: _Optional[_Iterable[_Union[NodeExecution, _Mapping]]] = ..., node_execution_count: _Optional[int] = ..., pending_gates: _Optional[_Iterable[_Union[Gate, _Mapping]]] = ..., last_sequence: _Optional[int] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., forked_from_run_id: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., trace_id: _Optional[str] = ..., principal: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., cancelled_by: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ...) -> None: ...

class RunParent(_message.Message):
    __slots__ = ("turn_id", "run_id", "operation_id", "node_id")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    run_id: str
    operation_id: str
    node_id: str
    def __init__(self, turn_id: _Optional[str] = ..., run_id: _Optional[str] = ..., operation_id: _Optional[str] = ..., node_id: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("id", "node_id", "status", "parent_token_id", "fan_out_node_id", "branch_index", "branch_count", "branch", "waits_for_id", "create_time", "update_time")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PARENT_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    FAN_OUT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    BRANCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    node_id: str
    status: TokenStatus
    parent_token_id: str
    fan_out_node_id: str
    branch_index: int
    branch_count: int
    branch: str
    waits_for_id: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., node_id: _Optional[str] = ..., status: _Optional[_Union[TokenStatus, str]] = ..., parent_token_id: _Optional[str] = ..., fan_out_node_id: _Optional[str] = ..., branch_index: _Optional[int] = ..., branch_count: _Optional[int] = ..., branch: _Optional[str] = ..., waits_for_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class NodeExecution(_message.Message):
    __slots__ = ("id", "run_id", "ordinal", "node_id", "token_id", "status", "input", "output", "error", "attempts", "target", "carried_out_by", "create_time", "complete_time", "branch")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CARRIED_OUT_BY_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TIME_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    id: str
    run_id: str
    ordinal: int
    node_id: str
    token_id: str
    status: NodeExecutionStatus
    input: _struct_pb2.Struct
    output: _struct_pb2.Value
    error: _errors_pb2.Fault
    attempts: int
    target: str
    carried_out_by: str
    create_time: _timestamp_pb2.Timestamp
    complete_time: _timestamp_pb2.Timestamp
    branch: Branch
    def __init__(self, id: _Optional[str] = ..., run_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., node_id: _Optional[str] = ..., token_id: _Optional[str] = ..., status: _Optional[_Union[NodeExecutionStatus, str]] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., attempts: _Optional[int] = ..., target: _Optional[str] = ..., carried_out_by: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., branch: _Optional[_Union[Branch, _Mapping]] = ...) -> None: ...

class Branch(_message.Message):
    __slots__ = ("parent_token_id", "fan_out_node_id", "name", "index", "count")
    PARENT_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    FAN_OUT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    parent_token_id: str
    fan_out_node_id: str
    name: str
    index: int
    count: int
    def __init__(self, parent_token_id: _Optional[str] = ..., fan_out_node_id: _Optional[str] = ..., name: _Optional[str] = ..., index: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Gate(_message.Message):
    __slots__ = ("id", "run_id", "node_id", "project_id", "workflow", "prompt", "shown", "shown_hash", "answer_schema", "user_ids", "status", "resolution", "create_time", "expire_time", "conversation_id", "turn_id", "tool_call_id", "tool_name", "tool_id", "problem")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    SHOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    USER_IDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    id: str
    run_id: str
    node_id: str
    project_id: str
    workflow: str
    prompt: str
    shown: _struct_pb2.Struct
    shown_hash: str
    answer_schema: _struct_pb2.Struct
    user_ids: _containers.RepeatedScalarFieldContainer[str]
    status: GateStatus
    resolution: GateResolution
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    conversation_id: str
    turn_id: str
    tool_call_id: str
    tool_name: str
    tool_id: str
    problem: str
    def __init__(self, id: _Optional[str] = ..., run_id: _Optional[str] = ..., node_id: _Optional[str] = ..., project_id: _Optional[str] = ..., workflow: _Optional[str] = ..., prompt: _Optional[str] = ..., shown: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., shown_hash: _Optional[str] = ..., answer_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., user_ids: _Optional[_Iterable[str]] = ..., status: _Optional[_Union[GateStatus, str]] = ..., resolution: _Optional[_Union[GateResolution, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., tool_id: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class GateResolution(_message.Message):
    __slots__ = ("user_id", "resolve_time", "answer", "comment", "principal")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_TIME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    resolve_time: _timestamp_pb2.Timestamp
    answer: _struct_pb2.Struct
    comment: str
    principal: _common_pb2.Principal
    def __init__(self, user_id: _Optional[str] = ..., resolve_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., answer: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., comment: _Optional[str] = ..., principal: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ...) -> None: ...

class RunEvent(_message.Message):
    __slots__ = ("sequence", "run_id", "create_time", "name", "workflow_started", "workflow_completed", "workflow_failed", "workflow_cancelled", "token_moved", "node_started", "node_completed", "node_failed", "node_cancelled", "gate_opened", "gate_resolved", "signal_received", "event_emitted")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_STARTED_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FAILED_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_MOVED_FIELD_NUMBER: _ClassVar[int]
    NODE_STARTED_FIELD_NUMBER: _ClassVar[int]
    NODE_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    NODE_FAILED_FIELD_NUMBER: _ClassVar[int]
    NODE_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    GATE_OPENED_FIELD_NUMBER: _ClassVar[int]
    GATE_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    EVENT_EMITTED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    run_id: str
    create_time: _timestamp_pb2.Timestamp
    name: str
    workflow_started: Run
    workflow_completed: Run
    workflow_failed: Run
    workflow_cancelled: Run
    token_moved: Token
    node_started: NodeExecution
    node_completed: NodeExecution
    node_failed: NodeExecution
    node_cancelled: NodeExecution
    gate_opened: Gate
    gate_resolved: Gate
    signal_received: Signal
    event_emitted: EmittedEvent
    def __init__(self, sequence: _Optional[int] = ..., run_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., name: _Optional[str] = ..., workflow_started: _Optional[_Union[Run, _Mapping]] = ..., workflow_completed: _Optional[_Union[Run, _Mapping]] = ..., workflow_failed: _Optional[_Union[Run, _Mapping]] = ..., workflow_cancelled: _Optional[_Union[Run, _Mapping]] = ..., token_moved: _Optional[_Union[Token, _Mapping]] = ..., node_started: _Optional[_Union[NodeExecution, _Mapping]] = ..., node_completed: _Optional[_Union[NodeExecution, _Mapping]] = ..., node_failed: _Optional[_Union[NodeExecution, _Mapping]] = ..., node_cancelled: _Optional[_Union[NodeExecution, _Mapping]] = ..., gate_opened: _Optional[_Union[Gate, _Mapping]] = ..., gate_resolved: _Optional[_Union[Gate, _Mapping]] = ..., signal_received: _Optional[_Union[Signal, _Mapping]] = ..., event_emitted: _Optional[_Union[EmittedEvent, _Mapping]] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ("name", "payload", "user_id", "principal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    payload: _struct_pb2.Value
    user_id: str
    principal: _common_pb2.Principal
    def __init__(self, name: _Optional[str] = ..., payload: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., user_id: _Optional[str] = ..., principal: _Optional[_Union[_common_pb2.Principal, _Mapping]] = ...) -> None: ...

class EmittedEvent(_message.Message):
    __slots__ = ("name", "payload", "node_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    payload: _struct_pb2.Struct
    node_id: str
    def __init__(self, name: _Optional[str] = ..., payload: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., node_id: _Optional[str] = ...) -> None: ...
