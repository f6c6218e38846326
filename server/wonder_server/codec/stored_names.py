"""Names that are stored in shards: tags of inputs and decisions, names of events, and paths of fields.

A name on disk never changes; names in the code may. Both are explicit:

- `TAGS` gives each class of inputs and decisions the tag that journals store it under.
- `stored_event` gives each event the name and the kind that its row has.
- A field whose stored name differs from its attribute says so where it is declared:
  ``archive_key: str = field(default="", name="archive")``. msgspec uses that name in both directions.

``tests/golden/stored_names.json`` lists every stored name; a test fails when one of them changes. Enums are
stored by value and rows by table, so neither depends on a name in the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from wonder_server.core.actor import gates
from wonder_server.core.conversation.model import decisions as conversation_decisions
from wonder_server.core.conversation.model import inputs as conversation_inputs
from wonder_server.core.conversation.model import lifecycle_decisions, lifecycle_inputs
from wonder_server.core.conversation.model.histories import staging
from wonder_server.core.coordinator.model import decisions as run_decisions
from wonder_server.core.coordinator.model import inputs as run_inputs

TAGS: Final[Mapping[type, str]] = {
    # Inputs of conversations
    conversation_inputs.Create: "Create",
    conversation_inputs.Send: "Send",
    conversation_inputs.Post: "Post",
    staging.AddHistory: "AddHistory",
    conversation_inputs.Publish: "Publish",
    staging.Discard: "DiscardStaged",
    conversation_inputs.CancelTurn: "CancelTurn",
    conversation_inputs.CancelCall: "CancelCall",
    conversation_inputs.ModelAnswered: "ModelAnswered",
    conversation_inputs.ModelUsageReported: "ModelAsked",
    conversation_inputs.Succeeded: "Succeeded",
    conversation_inputs.Failed: "Failed",
    conversation_inputs.BudgetNearlyExhausted: "Frugal",
    conversation_inputs.TimerFired: "Woken",
    conversation_inputs.Restarted: "Restarted",
    conversation_inputs.WaitsMeasured: "WaitsMeasured",
    conversation_inputs.GateReported: "GateReported",
    lifecycle_inputs.Join: "Join",
    lifecycle_inputs.Leave: "Leave",
    lifecycle_inputs.Update: "Revise",
    lifecycle_inputs.ReportMerge: "NoteMerge",
    lifecycle_inputs.Complete: "Complete",
    lifecycle_inputs.Reopen: "Reopen",
    lifecycle_inputs.Reset: "Reset",
    lifecycle_inputs.BeginDeletion: "Vacate",
    lifecycle_inputs.FinishDeletion: "Demolish",
    lifecycle_inputs.BeginArchiving: "Expire",
    lifecycle_inputs.CompleteArchiving: "PutAway",
    lifecycle_inputs.RestoreArchived: "Rouse",
    lifecycle_inputs.ReleaseArchiveObject: "Discard",
    lifecycle_inputs.ReleaseExternalRef: "ReleaseExternalRef",
    # Decisions of conversations
    conversation_decisions.StartConversation: "StartConversation",
    staging.KeepHistory: "KeepHistory",
    staging.PublishConversation: "PublishConversation",
    lifecycle_decisions.AddParticipant: "AddParticipant",
    lifecycle_decisions.RemoveParticipant: "RemoveParticipant",
    lifecycle_decisions.UpdateConversation: "UpdateConversation",
    lifecycle_decisions.RecordMerge: "RecordMerge",
    lifecycle_decisions.EndConversation: "EndConversation",
    lifecycle_decisions.ResetConversation: "ResetConversation",
    lifecycle_decisions.MarkDeleted: "CloseRoom",
    lifecycle_decisions.SetStaleArchive: "NoteSpent",
    lifecycle_decisions.EraseRecord: "RemoveRecord",
    conversation_decisions.StartTurn: "StartTurn",
    conversation_decisions.BeginTurn: "BeginTurn",
    conversation_decisions.SteerTurn: "SteerTurn",
    conversation_decisions.MoveMessage: "MoveMessage",
    conversation_decisions.PostMessage: "PostMessage",
    conversation_decisions.AppendMessage: "AppendMessage",
    conversation_decisions.DispatchWorkflow: "DispatchWorkflow",
    conversation_decisions.ContextAssembled: "ContextAssembled",
    conversation_decisions.AssemblyFailed: "AssemblyFailed",
    conversation_decisions.DispatchModel: "DispatchModel",
    conversation_decisions.RecordMove: "RecordMove",
    conversation_decisions.ChargeTurn: "ChargeTurn",
    conversation_decisions.DispatchTask: "DispatchTask",
    conversation_decisions.DispatchAgent: "DispatchAgent",
    conversation_decisions.RequestApproval: "RequestApproval",
    conversation_decisions.CloseApproval: "CloseApproval",
    conversation_decisions.MeasureWaits: "MeasureWaits",
    conversation_decisions.ExtendDeadline: "ExtendDeadline",
    conversation_decisions.ShowGate: "ShowGate",
    conversation_decisions.AgentCallEnded: "AgentCallEnded",
    conversation_decisions.WorkflowStarted: "WorkflowBegan",
    conversation_decisions.WorkflowEnded: "WorkflowEnded",
    conversation_decisions.TrackAsyncOperation: "TrackAsyncOperation",
    conversation_decisions.AsyncOperationCompleted: "AsyncOperationCompleted",
    conversation_decisions.MarkWaiting: "MarkWaiting",
    conversation_decisions.ResumeFromTool: "ResumeFromTool",
    conversation_decisions.LimitReached: "LimitReached",
    conversation_decisions.RejectOutput: "RejectOutput",
    conversation_decisions.SwitchModel: "SwitchModel",
    conversation_decisions.ReduceContext: "ReduceContext",
    conversation_decisions.HistorySummarized: "HistorySummarized",
    conversation_decisions.RetryOperation: "RetryOperation",
    conversation_decisions.Redispatch: "Redispatch",
    conversation_decisions.CancelOperation: "CancelOperation",
    conversation_decisions.CompleteTurn: "CompleteTurn",
    conversation_decisions.FailTurn: "FailTurn",
    conversation_decisions.EndTurnByCancel: "EndTurnByCancel",
    conversation_decisions.WriteMemory: "WriteMemory",
    conversation_decisions.RefuseMemoryOperations: "RefuseMemoryOperations",
    conversation_decisions.MemoryWritten: "MemoryWritten",
    conversation_decisions.ExtractionEnded: "ExtractionEnded",
    conversation_decisions.ReleaseTurn: "ReleaseWork",
    conversation_decisions.RepeatAnswer: "AnswerCallAgain",
    conversation_decisions.AdoptTurn: "AdoptTurn",
    conversation_decisions.RefuseCall: "RefuseCall",
    conversation_decisions.Refuse: "Refuse",
    # Inputs of runs
    run_inputs.Start: "Start",
    run_inputs.StartFork: "StartFork",
    run_inputs.NodeSucceeded: "NodeSucceeded",
    run_inputs.NodeFailed: "NodeFailed",
    run_inputs.NodeTimerFired: "NodeWoken",
    run_inputs.NodeRestarted: "NodeRestarted",
    run_inputs.EventEmitted: "EventEmitted",
    run_inputs.RunUsageReported: "RunUsageReported",
    run_inputs.ReceiveSignal: "ReceiveSignal",
    gates.ResolveGate: "ResolveGate",
    run_inputs.CancelRun: "CancelRun",
    # Decisions of runs
    run_decisions.StartRun: "StartRun",
    run_decisions.SetRunStatus: "SetRun",
    run_decisions.MoveToken: "MoveToken",
    run_decisions.CountBranches: "CountBranches",
    run_decisions.OpenFanOut: "OpenFork",
    run_decisions.CloseFanOut: "CloseFork",
    run_decisions.JoinBranches: "JoinBranches",
    run_decisions.DispatchNode: "DispatchNode",
    run_decisions.RecordExecution: "RecordExecution",
    run_decisions.KeepExecution: "KeepExecution",
    run_decisions.SetContext: "SetContext",
    run_decisions.RetryNode: "RetryNode",
    run_decisions.RedispatchNode: "RedispatchNode",
    run_decisions.StopNode: "StopNode",
    run_decisions.SetTimer: "SetTimer",
    run_decisions.ClearTimer: "ClearTimer",
    run_decisions.OpenGate: "OpenGate",
    run_decisions.CloseGate: "CloseGate",
    run_decisions.RecordSignal: "RecordSignal",
    run_decisions.KeepSignal: "KeepSignal",
    run_decisions.TakeSignal: "TakeSignal",
    run_decisions.RecordEvent: "RecordEvent",
    run_decisions.ChargeRun: "ChargeRun",
    run_decisions.EndRun: "EndRun",
    run_decisions.AnswerAgain: "AnswerAgain",
    run_decisions.RefuseRun: "RefuseRun",
}
"""The stored tag of each class. A tag never changes and is never used again for another class."""

_EVENT_NAMES: Final[Mapping[str, str]] = {
    "conversation.updated": "conversation_updated",
    "conversation.reset": "conversation_reset",
    "participant.joined": "participant_joined",
    "participant.left": "participant_left",
    "workflow.cancelled": "workflow_cancelled",
}
"""The stored name of each event that is stored under another name than its own."""

_EVENT_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("conversation", "conversation_turn"): "turn_started",
    # "turn_started" is the stored kind of the line above.
    ("conversation", "turn_started"): "queued_turn_started",
    ("run", "workflow_started"): "run_started",
    ("run", "workflow_completed"): "run_ended",
    ("run", "workflow_failed"): "run_ended",
    ("run", "workflow_cancelled"): "run_ended",
}
"""The stored kind, by kind of planner and payload field, where it is not the payload field."""

_CURRENT_NAMES: Final = {stored: name for name, stored in _EVENT_NAMES.items()}


@cache
def stored_event(planner: str, name: str) -> tuple[str, str]:
    """Return the stored name and kind of an event of a planner of this kind."""
    payload = name.replace(".", "_")
    return _EVENT_NAMES.get(name, name), _EVENT_KINDS.get((planner, payload), payload)


def event_name(stored: str) -> str:
    """Return the name of the event that is stored under ``stored``."""
    return _CURRENT_NAMES.get(stored, stored)


@cache
def tag_of(cls: type) -> str:
    """Return the tag that a class is stored under; the class name of a class outside `TAGS`."""
    return TAGS.get(cls, cls.__name__)


def classes_by_tag(classes: Iterable[type]) -> Mapping[str, type]:
    """Map the stored tags of these classes to the classes."""
    return {tag_of(cls): cls for cls in classes}


@cache
def stored_path(cls: type, path: str) -> str:
    """Return the stored form of an attribute path (``scope.project_id``) in values of ``cls``."""
    name, dot, rest = path.partition(".")
    own = dict(zip(_names(cls, "__struct_fields__"), _names(cls, "__struct_encode_fields__"), strict=True))
    stored = own.get(name, name)
    return f"{stored}.{stored_path(_class_of(cls, name), rest)}" if dot else stored


def _names(cls: type, attribute: str) -> tuple[str, ...]:
    return tuple(getattr(cls, attribute, ()))


def _class_of(cls: type, name: str) -> type:
    """Return the class of a field's values, without None; ``object`` for a field that is no single class."""
    hint: Any = get_type_hints(cls).get(name, object) if _names(cls, "__struct_fields__") else object
    options = [option for option in get_args(hint) or (hint,) if option is not NoneType]
    return options[0] if len(options) == 1 and isinstance(options[0], type) else object
