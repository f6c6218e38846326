"""HTTP requests to servers that definitions name, limited by network policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value


class WebRequest(Value, frozen=True, kw_only=True):
    """One HTTP request. ``max_bytes`` limits the response body after decompression. ``repeatable``: it may
    arrive twice, so an open connection can be reused."""

    method: str
    url: str
    max_bytes: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    repeatable: bool = False


class WebResponse(Value, frozen=True, kw_only=True):
    """The response. Header names are in lower case; values of a repeated header are joined by commas."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Web(Protocol):
    """A way to send HTTP requests.

    ``send`` makes exactly one request, without redirects, cookies, proxies and retries. The host is resolved
    once, every address is checked against ``policy``, and the connection uses a checked address. It raises
    `WonderError`, whose messages contain neither the query nor a header:

    - INPUT_INVALID for an invalid request
    - PERMISSION_DENIED for an address that the policy does not allow
    - `NotStartedError` if no connection was established
    - TASK_FAILED with ``transient=True`` if the connection was lost
    - PAYLOAD_TOO_LARGE for a response above ``max_bytes``

    Cancelling closes the connection.
    """

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse: ...

    async def close(self) -> None: ...
