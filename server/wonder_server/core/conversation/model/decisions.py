"""Decisions of the conversation planner, as frozen values.

A decision carries whole new values, so applying it requires no computation from old ones. Only of a turn,
decisions after its start carry what can change: its `TurnProgress`.
"""

from __future__ import annotations

from wonder_server.core.actor.commands import Parent
from wonder_server.core.actor.gates import Gate
from wonder_server.core.conversation.model.event_payloads import (
    AgentCall,
    ContextReduction,
    HookOutcome,
    Limit,
    MemoryRefusal,
    ModelSwitch,
    OutputRejection,
    WorkflowRun,
)
from wonder_server.core.conversation.model.exchange import Summary
from wonder_server.core.conversation.model.histories.staging import KeepHistory, PublishConversation
from wonder_server.core.conversation.model.lifecycle_decisions import LifecycleDecision
from wonder_server.core.conversation.model.turn_progress import TurnProgress
from wonder_server.core.conversation.model.values import (
    Conversation,
    Invocation,
    Message,
    Move,
    Operation,
    Request,
    Turn,
    TurnWork,
)
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonValue


class StartConversation(Value, frozen=True, kw_only=True):
    """Create the conversation."""

    conversation: Conversation


class StartTurn(Value, frozen=True, kw_only=True):
    """Start a turn."""

    turn: Turn
    work: TurnWork


class BeginTurn(Value, frozen=True, kw_only=True):
    """Start a queued turn at ``started_ms``. The other fields are those of `Turn`."""

    turn: TurnProgress
    started_ms: int
    history_start: int = 0
    history_end: int = 0


class SteerTurn(Value, frozen=True, kw_only=True):
    """Give a message to a running turn, whose next request contains it."""

    work: TurnWork
    message: Message


class MoveMessage(Value, frozen=True, kw_only=True):
    """Move a message to another turn, from ``from_turn_id``, which ended before a request contained it."""

    message: Message
    from_turn_id: str


class PostMessage(Value, frozen=True, kw_only=True):
    """Append a message without starting a turn. ``turn`` is its record, which names no agent."""

    turn: Turn
    message: Message


class AppendMessage(Value, frozen=True, kw_only=True):
    """Append a message."""

    message: Message


class DispatchWorkflow(Value, frozen=True, kw_only=True):
    """Start a run: a hook (context assembly, memory extraction, summarization) or the workflow of a tool."""

    operation: Operation


class ContextAssembled(Value, frozen=True, kw_only=True):
    """Record that context assembly has succeeded."""

    turn: TurnProgress
    operation_id: str
    outcome: HookOutcome


class AssemblyFailed(Value, frozen=True, kw_only=True):
    """Record that context assembly has failed finally. The turn fails with it (feature D3)."""

    turn_id: str
    operation_id: str
    outcome: HookOutcome


class DispatchModel(Value, frozen=True, kw_only=True):
    """Call the model. It streams its answer under ``operation.message_id``."""

    operation: Operation
    request: Request


class RecordMove(Value, frozen=True, kw_only=True):
    """Record the model's answer as a move. The results of its tool calls are pending."""

    turn: TurnProgress
    move: Move
    operation_id: str


class ChargeTurn(Value, frozen=True, kw_only=True):
    """Add usage to the turn that none of its own moves has: of a delegate's turn, of a hook, of a failed
    call.

    ``operation`` is the hook that the usage belongs to. Its later usage is charged when it occurs.
    ``run_id`` is the run whose account is charged too; "" without one.
    """

    turn: TurnProgress
    operation: Operation | None = None
    run_id: str = ""


class DispatchTask(Value, frozen=True, kw_only=True):
    """Run the task of a tool."""

    operation: Operation


class DispatchAgent(Value, frozen=True, kw_only=True):
    """Call another agent."""

    operation: Operation


class RequestApproval(Value, frozen=True, kw_only=True):
    """Let a tool call wait at a gate until a person approves or rejects it."""

    operation: Operation
    gate: Gate


class CloseApproval(Value, frozen=True, kw_only=True):
    """Close the gate of a tool call: a person has answered, or the turn has ended.

    ``move`` is the move of the call if a person has edited the arguments.
    """

    gate: Gate
    move: Move | None = None


class MeasureWaits(Value, frozen=True, kw_only=True):
    """Ask how long the work of a tool call has waited for people, since its deadline has come."""

    operation: Operation


class ExtendDeadline(Value, frozen=True, kw_only=True):
    """Move the deadline of a tool call whose work has waited for people, ``waited_ms`` more than was
    known.
    """

    operation: Operation
    waited_ms: int


class ShowGate(Value, frozen=True, kw_only=True):
    """Show a gate of work that a turn waits for in the turn's conversation, as it opens or closes.

    ``operation`` is that of the work, with the gates that are open now; None if it ends with this input.
    """

    turn_id: str
    gate: Gate
    operation: Operation | None = None


class AgentCallEnded(Value, frozen=True, kw_only=True):
    """Record the end of an agent call: an answer, a refusal, a failure or a cancellation."""

    turn_id: str
    call: AgentCall


class WorkflowStarted(Value, frozen=True, kw_only=True):
    """Record that a run executes a tool call: its first attempt or a later one."""

    turn_id: str
    run: WorkflowRun


class WorkflowEnded(Value, frozen=True, kw_only=True):
    """Record the end of a run of a tool call: success, failure or cancellation."""

    turn_id: str
    run: WorkflowRun


class TrackAsyncOperation(Value, frozen=True, kw_only=True):
    """Continue the turn without waiting for the operation. The turn stays active until the result arrives."""

    turn_id: str
    operation_id: str


class AsyncOperationCompleted(Value, frozen=True, kw_only=True):
    """Record the result of an asynchronous operation.

    ``move`` is the move that called it. The model receives the result with its next request.
    """

    turn: TurnProgress
    move: Move
    invocation: Invocation
    operation_id: str


class MarkWaiting(Value, frozen=True, kw_only=True):
    """Wait for the operation before the turn continues."""

    turn_id: str
    operation_id: str


class ResumeFromTool(Value, frozen=True, kw_only=True):
    """Record the result of a tool call. ``operation_id`` is empty if the call was refused before dispatch."""

    turn: TurnProgress
    move: Move
    invocation: Invocation
    operation_id: str


class LimitReached(Value, frozen=True, kw_only=True):
    """Record that the turn has reached a limit. The model is asked to finish, or the turn ends."""

    turn_id: str
    limit: Limit


class RejectOutput(Value, frozen=True, kw_only=True):
    """Record that an answer does not satisfy the turn's output schema. A repair is requested, or the turn
    fails.
    """

    turn_id: str
    rejection: OutputRejection


class SwitchModel(Value, frozen=True, kw_only=True):
    """Go on with another model, since the provider of the present one is unavailable."""

    turn_id: str
    work: TurnWork
    switch: ModelSwitch


class ReduceContext(Value, frozen=True, kw_only=True):
    """Record that the request was reduced to fit the model."""

    turn_id: str
    reduction: ContextReduction


class HistorySummarized(Value, frozen=True, kw_only=True):
    """Store a summary of older messages, for this turn and later ones."""

    operation_id: str
    turn_id: str
    summary: Summary


class RetryOperation(Value, frozen=True, kw_only=True):
    """Retry at ``operation.wake_ms``. ``run_id`` is the run of the failed attempt; "" without one."""

    operation: Operation
    fault: Fault
    run_id: str = ""


class Redispatch(Value, frozen=True, kw_only=True):
    """Dispatch again, after the backoff or after a restart of the server."""

    operation: Operation


class CancelOperation(Value, frozen=True, kw_only=True):
    """Cancel a pending operation."""

    operation: Operation


class CompleteTurn(Value, frozen=True, kw_only=True):
    """Complete the turn."""

    turn: TurnProgress


class FailTurn(Value, frozen=True, kw_only=True):
    """Fail the turn."""

    turn: TurnProgress


class EndTurnByCancel(Value, frozen=True, kw_only=True):
    """Cancel the turn."""

    turn: TurnProgress


class WriteMemory(Value, frozen=True, kw_only=True):
    """Execute one memory operation that extraction returned as data (feature D4)."""

    operation: Operation


class RefuseMemoryOperations(Value, frozen=True, kw_only=True):
    """Record that some of the memory operations that extraction returned are not applied."""

    turn_id: str
    refusal: MemoryRefusal


class MemoryWritten(Value, frozen=True, kw_only=True):
    """Record that a memory operation has succeeded."""

    operation_id: str
    output: JsonValue


class ExtractionEnded(Value, frozen=True, kw_only=True):
    """Record the end of memory extraction and of its memory operations. ``turn`` may carry the mark of
    failure.
    """

    turn: TurnProgress
    operation_id: str
    outcome: HookOutcome


class ReleaseTurn(Value, frozen=True, kw_only=True):
    """Remove the work of a turn that has nothing pending."""

    turn_id: str


class RepeatAnswer(Value, frozen=True, kw_only=True):
    """Repeat the answer of an ended turn to a parent that asks again."""

    turn: TurnProgress


class AdoptTurn(Value, frozen=True, kw_only=True):
    """Answer the parent's new attempt with the turn that its earlier attempt started."""

    turn: TurnProgress


class RefuseCall(Value, frozen=True, kw_only=True):
    """Reject a call of an agent, with an answer to its parent."""

    parent: Parent
    fault: Fault


class Refuse(Value, frozen=True, kw_only=True):
    """Reject the input. Nothing changes; the caller gets the fault."""

    fault: Fault


Decision = (
    StartConversation
    | LifecycleDecision
    | KeepHistory
    | PublishConversation
    | StartTurn
    | BeginTurn
    | SteerTurn
    | MoveMessage
    | PostMessage
    | AppendMessage
    | DispatchWorkflow
    | ContextAssembled
    | AssemblyFailed
    | DispatchModel
    | RecordMove
    | ChargeTurn
    | DispatchTask
    | DispatchAgent
    | RequestApproval
    | CloseApproval
    | MeasureWaits
    | ExtendDeadline
    | ShowGate
    | AgentCallEnded
    | WorkflowStarted
    | WorkflowEnded
    | TrackAsyncOperation
    | AsyncOperationCompleted
    | MarkWaiting
    | ResumeFromTool
    | LimitReached
    | RejectOutput
    | SwitchModel
    | ReduceContext
    | HistorySummarized
    | RetryOperation
    | Redispatch
    | CancelOperation
    | CompleteTurn
    | FailTurn
    | EndTurnByCancel
    | WriteMemory
    | RefuseMemoryOperations
    | MemoryWritten
    | ExtractionEnded
    | ReleaseTurn
    | RepeatAnswer
    | AdoptTurn
    | RefuseCall
    | Refuse
)
