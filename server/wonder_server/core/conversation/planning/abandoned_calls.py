"""Charges for abandoned model calls (features B4, B10).

A call that is answered is charged with its answer. A call that failed, was cancelled or timed out has no
answer. Its attempts are charged, with unknown usage, when the planner cancels the operation.
"""

from __future__ import annotations

from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    ChargeTurn,
    Decision,
    EndTurnByCancel,
    FailTurn,
)
from wonder_server.core.conversation.model.lifecycle_decisions import EndConversation, MarkDeleted
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.usage import UsageDelta, add_usage
from wonder_server.core.conversation.model.values import OperationKind, OperationStatus
from wonder_server.core.frozen import replace

Decisions = tuple[Decision, ...]


def charge_abandoned_calls(state: ConversationState, decisions: Decisions) -> Decisions:
    """Return the decisions with abandoned calls charged to their turns.

    The decision that ends a turn carries the charge. A turn that continues gets a `ChargeTurn`.
    """
    abandoned = [each for each in decisions if type(each) is CancelOperation and _attempts(each)]
    if not abandoned:
        return decisions
    spent = {each.operation.turn_id: UsageDelta(model_calls=_attempts(each)) for each in abandoned}
    ended = {each.turn.id for each in decisions if isinstance(each, FailTurn | EndTurnByCancel)}
    counted: list[Decision] = []
    for decision in decisions:
        match decision:
            case FailTurn() | EndTurnByCancel() if decision.turn.id in spent:
                counted.append(replace(decision, turn=add_usage(decision.turn, spent[decision.turn.id])))
            case EndConversation() | MarkDeleted():
                conversation = decision.conversation
                for each in spent.values():
                    conversation = add_usage(conversation, each)
                counted.append(replace(decision, conversation=conversation))
            case CancelOperation() if _attempts(decision) and decision.operation.turn_id not in ended:
                progress = progress_of(state.turns[decision.operation.turn_id])
                counted += [decision, ChargeTurn(turn=add_usage(progress, spent[progress.id]))]
            case _:
                counted.append(decision)
    return tuple(counted)


def _attempts(decision: CancelOperation) -> int:
    """Return the number of model calls that the decision abandons."""
    operation = decision.operation
    if operation.kind is not OperationKind.MODEL:
        return 0
    # During backoff the current attempt has not been made.
    return operation.attempt - (operation.status is OperationStatus.BACKOFF)
