# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_MALFORMED_REQUEST: _ClassVar[ErrorReason]
    ERROR_REASON_FIELD_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_FIELD_MASK_UNSUPPORTED: _ClassVar[ErrorReason]
    ERROR_REASON_PAGE_TOKEN_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_PAYLOAD_TOO_DEEP: _ClassVar[ErrorReason]
    ERROR_REASON_NUMBER_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_ID_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_DEFINITION_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_INPUT_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_CONVERSATION_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_TURN_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_MESSAGE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_AGENT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_PROJECT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_LIBRARY_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_DEFINITION_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_MEMORY_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_GATE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ARTIFACT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_FILE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_TENANT_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_PRINCIPAL_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_KEY_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ROLE_BINDING_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ALREADY_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_ETAG_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_MERGE_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_CONVERSATION_NOT_ACTIVE: _ClassVar[ErrorReason]
    ERROR_REASON_TURN_NOT_ACTIVE: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_NOT_ACTIVE: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_ATTACHED: _ClassVar[ErrorReason]
    ERROR_REASON_NO_AGENT: _ClassVar[ErrorReason]
    ERROR_REASON_RESOURCE_IN_USE: _ClassVar[ErrorReason]
    ERROR_REASON_GATE_RESOLVED: _ClassVar[ErrorReason]
    ERROR_REASON_SANDBOX_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_LIMIT_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_PAYLOAD_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_SLOW_READER: _ClassVar[ErrorReason]
    ERROR_REASON_MAX_MOVES_REACHED: _ClassVar[ErrorReason]
    ERROR_REASON_BUDGET_EXHAUSTED: _ClassVar[ErrorReason]
    ERROR_REASON_COST_UNKNOWN: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_CURSOR_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_CANCELLED: _ClassVar[ErrorReason]
    ERROR_REASON_TIMEOUT: _ClassVar[ErrorReason]
    ERROR_REASON_CONTEXT_ASSEMBLY_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_MEMORY_EXTRACTION_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_AGENT_DECLINED: _ClassVar[ErrorReason]
    ERROR_REASON_TASK_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_ASSERTION_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_EXPRESSION_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_OUTCOME_UNKNOWN: _ClassVar[ErrorReason]
    ERROR_REASON_OUTPUT_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_SERVER_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_STORAGE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_OWNER_MOVED: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_IMPLEMENTED: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_MALFORMED_REQUEST: ErrorReason
ERROR_REASON_FIELD_INVALID: ErrorReason
ERROR_REASON_FIELD_MASK_UNSUPPORTED: ErrorReason
ERROR_REASON_PAGE_TOKEN_INVALID: ErrorReason
ERROR_REASON_PAYLOAD_TOO_DEEP: ErrorReason
ERROR_REASON_NUMBER_OUT_OF_RANGE: ErrorReason
ERROR_REASON_REQUEST_ID_REUSED: ErrorReason
ERROR_REASON_DEFINITION_INVALID: ErrorReason
ERROR_REASON_INPUT_INVALID: ErrorReason
ERROR_REASON_CONVERSATION_NOT_FOUND: ErrorReason
ERROR_REASON_TURN_NOT_FOUND: ErrorReason
ERROR_REASON_MESSAGE_NOT_FOUND: ErrorReason
ERROR_REASON_AGENT_NOT_FOUND: ErrorReason
ERROR_REASON_PROJECT_NOT_FOUND: ErrorReason
ERROR_REASON_LIBRARY_NOT_FOUND: ErrorReason
ERROR_REASON_DEFINITION_NOT_FOUND: ErrorReason
ERROR_REASON_MEMORY_NOT_FOUND: ErrorReason
ERROR_REASON_RUN_NOT_FOUND: ErrorReason
ERROR_REASON_GATE_NOT_FOUND: ErrorReason
ERROR_REASON_ARTIFACT_NOT_FOUND: ErrorReason
ERROR_REASON_FILE_NOT_FOUND: ErrorReason
ERROR_REASON_TENANT_NOT_FOUND: ErrorReason
ERROR_REASON_PRINCIPAL_NOT_FOUND: ErrorReason
ERROR_REASON_KEY_NOT_FOUND: ErrorReason
ERROR_REASON_ROLE_BINDING_NOT_FOUND: ErrorReason
ERROR_REASON_ALREADY_EXISTS: ErrorReason
ERROR_REASON_ETAG_MISMATCH: ErrorReason
ERROR_REASON_MERGE_CONFLICT: ErrorReason
ERROR_REASON_CONVERSATION_NOT_ACTIVE: ErrorReason
ERROR_REASON_TURN_NOT_ACTIVE: ErrorReason
ERROR_REASON_RUN_NOT_ACTIVE: ErrorReason
ERROR_REASON_NOT_ATTACHED: ErrorReason
ERROR_REASON_NO_AGENT: ErrorReason
ERROR_REASON_RESOURCE_IN_USE: ErrorReason
ERROR_REASON_GATE_RESOLVED: ErrorReason
ERROR_REASON_SANDBOX_UNAVAILABLE: ErrorReason
ERROR_REASON_LIMIT_EXCEEDED: ErrorReason
ERROR_REASON_PAYLOAD_TOO_LARGE: ErrorReason
ERROR_REASON_SLOW_READER: ErrorReason
ERROR_REASON_MAX_MOVES_REACHED: ErrorReason
ERROR_REASON_BUDGET_EXHAUSTED: ErrorReason
ERROR_REASON_COST_UNKNOWN: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_CURSOR_OUT_OF_RANGE: ErrorReason
ERROR_REASON_CANCELLED: ErrorReason
ERROR_REASON_TIMEOUT: ErrorReason
ERROR_REASON_CONTEXT_ASSEMBLY_FAILED: ErrorReason
ERROR_REASON_MEMORY_EXTRACTION_FAILED: ErrorReason
ERROR_REASON_MODEL_FAILED: ErrorReason
ERROR_REASON_AGENT_DECLINED: ErrorReason
ERROR_REASON_TASK_FAILED: ErrorReason
ERROR_REASON_RUN_FAILED: ErrorReason
ERROR_REASON_ASSERTION_FAILED: ErrorReason
ERROR_REASON_EXPRESSION_FAILED: ErrorReason
ERROR_REASON_OUTCOME_UNKNOWN: ErrorReason
ERROR_REASON_OUTPUT_INVALID: ErrorReason
ERROR_REASON_SERVER_DRAINING: ErrorReason
ERROR_REASON_STORAGE_UNAVAILABLE: ErrorReason
ERROR_REASON_MODEL_UNAVAILABLE: ErrorReason
ERROR_REASON_OWNER_MOVED: ErrorReason
ERROR_REASON_NOT_IMPLEMENTED: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason

class Fault(_message.Message):
    __slots__ = ("reason", "message", "field", "metadata", "retriable", "retry_after_ms", "violations")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    reason: ErrorReason
    message: str
    field: str
    metadata: _containers.ScalarMap[str, str]
    retriable: bool
    retry_after_ms: int
    violations: _containers.RepeatedCompositeFieldContainer[FieldViolation]
    def __init__(self, reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retriable: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ..., violations: _Optional[_Iterable[_Union[FieldViolation, _Mapping]]] = ...) -> None: ...

class FieldViolation(_message.Message):
    __slots__ = ("field", "description")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    field: str
    description: str
    def __init__(self, field: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...
