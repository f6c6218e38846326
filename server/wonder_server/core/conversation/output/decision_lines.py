"""Decisions as clients list them: a type in the words of the specification, ids, and a short summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wonder_server.core.conversation.model import decisions, lifecycle_decisions
from wonder_server.core.conversation.model.decisions import Decision
from wonder_server.core.conversation.model.event_payloads import HookOutcome
from wonder_server.core.conversation.model.histories import staging
from wonder_server.core.conversation.model.values import (
    Conversation,
    Invocation,
    Message,
    Move,
    Operation,
    Turn,
)
from wonder_server.core.errors import Fault

MAX_SUMMARY_CHARACTERS: Final = 200

TYPES: Final[Mapping[type, str]] = {
    lifecycle_decisions.AddParticipant: "ADD_PARTICIPANT",
    lifecycle_decisions.RemoveParticipant: "REMOVE_PARTICIPANT",
    lifecycle_decisions.UpdateConversation: "UPDATE_CONVERSATION",
    lifecycle_decisions.RecordMerge: "RECORD_MERGE",
    lifecycle_decisions.EndConversation: "END_CONVERSATION",
    lifecycle_decisions.ResetConversation: "RESET_CONVERSATION",
    lifecycle_decisions.MarkDeleted: "MARK_DELETED",
    lifecycle_decisions.SetStaleArchive: "SET_STALE_ARCHIVE",
    lifecycle_decisions.EraseRecord: "ERASE_RECORD",
    decisions.StartConversation: "START_CONVERSATION",
    staging.KeepHistory: "KEEP_HISTORY",
    staging.PublishConversation: "PUBLISH_CONVERSATION",
    decisions.StartTurn: "START_TURN",
    decisions.AppendMessage: "APPEND_MESSAGE",
    decisions.DispatchWorkflow: "DISPATCH_WORKFLOW",
    decisions.ContextAssembled: "CONTEXT_ASSEMBLED",
    decisions.AssemblyFailed: "ASSEMBLY_FAILED",
    decisions.DispatchModel: "CALL_LLM",
    decisions.RecordMove: "RECORD_MOVE",
    decisions.ChargeTurn: "CHARGE_TURN",
    decisions.DispatchTask: "DISPATCH_TASK",
    decisions.DispatchAgent: "DISPATCH_AGENT",
    decisions.RequestApproval: "REQUEST_APPROVAL",
    decisions.CloseApproval: "CLOSE_APPROVAL",
    decisions.ShowGate: "SHOW_GATE",
    decisions.MeasureWaits: "MEASURE_WAITS",
    decisions.ExtendDeadline: "EXTEND_DEADLINE",
    decisions.AgentCallEnded: "AGENT_CALL_ENDED",
    decisions.WorkflowStarted: "WORKFLOW_STARTED",
    decisions.WorkflowEnded: "WORKFLOW_ENDED",
    decisions.TrackAsyncOperation: "TRACK_ASYNC_OPERATION",
    decisions.AsyncOperationCompleted: "ASYNC_OPERATION_COMPLETED",
    decisions.MarkWaiting: "MARK_WAITING",
    decisions.ResumeFromTool: "RESUME_FROM_TOOL",
    decisions.LimitReached: "LIMIT_REACHED",
    decisions.RejectOutput: "REJECT_OUTPUT",
    decisions.SwitchModel: "SWITCH_MODEL",
    decisions.ReduceContext: "REDUCE_CONTEXT",
    decisions.HistorySummarized: "HISTORY_SUMMARIZED",
    decisions.RetryOperation: "RETRY_OPERATION",
    decisions.Redispatch: "REDISPATCH",
    decisions.CancelOperation: "CANCEL_OPERATION",
    decisions.BeginTurn: "BEGIN_TURN",
    decisions.SteerTurn: "STEER_TURN",
    decisions.MoveMessage: "MOVE_MESSAGE",
    decisions.PostMessage: "POST_MESSAGE",
    decisions.CompleteTurn: "COMPLETE_TURN",
    decisions.FailTurn: "FAIL_TURN",
    decisions.EndTurnByCancel: "CANCEL_TURN",
    decisions.WriteMemory: "WRITE_MEMORY",
    decisions.MemoryWritten: "MEMORY_WRITTEN",
    decisions.RefuseMemoryOperations: "REFUSE_MEMORY_OPERATIONS",
    decisions.ExtractionEnded: "EXTRACTION_ENDED",
    decisions.ReleaseTurn: "RELEASE_TURN",
    decisions.RepeatAnswer: "REPEAT_ANSWER",
    decisions.AdoptTurn: "ADOPT_TURN",
    decisions.RefuseCall: "REFUSE_CALL",
    decisions.Refuse: "REFUSE",
}
"""The type of each decision. A type never changes. A `WriteMemory` that changes or removes a memory is
`UPDATE_MEMORY`."""

UPDATE_MEMORY: Final = "UPDATE_MEMORY"


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """One decision. ``turn_id`` is empty for a decision about no turn, and for `MemoryWritten`, which names
    only its operation."""

    type: str
    turn_id: str
    operation_id: str
    summary: str


def line_of(decision: Decision) -> DecisionLine:
    """Return the line of a decision."""
    operation: Operation | None = getattr(decision, "operation", None)
    return DecisionLine(
        type=_type(decision, operation),
        turn_id=_turn_id(decision, operation),
        operation_id=operation.id if operation is not None else getattr(decision, "operation_id", ""),
        summary=_summary(decision),
    )


def _type(decision: Decision, operation: Operation | None) -> str:
    if isinstance(decision, decisions.WriteMemory) and operation is not None:
        item = operation.input
        if isinstance(item, dict) and item.get("op", "write") != "write":
            return UPDATE_MEMORY
    return TYPES[type(decision)]


def _turn_id(decision: Decision, operation: Operation | None) -> str:
    for name in ("turn", "message", "move", "gate"):
        value = getattr(decision, name, None)
        if value is not None:
            return str(value.id if name == "turn" else value.turn_id)
    return str(operation.turn_id if operation is not None else getattr(decision, "turn_id", ""))


# --- summaries --------------------------------------------------------------------------------------


def _summary(decision: Decision) -> str:
    """Return what the decision says, as one line of at most `MAX_SUMMARY_CHARACTERS`."""
    parts = []
    for name, describe in _DESCRIBED.items():
        value = getattr(decision, name, None)
        if value is not None and (text := describe(value)):
            parts.append(text)
    # Long texts are cut before they are searched for spaces.
    text = " ".join(" · ".join(parts)[: 4 * MAX_SUMMARY_CHARACTERS].split())
    return text if len(text) <= MAX_SUMMARY_CHARACTERS else text[: MAX_SUMMARY_CHARACTERS - 1] + "…"


def _of_turn(turn: Any) -> str:
    if isinstance(turn, Turn):
        return f"{turn.agent_name}: {turn.input[:MAX_SUMMARY_CHARACTERS]}"
    return _of_fault(turn.fault) if turn.fault is not None else ""


def _of_message(message: Message) -> str:
    return f"{message.role.value}: {message.content[:MAX_SUMMARY_CHARACTERS]}"


def _of_operation(operation: Operation) -> str:
    text = operation.tool_name or operation.kind.value
    if operation.target:
        text += f" → {operation.target}"
    if operation.attempt > 1:
        text += f", attempt {operation.attempt}"
    if operation.kind.value == "memory" and isinstance(operation.input, dict):
        known = {name: operation.input[name] for name in ("op", "id", "content") if name in operation.input}
        text = json.dumps(known, ensure_ascii=False)
    return text


def _of_move(move: Move) -> str:
    calls = ", ".join(each.call.name for each in move.invocations)
    return f"move {move.sequence}, {move.stop_reason}" + (f": {calls}" if calls else "")


def _of_invocation(entry: Invocation) -> str:
    if entry.result is None:
        return entry.call.name
    code = "" if entry.result.code is None else f"{entry.result.code.value}: {entry.result.message}"
    return f"{entry.call.name}: {'success' if entry.result.success else code}"


def _of_outcome(outcome: HookOutcome) -> str:
    return _of_fault(outcome.fault) if outcome.fault is not None else outcome.workflow


def _of_fault(fault: Fault) -> str:
    return f"{fault.reason.value}: {fault.message}"


def _of_conversation(conversation: Conversation) -> str:
    return conversation.status.value


_DESCRIBED: Final[Mapping[str, Callable[[Any], str]]] = {
    "turn": _of_turn,
    "message": _of_message,
    "operation": _of_operation,
    "invocation": _of_invocation,
    "move": _of_move,
    "conversation": _of_conversation,
    "turns": lambda turns: f"{len(turns)} turns",
    "participant": lambda participant: f"{participant.type} {participant.id}",
    "outcome": _of_outcome,
    "limit": lambda limit: _of_fault(limit.fault),
    "rejection": lambda rejection: " ".join(rejection.problems),
    "refusal": lambda refusal: " ".join(refusal.reasons),
    "call": lambda call: call.agent_id,
    "run": lambda run: run.workflow,
    "gate": lambda gate: f"{gate.id}, {gate.status.value}" + (f" by {gate.user_id}" if gate.user_id else ""),
    "fault": _of_fault,
}
"""The description of each field that a summary shows."""
