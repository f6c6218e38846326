"""Partial texts: the text that a message has streamed when its turn is interrupted.

An input that may end a turn receives the text as the loop plans it, not as it is sent. From an accepted end
on, the hub shows no more text of the turn. So the readers have seen exactly the text that the record will
hold, although the model streams until the end is committed. A rejected input holds nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.core.conversation.model.decisions import CompleteTurn, EndTurnByCancel, FailTurn
from wonder_server.core.conversation.model.inputs import CancelCall, CancelTurn, Send, TimerFired
from wonder_server.core.conversation.model.lifecycle_inputs import Complete, Leave
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.conversation.planning.agent_calls import called_turn
from wonder_server.core.conversation.planning.concurrency import policy_for
from wonder_server.core.definitions.specs import ConcurrentTurns
from wonder_server.core.frozen import replace

_TURN_ENDS = (EndTurnByCancel, FailTurn, CompleteTurn)
"""A tuple: Python builds a union anew for each test, and `PartialTexts.hold_ended` then took 0.6 % of the
event loop's CPU."""


class PartialTexts:
    """Adds partial texts to inputs, and holds the text of turns whose end is planned.

    The loop calls both: see `LoopPorts.complete_input` and `LoopPorts.on_planned`. It calls
    `StreamHub.release_text` if a planned end is lost (`LoopPorts.on_discarded`).
    """

    def __init__(self, streams: StreamHub) -> None:
        self._streams = streams

    def complete_input(self, actor_id: str, state: object, event: object) -> object:
        """Return the input with the text so far of each message that it may interrupt."""
        match event:
            case Complete() | Leave():
                return replace(event, partial_texts=self._streams.partial_texts(actor_id))
            case CancelTurn() | CancelCall() | TimerFired():
                turn_id = _turn_of(state, event)
                return replace(event, partial_text=self._streams.partial_texts(actor_id).get(turn_id, ""))
            case Send() if _interrupts(state, event):
                return replace(event, partial_texts=self._streams.partial_texts(actor_id))
        return event

    def hold_ended(self, actor_id: str, decisions: Sequence[object]) -> None:
        """Hold the text of each turn that the decisions end."""
        for decision in decisions:
            if isinstance(decision, _TURN_ENDS):
                self._streams.hold_text(actor_id, decision.turn.id)


def _interrupts(state: object, event: Send) -> bool:
    conversation = state.conversation if isinstance(state, ConversationState) else None
    return policy_for(conversation, event) is ConcurrentTurns.INTERRUPT


def _turn_of(state: object, event: CancelTurn | CancelCall | TimerFired) -> str:
    """Return the id of the turn whose message the input may interrupt; "" without one."""
    if isinstance(event, CancelTurn):
        return event.turn_id
    if not isinstance(state, ConversationState):
        return ""
    if isinstance(event, CancelCall):
        turn = called_turn(state, event.operation_id)
        return turn.id if turn is not None else ""
    operation = state.operations.get(event.operation_id)
    is_model = operation is not None and operation.kind is OperationKind.MODEL
    return operation.turn_id if operation is not None and is_model else ""
