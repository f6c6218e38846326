"""Calls of models that are given up: they count, though nobody tells what they took (features B4, B10).

A call that is answered is charged with its answer. One that failed for good, was cancelled or ran out of time
has no answer; its attempts are charged to its turn, and so to the conversation, when it is given up.
"""

from __future__ import annotations

from wonder_server.core.conversation.decisions import (
    CancelOperation,
    ChargeTurn,
    Decision,
    EndTurnByCancel,
    FailTurn,
)
from wonder_server.core.conversation.room_decisions import CloseRoom, EndConversation
from wonder_server.core.conversation.spending import Spent, charged
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import OperationKind, OperationStatus
from wonder_server.core.frozen import replace

Decisions = tuple[Decision, ...]


def with_unanswered(state: ConversationState, decisions: Decisions) -> Decisions:
    """The same decisions, with what is given up charged to its turn: by the decision that ends the turn, or
    by one of its own if it goes on."""
    given_up = [each for each in decisions if type(each) is CancelOperation and _attempts(each)]
    if not given_up:
        return decisions
    spent = {each.operation.turn_id: Spent(model_calls=_attempts(each)) for each in given_up}
    ended = {each.turn.id for each in decisions if isinstance(each, FailTurn | EndTurnByCancel)}
    counted: list[Decision] = []
    for decision in decisions:
        match decision:
            case FailTurn() | EndTurnByCancel() if decision.turn.id in spent:
                counted.append(replace(decision, turn=charged(decision.turn, spent[decision.turn.id])))
            case EndConversation() | CloseRoom():
                room = decision.conversation
                for each in spent.values():
                    room = charged(room, each)
                counted.append(replace(decision, conversation=room))
            case CancelOperation() if _attempts(decision) and decision.operation.turn_id not in ended:
                turn = state.turns[decision.operation.turn_id]
                counted += [decision, ChargeTurn(turn=charged(turn, spent[turn.id]))]
            case _:
                counted.append(decision)
    return tuple(counted)


def _attempts(decision: CancelOperation) -> int:
    """How many calls of a model it gives up."""
    operation = decision.operation
    if operation.kind is not OperationKind.MODEL:
        return 0
    # While it waits for its next attempt, that has not been made.
    return operation.attempt - (operation.status is OperationStatus.BACKOFF)
