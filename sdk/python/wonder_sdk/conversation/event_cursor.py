"""The position of a client in a conversation's stream; it removes what a reconnect repeats.

Pure: no I/O, no clock. `EventCursor` gives the cursor for attaching again and filters the responses. The
items that it yields obey three laws, however often the connection was lost:

1. Each durable event comes once, in the order of its sequence, without gaps. 2. The `TextDelta`s of a message
since its last `MessageRestarted`, joined, are a prefix of its text. When its ``message_appended`` comes, they
are its complete text. 3. After a message is appended, no more of its text comes.

Because of the second law the cursor keeps and compares the text. A message that restarted while the client
was disconnected differs only in its text from one that continued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import betterproto2

from wonder_sdk._proto.wonder import v1


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of an agent's message. Only the complete message is durable."""

    message_id: str
    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class MessageRestarted:
    """The earlier text of a message is void; the message starts again.

    ``attempt`` is the number of the model's attempt, from 2; 0 if the client missed the announcement.
    """

    message_id: str
    turn_id: str
    attempt: int = 0


Item: TypeAlias = TextDelta | MessageRestarted | v1.ToolProgress | v1.Event
"""An item of a conversation's stream."""

Response: TypeAlias = v1.ConverseResponse | v1.SubscribeResponse


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

    def __init__(self, after_sequence: int = 0, *, tail_only: bool = False) -> None:
        self.cursor = after_sequence
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
            case "delta", v1.MessageDelta() as delta:
                yield from self._delta(delta)
            case "message_restarted", v1.MessageRestarted() as restarted:
                yield from self._restarted(restarted)
            case "tool_progress", v1.ToolProgress() as progress:
                yield progress
            case _:  # says nothing about the conversation, or is newer than this SDK
                pass

    def _event(self, event: v1.Event) -> Iterator[Item]:
        if event.sequence <= self.cursor:
            return
        if event.sequence > self.cursor + 1:
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
        text = self._texts.setdefault(delta.message_id, _MessageText(delta.turn_id))
        if delta.offset > text.length:
            raise GapError(f"text of {delta.message_id} from {delta.offset} on came after {text.length}")
        overlap = text.length - delta.offset
        if overlap == 0:
            fresh = delta.text
        else:
            known = text.joined()
            if not _is_prefix_of_other(known[delta.offset :], delta.text):
                yield MessageRestarted(delta.message_id, delta.turn_id)
                text.restart()
                fresh = known[: delta.offset] + delta.text
            else:
                fresh = delta.text[overlap:]
        if fresh:
            text.add(fresh)
            yield TextDelta(delta.message_id, delta.turn_id, fresh)

    def _restarted(self, restarted: v1.MessageRestarted) -> Iterator[Item]:
        text = self._texts.setdefault(restarted.message_id, _MessageText(restarted.turn_id))
        # Attached again in the middle of the same attempt, the announcement may come a second time.
        if text.attempt >= restarted.attempt:
            return
        text.attempt = restarted.attempt
        if text.length:  # where nothing was said, there is nothing to take back
            text.restart()
            yield MessageRestarted(restarted.message_id, restarted.turn_id, restarted.attempt)

    def _completed(self, message: v1.Message) -> Iterator[Item]:
        self._complete_ids.append(message.id)
        text = self._texts.pop(message.id, None)
        known = text.joined() if text else ""
        fresh = message.content[len(known) :]
        if not message.content.startswith(known):
            yield MessageRestarted(message.id, message.turn_id)
            fresh = message.content
        if fresh:
            yield TextDelta(message.id, message.turn_id, fresh)


class _MessageText:
    """The text so far of one message that is being streamed. Lengths are in code points."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.attempt = 1
        self.length = 0
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        self._parts.append(text)
        self.length += len(text)

    def restart(self) -> None:
        self._parts.clear()
        self.length = 0

    def joined(self) -> str:
        if len(self._parts) > 1:
            self._parts[:] = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""


def _is_prefix_of_other(one: str, other: str) -> bool:
    """Return True if the shorter text is a prefix of the longer."""
    return one.startswith(other) or other.startswith(one)
