"""The working set of one conversation: what its planner sees, and how decisions change it.

Only unfinished turns, their pending operations and the last `RECENT_TURNS` turns are here; everything
else is in the store. `ConversationState.apply` is the only place that changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, assert_never

from wonder_server.core.conversation.by_class import suited
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
from wonder_server.core.conversation.told import Told
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
    heard: int = field(default=0, repr=False)
    """How many messages there are at hand."""
    letters: int = field(default=0, repr=False)
    """The characters of the messages at hand."""
    told: dict[str, Told] = field(default_factory=dict, compare=False, repr=False)
    """What the last assembly was told of earlier turns, by turn id."""
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
        """Those that go on, in their order: each of them has work."""
        unfinished = [self.turns[turn_id] for turn_id in self.works]
        active = [turn for turn in unfinished if turn.status is TurnStatus.ACTIVE]
        return sorted(active, key=lambda turn: turn.ordinal) if len(active) > 1 else active

    def apply(self, decision: Decision) -> None:
        """Change the working set as ``decision`` says, and the room's status as follows from that."""
        self.charge, self.has_turned = None, False
        way = _ways.get(type(decision))
        if way is None:
            way = _ways[type(decision)] = _way(decision)
        way(self, decision)
        room = self.conversation
        if room is not None:
            status = standing(room, self.turns.values(), self.operations.values())
            if status is not room.status:
                self.conversation, self.has_turned = replace(room, status=status), True

    def hear(self, message: Message) -> None:
        """A message of a turn at hand."""
        self.messages.setdefault(message.turn_id, []).append(message)
        self.heard += 1
        self.letters += len(message.content)

    def _start(self, decision: StartTurn) -> None:
        turn = decision.turn
        self._put_turn(turn)
        self.works[turn.id] = decision.work
        self.messages.setdefault(turn.id, [])
        self.moves[turn.id] = []
        self._count(turn.created_ms, turns=1)
        self._keep_time(turn)
        self._forget_old_turns()

    def _append(self, decision: AppendMessage) -> None:
        self.hear(decision.message)
        self._count(decision.message.created_ms, messages=1)

    def _ask(self, decision: DispatchModel) -> None:
        self._put_operation(decision.operation)
        self.requests[decision.request.turn_id] = decision.request

    def _record_move(self, decision: RecordMove) -> None:
        self._put_turn(decision.turn)
        self.moves[decision.turn.id].append(decision.move)
        self._count(decision.move.created_ms)
        self._close(decision.operation_id)

    def _resume(self, decision: ResumeFromTool | AsyncOperationCompleted) -> None:
        self._put_turn(decision.turn)
        self._put_move(decision.move)
        self._close(decision.operation_id)

    def _end_hook(self, decision: ContextAssembled | ExtractionEnded) -> None:
        self._put_turn(decision.turn)
        self._close(decision.operation_id)

    def _end_turn(self, turn: Turn) -> None:
        self._put_turn(turn)
        self._keep_time(turn)

    def _summarize(self, decision: HistorySummarized) -> None:
        self._close(decision.operation_id)
        if self.conversation is not None:
            self.conversation = replace(self.conversation, summary=decision.summary)

    def _charge(self, decision: ChargeTurn) -> None:
        self._put_turn(decision.turn)
        if decision.operation is not None:
            self._put_operation(decision.operation)

    def _release(self, turn_id: str) -> None:
        self.works.pop(turn_id, None)
        self.requests.pop(turn_id, None)
        self.moves.pop(turn_id, None)
        self._forget_old_turns()

    def _put_room(self, conversation: Conversation | None) -> None:
        self.conversation = conversation

    def _remove_record(self, decision: RemoveRecord) -> None:
        self._forget_all()
        self.conversation = decision.conversation

    def _forget_all(self) -> None:
        for held in (self.turns, self.messages, self.moves, self.works, self.requests, self.operations):
            held.clear()
        self.heard = self.letters = 0
        self.told.clear()

    def _put_turn(self, turn: Turn) -> None:
        before = self.turns.get(turn.id)
        self.same_turn = before is turn or before == turn
        self.turns[turn.id] = turn
        spent = difference(before, turn) if before is not None and not self.same_turn else None
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
        if at_ms <= conversation.updated_ms and not (turns or messages):
            return
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

    def _put_operation(self, operation: Operation) -> None:
        self.operations[operation.id] = operation

    def _close(self, operation_id: str) -> None:
        self.operations.pop(operation_id, None)

    def _forget_old_turns(self) -> None:
        """Keep what would be loaded: the newest turns, and those with unfinished work."""
        for turn_id in list(self.turns)[:-RECENT_TURNS] if len(self.turns) > RECENT_TURNS else ():
            if turn_id not in self.works:
                del self.turns[turn_id]
                gone = self.messages.pop(turn_id, ())
                self.heard -= len(gone)
                self.letters -= sum([len(message.content) for message in gone])


def _moved_on(conversation: Conversation, at_ms: int) -> int:
    """When it expires now that there is a turn."""
    after_ms = conversation.expire_after_ms
    return at_ms + after_ms if after_ms else conversation.expire_ms


Way = Callable[[ConversationState, Any], None]

_ways: dict[type, Way] = {}
"""How decisions of a class are applied; see `suited`."""


def _way(decision: Decision) -> Way:
    match decision:
        case StartConversation() | AddParticipant() | RemoveParticipant() | UpdateConversation():
            return suited(decision, lambda state, it: state._put_room(it.conversation))
        case RecordMerge() | EndConversation() | ResetConversation() | CloseRoom() | NoteSpent():
            return suited(decision, lambda state, it: state._put_room(it.conversation))
        case RemoveRecord():
            return suited(decision, ConversationState._remove_record)
        case StartTurn():
            return suited(decision, ConversationState._start)
        case AppendMessage():
            return suited(decision, ConversationState._append)
        case DispatchWorkflow() | DispatchTask() | DispatchAgent() | WriteMemory():
            return suited(decision, lambda state, it: state._put_operation(it.operation))
        case Redispatch() | RetryOperation():
            return suited(decision, lambda state, it: state._put_operation(it.operation))
        case DispatchModel():
            return suited(decision, ConversationState._ask)
        case ContextAssembled() | ExtractionEnded():
            return suited(decision, ConversationState._end_hook)
        case RecordMove():
            return suited(decision, ConversationState._record_move)
        case ResumeFromTool() | AsyncOperationCompleted():
            return suited(decision, ConversationState._resume)
        case CancelOperation():
            return suited(decision, lambda state, it: state._close(it.operation.id))
        case AssemblyFailed() | MemoryWritten():
            return suited(decision, lambda state, it: state._close(it.operation_id))
        case CompleteTurn() | FailTurn() | EndTurnByCancel():
            return suited(decision, lambda state, it: state._end_turn(it.turn))
        case ChargeTurn():
            return suited(decision, ConversationState._charge)
        case AdoptTurn():
            return suited(decision, lambda state, it: state._put_turn(it.turn))
        case ReleaseWork():
            return suited(decision, lambda state, it: state._release(it.turn_id))
        case HistorySummarized():
            return suited(decision, ConversationState._summarize)
        case MarkWaiting() | TrackAsyncOperation() | AgentCallEnded() | LimitReached() | ReduceContext():
            return _leave
        case WorkflowBegan() | WorkflowEnded() | AnswerCallAgain() | RefuseCall() | Refuse():
            return _leave
        case _:
            assert_never(decision)


def _leave(state: ConversationState, decision: Decision) -> None:
    """It changes nothing here."""
