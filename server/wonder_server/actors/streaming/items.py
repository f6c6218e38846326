"""Items of live streams: events, deltas, replies, progress, and the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from wonder_server.actors.streaming.sizes import text_bytes
from wonder_server.core.conversation.model.event_payloads import TURN_ENDED
from wonder_server.ports.journal import Event


class PartKind(StrEnum):
    """Kinds of pieces of a message beside its text. A reader gets only those that it asks for."""

    REASONING = "reasoning"
    ARGUMENTS = "arguments"


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a message that is not its text: the model's reasoning, or the arguments of a tool call.

    ``index`` is the position of the call among the calls of the answer. ``call_id`` and ``name`` are those of
    the call, as far as they are known.
    """

    kind: PartKind
    index: int = 0
    call_id: str = ""
    name: str = ""


REASONING = Part(PartKind.REASONING)


class Delta(msgspec.Struct, gc=False):
    """A piece of a message's text, or of its ``part``, at ``offset`` (in code points of the same part).

    ``attempt`` above 0: the message starts over, and earlier pieces are void. ``wire`` caches the encoded
    piece for the rpc layer.
    """

    turn_id: str
    message_id: str
    offset: int
    text: str
    attempt: int = 0
    wire: bytes | None = None
    part: Part | None = None

    @property
    def restarted(self) -> bool:
        return self.attempt > 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An encoded reply to this reader alone, in order with its other items."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """Progress of a node's task. ``item`` is the executor's report: a step that starts or ends, or its
    progress."""

    node_id: str
    execution_id: str
    item: Any


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A sign of life after a period without items."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The last item of a subscription. ``reason`` is ``slow``, ``draining``, ``detached``, ``deleted``,
    ``moved`` or ``ended``."""

    reason: str


Item = Event | Delta | Reply | NodeProgress | KeepAlive | Closed


def ended_ids(event: Event) -> set[str]:
    """Return the ids of the message and the turn that ``event`` ends."""
    emit = event.emit
    ids = {emit.message_id} if emit.message_id else set()
    if emit.kind in TURN_ENDED:
        ids.add(emit.turn_id)
    return ids


_TEXT_FIELDS = {
    "message_appended": "content",
    "message_moved": "content",
    "conversation_turn": "input",
    "turn_started": "input",
    "turn_completed": "input",
    "turn_failed": "input",
    "turn_cancelled": "input",
}
"""The field with nearly all text of an event, by kind. For other kinds, all fields are measured."""


def size_bytes(item: Item) -> int:
    """Return the approximate size of an item, in bytes."""
    if isinstance(item, Delta):
        return len(item.text) + 64
    if isinstance(item, Event):
        if item.wire is not None:
            return 2 * len(item.wire) + 512  # It is held as a value too.
        value, text = item.emit.value, _TEXT_FIELDS.get(item.emit.kind)
        return (len(getattr(value, text, "")) if text else text_bytes(value)) + 512
    if isinstance(item, NodeProgress):
        return len(getattr(item.item, "output", "")) + 512
    return len(item.wire) + 64 if isinstance(item, Reply) else 0
