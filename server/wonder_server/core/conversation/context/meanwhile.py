"""Messages that are newer than a turn's own message or than its last request: of other turns, and those that
people sent to the turn itself (policy ``steer``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.core.conversation.model.speakers import AGENT
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Role, Steer, Turn, TurnStatus
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.request_formats.parts import is_blank


@dataclass(frozen=True, slots=True)
class Said:
    """Messages of other turns in the order of the conversation. ``missing`` is the number of older ones that
    the state no longer holds.
    """

    messages: tuple[Message, ...] = ()
    missing: int = 0


NOTHING: Final = Said()


def said_since(state: ConversationState, turn: Turn, agent: PinnedAgent, after: int) -> Said:
    """Return the messages after the ordinal ``after`` that other turns appended and the agent sees.

    A conversation is not reset while a turn is active, so none of them is hidden.
    """
    conversation = state.conversation
    if conversation is None or agent.persona.recent_turns_limit <= 0:
        return NOTHING
    count = conversation.message_count - after - len(_newer(state.messages.get(turn.id, ()), after))
    if count <= 0:
        return NOTHING
    others = [
        message
        for turn_id, messages in state.messages.items()
        if turn_id != turn.id
        for message in _newer(messages, after)
    ]
    seen = [
        message
        for message in others
        if (message.parts or not is_blank(message.content)) and not _is_in_tool_call(state, turn, message)
    ]
    return Said(tuple(sorted(seen, key=lambda message: message.ordinal)), count - len(others))


def _newer(messages: Sequence[Message], after: int) -> list[Message]:
    newer: list[Message] = []
    for message in reversed(messages):
        if message.ordinal <= after:
            break
        newer.append(message)
    return newer


def _is_in_tool_call(state: ConversationState, turn: Turn, message: Message) -> bool:
    """Return True if a tool call of ``turn`` contains the message: the input or the answer of an agent that
    the turn has looped in.
    """
    other = state.turns[message.turn_id]
    if other.caller.type != AGENT or other.caller.turn_id != turn.id:
        return False
    if message.role is not Role.AGENT:
        return True
    return other.status is TurnStatus.COMPLETED and message.id == _last_answer(state.messages[other.id])


def _last_answer(messages: Iterable[Message]) -> str:
    """Return the id of the last message of an agent; "" without one."""
    return next((each.id for each in reversed([*messages]) if each.role is Role.AGENT), "")


def steering_messages(state: ConversationState, turn: Turn, after: int) -> list[Message]:
    """Return the messages after the ordinal ``after`` that people sent to the turn, without its first one."""
    own = state.messages.get(turn.id, ())[1:]
    return [each for each in own if each.role is Role.USER and each.ordinal > after]


def untaken(state: ConversationState, turn_id: str) -> tuple[Steer, ...]:
    """Return the messages to the turn that no request of it contains yet, oldest first."""
    work, request = state.turn_work[turn_id], state.requests.get(turn_id)
    through = request.through if request is not None else 0
    return tuple([steer for steer in work.steers if steer.ordinal > through])
