"""What is said on WatchRun's stream. An event goes to many watchers and is encoded once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from wonder.v1 import conversation_service_pb2
from wonder.v1 import coordinator_service_pb2 as pb
from wonder_server.actors.streaming.attachment import Attachment, CaughtUp
from wonder_server.actors.streaming.hub import Closed, KeepAlive, NodeProgress
from wonder_server.core.coordinator.record import RUN_ENDED
from wonder_server.ports.journal import Event
from wonder_server.rpc.coordinator import codec
from wonder_server.rpc.shared.event_groups import group_events, join_encoded
from wonder_server.rpc.shared.message_trimming import trim_encoded
from wonder_server.rpc.shared.stream_frames import draining, heartbeat, slow_reader

_GROUP_FIELD_NUMBER = pb.WatchRunResponse.EVENTS_FIELD_NUMBER


async def stream_run(
    attachment: Attachment, end_sequence: int, *, grouping: bool = False
) -> AsyncIterator[bytes]:
    """Everything that a watcher is sent, encoded, up to the last word. Raises SLOW_READER.

    ``end_sequence`` is that of the run's last event if it has ended, else 0.
    ``group_events``: events that are there at the same time go in one message.
    """
    while True:
        items = await attachment.take()
        for item in group_events(items, _encode_event) if grouping else items:
            if isinstance(item, Event | list):
                events = item if isinstance(item, list) else [item]
                yield join_encoded(map(_encode_event, events), _GROUP_FIELD_NUMBER)
                if events[-1].emit.kind in RUN_ENDED:
                    yield _encode_end(attachment, conversation_service_pb2.STREAM_END_REASON_COMPLETED)
                    return
            elif isinstance(item, NodeProgress):
                response = pb.WatchRunResponse(progress=codec.node_progress_to_proto(item))
                yield trim_encoded(response.SerializeToString(), response)
            elif isinstance(item, CaughtUp):
                if 0 < end_sequence <= attachment.sequence:
                    # The client has seen the end already; there is nothing to wait for.
                    yield _encode_end(attachment, conversation_service_pb2.STREAM_END_REASON_COMPLETED)
                    return
            elif isinstance(item, KeepAlive):
                alive = heartbeat(attachment.sequence)
                yield pb.WatchRunResponse(heartbeat=alive).SerializeToString()
            elif isinstance(item, Closed):
                if item.reason == "slow":
                    raise slow_reader(attachment.sequence)
                yield pb.WatchRunResponse(draining=draining("runs")).SerializeToString()
                yield _encode_end(attachment, conversation_service_pb2.STREAM_END_REASON_DRAINING)
                return


def _encode_event(event: Event) -> bytes:
    if event.wire is None:
        response = pb.WatchRunResponse(event=codec.event_to_proto(event))
        event.wire = trim_encoded(response.SerializeToString(), response)
    return event.wire


def _encode_end(attachment: Attachment, reason: Any) -> bytes:
    end = conversation_service_pb2.StreamEnd(reason=reason, resume_after_sequence=attachment.sequence)
    return pb.WatchRunResponse(end=end).SerializeToString()
