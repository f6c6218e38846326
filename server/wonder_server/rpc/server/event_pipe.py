"""Reading of the socket over which gRPC's polling thread wakes the event loop.

For each finished read or write of a stream, that thread queues an event and writes a byte into a socket pair.
The reader of grpc.aio 1.85 handles all queued events, but takes only one byte each time. Under load:

- The event loop runs once more for each byte that is left, and finds an empty queue.
- The socket holds about 280 such bytes. When it is full, the polling thread waits, and the event loop learns
  of one event in each iteration. With 200 turns that began together, streams wrote no text for a second.

The reader of this module takes all bytes but one, and then calls that of gRPC. The thread queues an event
before it writes the byte, so no event is missed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

_MAX_BYTES: Final = 4096
"""Bytes per read, more than the socket holds at once."""


@contextmanager
def drained_event_pipes() -> Iterator[None]:
    """Inside this context, readers that are added to the running loop drain their socket.

    gRPC adds its reader when the first server or channel of a loop is created. It offers no other access to
    the socket.
    """
    loop = asyncio.get_running_loop()
    add_reader = loop.add_reader

    def add_draining_reader(source: object, callback: Callable[..., object], *arguments: object) -> None:
        if isinstance(source, socket.socket):
            add_reader(source, drain_and_call, source, partial(callback, *arguments))
        else:
            add_reader(source, callback, *arguments)  # type: ignore[arg-type]

    loop.add_reader = add_draining_reader  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        loop.add_reader = add_reader  # type: ignore[method-assign]


def drain_and_call(source: socket.socket, callback: Callable[[], object]) -> None:
    """Read all bytes but one, and call the reader, which takes that one."""
    try:
        waiting = len(source.recv(_MAX_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return  # Nothing to read; the reader would wait for a byte and block the event loop.
    if waiting > 1:
        source.recv(waiting - 1)
    callback()
