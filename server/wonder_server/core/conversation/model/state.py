"""The working set of one conversation: what its planner sees, and how decisions change it.

Only unfinished turns, their pending operations and the last `RECENT_TURNS` turns are here; everything
else is in the store. `ConversationState.apply` is the only place that changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, assert_never

from wonder_server.core.conversation.model.class_dispatch import typed_handler
from wonder_server.core.conversation.model.decisions import (
    AdoptTurn,
    AgentCallEnded,
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
    ReleaseTurn,
    RepeatAnswer,
    ResumeFromTool,
    RetryOperation,
    StartConversation,
    StartTurn,
    TrackAsyncOperation,
    WorkflowEnded,
    WorkflowStarted,
    WriteMemory,
)
from wonder_server.core.conversation.model.history_entry import HistoryEntry
from wonder_server.core.conversation.model.lifecycle_decisions import (
    AddParticipant,
    EndConversation,
    EraseRecord,
    MarkDeleted,
    RecordMerge,
    RemoveParticipant,
    ResetConversation,
    SetStaleArchive,
    UpdateConversation,
)
from wonder_server.core.conversation.model.status import conversation_status
from wonder_server.core.conversation.model.usage import (
    AccountCharge,
    add_usage,
    charge,
    charge_of_time,
    difference,
)
from wonder_server.core.conversation.model.values import (
    Conversation,
    Message,
    Move,
    Operation,
    Request,
    Turn,
    TurnStatus,
    TurnWork,
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
    turn_work: dict[str, TurnWork] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    message_count: int = field(default=0, repr=False)
    """How many messages there are at hand."""
    character_count: int = field(default=0, repr=False)
    """The characters of the messages at hand."""
    history_cache: dict[str, HistoryEntry] = field(default_factory=dict, compare=False, repr=False)
    """What the last assembly was told of earlier turns, by turn id."""
    status_changed: bool = field(default=False, compare=False, repr=False)
    """Whether the last decision made the room wait, or wait no longer."""
    turn_unchanged: bool = field(default=False, compare=False, repr=False)
    """Whether the last decision left its turn as it was, so that its row need not be written again."""
    charge: AccountCharge | None = field(default=None, compare=False, repr=False)
    """What the last decision charges to an agent."""

    def pending(self, turn_id: str) -> list[Operation]:
        """The turn's operations whose results are still to come, oldest first."""
        # By id, which begins with the time: a working set that was loaded gives the same order.
        return [op for _, op in sorted(self.operations.items()) if op.turn_id == turn_id]

    def active_turns(self) -> list[Turn]:
        """Those that go on, in their order: each of them has work."""
        unfinished = [self.turns[turn_id] for turn_id in self.turn_work]
        active = [turn for turn in unfinished if turn.status is TurnStatus.ACTIVE]
        return sorted(active, key=lambda turn: turn.ordinal) if len(active) > 1 else active

    def apply(self, decision: Decision) -> None:
        """Change the working set as ``decision`` says, and the room's status as follows from that."""
        self.charge, self.status_changed = None, False
        handler = _handlers.get(type(decision))
        if handler is None:
            handler = _handlers[type(decision)] = _handler(decision)
        handler(self, decision)
        conversation = self.conversation
        if conversation is not None:
            status = conversation_status(conversation, self.turns.values(), self.operations.values())
            if status is not conversation.status:
                self.conversation, self.status_changed = replace(conversation, status=status), True

    def add_message(self, message: Message) -> None:
        """A message of a turn at hand."""
        self.messages.setdefault(message.turn_id, []).append(message)
        self.message_count += 1
        self.character_count += len(message.content)

    def _start(self, decision: StartTurn) -> None:
        turn = decision.turn
        self._put_turn(turn)
        self.turn_work[turn.id] = decision.work
        self.messages.setdefault(turn.id, [])
        self.moves[turn.id] = []
        self._count(turn.created_ms, turns=1)
        self._track_busy_time(turn)
        self._evict_old_turns()

    def _append(self, decision: AppendMessage) -> None:
        self.add_message(decision.message)
        self._count(decision.message.created_ms, messages=1)

    def _dispatch_model(self, decision: DispatchModel) -> None:
        self._put_operation(decision.operation)
        self.requests[decision.request.turn_id] = decision.request

    def _record_move(self, decision: RecordMove) -> None:
        self._put_turn(decision.turn)
        self.moves[decision.turn.id].append(decision.move)
        self._count(decision.move.created_ms)
        self._remove_operation(decision.operation_id)

    def _resume(self, decision: ResumeFromTool | AsyncOperationCompleted) -> None:
        self._put_turn(decision.turn)
        self._put_move(decision.move)
        self._remove_operation(decision.operation_id)

    def _end_hook(self, decision: ContextAssembled | ExtractionEnded) -> None:
        self._put_turn(decision.turn)
        self._remove_operation(decision.operation_id)

    def _end_turn(self, turn: Turn) -> None:
        self._put_turn(turn)
        self._track_busy_time(turn)

    def _summarize(self, decision: HistorySummarized) -> None:
        self._remove_operation(decision.operation_id)
        if self.conversation is not None:
            self.conversation = replace(self.conversation, summary=decision.summary)

    def _charge(self, decision: ChargeTurn) -> None:
        self._put_turn(decision.turn)
        if decision.operation is not None:
            self._put_operation(decision.operation)

    def _release(self, turn_id: str) -> None:
        self.turn_work.pop(turn_id, None)
        self.requests.pop(turn_id, None)
        self.moves.pop(turn_id, None)
        self._evict_old_turns()

    def _put_conversation(self, conversation: Conversation | None) -> None:
        self.conversation = conversation

    def _remove_record(self, decision: EraseRecord) -> None:
        self._clear()
        self.conversation = decision.conversation

    def _clear(self) -> None:
        for held in (self.turns, self.messages, self.moves, self.turn_work, self.requests, self.operations):
            held.clear()
        self.message_count = self.character_count = 0
        self.history_cache.clear()

    def _put_turn(self, turn: Turn) -> None:
        before = self.turns.get(turn.id)
        self.turn_unchanged = before is turn or before == turn
        self.turns[turn.id] = turn
        spent = difference(before, turn) if before is not None and not self.turn_unchanged else None
        if spent is not None and self.conversation is not None:
            self.conversation = add_usage(self.conversation, spent)
            self.charge = charge(turn, spent)

    def _track_busy_time(self, turn: Turn) -> None:
        """A turn has started or ended: for how long the room and the agent were busy, if that is limited."""
        conversation, work = self.conversation, self.turn_work.get(turn.id)
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
            expire_ms=_extended_expiry(conversation, at_ms) if turns else conversation.expire_ms,
            message_count=conversation.message_count + messages,
        )

    def _put_move(self, move: Move) -> None:
        moves = self.moves[move.turn_id]
        moves[move.sequence - 1] = move

    def _put_operation(self, operation: Operation) -> None:
        self.operations[operation.id] = operation

    def _remove_operation(self, operation_id: str) -> None:
        self.operations.pop(operation_id, None)

    def _evict_old_turns(self) -> None:
        """Keep what would be loaded: the newest turns, and those with unfinished work."""
        for turn_id in list(self.turns)[:-RECENT_TURNS] if len(self.turns) > RECENT_TURNS else ():
            if turn_id not in self.turn_work:
                del self.turns[turn_id]
                gone = self.messages.pop(turn_id, ())
                self.message_count -= len(gone)
                self.character_count -= sum([len(message.content) for message in gone])


def _extended_expiry(conversation: Conversation, at_ms: int) -> int:
    """When it expires now that there is a turn."""
    after_ms = conversation.expire_after_ms
    return at_ms + after_ms if after_ms else conversation.expire_ms


Handler = Callable[[ConversationState, Any], None]

_handlers: dict[type, Handler] = {}
"""How decisions of a class are applied; see `suited`."""


def _handler(decision: Decision) -> Handler:
    match decision:
        case StartConversation() | AddParticipant() | RemoveParticipant() | UpdateConversation():
            return typed_handler(decision, lambda state, it: state._put_conversation(it.conversation))
        case RecordMerge() | EndConversation() | ResetConversation() | MarkDeleted() | SetStaleArchive():
            return typed_handler(decision, lambda state, it: state._put_conversation(it.conversation))
        case EraseRecord():
            return typed_handler(decision, ConversationState._remove_record)
        case StartTurn():
            return typed_handler(decision, ConversationState._start)
        case AppendMessage():
            return typed_handler(decision, ConversationState._append)
        case DispatchWorkflow() | DispatchTask() | DispatchAgent() | WriteMemory():
            return typed_handler(decision, lambda state, it: state._put_operation(it.operation))
        case Redispatch() | RetryOperation():
            return typed_handler(decision, lambda state, it: state._put_operation(it.operation))
        case DispatchModel():
            return typed_handler(decision, ConversationState._dispatch_model)
        case ContextAssembled() | ExtractionEnded():
            return typed_handler(decision, ConversationState._end_hook)
        case RecordMove():
            return typed_handler(decision, ConversationState._record_move)
        case ResumeFromTool() | AsyncOperationCompleted():
            return typed_handler(decision, ConversationState._resume)
        case CancelOperation():
            return typed_handler(decision, lambda state, it: state._remove_operation(it.operation.id))
        case AssemblyFailed() | MemoryWritten():
            return typed_handler(decision, lambda state, it: state._remove_operation(it.operation_id))
        case CompleteTurn() | FailTurn() | EndTurnByCancel():
            return typed_handler(decision, lambda state, it: state._end_turn(it.turn))
        case ChargeTurn():
            return typed_handler(decision, ConversationState._charge)
        case AdoptTurn():
            return typed_handler(decision, lambda state, it: state._put_turn(it.turn))
        case ReleaseTurn():
            return typed_handler(decision, lambda state, it: state._release(it.turn_id))
        case HistorySummarized():
            return typed_handler(decision, ConversationState._summarize)
        case MarkWaiting() | TrackAsyncOperation() | AgentCallEnded() | LimitReached() | ReduceContext():
            return _ignore
        case WorkflowStarted() | WorkflowEnded() | RepeatAnswer() | RefuseCall() | Refuse():
            return _ignore
        case _:
            assert_never(decision)


def _ignore(state: ConversationState, decision: Decision) -> None:
    """It changes nothing here."""
