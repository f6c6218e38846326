# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import access_pb2 as _access_pb2
from wonder.v1 import conversation_service_pb2 as _conversation_service_pb2
from wonder.v1 import run_pb2 as _run_pb2
from wonder.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GateDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_DECISION_UNSPECIFIED: _ClassVar[GateDecision]
    GATE_DECISION_APPROVE: _ClassVar[GateDecision]
    GATE_DECISION_REJECT: _ClassVar[GateDecision]
GATE_DECISION_UNSPECIFIED: GateDecision
GATE_DECISION_APPROVE: GateDecision
GATE_DECISION_REJECT: GateDecision

class StartRunRequest(_message.Message):
    __slots__ = ("workflow_id", "input", "context", "metadata", "timeout_ms", "request_id", "validate_only", "wait_ms")
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    workflow_id: str
    input: _struct_pb2.Struct
    context: _task_pb2.ExecutionContext
    metadata: _struct_pb2.Struct
    timeout_ms: int
    request_id: str
    validate_only: bool
    wait_ms: int
    def __init__(self, workflow_id: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., context: _Optional[_Union[_task_pb2.ExecutionContext, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class StartRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("workflow_id", "project_id", "conversation_id", "statuses", "parent_run_id", "include_children", "start_time", "end_time", "page_size", "page_token")
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    workflow_id: str
    project_id: str
    conversation_id: str
    statuses: _containers.RepeatedScalarFieldContainer[_run_pb2.RunStatus]
    parent_run_id: str
    include_children: bool
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, workflow_id: _Optional[str] = ..., project_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., statuses: _Optional[_Iterable[_Union[_run_pb2.RunStatus, str]]] = ..., parent_run_id: _Optional[str] = ..., include_children: _Optional[bool] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_run_pb2.Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_run_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id", "reason", "etag", "request_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    etag: str
    request_id: str
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class SignalRunRequest(_message.Message):
    __slots__ = ("run_id", "signal", "request_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    signal: _run_pb2.Signal
    request_id: str
    def __init__(self, run_id: _Optional[str] = ..., signal: _Optional[_Union[_run_pb2.Signal, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class SignalRunResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "after_sequence", "include_progress", "group_events")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    GROUP_EVENTS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_sequence: int
    include_progress: bool
    group_events: bool
    def __init__(self, run_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., include_progress: _Optional[bool] = ..., group_events: _Optional[bool] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("event", "progress", "heartbeat", "draining", "end", "events")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    event: _run_pb2.RunEvent
    progress: NodeProgress
    heartbeat: _conversation_service_pb2.StreamHeartbeat
    draining: _conversation_service_pb2.StreamDraining
    end: _conversation_service_pb2.StreamEnd
    events: RunEventGroup
    def __init__(self, event: _Optional[_Union[_run_pb2.RunEvent, _Mapping]] = ..., progress: _Optional[_Union[NodeProgress, _Mapping]] = ..., heartbeat: _Optional[_Union[_conversation_service_pb2.StreamHeartbeat, _Mapping]] = ..., draining: _Optional[_Union[_conversation_service_pb2.StreamDraining, _Mapping]] = ..., end: _Optional[_Union[_conversation_service_pb2.StreamEnd, _Mapping]] = ..., events: _Optional[_Union[RunEventGroup, _Mapping]] = ...) -> None: ...

class RunEventGroup(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_run_pb2.RunEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_run_pb2.RunEvent, _Mapping]]] = ...) -> None: ...

class NodeProgress(_message.Message):
    __slots__ = ("node_id", "node_execution_id", "step", "progress")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    node_execution_id: str
    step: _task_pb2.StepTrace
    progress: _task_pb2.Progress
    def __init__(self, node_id: _Optional[str] = ..., node_execution_id: _Optional[str] = ..., step: _Optional[_Union[_task_pb2.StepTrace, _Mapping]] = ..., progress: _Optional[_Union[_task_pb2.Progress, _Mapping]] = ...) -> None: ...

class ListGatesRequest(_message.Message):
    __slots__ = ("project_id", "run_id", "statuses", "user_id", "page_size", "page_token", "conversation_id", "gate_id")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    GATE_ID_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    run_id: str
    statuses: _containers.RepeatedScalarFieldContainer[_run_pb2.GateStatus]
    user_id: str
    page_size: int
    page_token: str
    conversation_id: str
    gate_id: str
    def __init__(self, project_id: _Optional[str] = ..., run_id: _Optional[str] = ..., statuses: _Optional[_Iterable[_Union[_run_pb2.GateStatus, str]]] = ..., user_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., conversation_id: _Optional[str] = ..., gate_id: _Optional[str] = ...) -> None: ...

class ListGatesResponse(_message.Message):
    __slots__ = ("gates", "next_page_token")
    GATES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    gates: _containers.RepeatedCompositeFieldContainer[_run_pb2.Gate]
    next_page_token: str
    def __init__(self, gates: _Optional[_Iterable[_Union[_run_pb2.Gate, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ResolveGateRequest(_message.Message):
    __slots__ = ("gate_id", "decision", "shown_hash", "answer", "comment", "user_id", "request_id")
    GATE_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    SHOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    gate_id: str
    decision: GateDecision
    shown_hash: str
    answer: _struct_pb2.Struct
    comment: str
    user_id: str
    request_id: str
    def __init__(self, gate_id: _Optional[str] = ..., decision: _Optional[_Union[GateDecision, str]] = ..., shown_hash: _Optional[str] = ..., answer: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., comment: _Optional[str] = ..., user_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ResolveGateResponse(_message.Message):
    __slots__ = ("gate",)
    GATE_FIELD_NUMBER: _ClassVar[int]
    gate: _run_pb2.Gate
    def __init__(self, gate: _Optional[_Union[_run_pb2.Gate, _Mapping]] = ...) -> None: ...

class ReplayRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class ReplayRunResponse(_message.Message):
    __slots__ = ("identical", "step_count", "first_difference")
    IDENTICAL_FIELD_NUMBER: _ClassVar[int]
    STEP_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    identical: bool
    step_count: int
    first_difference: ReplayDifference
    def __init__(self, identical: _Optional[bool] = ..., step_count: _Optional[int] = ..., first_difference: _Optional[_Union[ReplayDifference, _Mapping]] = ...) -> None: ...

class ReplayDifference(_message.Message):
    __slots__ = ("step", "input", "recorded", "planned")
    STEP_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    step: int
    input: str
    recorded: _struct_pb2.ListValue
    planned: _struct_pb2.ListValue
    def __init__(self, step: _Optional[int] = ..., input: _Optional[str] = ..., recorded: _Optional[_Union[_struct_pb2.ListValue, _Mapping]] = ..., planned: _Optional[_Union[_struct_pb2.ListValue, _Mapping]] = ...) -> None: ...

class ForkRunRequest(_message.Message):
    __slots__ = ("run_id", "after_sequence", "before_node_execution", "input", "state", "workflow_revision", "request_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_NODE_EXECUTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_REVISION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_sequence: int
    before_node_execution: int
    input: _struct_pb2.Struct
    state: _struct_pb2.Struct
    workflow_revision: int
    request_id: str
    def __init__(self, run_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., before_node_execution: _Optional[int] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., state: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., workflow_revision: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class ForkRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...
