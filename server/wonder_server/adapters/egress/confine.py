"""Restriction of the current process to connections to the server's egress proxy.

An audit hook cannot be removed, and it sees the connections of libraries that ignore proxy settings. It is a
second line of defence in helper processes, which run code of many providers. C code that opens sockets itself
bypasses it.
"""

from __future__ import annotations

import sys
from typing import Any


def confine(proxy_port: int) -> None:
    """Reject connections except to 127.0.0.1:``proxy_port``, and lookups of other hosts. 0 rejects all."""

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto"):
            is_rejected = args[1] is not None and tuple(args[1][:2]) != ("127.0.0.1", proxy_port)
        elif event == "socket.getaddrinfo":
            is_rejected = args[0] not in (None, "127.0.0.1", b"127.0.0.1")
        elif event in ("socket.gethostbyname", "socket.gethostbyaddr"):
            is_rejected = True
        else:
            return
        if is_rejected:
            raise ConnectionRefusedError("this process may connect only through the server's proxy")

    sys.addaudithook(check)
