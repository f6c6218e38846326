"""What a conversation's planner decides: document 1's decision types, as frozen values.

Each carries whole new values, never changes to old ones, so that applying it needs no thought.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model.lifecycle_decisions import LifecycleDecision
from wonder_server.core.conversation.model.values import (
    AgentCall,
    ContextReduction,
    Conversation,
    HookOutcome,
    Invocation,
    Limit,
    Message,
    Move,
    Operation,
    Request,
    Summary,
    Turn,
    TurnWork,
    WorkflowRun,
)
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value


class StartConversation(Value, frozen=True, kw_only=True):
    conversation: Conversation


class StartTurn(Value, frozen=True, kw_only=True):
    turn: Turn
    work: TurnWork


class AppendMessage(Value, frozen=True, kw_only=True):
    message: Message


class DispatchWorkflow(Value, frozen=True, kw_only=True):
    """Start a run: a hook (context assembly, memory extraction) or a tool's workflow."""

    operation: Operation


class ContextAssembled(Value, frozen=True, kw_only=True):
    """Assembly has come back."""

    turn: Turn
    operation_id: str
    outcome: HookOutcome


class AssemblyFailed(Value, frozen=True, kw_only=True):
    """Assembly has failed for good; the turn fails with it (feature D3)."""

    turn_id: str
    operation_id: str
    outcome: HookOutcome


class DispatchModel(Value, frozen=True, kw_only=True):
    """Call the model. Its answer will be spoken under ``operation.message_id``."""

    operation: Operation
    request: Request


class RecordMove(Value, frozen=True, kw_only=True):
    """The model has answered: the move it made, its tool calls still open."""

    turn: Turn
    move: Move
    operation_id: str


class ChargeTurn(Value, frozen=True, kw_only=True):
    """The turn has spent something besides its own moves: a delegate's turn, a summary. ``operation`` is the
    hook that did, which is charged as it spends from now on."""

    turn: Turn
    operation: Operation | None = None


class DispatchTask(Value, frozen=True, kw_only=True):
    """Run a tool's task."""

    operation: Operation


class DispatchAgent(Value, frozen=True, kw_only=True):
    """Call another agent."""

    operation: Operation


class AgentCallEnded(Value, frozen=True, kw_only=True):
    """An agent that was called has answered, declined or failed, or nobody waits for it any more."""

    turn_id: str
    call: AgentCall


class WorkflowStarted(Value, frozen=True, kw_only=True):
    """A run carries out a tool call from now on: the first, or that of a further attempt."""

    turn_id: str
    run: WorkflowRun


class WorkflowEnded(Value, frozen=True, kw_only=True):
    """A run of a tool call has ended, well or not, or nobody waits for it any more."""

    turn_id: str
    run: WorkflowRun


class TrackAsyncOperation(Value, frozen=True, kw_only=True):
    """The turn goes on without waiting for this operation, and stays active until it is back."""

    turn_id: str
    operation_id: str


class AsyncOperationCompleted(Value, frozen=True, kw_only=True):
    """An operation that the turn did not wait for has its result, good or bad. ``move`` is the one that
    called it; the model is told as soon as it does not speak."""

    turn: Turn
    move: Move
    invocation: Invocation
    operation_id: str


class MarkWaiting(Value, frozen=True, kw_only=True):
    """The turn waits for this operation before it goes on."""

    turn_id: str
    operation_id: str


class ResumeFromTool(Value, frozen=True, kw_only=True):
    """A tool call has its result. ``operation_id`` is empty if nothing was ever dispatched."""

    turn: Turn
    move: Move
    invocation: Invocation
    operation_id: str


class LimitReached(Value, frozen=True, kw_only=True):
    """A limit of the turn is reached: the model is told to wrap up, or the turn ends."""

    turn_id: str
    limit: Limit


class ReduceContext(Value, frozen=True, kw_only=True):
    """Something was left out or summed up, so that the turn's request fits the model."""

    turn_id: str
    reduction: ContextReduction


class HistorySummarized(Value, frozen=True, kw_only=True):
    """Older messages are summed up, for this turn and those that follow."""

    operation_id: str
    turn_id: str
    summary: Summary


class RetryOperation(Value, frozen=True, kw_only=True):
    """Try again at ``operation.wake_ms``. ``run_id`` is the run of the attempt that failed, if it had one."""

    operation: Operation
    fault: Fault
    run_id: str = ""


class Redispatch(Value, frozen=True, kw_only=True):
    """Hand out again: the wait between two attempts is over, or the server has restarted."""

    operation: Operation


class CancelOperation(Value, frozen=True, kw_only=True):
    operation: Operation


class CompleteTurn(Value, frozen=True, kw_only=True):
    turn: Turn


class FailTurn(Value, frozen=True, kw_only=True):
    turn: Turn


class EndTurnByCancel(Value, frozen=True, kw_only=True):
    turn: Turn


class WriteMemory(Value, frozen=True, kw_only=True):
    """Apply one memory operation that extraction returned as data (feature D4)."""

    operation: Operation


class MemoryWritten(Value, frozen=True, kw_only=True):
    operation_id: str
    output: Any


class ExtractionEnded(Value, frozen=True, kw_only=True):
    """Extraction, and all that it asked to be written, is over; the turn may carry the mark of failure."""

    turn: Turn
    operation_id: str
    outcome: HookOutcome


class ReleaseTurn(Value, frozen=True, kw_only=True):
    """Nothing of the turn is pending any more."""

    turn_id: str


class RepeatAnswer(Value, frozen=True, kw_only=True):
    """The turn that a parent asks for had ended already; its answer may have been lost."""

    turn: Turn


class AdoptTurn(Value, frozen=True, kw_only=True):
    """A parent asks for a turn that an earlier attempt of it began: that attempt is answered no more."""

    turn: Turn


class RefuseCall(Value, frozen=True, kw_only=True):
    """A call is not acceptable now; its parent is told, for nobody else waits."""

    parent: Parent
    fault: Fault


class Refuse(Value, frozen=True, kw_only=True):
    """The input is not acceptable now. Nothing changes; the caller is told."""

    fault: Fault


Decision = (
    StartConversation
    | LifecycleDecision
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
    | WorkflowStarted
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
    | ReleaseTurn
    | RepeatAnswer
    | AdoptTurn
    | RefuseCall
    | Refuse
)
