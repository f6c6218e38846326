"""What is said on WatchRun's stream. An event goes to many watchers and is encoded once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from wonder.v1 import conversation_service_pb2
from wonder.v1 import coordinator_service_pb2 as pb
from wonder_server.actors.attachment import Attachment, CaughtUp
from wonder_server.actors.streams import Closed, NodeProgress, Quiet
from wonder_server.core.coordinator.record import RUN_ENDED
from wonder_server.ports.journal import Event
from wonder_server.rpc import run_codec as codec
from wonder_server.rpc.event_groups import grouped, together
from wonder_server.rpc.fitting import fitted
from wonder_server.rpc.stream_words import draining, heartbeat, slow_reader

_EVENTS = pb.WatchRunResponse.EVENTS_FIELD_NUMBER


async def said(
    attachment: Attachment, end_sequence: int, *, group_events: bool = False
) -> AsyncIterator[bytes]:
    """Everything that a watcher is sent, encoded, up to the last word. Raises SLOW_READER.

    ``end_sequence`` is that of the run's last event if it has ended, else 0.
    ``group_events``: events that are there at the same time go in one message.
    """
    while True:
        items = await attachment.take()
        for item in grouped(items, _event) if group_events else items:
            if isinstance(item, Event | list):
                events = item if isinstance(item, list) else [item]
                yield together(map(_event, events), _EVENTS)
                if events[-1].emit.kind in RUN_ENDED:
                    yield _end(attachment, conversation_service_pb2.STREAM_END_REASON_COMPLETED)
                    return
            elif isinstance(item, NodeProgress):
                said = pb.WatchRunResponse(progress=codec.progress(item))
                yield fitted(said.SerializeToString(), said)
            elif isinstance(item, CaughtUp):
                if 0 < end_sequence <= attachment.sequence:
                    # The client has seen the end already; there is nothing to wait for.
                    yield _end(attachment, conversation_service_pb2.STREAM_END_REASON_COMPLETED)
                    return
            elif isinstance(item, Quiet):
                alive = heartbeat(attachment.sequence)
                yield pb.WatchRunResponse(heartbeat=alive).SerializeToString()
            elif isinstance(item, Closed):
                if item.why == "slow":
                    raise slow_reader(attachment.sequence)
                yield pb.WatchRunResponse(draining=draining("runs")).SerializeToString()
                yield _end(attachment, conversation_service_pb2.STREAM_END_REASON_DRAINING)
                return


def _event(event: Event) -> bytes:
    if event.wire is None:
        said = pb.WatchRunResponse(event=codec.event(event))
        event.wire = fitted(said.SerializeToString(), said)
    return event.wire


def _end(attachment: Attachment, reason: Any) -> bytes:
    end = conversation_service_pb2.StreamEnd(reason=reason, resume_after_sequence=attachment.sequence)
    return pb.WatchRunResponse(end=end).SerializeToString()
