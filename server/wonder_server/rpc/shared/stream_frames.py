"""Frames and errors that all streams share: heartbeat, draining, slow reader."""

from __future__ import annotations

import time

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.rpc.shared.times import to_timestamp

RECONNECT_AFTER_MS = 1000


def heartbeat(sequence: int) -> pb.StreamHeartbeat:
    """Return a heartbeat; ``sequence`` is that of the last event."""
    return pb.StreamHeartbeat(last_sequence=sequence, time=to_timestamp(int(time.time() * 1000)))


def draining(what: str) -> pb.StreamDraining:
    """Return the announcement of a shutdown; ``what`` continues after the restart."""
    return pb.StreamDraining(
        reason=f"The server is shutting down; {what} continue after its restart.",
        reconnect_after_ms=RECONNECT_AFTER_MS,
    )


def slow_reader(sequence: int) -> WonderError:
    """Return SLOW_READER with the cursor to resume from."""
    return error(
        Reason.SLOW_READER,
        f"The client reads too slowly. Attach again after sequence {sequence}.",
        resume_after_sequence=str(sequence),
    )
