"""What every stream says in the same words: it is alive, the server goes, its reader is too slow."""

from __future__ import annotations

import time

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.rpc.shared.times import to_timestamp

RECONNECT_AFTER_MS = 1000


def heartbeat(sequence: int) -> pb.StreamHeartbeat:
    """``sequence`` is that of the last event."""
    return pb.StreamHeartbeat(last_sequence=sequence, time=to_timestamp(int(time.time() * 1000)))


def draining(what: str) -> pb.StreamDraining:
    """``what`` goes on when the server is back."""
    return pb.StreamDraining(
        reason=f"The server is shutting down; {what} go on when it is back.",
        reconnect_after_ms=RECONNECT_AFTER_MS,
    )


def slow_reader(sequence: int) -> WonderError:
    """SLOW_READER, with the cursor to go on from."""
    return error(
        Reason.SLOW_READER,
        f"The client reads too slowly; go on after {sequence}.",
        resume_after_sequence=str(sequence),
    )
