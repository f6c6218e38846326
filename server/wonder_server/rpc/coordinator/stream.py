"""Encoding of WatchRun's stream. An event goes to many watchers and is encoded once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from wonder.v1 import conversation_service_pb2
from wonder.v1 import coordinator_service_pb2 as pb
from wonder_server.actors.streaming.attachment import Attachment, CaughtUp
from wonder_server.actors.streaming.items import Closed, Item, KeepAlive, NodeProgress
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.ports.journal import Event
from wonder_server.rpc.coordinator import codec
from wonder_server.rpc.shared.event_groups import group_events, join_encoded
from wonder_server.rpc.shared.message_trimming import trim_encoded
from wonder_server.rpc.shared.stream_frames import draining, heartbeat, slow_reader

_GROUP_FIELD_NUMBER = pb.WatchRunResponse.EVENTS_FIELD_NUMBER


async def stream_run(
    attachment: Attachment, end_sequence: int, *, grouping: bool = False
) -> AsyncIterator[bytes]:
    """Yield the encoded frames of a watcher's stream, up to its end. Raises SLOW_READER.

    ``end_sequence`` is that of the run's last event if it has ended, else 0. ``grouping`` sends consecutive
    events in one message.
    """
    while True:
        items = await attachment.take()
        grouped = group_events(items, _encode_event) if grouping else items
        for item in grouped:
            for frame in _frames(attachment, item):
                yield frame
            if end := _end_reason(attachment, item, end_sequence):
                yield _encode_end(attachment, end)
                return


def _frames(attachment: Attachment, item: Item | CaughtUp | list[Event]) -> Iterator[bytes]:
    match item:
        case Event():
            yield join_encoded([_encode_event(item)], _GROUP_FIELD_NUMBER)
        case list():
            yield join_encoded(map(_encode_event, item), _GROUP_FIELD_NUMBER)
        case NodeProgress():
            response = pb.WatchRunResponse(progress=codec.node_progress_to_proto(item))
            yield trim_encoded(response.SerializeToString(), response)
        case KeepAlive():
            yield pb.WatchRunResponse(heartbeat=heartbeat(attachment.sequence)).SerializeToString()
        case Closed():
            if item.reason == "slow":
                raise slow_reader(attachment.sequence)
            if item.reason != "moved":
                yield pb.WatchRunResponse(draining=draining("runs")).SerializeToString()
        case _:
            pass  # CaughtUp has no frame; deltas and replies are items of conversations.


def _end_reason(
    attachment: Attachment, item: Item | CaughtUp | list[Event], end_sequence: int
) -> conversation_service_pb2.StreamEndReason | None:
    """Return the reason if the stream ends after ``item``, else None."""
    match item:
        case Event() | list():
            last = item[-1] if isinstance(item, list) else item
            ended = last.emit.kind in RUN_ENDED
        case CaughtUp():
            # A client that attached after the run's end has nothing to wait for.
            ended = 0 < end_sequence <= attachment.sequence
        case Closed(reason="moved"):
            return conversation_service_pb2.STREAM_END_REASON_MOVED
        case Closed():
            return conversation_service_pb2.STREAM_END_REASON_DRAINING
        case _:
            ended = False
    return conversation_service_pb2.STREAM_END_REASON_COMPLETED if ended else None


def _encode_event(event: Event) -> bytes:
    if event.wire is None:
        response = pb.WatchRunResponse(event=codec.event_to_proto(event))
        event.wire = trim_encoded(response.SerializeToString(), response)
    return event.wire


def _encode_end(attachment: Attachment, reason: conversation_service_pb2.StreamEndReason) -> bytes:
    end = conversation_service_pb2.StreamEnd(reason=reason, resume_after_sequence=attachment.sequence)
    return pb.WatchRunResponse(end=end).SerializeToString()
