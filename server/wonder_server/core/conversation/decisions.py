"""What a conversation's planner decides: document 1's decision types, as frozen values.

Each carries whole new values, never changes to old ones, so that applying it needs no thought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wonder_server.core.commands import Parent
from wonder_server.core.conversation.room_decisions import RoomDecision
from wonder_server.core.conversation.values import (
    AgentCall,
    Conversation,
    HookOutcome,
    Invocation,
    Limit,
    Message,
    Move,
    Operation,
    Reduction,
    Request,
    Summary,
    Turn,
    Work,
    WorkflowRun,
)
from wonder_server.core.errors import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConversation:
    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTurn:
    turn: Turn
    work: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendMessage:
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchWorkflow:
    """Start a run: a hook (context assembly, memory extraction) or a tool's workflow."""

    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAssembled:
    """Assembly has come back."""

    turn: Turn
    operation_id: str
    outcome: HookOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyFailed:
    """Assembly has failed for good; the turn fails with it (feature D3)."""

    turn_id: str
    operation_id: str
    outcome: HookOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchModel:
    """Call the model. Its answer will be spoken under ``operation.message_id``."""

    operation: Operation
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMove:
    """The model has answered: the move it made, its tool calls still open."""

    turn: Turn
    move: Move
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeTurn:
    """The turn has spent something besides its own moves: a delegate's turn, a summary."""

    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTask:
    """Run a tool's task."""

    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchAgent:
    """Call another agent."""

    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCallEnded:
    """An agent that was called has answered, declined or failed, or nobody waits for it any more."""

    turn_id: str
    call: AgentCall


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowBegan:
    """A run carries out a tool call from now on: the first, or that of a further attempt."""

    turn_id: str
    run: WorkflowRun


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowEnded:
    """A run of a tool call has ended, well or not, or nobody waits for it any more."""

    turn_id: str
    run: WorkflowRun


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackAsyncOperation:
    """The turn goes on without waiting for this operation, and stays active until it is back."""

    turn_id: str
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncOperationCompleted:
    """An operation that the turn did not wait for has its result, good or bad. ``move`` is the one that
    called it; the model is told as soon as it does not speak."""

    turn: Turn
    move: Move
    invocation: Invocation
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkWaiting:
    """The turn waits for this operation before it goes on."""

    turn_id: str
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeFromTool:
    """A tool call has its result. ``operation_id`` is empty if nothing was ever dispatched."""

    turn: Turn
    move: Move
    invocation: Invocation
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A limit of the turn is reached: the model is told to wrap up, or the turn ends."""

    turn_id: str
    limit: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceContext:
    """Something was left out or summed up, so that the turn's request fits the model."""

    turn_id: str
    reduction: Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummarized:
    """Older messages are summed up, for this turn and those that follow."""

    operation_id: str
    turn_id: str
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOperation:
    """Try again at ``operation.wake_ms``. ``run_id`` is the run of the attempt that failed, if it had one."""

    operation: Operation
    fault: Fault
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redispatch:
    """Hand out again: the wait between two attempts is over, or the server has restarted."""

    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOperation:
    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteTurn:
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class FailTurn:
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTurnByCancel:
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMemory:
    """Apply one memory operation that extraction returned as data (feature D4)."""

    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWritten:
    operation_id: str
    output: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionEnded:
    """Extraction, and all that it asked to be written, is over; the turn may carry the mark of failure."""

    turn: Turn
    operation_id: str
    outcome: HookOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseWork:
    """Nothing of the turn is pending any more."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCallAgain:
    """The turn that a parent asks for had ended already; its answer may have been lost."""

    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptTurn:
    """A parent asks for a turn that an earlier attempt of it began: that attempt is answered no more."""

    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseCall:
    """A call is not acceptable now; its parent is told, for nobody else waits."""

    parent: Parent
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The input is not acceptable now. Nothing changes; the caller is told."""

    fault: Fault


Decision = (
    StartConversation
    | RoomDecision
    | StartTurn
    | AppendMessage
    | DispatchWorkflow
    | ContextAssembled
    | AssemblyFailed
    | DispatchModel
    | RecordMove
    | ChargeTurn
    | DispatchTask
    | DispatchAgent
    | AgentCallEnded
    | WorkflowBegan
    | WorkflowEnded
    | TrackAsyncOperation
    | AsyncOperationCompleted
    | MarkWaiting
    | ResumeFromTool
    | LimitReached
    | ReduceContext
    | HistorySummarized
    | RetryOperation
    | Redispatch
    | CancelOperation
    | CompleteTurn
    | FailTurn
    | EndTurnByCancel
    | WriteMemory
    | MemoryWritten
    | ExtractionEnded
    | ReleaseWork
    | AnswerCallAgain
    | AdoptTurn
    | RefuseCall
    | Refuse
)
