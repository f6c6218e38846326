"""State, rows and events of a history that a new conversation starts with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wonder_server.core.actor.changes import Change, Emit, Put
from wonder_server.core.conversation.context.transcript import exchanges_of
from wonder_server.core.conversation.model.histories.staging import HistoryTurn, KeepHistory
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Move, Role
from wonder_server.core.conversation.output.record import conversation_rows, put_message, put_move, put_turn
from wonder_server.core.conversation.output.state_changes import evict_old_turns
from wonder_server.core.frozen import replace
from wonder_server.core.ids import is_id


def keep_history(state: ConversationState, decision: KeepHistory) -> None:
    for each in decision.turns:
        turn_id = each.turn.id
        state.turns[turn_id] = each.turn
        state.messages.setdefault(turn_id, [])
        for message in each.messages:
            state.add_message(message)
        exchanges = exchanges_of(each.moves)
        if exchanges:
            state.exchanges[turn_id] = exchanges
    state.conversation = decision.conversation
    state.drop_old_exchanges()
    evict_old_turns(state)


def history_kept(state: ConversationState, decision: KeepHistory) -> Sequence[Change]:
    changes: list[Change] = [*conversation_rows(state)]
    for each in decision.turns:
        changes.append(put_turn(each.turn))
        changes += [put_message(message) for message in each.messages]
        changes += [put_copied_move(move) for move in each.moves]
        changes += _events(each)
    return changes


def put_copied_move(move: Move) -> Put:
    """Return the row of a move of a history. The move is also found by the id that its cut results name to
    the model: that of the move that it is a copy of."""
    named = {
        entry.result.excerpt.result_id.partition(".")[0]
        for entry in move.invocations
        if entry.result is not None and entry.result.excerpt is not None
    }
    row = put_move(move)
    others = sorted(each for each in named - {move.id} if is_id("move", each))
    return replace(row, alias=others[0]) if others else row


def _events(each: HistoryTurn) -> Iterator[Emit]:
    """Yield the events of a turn in the order of an answer: each move with tool calls after its text."""
    left: list[Message] = list(each.messages)
    ids = {message.id for message in left}
    for move in each.moves:
        while left and (left[0].role is Role.USER or move.message_id in ids):
            message = left.pop(0)
            ids.discard(message.id)
            yield _appended(message)
        if move.invocations:
            yield Emit("move.recorded", move, move.turn_id, move.message_id)
    yield from map(_appended, left)


def _appended(message: Message) -> Emit:
    return Emit("message.appended", message, message.turn_id, message.id)
