"""The operator's own proxy as the last hop of the egress proxy, and the responses that reject a request."""

from __future__ import annotations

import asyncio
import base64
import socket
from typing import Final
from urllib.parse import unquote, urlsplit

from wonder_server.adapters.egress.dialing import Dialer, refused
from wonder_server.core.definitions.network_policy import is_named
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError

MAX_HEAD: Final = 64 * 1024
REQUEST_TIMEOUT_S: Final = 10
"""Maximum seconds until a client of the proxy has sent its request, or the operator's proxy its response."""


class Refusal(Exception):
    """A response of the proxy itself that rejects a request."""

    def __init__(self, status: str, headers: str = "", text: str = "") -> None:
        super().__init__(status)
        body = f"{text or status}\n".encode("utf-8", "replace")
        head = (
            f"HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain; charset=utf-8\r\nContent-Length:"
            f" {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.answer = head.encode() + body


async def check_before_upstream(dialer: Dialer, policy: NetworkPolicy, host: str, port: int) -> None:
    """Apply the policy before the operator's proxy gets the host.

    A name that does not resolve here passes, unless ``http_only_allowed`` is set and ``http_allow`` does not
    name it.
    """
    try:
        await dialer.addresses(host, port, policy)
    except WonderError as problem:
        if problem.fault.reason is not Reason.TASK_FAILED:
            raise
        if policy.http_only_allowed and not is_named(policy, host, port):
            raise refused(host, port) from None


async def connect_through(connection: socket.socket, upstream: str, target: str) -> None:
    """Request a connection to ``target`` from the operator's proxy."""
    loop = asyncio.get_running_loop()
    lines = [
        f"CONNECT {target} HTTP/1.1".encode(),
        f"Host: {target}".encode(),
        *(name + b": " + value for name, value in authorization(upstream)),
        b"",
        b"",
    ]
    await loop.sock_sendall(connection, b"\r\n".join(lines))
    head = b""
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        # Read single bytes: those after the head belong to the subprocess.
        while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD:
            received = await loop.sock_recv(connection, 1)
            if not received:
                break
            head += received
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise Refusal("502 Bad Gateway", text=f"The operator's proxy cannot connect to {target}.")


def authorization(upstream: str) -> list[tuple[bytes, bytes]]:
    parts = urlsplit(upstream) if upstream else None
    if parts is None or not parts.username:
        return []
    plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return [(b"Proxy-Authorization", b"Basic " + base64.b64encode(plain))]
