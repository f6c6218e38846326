"""The program that git and ssh start to open a connection: ``dial.py HOST PORT``.

It imports only the standard library, since it runs with ``python -I -S``. ``WONDER_EGRESS`` is the port of
the server's proxy on loopback, ``WONDER_EGRESS_TOKEN`` the credential of the command. It copies bytes between
its standard streams and the host.
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
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    proxy = socket.create_connection(("127.0.0.1", int(os.environ["WONDER_EGRESS"])))
    request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {token}\r\n\r\n"
    proxy.sendall(request.encode("ascii"))
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD:
        received = proxy.recv(1)
        if not received:
            break
        head += received
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if status.split()[1:2] != ["200"]:
        sys.stderr.write(f"{target} cannot be reached: {status}\n")
        return 1
    threading.Thread(target=_send, args=(proxy,), daemon=True).start()
    while received := proxy.recv(_CHUNK):
        _write(1, received)
    return 0


def _send(proxy: socket.socket) -> None:
    while data := os.read(0, _CHUNK):
        proxy.sendall(data)
    proxy.shutdown(socket.SHUT_WR)


def _write(to: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(to, remaining) :]


if __name__ == "__main__":
    try:
        code = main()
    except (OSError, ValueError, IndexError, KeyError) as problem:
        sys.stderr.write(f"the connection failed: {type(problem).__name__}\n")
        code = 1
    # A thread may still wait for the standard input, which no process closes any more.
    os._exit(code)
