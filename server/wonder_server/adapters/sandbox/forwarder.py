"""The network connection of a sandbox: a forwarder from a port of its loopback to the host's egress proxy.

A sandbox never shares the host's network: it has only a loopback interface. If its project allows network
access, the host mounts the egress proxy's socket into the sandbox (`mounts.EGRESS`). This module copies bytes
between ``127.0.0.1:3128``, where ``HTTP_PROXY`` points, and that socket. It checks nothing. The proxy,
outside the sandbox, resolves names and checks every address against the project's policy.

The module imports only the standard library: the supervisor runs it inside the sandbox, in one child process
per command, which ends with the command. A command can kill it, which affects only that command.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

PORT = 3128
MAX_CONNECTIONS = 200
"""Maximum number of connections, with two descriptors each. A process in a sandbox may have 1,024."""
MAX_OUTGOING = 1 << 18
"""Maximum bytes buffered per direction of a connection while its reader does not read."""
CHUNK = 1 << 16


def listen() -> socket.socket:
    """Listen on the sandbox's loopback interface. Raises `OSError`."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(128)
    listener.setblocking(False)
    return listener


def fork(listener: socket.socket, path: str) -> int:
    """Start a process that forwards until it is killed. Return its id. It inherits no pipe of the
    supervisor."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != listener.fileno():
                with contextlib.suppress(OSError):
                    os.close(number)
        Forwarder(listener, path).serve()
    finally:
        os._exit(1)


class _Endpoint:
    """One end of a connection. ``outgoing`` are bytes to send to it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.outgoing = bytearray()
        self.is_at_end = False  # It has sent its last byte.
        self.is_closing = False  # Nothing follows the bytes in ``outgoing``.
        self.other: _Endpoint


class Forwarder:
    """Forward connections of ``listener`` to the socket at ``path``, up to `MAX_CONNECTIONS` at a time."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._ends: dict[int, _Endpoint] = {}

    def serve(self) -> None:
        """Serve until the process is killed."""
        while True:
            self.step(None)

    def step(self, timeout_ms: int | None) -> None:
        """Handle ready sockets, or wait for one."""
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
        for number, events in poll.poll(timeout_ms):
            if number == self._listener.fileno():
                self._accept()
            elif number in self._ends:
                self._serve(self._ends[number], events)

    def _accept(self) -> None:
        try:
            inner, _ = self._listener.accept()
        except OSError:
            return
        outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            outer.connect(self._path)
        except OSError:  # The proxy has ended, or accepts no more connections.
            inner.close()
            outer.close()
            return
        pair = _Endpoint(inner), _Endpoint(outer)
        pair[0].other, pair[1].other = pair[1], pair[0]
        for end in pair:
            end.sock.setblocking(False)
            self._ends[end.sock.fileno()] = end

    def _serve(self, end: _Endpoint, events: int) -> None:
        try:
            if events & select.POLLOUT and end.outgoing:
                self._write(end)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and not end.is_at_end:
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
