"""The working set of one conversation: what its planner sees, and how decisions change it.

Only unfinished turns, their pending operations and the last `RECENT_TURNS` turns are here; everything
else is in the store. `ConversationState.apply` is the only place that changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from wonder_server.core.conversation.decisions import (
    AdoptTurn,
    AgentCallEnded,
    AnswerCallAgain,
    AppendMessage,
    AssemblyFailed,
    AsyncOperationCompleted,
    CancelOperation,
    ChargeTurn,
    CompleteTurn,
    ContextAssembled,
    Decision,
    DispatchAgent,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    EndTurnByCancel,
    ExtractionEnded,
    FailTurn,
    HistorySummarized,
    LimitReached,
    MarkWaiting,
    MemoryWritten,
    RecordMove,
    Redispatch,
    ReduceContext,
    Refuse,
    RefuseCall,
    ReleaseWork,
    ResumeFromTool,
    RetryOperation,
    StartConversation,
    StartTurn,
    TrackAsyncOperation,
    WorkflowBegan,
    WorkflowEnded,
    WriteMemory,
)
from wonder_server.core.conversation.room_decisions import (
    AddParticipant,
    CloseRoom,
    EndConversation,
    NoteSpent,
    RecordMerge,
    RemoveParticipant,
    RemoveRecord,
    ResetConversation,
    UpdateConversation,
)
from wonder_server.core.conversation.spending import (
    Charge,
    charge,
    charge_of_time,
    charged,
    difference,
)
from wonder_server.core.conversation.standing import standing
from wonder_server.core.conversation.values import (
    Conversation,
    Message,
    Move,
    Operation,
    Request,
    Turn,
    TurnStatus,
    Work,
)
from wonder_server.core.frozen import replace

RECENT_TURNS = 50
"""How many turns are kept at hand; a persona's ``recent_turns_limit`` may not exceed it."""


@dataclass(slots=True)
class ConversationState:
    """See the module. ``conversation`` is None until it is created."""

    conversation: Conversation | None = None
    turns: dict[str, Turn] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    """Messages of the turns at hand, by turn id."""
    moves: dict[str, list[Move]] = field(default_factory=dict)
    """Moves of turns with unfinished work, by turn id."""
    works: dict[str, Work] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    has_turned: bool = field(default=False, compare=False, repr=False)
    """Whether the last decision made the room wait, or wait no longer."""
    same_turn: bool = field(default=False, compare=False, repr=False)
    """Whether the last decision left its turn as it was, so that its row need not be written again."""
    charge: Charge | None = field(default=None, compare=False, repr=False)
    """What the last decision charges to an agent."""

    def pending(self, turn_id: str) -> list[Operation]:
        """The turn's operations whose results are still to come, oldest first."""
        # By id, which begins with the time: a working set that was loaded gives the same order.
        return [op for _, op in sorted(self.operations.items()) if op.turn_id == turn_id]

    def active_turns(self) -> list[Turn]:
        return [turn for turn in self.turns.values() if turn.status is TurnStatus.ACTIVE]

    def apply(self, decision: Decision) -> None:
        """Change the working set as ``decision`` says, and the room's status as follows from that."""
        self.charge = None
        self._apply(decision)
        room = self.conversation
        self.has_turned = False
        if room is not None:
            status = standing(room, self.turns.values(), self.operations.values())
            if status is not room.status:
                self.conversation, self.has_turned = replace(room, status=status), True

    def _apply(self, decision: Decision) -> None:
        match decision:
            case (
                StartConversation()
                | AddParticipant()
                | RemoveParticipant()
                | UpdateConversation()
                | RecordMerge()
            ):
                self.conversation = decision.conversation
            case EndConversation() | ResetConversation() | CloseRoom() | NoteSpent():
                self.conversation = decision.conversation
            case RemoveRecord():
                self._forget_all()
                self.conversation = decision.conversation
            case StartTurn():
                self._put_turn(decision.turn)
                self.works[decision.turn.id] = decision.work
                self.messages.setdefault(decision.turn.id, [])
                self.moves[decision.turn.id] = []
                self._count(decision.turn.created_ms, turns=1)
                self._keep_time(decision.turn)
                self._forget_old_turns()
            case AppendMessage():
                self.messages.setdefault(decision.message.turn_id, []).append(decision.message)
                self._count(decision.message.created_ms, messages=1)
            case DispatchWorkflow() | DispatchTask() | DispatchAgent() | WriteMemory():
                self.operations[decision.operation.id] = decision.operation
            case Redispatch() | RetryOperation():
                self.operations[decision.operation.id] = decision.operation
            case DispatchModel():
                self.operations[decision.operation.id] = decision.operation
                self.requests[decision.request.turn_id] = decision.request
            case ContextAssembled():
                self._put_turn(decision.turn)
                self._close(decision.operation_id)
            case RecordMove():
                self._put_turn(decision.turn)
                self.moves[decision.turn.id].append(decision.move)
                self._count(decision.move.created_ms)
                self._close(decision.operation_id)
            case ResumeFromTool() | AsyncOperationCompleted():
                self._put_turn(decision.turn)
                self._put_move(decision.move)
                self._close(decision.operation_id)
            case CancelOperation():
                self._close(decision.operation.id)
            case AssemblyFailed():
                self._close(decision.operation_id)
            case CompleteTurn() | FailTurn() | EndTurnByCancel():
                self._put_turn(decision.turn)
                self._keep_time(decision.turn)
            case ChargeTurn() | AdoptTurn():
                self._put_turn(decision.turn)
            case MemoryWritten():
                self._close(decision.operation_id)
            case ExtractionEnded():
                self._put_turn(decision.turn)
                self._close(decision.operation_id)
            case ReleaseWork():
                self.works.pop(decision.turn_id, None)
                self.requests.pop(decision.turn_id, None)
                self.moves.pop(decision.turn_id, None)
                self._forget_old_turns()
            case HistorySummarized():
                self._close(decision.operation_id)
                if self.conversation is not None:
                    self.conversation = replace(self.conversation, summary=decision.summary)
            case MarkWaiting() | TrackAsyncOperation() | AgentCallEnded() | LimitReached() | ReduceContext():
                pass
            case WorkflowBegan() | WorkflowEnded() | AnswerCallAgain() | RefuseCall() | Refuse():
                pass
            case _:
                assert_never(decision)

    def _forget_all(self) -> None:
        for held in (self.turns, self.messages, self.moves, self.works, self.requests, self.operations):
            held.clear()

    def _put_turn(self, turn: Turn) -> None:
        before = self.turns.get(turn.id)
        self.same_turn = before == turn
        self.turns[turn.id] = turn
        spent = difference(before, turn) if before is not None else None
        if spent is not None and self.conversation is not None:
            self.conversation = charged(self.conversation, spent)
            self.charge = charge(turn, spent)

    def _keep_time(self, turn: Turn) -> None:
        """A turn has started or ended: for how long the room and the agent were busy, if that is limited."""
        conversation, work = self.conversation, self.works.get(turn.id)
        budget = work.agent.budget if work is not None else None
        if budget is not None and budget.max_duration_ms and turn.status is not TurnStatus.ACTIVE:
            self.charge = charge_of_time(turn, self.charge)
        if conversation is None or not conversation.budget.max_duration_ms:
            return
        since = conversation.busy_since_ms
        if turn.status is TurnStatus.ACTIVE:
            self.conversation = replace(conversation, busy_since_ms=since or turn.created_ms)
        elif since and not self.active_turns():
            busy = conversation.busy_ms + max(0, turn.completed_ms - since)
            self.conversation = replace(conversation, busy_ms=busy, busy_since_ms=0)

    def _count(self, at_ms: int, *, turns: int = 0, messages: int = 0) -> None:
        conversation = self.conversation
        assert conversation is not None, "a conversation is created before anything else"
        self.conversation = replace(
            conversation,
            updated_ms=max(conversation.updated_ms, at_ms),
            turn_count=conversation.turn_count + turns,
            expire_ms=_moved_on(conversation, at_ms) if turns else conversation.expire_ms,
            message_count=conversation.message_count + messages,
        )

    def _put_move(self, move: Move) -> None:
        moves = self.moves[move.turn_id]
        moves[move.sequence - 1] = move

    def _close(self, operation_id: str) -> None:
        self.operations.pop(operation_id, None)

    def _forget_old_turns(self) -> None:
        """Keep what would be loaded: the newest turns, and those with unfinished work."""
        for turn_id in list(self.turns)[:-RECENT_TURNS]:
            if turn_id not in self.works:
                del self.turns[turn_id]
                self.messages.pop(turn_id, None)


def _moved_on(conversation: Conversation, at_ms: int) -> int:
    """When it expires now that there is a turn."""
    after_ms = conversation.expire_after_ms
    return at_ms + after_ms if after_ms else conversation.expire_ms
