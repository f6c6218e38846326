# mypy: ignore-errors
import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATUS_UNSPECIFIED: _ClassVar[StepStatus]
    STEP_STATUS_RUNNING: _ClassVar[StepStatus]
    STEP_STATUS_COMPLETED: _ClassVar[StepStatus]
    STEP_STATUS_FAILED: _ClassVar[StepStatus]
    STEP_STATUS_SKIPPED: _ClassVar[StepStatus]
STEP_STATUS_UNSPECIFIED: StepStatus
STEP_STATUS_RUNNING: StepStatus
STEP_STATUS_COMPLETED: StepStatus
STEP_STATUS_FAILED: StepStatus
STEP_STATUS_SKIPPED: StepStatus

class ExecutionContext(_message.Message):
    __slots__ = ("project_id", "agent_id", "conversation_id", "turn_id", "run_id", "branch")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    agent_id: str
    conversation_id: str
    turn_id: str
    run_id: str
    branch: str
    def __init__(self, project_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., run_id: _Optional[str] = ..., branch: _Optional[str] = ...) -> None: ...

class TaskResult(_message.Message):
    __slots__ = ("output", "error", "steps", "attempts", "task", "duration_ms")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    output: _struct_pb2.Struct
    error: _errors_pb2.Fault
    steps: _containers.RepeatedCompositeFieldContainer[StepTrace]
    attempts: int
    task: str
    duration_ms: int
    def __init__(self, output: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[StepTrace, _Mapping]]] = ..., attempts: _Optional[int] = ..., task: _Optional[str] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class StepTrace(_message.Message):
    __slots__ = ("step_id", "status", "task_attempt", "attempts", "error", "start_time", "duration_ms", "action_kind")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TASK_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_KIND_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    status: StepStatus
    task_attempt: int
    attempts: int
    error: _errors_pb2.Fault
    start_time: _timestamp_pb2.Timestamp
    duration_ms: int
    action_kind: str
    def __init__(self, step_id: _Optional[str] = ..., status: _Optional[_Union[StepStatus, str]] = ..., task_attempt: _Optional[int] = ..., attempts: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., duration_ms: _Optional[int] = ..., action_kind: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("message", "fraction", "output")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    message: str
    fraction: float
    output: str
    def __init__(self, message: _Optional[str] = ..., fraction: _Optional[float] = ..., output: _Optional[str] = ...) -> None: ...

class ActionKind(_message.Message):
    __slots__ = ("name", "description", "input_schema", "output_schema", "idempotent", "requires_commit", "remote", "worker_count", "available", "unavailable_reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_COMMIT_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    WORKER_COUNT_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema: _struct_pb2.Struct
    output_schema: _struct_pb2.Struct
    idempotent: bool
    requires_commit: bool
    remote: bool
    worker_count: int
    available: bool
    unavailable_reason: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotent: _Optional[bool] = ..., requires_commit: _Optional[bool] = ..., remote: _Optional[bool] = ..., worker_count: _Optional[int] = ..., available: _Optional[bool] = ..., unavailable_reason: _Optional[str] = ...) -> None: ...
