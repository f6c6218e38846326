"""Keeps the process that it is called in from connecting to anything but the server's egress proxy.

An audit hook cannot be removed, and it sees what libraries do, whatever proxies they have been told of. It is
a second line of defence in helper processes, which run code of many providers; C code that opens sockets
itself would pass it.
"""

from __future__ import annotations

import sys
from typing import Any


def confine(proxy_port: int) -> None:
    """Refuse every connection but those to 127.0.0.1:``proxy_port``, and every look-up of another host. With
    0, refuse all."""

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto"):
            refused = args[1] is not None and tuple(args[1][:2]) != ("127.0.0.1", proxy_port)
        elif event == "socket.getaddrinfo":
            refused = args[0] not in (None, "127.0.0.1", b"127.0.0.1")
        elif event in ("socket.gethostbyname", "socket.gethostbyaddr"):
            refused = True
        else:
            return
        if refused:
            raise ConnectionRefusedError("this process connects through the server's proxy only")

    sys.addaudithook(refuse)
