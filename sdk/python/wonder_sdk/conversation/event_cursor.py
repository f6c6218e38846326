"""The position of a client in a conversation's stream; it removes what a reconnect repeats.

Pure: no I/O, no clock. `EventCursor` gives the cursor for attaching again and filters the responses. The
items that it yields obey three laws, however often the connection was lost:

1. Each durable event comes once, in the order of its sequence, without gaps. 2. The `TextDelta`s of a message
since its last `MessageRestarted`, joined, are a prefix of its text. When its ``message_appended`` comes, they
are its complete text. 3. After a message is appended, no more of its text comes.

Reasoning and arguments of tool calls obey the first half of the second law, and the third. The complete calls
are in the event ``move_recorded``.

Because of the second law the cursor keeps and compares the text. A message that restarted while the client
was disconnected differs only in its text from one that continued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import betterproto2

from wonder_sdk._proto.wonder import v1


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of an agent's message. Only the complete message is durable."""

    message_id: str
    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning for a message.

    Comes only if the agent's persona has ``show_reasoning`` and the stream asks for the kind ``reasoning``.
    """

    message_id: str
    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More of the arguments of a tool call that the model is writing: text of a JSON object.

    ``index`` is the position of the call in the move's ``tool_calls``. ``tool_call_id`` and ``tool_name`` are
    empty until they are known, and ``text`` can be empty when a call begins. Comes only if the stream asks
    for the kind ``tool_arguments``.
    """

    message_id: str
    turn_id: str
    index: int
    tool_call_id: str
    tool_name: str
    text: str


@dataclass(frozen=True, slots=True)
class MessageRestarted:
    """The earlier text of a message is void, with its reasoning and tool calls; the message starts again.

    ``attempt`` is the number of the model's attempt, from 2; 0 if the client missed the announcement.
    """

    message_id: str
    turn_id: str
    attempt: int = 0


DeltaKind: TypeAlias = Literal["reasoning", "tool_arguments"]
"""Kinds of deltas that a stream can ask for beside text."""

_KINDS: dict[str, v1.DeltaKind] = {
    "reasoning": v1.DeltaKind.REASONING,
    "tool_arguments": v1.DeltaKind.TOOL_ARGUMENTS,
}

Item: TypeAlias = (
    TextDelta | ReasoningDelta | ToolArgumentsDelta | MessageRestarted | v1.ToolProgress | v1.Event
)
"""An item of a conversation's stream."""

Response: TypeAlias = v1.ConverseResponse | v1.SubscribeResponse | v1.StreamTurnResponse


class GapError(Exception):
    """Events are missing between the cursor and the received item: attach again at the cursor."""


def ended_turn(item: Item) -> v1.Turn | None:
    """Return the turn that this event ends, or None."""
    match item:
        case v1.Event(turn_completed=v1.Turn() as turn):
            return turn
        case v1.Event(turn_failed=v1.Turn() as turn):
            return turn
        case v1.Event(turn_cancelled=v1.Turn() as turn):
            return turn
        case _:
            return None


class EventCursor:
    """See the module. ``cursor`` is the sequence of the last event that was yielded."""

    def __init__(
        self,
        after_sequence: int = 0,
        *,
        tail_only: bool = False,
        delta_kinds: Collection[DeltaKind] = (),
        one_turn: bool = False,
    ) -> None:
        """``one_turn``: the stream has the events of one turn only, so that sequences have gaps. Raises
        ValueError for a kind that does not exist."""
        for kind in delta_kinds:
            if kind not in _KINDS:
                raise ValueError(f"delta_kinds has {kind!r}. Use {' and '.join(map(repr, _KINDS))}.")
        self.cursor = after_sequence
        self.delta_kinds = [_KINDS[kind] for kind in delta_kinds]
        self._one_turn = one_turn
        self._tail_only = tail_only
        self._texts: dict[str, _MessageText] = {}
        self._complete_ids: deque[str] = deque(maxlen=256)

    def attach(self, conversation_id: str) -> v1.ConverseAttach:
        """Return the message that attaches at the cursor."""
        return v1.ConverseAttach(
            conversation_id=conversation_id,
            after_sequence=self.cursor,
            tail_only=self._tail_only,
            group_events=True,
            delta_kinds=self.delta_kinds,
        )

    def accept(self, response: Response) -> Iterator[Item]:
        """Yield the new items of ``response``. Raises `GapError`."""
        match betterproto2.which_one_of(response, "item"):
            case "attached", v1.ConverseAttached() as attached:
                if self._tail_only:
                    self._tail_only = False
                    self.cursor = attached.last_sequence
            case "event", v1.Event() as event:
                yield from self._event(event)
            case "events", v1.EventGroup(events=events):
                for event in events:
                    yield from self._event(event)
            case "delta", v1.MessageDelta(kind=v1.DeltaKind.UNSPECIFIED) as delta:
                yield from self._delta(delta)
            case "delta", v1.MessageDelta(kind=kind) as delta if kind in self.delta_kinds:
                yield from self._part(delta)
            case "message_restarted", v1.MessageRestarted() as restarted:
                yield from self._restarted(restarted)
            case "tool_progress", v1.ToolProgress() as progress:
                yield progress
            case _:  # says nothing about the conversation, or is newer than this SDK
                pass

    def _event(self, event: v1.Event) -> Iterator[Item]:
        if event.sequence <= self.cursor:
            return
        if event.sequence > self.cursor + 1 and not self._one_turn:
            raise GapError(f"event {event.sequence} came after {self.cursor}")
        match event:
            case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                yield from self._completed(message)
            case _:
                pass
        if turn := ended_turn(event):
            for message_id in [key for key, text in self._texts.items() if text.turn_id == turn.id]:
                del self._texts[message_id]
        self.cursor = event.sequence
        yield event

    def _delta(self, delta: v1.MessageDelta) -> Iterator[Item]:
        if delta.message_id in self._complete_ids:
            return
        message = self._texts.setdefault(delta.message_id, _MessageText(delta.turn_id))
        fresh, is_other = _fresh_text(message.text, delta)
        if is_other:
            yield MessageRestarted(delta.message_id, delta.turn_id)
            message.restart()
        if fresh:
            message.text.add(fresh)
            yield TextDelta(delta.message_id, delta.turn_id, fresh)

    def _part(self, delta: v1.MessageDelta) -> Iterator[Item]:
        """Yield what is new in a delta of reasoning or of a tool call."""
        if delta.message_id in self._complete_ids:
            return
        message = self._texts.setdefault(delta.message_id, _MessageText(delta.turn_id))
        key = (int(delta.kind), delta.tool_call_index)
        fresh, is_other = _fresh_text(message.parts.get(key, _Text()), delta)
        if is_other:
            yield MessageRestarted(delta.message_id, delta.turn_id)
            message.restart()
        if not fresh and key in message.parts:
            return
        message.parts.setdefault(key, _Text()).add(fresh)
        if delta.kind is v1.DeltaKind.REASONING:
            yield ReasoningDelta(delta.message_id, delta.turn_id, fresh)
        else:
            call = (delta.tool_call_index, delta.tool_call_id, delta.tool_name)
            yield ToolArgumentsDelta(delta.message_id, delta.turn_id, *call, fresh)

    def _restarted(self, restarted: v1.MessageRestarted) -> Iterator[Item]:
        message = self._texts.setdefault(restarted.message_id, _MessageText(restarted.turn_id))
        # Attached again in the middle of the same attempt, the announcement may come a second time.
        if message.attempt >= restarted.attempt:
            return
        message.attempt = restarted.attempt
        if message.text.length or message.parts:  # where nothing was said, there is nothing to take back
            message.restart()
            yield MessageRestarted(restarted.message_id, restarted.turn_id, restarted.attempt)

    def _completed(self, message: v1.Message) -> Iterator[Item]:
        self._complete_ids.append(message.id)
        so_far = self._texts.pop(message.id, None)
        known = so_far.text.joined() if so_far else ""
        fresh = message.content[len(known) :]
        if not message.content.startswith(known):
            yield MessageRestarted(message.id, message.turn_id)
            fresh = message.content
        if fresh:
            yield TextDelta(message.id, message.turn_id, fresh)


class _Text:
    """Text that arrives in pieces. Lengths are in code points."""

    def __init__(self) -> None:
        self.length = 0
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    def joined(self) -> str:
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class _MessageText:
    """The text so far of one message that is being streamed, and its parts by kind and tool call."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.attempt = 1
        self.restart()

    def restart(self) -> None:
        self.text = _Text()
        self.parts: dict[tuple[int, int], _Text] = {}


def _fresh_text(text: _Text, delta: v1.MessageDelta) -> tuple[str, bool]:
    """Return what is new in a delta, and True if it is the text of another attempt.

    That is then the whole text so far. Raises `GapError`.
    """
    if delta.offset > text.length:
        raise GapError(f"text of {delta.message_id} from {delta.offset} on came after {text.length}")
    overlap = text.length - delta.offset
    if not overlap:
        return delta.text, False
    known = text.joined()
    if not _is_prefix_of_other(known[delta.offset :], delta.text):
        return known[: delta.offset] + delta.text, True
    return delta.text[overlap:], False


def _is_prefix_of_other(one: str, other: str) -> bool:
    """Return True if the shorter text is a prefix of the longer."""
    return one.startswith(other) or other.startswith(one)
