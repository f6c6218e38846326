"""Requests to servers that definitions name, held to what a project may reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value


class WebRequest(Value, frozen=True, kw_only=True):
    """One HTTP request. ``max_bytes``: of the answer's body, after decompression. ``repeatable``: it may
    arrive twice, so that it can go through a connection that is open already."""

    method: str
    url: str
    max_bytes: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    repeatable: bool = False


class WebResponse(Value, frozen=True, kw_only=True):
    """The answer. Names of headers are in lower case; one that came several times is joined by commas."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Web(Protocol):
    """One way of reaching HTTP servers.

    ``send`` makes exactly one request: no redirect is followed, no cookie kept, no proxy used, nothing
    tried again. The host is resolved once, every address of it is held against ``policy``, and the
    connection goes to an address that was. It raises `WonderError`: INPUT_INVALID for what is no request,
    PERMISSION_DENIED for an address that the policy does not allow, `NotBegunError` where no connection
    came about, TASK_FAILED with ``transient=True`` where it broke, PAYLOAD_TOO_LARGE for an answer above
    ``max_bytes``. Messages hold neither the query nor any header. Cancelling closes the connection.
    """

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse: ...

    async def close(self) -> None: ...
