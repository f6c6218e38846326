"""The program that git and ssh start to be connected: ``dial.py HOST PORT``.

Imports nothing of ours: it runs with ``python -I -S``. ``WONDER_EGRESS`` is the port of the server's proxy on
loopback, ``WONDER_EGRESS_TOKEN`` what the proxy knows the command by. Bytes go from the standard input to the
host and back.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import threading

_CHUNK = 64 * 1024
_MAX_HEAD = 16 * 1024


def main() -> int:
    host, port = sys.argv[1].strip("[]"), int(sys.argv[2])
    token = base64.b64encode(f"wonder:{os.environ['WONDER_EGRESS_TOKEN']}".encode()).decode()
    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    proxy = socket.create_connection(("127.0.0.1", int(os.environ["WONDER_EGRESS"])))
    asked = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\nProxy-Authorization: Basic {token}\r\n\r\n"
    proxy.sendall(asked.encode("ascii"))
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD:
        received = proxy.recv(1)
        if not received:
            break
        head += received
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if status.split()[1:2] != ["200"]:
        sys.stderr.write(f"{there} cannot be reached: {status}\n")
        return 1
    threading.Thread(target=_send, args=(proxy,), daemon=True).start()
    while received := proxy.recv(_CHUNK):
        _write(1, received)
    return 0


def _send(proxy: socket.socket) -> None:
    while given := os.read(0, _CHUNK):
        proxy.sendall(given)
    proxy.shutdown(socket.SHUT_WR)


def _write(to: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(to, left) :]


if __name__ == "__main__":
    try:
        code = main()
    except (OSError, ValueError, IndexError, KeyError) as problem:
        sys.stderr.write(f"the connection failed: {type(problem).__name__}\n")
        code = 1
    # A thread may still wait for the standard input, which nobody will close any more.
    os._exit(code)
