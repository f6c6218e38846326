"""The way out of a sandbox with a network: from a port of its loopback to the host's egress proxy.

A sandbox never shares the host's network: it has a loopback interface of its own and nothing else. Where its
project allows a network, the host puts the egress proxy's socket into it (`view.EGRESS`), and this module
carries bytes between ``127.0.0.1:3128``, where ``HTTP_PROXY`` points, and that socket. It checks nothing: the
proxy, outside, resolves names and holds every address against the project's policy.

It imports nothing but the standard library: the supervisor runs it inside, in a child process of each command
that ends with it. A command can end it too, which harms that command alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

PORT = 3128
MAX_CONNECTIONS = 200
"""Two descriptors each, of the 1,024 that a process in a sandbox may have."""
MAX_OUTGOING = 1 << 18
"""Bytes that one direction of a connection holds while its reader does not read."""
CHUNK = 1 << 16


def listen() -> socket.socket:
    """Listen on the sandbox's own loopback. Raises `OSError`."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(128)
    listener.setblocking(False)
    return listener


def fork(listener: socket.socket, path: str) -> int:
    """Start a process that forwards until it is killed; return its id. It holds no pipe of the supervisor."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != listener.fileno():
                with contextlib.suppress(OSError):
                    os.close(number)
        Forwarder(listener, path).serve()
    finally:
        os._exit(1)


class _Endpoint:
    """One end of a connection. ``waiting`` is what it has yet to be sent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.outgoing = bytearray()
        self.is_at_end = False  # it sends nothing any more
        self.is_closing = False  # nothing more comes for it than what is waiting
        self.other: _Endpoint


class Forwarder:
    """Carries connections of ``listener`` to the socket at ``path``, as many as there may be at once."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._ends: dict[int, _Endpoint] = {}

    def serve(self) -> None:
        """Serve for ever."""
        while True:
            self.step(None)

    def step(self, timeout_ms: int | None) -> None:
        """Do what there is to do, or wait for it."""
        poll = select.poll()
        if len(self._ends) < 2 * MAX_CONNECTIONS:
            poll.register(self._listener, select.POLLIN)
        for number, end in self._ends.items():
            wanted = 0
            if not end.is_at_end and len(end.other.outgoing) < MAX_OUTGOING:
                wanted |= select.POLLIN
            if end.outgoing:
                wanted |= select.POLLOUT
            if wanted:
                poll.register(number, wanted)
        for number, happened in poll.poll(timeout_ms):
            if number == self._listener.fileno():
                self._accept()
            elif number in self._ends:
                self._serve(self._ends[number], happened)

    def _accept(self) -> None:
        try:
            inner, _ = self._listener.accept()
        except OSError:
            return
        outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            outer.connect(self._path)
        except OSError:  # the proxy is gone, or has no room
            inner.close()
            outer.close()
            return
        pair = _Endpoint(inner), _Endpoint(outer)
        pair[0].other, pair[1].other = pair[1], pair[0]
        for end in pair:
            end.sock.setblocking(False)
            self._ends[end.sock.fileno()] = end

    def _serve(self, end: _Endpoint, happened: int) -> None:
        try:
            if happened & select.POLLOUT and end.outgoing:
                self._write(end)
            if happened & (select.POLLIN | select.POLLHUP | select.POLLERR) and not end.is_at_end:
                self._read(end)
        except BlockingIOError:
            return
        except OSError:
            self._close(end)
            return
        if end.is_at_end and end.other.is_at_end and not end.outgoing and not end.other.outgoing:
            self._close(end)

    def _read(self, end: _Endpoint) -> None:
        chunk = end.sock.recv(CHUNK)
        if chunk:
            end.other.outgoing += chunk
        else:
            end.is_at_end = end.other.is_closing = True
        self._write(end.other)

    def _write(self, end: _Endpoint) -> None:
        with contextlib.suppress(BlockingIOError):
            while end.outgoing:
                del end.outgoing[: end.sock.send(end.outgoing[:CHUNK])]
        if end.is_closing and not end.outgoing:
            end.is_closing = False
            end.sock.shutdown(socket.SHUT_WR)

    def _close(self, end: _Endpoint) -> None:
        for each in (end, end.other):
            self._ends.pop(each.sock.fileno(), None)
            each.sock.close()
