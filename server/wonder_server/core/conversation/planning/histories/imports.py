"""Turns of an imported history.

A user's message and the answer of one agent that follows are a turn, like one that was played here. A message
that no agent answers is a posted one. A text of an agent with tool calls is a move of its turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from wonder_server.core.content.parts import Parts
from wonder_server.core.conversation.model.histories.staging import HistoryTurn
from wonder_server.core.conversation.model.values import (
    Caller,
    Invocation,
    Message,
    Move,
    Role,
    ToolErrorCode,
    ToolResult,
    Turn,
    TurnStatus,
)
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ToolCall, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCall:
    """A tool call of an imported message. ``failure`` is the message of a failed call; None for another.
    ``answered``: the call has a result."""

    id: str
    name: str
    arguments: JsonDict
    result: JsonValue = None
    failure: str | None = None
    answered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMessage:
    """A message to import, checked. ``author`` is the id of a user or agent, or the name of a foreign agent;
    ``author_name`` the name of an agent of the conversation."""

    role: Role
    author: str
    author_name: str = ""
    content: str = ""
    parts: Parts = ()
    calls: tuple[HistoryCall, ...] = ()
    at_ms: int


@dataclass(slots=True)
class _Turn:
    question: HistoryMessage | None = None
    answer: list[HistoryMessage] = field(default_factory=list)

    def takes(self, message: HistoryMessage) -> bool:
        """Return True if the message continues the turn: an agent's, of the agent that answers it."""
        if message.role is Role.USER:
            return False
        return not self.answer or self.answer[0].author == message.author

    def add(self, message: HistoryMessage) -> None:
        """Add a message that continues the turn. Calls without a text belong to the text before them."""
        last = self.answer[-1] if self.answer else None
        if last is None or last.calls or message.content or message.parts:
            self.answer.append(message)
        else:
            self.answer[-1] = replace(last, calls=message.calls)


def imported_turns(
    conversation_id: str, messages: Sequence[HistoryMessage], seed: str, principal: str
) -> Iterator[HistoryTurn]:
    """Yield the turns of these messages, which are in the order of their times."""
    groups: list[_Turn] = []
    for message in messages:
        if groups and groups[-1].takes(message):
            groups[-1].add(message)
        elif message.role is Role.USER:
            groups.append(_Turn(message))
        else:
            groups.append(_Turn(None, [message]))
    ordinal = 0
    for index, group in enumerate(groups):
        writer = _Writer(conversation_id, f"{seed}/{index}", ordinal)
        yield writer.turn(group, index + 1, principal)
        ordinal = writer.ordinal


class _Writer:
    """Makes the values of one turn. ``ordinal`` is that of the last message."""

    def __init__(self, conversation_id: str, seed: str, ordinal: int) -> None:
        self._conversation_id = conversation_id
        self._seed = seed
        self.ordinal = ordinal

    def turn(self, group: _Turn, turn_ordinal: int, principal: str) -> HistoryTurn:
        given = [*([] if group.question is None else [group.question]), *group.answer]
        ids = Minter(self._seed, given[0].at_ms)
        turn_id = ids.new("turn")
        messages: list[Message] = []
        moves: list[Move] = []
        for each in given:
            message_id = Minter(f"{self._seed}/{len(messages)}/{len(moves)}", each.at_ms).new("msg")
            if each.content or each.parts:
                messages.append(self._message(each, message_id, turn_id))
            if each.calls:
                moves.append(self._move(each, message_id, turn_id, len(moves) + 1))
        answering = group.answer[0] if group.answer else None
        turn = Turn(
            id=turn_id,
            conversation_id=self._conversation_id,
            ordinal=turn_ordinal,
            caller=Caller(user_id="" if group.question is None else group.question.author),
            agent_id="" if answering is None else answering.author,
            agent_name="" if answering is None else answering.author_name,
            persona="",
            input="" if group.question is None else group.question.content,
            status=TurnStatus.COMPLETED,
            moves=len(moves),
            created_ms=given[0].at_ms,
            completed_ms=given[-1].at_ms,
            principal=principal,
        )
        return HistoryTurn(turn=turn, messages=tuple(messages), moves=tuple(moves))

    def _message(self, given: HistoryMessage, message_id: str, turn_id: str) -> Message:
        self.ordinal += 1
        return Message(
            id=message_id,
            conversation_id=self._conversation_id,
            turn_id=turn_id,
            ordinal=self.ordinal,
            role=given.role,
            author=given.author,
            content=given.content,
            created_ms=given.at_ms,
            parts=given.parts,
        )

    def _move(self, given: HistoryMessage, message_id: str, turn_id: str, sequence: int) -> Move:
        return Move(
            id=Minter(f"{self._seed}/move/{sequence}", given.at_ms).new("move"),
            conversation_id=self._conversation_id,
            turn_id=turn_id,
            sequence=sequence,
            message_id=message_id,
            reasoning=given.content,
            invocations=tuple([_invocation(call, given.at_ms) for call in given.calls]),
            stop_reason="tool_calls",
            usage=Usage(cost_micros=0),
            created_ms=given.at_ms,
            completed_ms=given.at_ms,
        )


def _invocation(call: HistoryCall, at_ms: int) -> Invocation:
    made = ToolCall(id=call.id, name=call.name, arguments=call.arguments)
    if not call.answered:
        return Invocation(call=made)
    if call.failure is None:
        result = ToolResult(tool_call_id=call.id, success=True, result=call.result, created_ms=at_ms)
    else:
        result = ToolResult(
            tool_call_id=call.id,
            success=False,
            code=ToolErrorCode.EXECUTION_FAILED,
            message=call.failure,
            created_ms=at_ms,
        )
    return Invocation(call=made, result=result)
