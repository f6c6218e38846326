"""What is said on a conversation's stream: Converse and Subscribe are the same words by the same numbers.

An event goes to many readers and is encoded once: the bytes are kept on the event itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, assert_never

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.attachment import Attachment, CaughtUp
from wonder_server.actors.streams import Closed, Delta, Item, NodeProgress, Quiet, Reply
from wonder_server.ports.journal import Event
from wonder_server.rpc.event_codec import fill_event
from wonder_server.rpc.event_groups import grouped, together
from wonder_server.rpc.fitting import fitted
from wonder_server.rpc.stream_words import draining, heartbeat, slow_reader

Write = Callable[[bytes], Awaitable[None]]

_EVENTS = pb.ConverseResponse.EVENTS_FIELD_NUMBER

_ENDS = {
    "draining": pb.STREAM_END_REASON_DRAINING,
    "detached": pb.STREAM_END_REASON_DETACHED,
    "deleted": pb.STREAM_END_REASON_DELETED,
}


async def say(
    attachment: Attachment, attached: pb.ConverseAttached, write: Write, *, group_events: bool = False
) -> None:
    """Send an attached client everything, encoded, up to the last word. Raises SLOW_READER.

    ``group_events``: events that are there at the same time go in one message.

    This is the way of every token of every stream, so there is nothing on it that need not be.
    """
    await write(_encode(attached=attached))
    while True:
        items = await attachment.take()
        for item in grouped(items, _event) if group_events and len(items) > 1 else items:
            if type(item) is Delta and not item.attempt:
                await write(item.wire or _delta(item))
                continue
            if type(item) is Event:
                await write(item.wire or _event(item))
                continue
            if isinstance(item, list):
                await write(together(map(_event, item), _EVENTS))
                continue
            for word in _words(attachment, item):
                await write(word)
            if type(item) is Closed:
                return


def _words(attachment: Attachment, item: Item | CaughtUp) -> Iterator[bytes]:
    match item:
        case Event():
            yield _event(item)
        case Delta():
            if item.restarted:
                yield _restarted(item)
            if item.text:
                yield _delta(item)
        case Reply():
            yield item.wire
        case CaughtUp():
            yield _encode(caught_up=pb.CaughtUp(sequence=item.sequence))
        case NodeProgress():
            pass  # Only of runs.
        case Quiet():
            yield _encode(heartbeat=heartbeat(attachment.sequence))
        case Closed():
            yield from _last_words(attachment, item.why)
        case _:
            assert_never(item)


def _event(event: Event) -> bytes:
    if event.wire is None:
        said = pb.ConverseResponse()
        fill_event(said.event, event)
        event.wire = fitted(said.SerializeToString(), said)
    return event.wire


def _restarted(delta: Delta) -> bytes:
    return _encode(
        message_restarted=pb.MessageRestarted(
            message_id=delta.message_id, turn_id=delta.turn_id, attempt=delta.attempt
        )
    )


def _delta(delta: Delta) -> bytes:
    if delta.wire is None:
        said = pb.ConverseResponse()
        piece = said.delta
        piece.message_id = delta.message_id
        piece.turn_id = delta.turn_id
        piece.offset = delta.offset
        piece.text = delta.text
        delta.wire = said.SerializeToString()
    return delta.wire


def _last_words(attachment: Attachment, why: str) -> list[bytes]:
    if why == "slow":
        raise slow_reader(attachment.sequence)
    end = pb.StreamEnd(reason=_ENDS[why], resume_after_sequence=attachment.sequence)
    words = [_encode(end=end)]
    if why == "draining":
        words.insert(0, _encode(draining=draining("turns in progress")))
    return words


def _encode(**item: Any) -> bytes:
    said = pb.ConverseResponse(**item)
    return fitted(said.SerializeToString(), said)
