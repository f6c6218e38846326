# mypy: ignore-errors
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wonder.v1 import common_pb2 as _common_pb2
from wonder.v1 import conversation_pb2 as _conversation_pb2
from wonder.v1 import errors_pb2 as _errors_pb2
from wonder.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("sequence", "conversation_id", "turn_id", "create_time", "name", "conversation_started", "conversation_updated", "conversation_ended", "conversation_reset", "participant_joined", "participant_left", "conversation_turn", "turn_started", "turn_completed", "turn_failed", "turn_cancelled", "message_appended", "message_moved", "move_recorded", "limit_reached", "output_rejected", "context_reduced", "model_switched", "context_assembly_completed", "context_assembly_failed", "memory_extraction_completed", "memory_extraction_failed", "memory_operations_refused", "tool_dispatched", "tool_completed", "tool_failed", "gate_opened", "gate_resolved", "workflow_started", "workflow_completed", "workflow_failed", "agent_call_started", "agent_call_completed", "branch_merged")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_STARTED_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_UPDATED_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ENDED_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_RESET_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_JOINED_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_LEFT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_TURN_FIELD_NUMBER: _ClassVar[int]
    TURN_STARTED_FIELD_NUMBER: _ClassVar[int]
    TURN_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    TURN_FAILED_FIELD_NUMBER: _ClassVar[int]
    TURN_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_APPENDED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_MOVED_FIELD_NUMBER: _ClassVar[int]
    MOVE_RECORDED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_REACHED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_REJECTED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_REDUCED_FIELD_NUMBER: _ClassVar[int]
    MODEL_SWITCHED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ASSEMBLY_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ASSEMBLY_FAILED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EXTRACTION_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EXTRACTION_FAILED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_OPERATIONS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    TOOL_DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    TOOL_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    TOOL_FAILED_FIELD_NUMBER: _ClassVar[int]
    GATE_OPENED_FIELD_NUMBER: _ClassVar[int]
    GATE_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_STARTED_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FAILED_FIELD_NUMBER: _ClassVar[int]
    AGENT_CALL_STARTED_FIELD_NUMBER: _ClassVar[int]
    AGENT_CALL_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    BRANCH_MERGED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    conversation_id: str
    turn_id: str
    create_time: _timestamp_pb2.Timestamp
    name: str
    conversation_started: _conversation_pb2.Conversation
    conversation_updated: _conversation_pb2.Conversation
    conversation_ended: _conversation_pb2.Conversation
    conversation_reset: ConversationReset
    participant_joined: _conversation_pb2.Participant
    participant_left: _conversation_pb2.Participant
    conversation_turn: _conversation_pb2.Turn
    turn_started: _conversation_pb2.Turn
    turn_completed: _conversation_pb2.Turn
    turn_failed: _conversation_pb2.Turn
    turn_cancelled: _conversation_pb2.Turn
    message_appended: _conversation_pb2.Message
    message_moved: _conversation_pb2.Message
    move_recorded: _conversation_pb2.Move
    limit_reached: LimitReached
    output_rejected: OutputRejected
    context_reduced: ContextReduced
    model_switched: ModelSwitched
    context_assembly_completed: HookOutcome
    context_assembly_failed: HookOutcome
    memory_extraction_completed: HookOutcome
    memory_extraction_failed: HookOutcome
    memory_operations_refused: MemoryOperationsRefused
    tool_dispatched: ToolDispatched
    tool_completed: ToolOutcome
    tool_failed: ToolOutcome
    gate_opened: _run_pb2.Gate
    gate_resolved: _run_pb2.Gate
    workflow_started: WorkflowProgress
    workflow_completed: WorkflowProgress
    workflow_failed: WorkflowProgress
    agent_call_started: AgentCallProgress
    agent_call_completed: AgentCallProgress
    branch_merged: BranchMerged
    def __init__(self, sequence: _Optional[int] = ..., conversation_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., name: _Optional[str] = ..., conversation_started: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., conversation_updated: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., conversation_ended: _Optional[_Union[_conversation_pb2.Conversation, _Mapping]] = ..., conversation_reset: _Optional[_Union[ConversationReset, _Mapping]] = ..., participant_joined: _Optional[_Union[_conversation_pb2.Participant, _Mapping]] = ..., participant_left: _Optional[_Union[_conversation_pb2.Participant, _Mapping]] = ..., conversation_turn: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., turn_started: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., turn_completed: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., turn_failed: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., turn_cancelled: _Optional[_Union[_conversation_pb2.Turn, _Mapping]] = ..., message_appended: _Optional[_Union[_conversation_pb2.Message, _Mapping]] = ..., message_moved: _Optional[_Union[_conversation_pb2.Message, _Mapping]] = ..., move_recorded: _Optional[_Union[_conversation_pb2.Move, _Mapping]] = ..., limit_reached: _Optional[_Union[LimitReached, _Mapping]] = ..., output_rejected: _Optional[_Union[OutputRejected, _Mapping]] = ..., context_reduced: _Optional[_Union[ContextReduced, _Mapping]] = ..., model_switched: _Optional[_Union[ModelSwitched, _Mapping]] = ..., context_assembly_completed: _Optional[_Union[HookOutcome, _Mapping]] = ..., context_assembly_failed: _Optional[_Union[HookOutcome, _Mapping]] = ..., memory_extraction_completed: _Optional[_Union[HookOutcome, _Mapping]] = ..., memory_extraction_failed: _Optional[_Union[HookOutcome, _Mapping]] = ..., memory_operations_refused: _Optional[_Union[MemoryOperationsRefused, _Mapping]] = ..., tool_dispatched: _Optional[_Union[ToolDispatched, _Mapping]] = ..., tool_completed: _Optional[_Union[ToolOutcome, _Mapping]] = ..., tool_failed: _Optional[_Union[ToolOutcome, _Mapping]] = ..., gate_opened: _Optional[_Union[_run_pb2.Gate, _Mapping]] = ..., gate_resolved: _Optional[_Union[_run_pb2.Gate, _Mapping]] = ..., workflow_started: _Optional[_Union[WorkflowProgress, _Mapping]] = ..., workflow_completed: _Optional[_Union[WorkflowProgress, _Mapping]] = ..., workflow_failed: _Optional[_Union[WorkflowProgress, _Mapping]] = ..., agent_call_started: _Optional[_Union[AgentCallProgress, _Mapping]] = ..., agent_call_completed: _Optional[_Union[AgentCallProgress, _Mapping]] = ..., branch_merged: _Optional[_Union[BranchMerged, _Mapping]] = ...) -> None: ...

class ConversationReset(_message.Message):
    __slots__ = ("keep_system_message", "last_turn_ordinal")
    KEEP_SYSTEM_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_TURN_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    keep_system_message: bool
    last_turn_ordinal: int
    def __init__(self, keep_system_message: _Optional[bool] = ..., last_turn_ordinal: _Optional[int] = ...) -> None: ...

class LimitReached(_message.Message):
    __slots__ = ("limit", "enforced")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    limit: _errors_pb2.Fault
    enforced: bool
    def __init__(self, limit: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., enforced: _Optional[bool] = ...) -> None: ...

class OutputRejected(_message.Message):
    __slots__ = ("message_id", "problems", "repairing")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REPAIRING_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    repairing: bool
    def __init__(self, message_id: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., repairing: _Optional[bool] = ...) -> None: ...

class ContextReduced(_message.Message):
    __slots__ = ("messages_left_out", "summarized", "tokens_before", "tokens_after")
    MESSAGES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    SUMMARIZED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AFTER_FIELD_NUMBER: _ClassVar[int]
    messages_left_out: int
    summarized: bool
    tokens_before: int
    tokens_after: int
    def __init__(self, messages_left_out: _Optional[int] = ..., summarized: _Optional[bool] = ..., tokens_before: _Optional[int] = ..., tokens_after: _Optional[int] = ...) -> None: ...

class ModelSwitched(_message.Message):
    __slots__ = ("from_model_profile", "from_provider", "from_model", "to_model_profile", "to_provider", "to_model", "error", "hook")
    FROM_MODEL_PROFILE_FIELD_NUMBER: _ClassVar[int]
    FROM_PROVIDER_FIELD_NUMBER: _ClassVar[int]
    FROM_MODEL_FIELD_NUMBER: _ClassVar[int]
    TO_MODEL_PROFILE_FIELD_NUMBER: _ClassVar[int]
    TO_PROVIDER_FIELD_NUMBER: _ClassVar[int]
    TO_MODEL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    from_model_profile: str
    from_provider: str
    from_model: str
    to_model_profile: str
    to_provider: str
    to_model: str
    error: _errors_pb2.Fault
    hook: str
    def __init__(self, from_model_profile: _Optional[str] = ..., from_provider: _Optional[str] = ..., from_model: _Optional[str] = ..., to_model_profile: _Optional[str] = ..., to_provider: _Optional[str] = ..., to_model: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., hook: _Optional[str] = ...) -> None: ...

class HookOutcome(_message.Message):
    __slots__ = ("run_id", "workflow", "attempts", "duration_ms", "error", "model_profile")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MODEL_PROFILE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    workflow: str
    attempts: int
    duration_ms: int
    error: _errors_pb2.Fault
    model_profile: str
    def __init__(self, run_id: _Optional[str] = ..., workflow: _Optional[str] = ..., attempts: _Optional[int] = ..., duration_ms: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., model_profile: _Optional[str] = ...) -> None: ...

class MemoryOperationsRefused(_message.Message):
    __slots__ = ("run_id", "reasons")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_id: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class ToolDispatched(_message.Message):
    __slots__ = ("tool_call", "operation")
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    tool_call: _conversation_pb2.ToolCall
    operation: _conversation_pb2.Operation
    def __init__(self, tool_call: _Optional[_Union[_conversation_pb2.ToolCall, _Mapping]] = ..., operation: _Optional[_Union[_conversation_pb2.Operation, _Mapping]] = ...) -> None: ...

class ToolOutcome(_message.Message):
    __slots__ = ("tool_call", "tool_result", "duration_ms", "error")
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tool_call: _conversation_pb2.ToolCall
    tool_result: _conversation_pb2.ToolResult
    duration_ms: int
    error: _errors_pb2.Fault
    def __init__(self, tool_call: _Optional[_Union[_conversation_pb2.ToolCall, _Mapping]] = ..., tool_result: _Optional[_Union[_conversation_pb2.ToolResult, _Mapping]] = ..., duration_ms: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ...) -> None: ...

class WorkflowProgress(_message.Message):
    __slots__ = ("run_id", "workflow", "operation_id", "error", "duration_ms")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    workflow: str
    operation_id: str
    error: _errors_pb2.Fault
    duration_ms: int
    def __init__(self, run_id: _Optional[str] = ..., workflow: _Optional[str] = ..., operation_id: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class AgentCallProgress(_message.Message):
    __slots__ = ("agent_id", "mode", "turn_id", "operation_id", "error", "duration_ms")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    mode: _common_pb2.InvocationMode
    turn_id: str
    operation_id: str
    error: _errors_pb2.Fault
    duration_ms: int
    def __init__(self, agent_id: _Optional[str] = ..., mode: _Optional[_Union[_common_pb2.InvocationMode, str]] = ..., turn_id: _Optional[str] = ..., operation_id: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Fault, _Mapping]] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class BranchMerged(_message.Message):
    __slots__ = ("repository", "branch", "target_branch", "commit", "user_id")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_BRANCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    repository: str
    branch: str
    target_branch: str
    commit: str
    user_id: str
    def __init__(self, repository: _Optional[str] = ..., branch: _Optional[str] = ..., target_branch: _Optional[str] = ..., commit: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...
