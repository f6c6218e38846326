"""Changes of the conversation's state, one function per kind of decision.

`wonder_server.core.conversation.output.decision_table` names the function of each decision class.
"""

from __future__ import annotations

from typing import Protocol

from wonder_server.core.content.parts import character_count
from wonder_server.core.conversation.context.transcript import exchanges_of
from wonder_server.core.conversation.model.decisions import (
    AppendMessage,
    AsyncOperationCompleted,
    BeginTurn,
    CancelOperation,
    ChargeTurn,
    CloseApproval,
    ContextAssembled,
    DispatchModel,
    ExtendDeadline,
    ExtractionEnded,
    HistorySummarized,
    MoveMessage,
    PostMessage,
    RecordMove,
    ReleaseTurn,
    RequestApproval,
    ResumeFromTool,
    ShowGate,
    StartTurn,
    SteerTurn,
    SwitchModel,
)
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.model.state import RECENT_TURNS, ConversationState
from wonder_server.core.conversation.model.status import conversation_status
from wonder_server.core.conversation.model.turn_progress import TurnProgress, with_progress
from wonder_server.core.conversation.model.usage import (
    add_usage,
    began_ms,
    charge,
    charge_of_time,
    difference,
    other_accounts,
)
from wonder_server.core.conversation.model.values import Conversation, Move, Operation, Turn, TurnStatus
from wonder_server.core.frozen import replace


class WithConversation(Protocol):
    """A decision that carries the changed conversation."""

    @property
    def conversation(self) -> Conversation: ...


class WithOperation(Protocol):
    """A decision that carries a new or changed operation."""

    @property
    def operation(self) -> Operation: ...


class WithOperationId(Protocol):
    """A decision that ends an operation."""

    @property
    def operation_id(self) -> str: ...


class WithProgress(Protocol):
    """A decision that carries the changed progress of a turn."""

    @property
    def turn(self) -> TurnProgress: ...


def update_status(state: ConversationState) -> None:
    """Set the conversation's status from its turns and pending operations."""
    conversation = state.conversation
    if conversation is not None:
        status = conversation_status(conversation, state.active_turns(), state.operations.values())
        if status is not conversation.status:
            state.conversation, state.status_changed = replace(conversation, status=status), True


def put_conversation(state: ConversationState, decision: WithConversation) -> None:
    state.conversation = decision.conversation


def erase_record(state: ConversationState, decision: EraseRecord) -> None:
    if decision.conversation is not None:
        # Archived: the record comes back before the next turn, so a replay must know it.
        state.conversation = decision.conversation
        return
    state.turns.clear()
    state.messages.clear()
    state.moves.clear()
    state.exchanges.clear()
    state.turn_work.clear()
    state.requests.clear()
    state.operations.clear()
    state.gates.clear()
    state.message_count = state.character_count = 0
    state.history_cache.clear()
    state.past_cache.clear()
    state.conversation = None


def start_turn(state: ConversationState, decision: StartTurn) -> None:
    turn = decision.turn
    state.turns[turn.id] = turn
    state.turn_work[turn.id] = decision.work
    state.messages.setdefault(turn.id, [])
    state.moves[turn.id] = []
    _count(state, turn.created_ms, turns=1)
    _track_busy_time(state, turn)
    evict_old_turns(state)


def begin_turn(state: ConversationState, decision: BeginTurn) -> None:
    _put_turn(state, decision.turn)
    turn = replace(
        state.turns[decision.turn.id],
        started_ms=decision.started_ms,
        history_start=decision.history_start,
        history_end=decision.history_end,
    )
    state.turns[turn.id] = turn
    _track_busy_time(state, turn)


def steer_turn(state: ConversationState, decision: SteerTurn) -> None:
    state.turn_work[decision.work.turn_id] = decision.work
    state.add_message(decision.message)
    _count(state, decision.message.created_ms, messages=1)


def move_message(state: ConversationState, decision: MoveMessage) -> None:
    message = decision.message
    left = state.messages.get(decision.from_turn_id, [])
    # A new list: past turns and entries of assemblies hold the old one.
    state.messages[decision.from_turn_id] = [each for each in left if each.id != message.id]
    state.messages.setdefault(message.turn_id, []).append(message)


def post_message(state: ConversationState, decision: PostMessage) -> None:
    turn = decision.turn
    state.turns[turn.id] = turn
    state.messages.setdefault(turn.id, [])
    state.add_message(decision.message)
    _count(state, turn.created_ms, turns=1, messages=1)
    evict_old_turns(state)


def append_message(state: ConversationState, decision: AppendMessage) -> None:
    state.add_message(decision.message)
    _count(state, decision.message.created_ms, messages=1)


def put_operation(state: ConversationState, decision: WithOperation) -> None:
    state.operations[decision.operation.id] = decision.operation


def request_approval(state: ConversationState, decision: RequestApproval) -> None:
    state.operations[decision.operation.id] = decision.operation
    state.gates[decision.gate.id] = decision.gate


def show_gate(state: ConversationState, decision: ShowGate) -> None:
    if decision.operation is not None:
        state.operations[decision.operation.id] = decision.operation


def close_approval(state: ConversationState, decision: CloseApproval) -> None:
    gate = decision.gate
    turn, since = state.turns[gate.turn_id], state.waiting_since(gate.turn_id) or gate.created_ms
    # Several gates may be open at once; the time counts once.
    more = max(0, gate.resolved_ms - max(since, turn.waited_until_ms))
    state.turns[turn.id] = replace(
        turn,
        waited_ms=turn.waited_ms + more,
        waited_until_ms=max(gate.resolved_ms, turn.waited_until_ms),
    )
    state.gates.pop(gate.id, None)
    if decision.move is not None:
        _put_move(state, decision.move)


def extend_deadline(state: ConversationState, decision: ExtendDeadline) -> None:
    operation = decision.operation
    state.operations[operation.id] = operation
    turn = state.turns[operation.turn_id]
    if decision.waited_ms:
        state.turns[turn.id] = replace(turn, waited_ms=turn.waited_ms + decision.waited_ms)


def dispatch_model(state: ConversationState, decision: DispatchModel) -> None:
    state.operations[decision.operation.id] = decision.operation
    state.requests[decision.request.turn_id] = decision.request


def switch_model(state: ConversationState, decision: SwitchModel) -> None:
    state.turn_work[decision.turn_id] = decision.work


def cancel_operation(state: ConversationState, decision: CancelOperation) -> None:
    state.operations.pop(decision.operation.id, None)


def remove_operation(state: ConversationState, decision: WithOperationId) -> None:
    state.operations.pop(decision.operation_id, None)


def record_move(state: ConversationState, decision: RecordMove) -> None:
    _put_turn(state, decision.turn)
    state.moves[decision.turn.id].append(decision.move)
    _count(state, decision.move.created_ms)
    state.operations.pop(decision.operation_id, None)


def complete_tool_call(state: ConversationState, decision: ResumeFromTool | AsyncOperationCompleted) -> None:
    _put_turn(state, decision.turn)
    _put_move(state, decision.move)
    operation = state.operations.pop(decision.operation_id, None)
    if operation is not None and operation.held_at_ms and decision.invocation.result is not None:
        # The person has answered since the last question.
        turn = state.turns[operation.turn_id]
        more = max(0, decision.invocation.result.created_ms - operation.held_at_ms)
        state.turns[turn.id] = replace(turn, waited_ms=turn.waited_ms + more)


def end_hook(state: ConversationState, decision: ContextAssembled | ExtractionEnded) -> None:
    _put_turn(state, decision.turn)
    state.operations.pop(decision.operation_id, None)


def put_turn(state: ConversationState, decision: WithProgress) -> None:
    _put_turn(state, decision.turn)


def end_turn(state: ConversationState, decision: WithProgress) -> None:
    was_queued = state.turns[decision.turn.id].status is TurnStatus.QUEUED
    _put_turn(state, decision.turn)
    if not was_queued:
        _track_busy_time(state, state.turns[decision.turn.id])


def summarize_history(state: ConversationState, decision: HistorySummarized) -> None:
    state.operations.pop(decision.operation_id, None)
    if state.conversation is not None:
        state.conversation = replace(state.conversation, summary=decision.summary)


def charge_turn(state: ConversationState, decision: ChargeTurn) -> None:
    _put_turn(state, decision.turn, decision.run_id)
    if decision.operation is not None:
        state.operations[decision.operation.id] = decision.operation


def release_turn(state: ConversationState, decision: ReleaseTurn) -> None:
    turn_id = decision.turn_id
    state.turn_work.pop(turn_id, None)
    state.requests.pop(turn_id, None)
    exchanges = exchanges_of(state.moves.pop(turn_id, ()))
    if exchanges:
        state.exchanges[turn_id] = exchanges
        state.drop_old_exchanges()
    evict_old_turns(state)


def _put_turn(state: ConversationState, progress: TurnProgress, run_id: str = "") -> None:
    before = state.turns[progress.id]
    turn = state.turns[progress.id] = with_progress(before, progress)
    state.turn_unchanged = before == turn
    spent = None if state.turn_unchanged else difference(before, turn)
    if spent is not None and state.conversation is not None:
        state.conversation = add_usage(state.conversation, spent)
        others = other_accounts(turn, state.conversation.project_id, run_id)
        state.charge = charge(turn, spent, others)


def _put_move(state: ConversationState, move: Move) -> None:
    state.moves[move.turn_id][move.sequence - 1] = move


def _track_busy_time(state: ConversationState, turn: Turn) -> None:
    """Count the active time of the conversation and of the agent, if a budget limits it.

    ``turn`` has just started or ended.
    """
    if turn.status is TurnStatus.QUEUED:
        return
    conversation, work = state.conversation, state.turn_work.get(turn.id)
    budget = work.agent.budget if work is not None else None
    if budget is not None and budget.max_duration_ms and turn.status is not TurnStatus.ACTIVE:
        state.charge = charge_of_time(turn, state.charge)
    if conversation is None or not conversation.budget.max_duration_ms:
        return
    since = conversation.busy_since_ms
    if turn.status is TurnStatus.ACTIVE:
        state.conversation = replace(conversation, busy_since_ms=since or began_ms(turn))
    elif since and not state.active_turns():
        busy = conversation.busy_ms + max(0, turn.completed_ms - since - turn.waited_ms)
        state.conversation = replace(conversation, busy_ms=busy, busy_since_ms=0)


def _count(state: ConversationState, at_ms: int, *, turns: int = 0, messages: int = 0) -> None:
    conversation = state.conversation
    assert conversation is not None, "a conversation is created before anything else"
    if at_ms <= conversation.updated_ms and not (turns or messages):
        return
    state.conversation = replace(
        conversation,
        updated_ms=max(conversation.updated_ms, at_ms),
        turn_count=conversation.turn_count + turns,
        expire_ms=_extended_expiry(conversation, at_ms) if turns else conversation.expire_ms,
        message_count=conversation.message_count + messages,
    )


def _extended_expiry(conversation: Conversation, at_ms: int) -> int:
    """Return the expiry time after a turn that started at ``at_ms``."""
    after_ms = conversation.expire_after_ms
    return at_ms + after_ms if after_ms else conversation.expire_ms


def evict_old_turns(state: ConversationState) -> None:
    """Keep the turns that a load would return: the newest ones and those with unfinished work."""
    for turn_id in list(state.turns)[:-RECENT_TURNS] if len(state.turns) > RECENT_TURNS else ():
        if turn_id not in state.turn_work:
            del state.turns[turn_id]
            state.exchanges.pop(turn_id, None)
            evicted = state.messages.pop(turn_id, ())
            state.message_count -= len(evicted)
            state.character_count -= sum(
                [character_count(message.content, message.parts) for message in evicted]
            )
