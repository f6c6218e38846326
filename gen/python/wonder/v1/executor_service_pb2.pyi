# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import access_pb2 as _access_pb2
from wonder.v1 import errors_pb2 as _errors_pb2
from wonder.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecuteTaskRequest(_message.Message):
    __slots__ = ("task_id", "input", "context", "timeout_ms", "request_id", "validate_only")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    input: _struct_pb2.Struct
    context: _task_pb2.ExecutionContext
    timeout_ms: int
    request_id: str
    validate_only: bool
    def __init__(self, task_id: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., context: _Optional[_Union[_task_pb2.ExecutionContext, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class ExecuteTaskResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _task_pb2.TaskResult
    def __init__(self, result: _Optional[_Union[_task_pb2.TaskResult, _Mapping]] = ...) -> None: ...

class StreamTaskRequest(_message.Message):
    __slots__ = ("task_id", "input", "context", "timeout_ms", "request_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    input: _struct_pb2.Struct
    context: _task_pb2.ExecutionContext
    timeout_ms: int
    request_id: str
    def __init__(self, task_id: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., context: _Optional[_Union[_task_pb2.ExecutionContext, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class StreamTaskResponse(_message.Message):
    __slots__ = ("step", "progress", "result")
    STEP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    step: _task_pb2.StepTrace
    progress: StepProgress
    result: _task_pb2.TaskResult
    def __init__(self, step: _Optional[_Union[_task_pb2.StepTrace, _Mapping]] = ..., progress: _Optional[_Union[StepProgress, _Mapping]] = ..., result: _Optional[_Union[_task_pb2.TaskResult, _Mapping]] = ...) -> None: ...

class StepProgress(_message.Message):
    __slots__ = ("step_id", "progress")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    progress: _task_pb2.Progress
    def __init__(self, step_id: _Optional[str] = ..., progress: _Optional[_Union[_task_pb2.Progress, _Mapping]] = ...) -> None: ...

class ListActionKindsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListActionKindsResponse(_message.Message):
    __slots__ = ("action_kinds", "next_page_token")
    ACTION_KINDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    action_kinds: _containers.RepeatedCompositeFieldContainer[_task_pb2.ActionKind]
    next_page_token: str
    def __init__(self, action_kinds: _Optional[_Iterable[_Union[_task_pb2.ActionKind, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("register", "heartbeat", "progress", "completed", "failed", "drain")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    register: RegisterWorker
    heartbeat: WorkHeartbeat
    progress: AssignmentProgress
    completed: AssignmentCompleted
    failed: AssignmentFailed
    drain: DrainWorker
    def __init__(self, register: _Optional[_Union[RegisterWorker, _Mapping]] = ..., heartbeat: _Optional[_Union[WorkHeartbeat, _Mapping]] = ..., progress: _Optional[_Union[AssignmentProgress, _Mapping]] = ..., completed: _Optional[_Union[AssignmentCompleted, _Mapping]] = ..., failed: _Optional[_Union[AssignmentFailed, _Mapping]] = ..., drain: _Optional[_Union[DrainWorker, _Mapping]] = ...) -> None: ...

class RegisterWorker(_message.Message):
    __slots__ = ("name", "kinds", "max_concurrency", "project_ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    PROJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kinds: _containers.RepeatedCompositeFieldContainer[WorkerActionKind]
    max_concurrency: int
    project_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., kinds: _Optional[_Iterable[_Union[WorkerActionKind, _Mapping]]] = ..., max_concurrency: _Optional[int] = ..., project_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerActionKind(_message.Message):
    __slots__ = ("name", "description", "input_schema", "output_schema", "idempotent", "max_concurrency")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema: _struct_pb2.Struct
    output_schema: _struct_pb2.Struct
    idempotent: bool
    max_concurrency: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotent: _Optional[bool] = ..., max_concurrency: _Optional[int] = ...) -> None: ...

class WorkHeartbeat(_message.Message):
    __slots__ = ("lease_ids",)
    LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    lease_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AssignmentProgress(_message.Message):
    __slots__ = ("lease_id", "progress")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    progress: _task_pb2.Progress
    def __init__(self, lease_id: _Optional[str] = ..., progress: _Optional[_Union[_task_pb2.Progress, _Mapping]] = ...) -> None: ...

class AssignmentCompleted(_message.Message):
    __slots__ = ("lease_id", "output")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    output: _struct_pb2.Struct
    def __init__(self, lease_id: _Optional[str] = ..., output: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class AssignmentFailed(_message.Message):
    __slots__ = ("lease_id", "error")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    error: _errors_pb2.Fault
    def __init__(self, lease_id: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ...) -> None: ...

class DrainWorker(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("registered", "assignment", "cancelled", "settled", "draining")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    registered: WorkerRegistered
    assignment: Assignment
    cancelled: AssignmentCancelled
    settled: AssignmentSettled
    draining: WorkDraining
    def __init__(self, registered: _Optional[_Union[WorkerRegistered, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., cancelled: _Optional[_Union[AssignmentCancelled, _Mapping]] = ..., settled: _Optional[_Union[AssignmentSettled, _Mapping]] = ..., draining: _Optional[_Union[WorkDraining, _Mapping]] = ...) -> None: ...

class WorkerRegistered(_message.Message):
    __slots__ = ("worker_id", "heartbeat_interval_ms", "lease_ms")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    heartbeat_interval_ms: int
    lease_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., heartbeat_interval_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("lease_id", "operation_id", "attempt", "kind", "input", "context", "deadline", "traceparent")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    operation_id: str
    attempt: int
    kind: str
    input: _struct_pb2.Struct
    context: _task_pb2.ExecutionContext
    deadline: _timestamp_pb2.Timestamp
    traceparent: str
    def __init__(self, lease_id: _Optional[str] = ..., operation_id: _Optional[str] = ..., attempt: _Optional[int] = ..., kind: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., context: _Optional[_Union[_task_pb2.ExecutionContext, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class AssignmentCancelled(_message.Message):
    __slots__ = ("lease_id", "error")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    error: _errors_pb2.Fault
    def __init__(self, lease_id: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ...) -> None: ...

class AssignmentSettled(_message.Message):
    __slots__ = ("lease_id", "accepted", "error")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    accepted: bool
    error: _errors_pb2.Fault
    def __init__(self, lease_id: _Optional[str] = ..., accepted: _Optional[bool] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ...) -> None: ...

class WorkDraining(_message.Message):
    __slots__ = ("grace_ms", "reconnect_after_ms")
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    grace_ms: int
    reconnect_after_ms: int
    def __init__(self, grace_ms: _Optional[int] = ..., reconnect_after_ms: _Optional[int] = ...) -> None: ...
