"""Turns with a caller that waits: an agent called by a tool or by a node of a run (features C8 to C10).

A call reaches its conversation as a ``Send`` with a parent. The turn's end sends the answer to the parent
after its commit. If the answer is lost, the parent repeats the call and gets the same answer.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

from wonder_server.core.actor.commands import Answer, Parent
from wonder_server.core.content.parts import readable
from wonder_server.core.conversation.context.output_requests import output_schema_of
from wonder_server.core.conversation.context.permissions import DECLINE
from wonder_server.core.conversation.model.decisions import AdoptTurn, AppendMessage, RepeatAnswer
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.turn_progress import TurnProgress, progress_of
from wonder_server.core.conversation.model.usage import as_usage
from wonder_server.core.conversation.model.values import (
    Invocation,
    Move,
    Role,
    ToolErrorCode,
    ToolResult,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planning.output_checks import output_text
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, ToolCall

MAX_REASON: Final = 1000
"""Characters of the reason that the caller gets."""


def called_turn(state: ConversationState, operation_id: str) -> Turn | None:
    """Return the newest turn in the state that the parent's operation started; None without one."""
    for turn in reversed(state.turns.values()):
        if turn.parent is not None and turn.parent.operation_id == operation_id:
            return turn
    return None


def is_final(turn: Turn) -> bool:
    """Return True if the parent gets the outcome of ``turn``, now or at its end.

    A turn that failed with a transient fault is not final: its parent retries.
    """
    return turn.fault is None or not turn.fault.transient


def check_repeated_call(state: ConversationState, event: Send) -> Decisions | None:
    """Return the decisions for a ``Send`` that has started its turn already; None for a new one."""
    turn = called_turn(state, event.parent.operation_id) if event.parent is not None else None
    if turn is None or not is_final(turn):
        return None
    adopted = progress_of(replace(turn, parent=event.parent))
    if turn.status is not TurnStatus.ACTIVE:
        return (RepeatAnswer(turn=adopted),)
    # A crash lost the end of the attempt that started the turn: the turn answers this attempt now.
    return () if turn.parent == event.parent else (AdoptTurn(turn=adopted),)


def declined(state: ConversationState, turn: Turn, result: ModelResult) -> Fault | None:
    """Return the fault of a turn whose model refused the request; None if it did not.

    In a turn of a person without an output schema, a refusal is an answer.
    """
    if result.stop_reason != "refusal":
        return None
    if not _is_called(state, turn) and not output_schema_of(turn, state.turn_work[turn.id].agent):
        return None
    text = f": {result.text[:500]}" if result.text else "."
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"The agent `{turn.agent_name}` declined{text}",
        metadata={"declined": "true"},
    )


def decline_of(turn: Turn, calls: Sequence[ToolCall]) -> tuple[ToolCall, Fault] | None:
    """Return the first call that declines, with the fault that ends the turn; None without one."""
    call = next((call for call in calls if call.name == DECLINE), None)
    if call is None:
        return None
    given = (call.arguments or {}).get("reason")
    reason = given.strip()[:MAX_REASON] if isinstance(given, str) else ""
    text = f": {reason}" if reason else "."
    message = f"The agent `{turn.agent_name}` declined{text}"
    return call, Fault(reason=Reason.AGENT_DECLINED, message=message, metadata={"declined": "true"})


def declining_move(move: Move, calls: Sequence[ToolCall], call: ToolCall, now: int) -> Move:
    """Return the move that ends the turn: the call that declines succeeded, and no other was carried out."""
    invocations = tuple(
        Invocation(call=each, result=replace(_decline_result(each, each is call), created_ms=now))
        for each in calls
    )
    return replace(move, invocations=invocations, completed_ms=now)


def _decline_result(call: ToolCall, declines: bool) -> ToolResult:
    if declines:
        return ToolResult(tool_call_id=call.id, success=True, result={"declined": True})
    message = "Not carried out: the agent declined its task."
    return ToolResult(
        tool_call_id=call.id, success=False, code=ToolErrorCode.PERMISSION_DENIED, message=message
    )


def with_output(state: ConversationState, turn: Turn, message_decisions: Decisions) -> Turn:
    """Return a called turn with its agent's last message as output.

    ``message_decisions`` append the message of the current answer.
    """
    if not _is_called(state, turn):
        return turn
    messages = [
        *state.messages[turn.id],
        *(d.message for d in message_decisions if isinstance(d, AppendMessage)),
    ]
    texts = [readable(message.content, message.parts) for message in messages if message.role is Role.AGENT]
    return replace(turn, output=texts[-1] if texts else "")


def _is_called(state: ConversationState, turn: Turn) -> bool:
    """Return True if an actor waits for the turn, or the conversation was created for a call."""
    return turn.parent is not None or bool(state.conversation and state.conversation.called_by)


def answer(turn: TurnProgress, conversation_id: str, parent: Parent) -> Answer:
    """Return the outcome of a turn of this conversation for its parent.

    The output is ``{text, agent_id, conversation_id, turn_id, usage}``, with ``output`` if the answer
    satisfies an output schema. The metadata of a fault names the same ids.
    """
    child = parent.child_id or conversation_id
    ids = {"agent_id": turn.agent_id, "conversation_id": conversation_id, "turn_id": turn.id}
    if turn.fault is not None:
        usage = {"usage": json.dumps(as_usage(turn))} if turn.model_calls else {}
        fault = dataclasses.replace(turn.fault, metadata={**turn.fault.metadata, **ids, **usage})
        return Answer(parent=parent, run_id=child, output={}, fault=fault)
    output: JsonDict = {
        "text": output_text(turn.output),
        **ids,
        "usage": as_usage(turn),
        **({"output": turn.output} if isinstance(turn.output, dict) else {}),
    }
    return Answer(parent=parent, run_id=child, output=output)
