"""Turns that somebody waits for: an agent called by a tool or by the node of a run (features C8 to C10).

A call is told to its conversation as a ``Send`` with a parent. When the turn ends the parent is answered,
once what led to the end is on disk; if that answer is lost, the parent asks again and is told the same.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from wonder_server.core.actor.commands import Answer, Parent
from wonder_server.core.conversation.model.decisions import AdoptTurn, AppendMessage, RepeatAnswer
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import as_usage
from wonder_server.core.conversation.model.values import Role, Turn, TurnStatus
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.model import ModelResult


def called_turn(state: ConversationState, operation_id: str) -> Turn | None:
    """The newest turn at hand that a parent's operation started and waits for."""
    for turn in reversed(state.turns.values()):
        if turn.parent is not None and turn.parent.operation_id == operation_id:
            return turn
    return None


def is_final(turn: Turn) -> bool:
    """Whether ``turn`` is what its parent gets, now or at its end. One that failed for want of
    infrastructure is not: its parent tries again."""
    return turn.fault is None or not turn.fault.transient


def check_repeated_call(state: ConversationState, event: Send) -> Decisions | None:
    """What is decided if ``event`` has started its turn already; None if it is to start one now."""
    turn = called_turn(state, event.parent.operation_id) if event.parent is not None else None
    if turn is None or not is_final(turn):
        return None
    asked = replace(turn, parent=event.parent)
    if turn.status is not TurnStatus.ACTIVE:
        return (RepeatAnswer(turn=asked),)
    # An earlier attempt began it, whose end was lost in a crash: it answers this one now.
    return () if turn == asked else (AdoptTurn(turn=asked),)


def declined(state: ConversationState, turn: Turn, result: ModelResult) -> Fault | None:
    """The fault of a called turn whose model refused to do what it was asked."""
    if result.stop_reason != "refusal" or not _is_called(state, turn):
        return None
    said = f": {result.text[:500]}" if result.text else "."
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"The agent `{turn.agent_name}` declined{said}",
        metadata={"declined": "true"},
    )


def with_output(state: ConversationState, turn: Turn, message_decisions: Decisions) -> Turn:
    """A called turn, about to be completed, with the last message of its agent; ``said`` is what it says
    now."""
    if not _is_called(state, turn):
        return turn
    messages = [
        *state.messages[turn.id],
        *(d.message for d in message_decisions if isinstance(d, AppendMessage)),
    ]
    texts = [message.content for message in messages if message.role is Role.AGENT]
    return replace(turn, output=texts[-1] if texts else "")


def _is_called(state: ConversationState, turn: Turn) -> bool:
    """Whether somebody waits for the turn: an actor, or the service that its room was made for."""
    return turn.parent is not None or bool(state.conversation and state.conversation.called_by)


def answer(turn: Turn, parent: Parent) -> Answer:
    """How ``turn`` ended, for who waits for it: ``{text, agent_id, conversation_id, turn_id, usage}``, or
    its fault, which names the same ids."""
    child = parent.child_id or turn.conversation_id
    where = {"agent_id": turn.agent_id, "conversation_id": turn.conversation_id, "turn_id": turn.id}
    if turn.fault is not None:
        paid = {"usage": json.dumps(as_usage(turn))} if turn.model_calls else {}
        fault = dataclasses.replace(turn.fault, metadata={**turn.fault.metadata, **where, **paid})
        return Answer(parent=parent, run_id=child, output={}, fault=fault)
    output: dict[str, Any] = {
        "text": turn.output or "",
        **where,
        "usage": as_usage(turn),
    }
    return Answer(parent=parent, run_id=child, output=output)
