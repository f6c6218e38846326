"""`GuardedWeb`: an aiohttp client limited to the addresses that a project may reach.

The name of a host does not determine the target of a connection: DNS may answer differently the next time. So
the `Dialer` resolves a host once and checks every address against the policy. The connection goes to that
address, with the name in the ``Host`` header and in TLS. A pooled connection leads to an address that was
checked for this very request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wonder_server.adapters.egress.dialing import CONNECT_TIMEOUT_S, Dialer
from wonder_server.adapters.egress.sessions import open_session
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.network_address import Address, authority_problem
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.web import WebRequest, WebResponse

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

KEEP_ALIVE_S: Final = 15
MAX_CONNECTIONS: Final = 100
USER_AGENT: Final = "wonder"

_CHUNK_BYTES: Final = 64 * 1024


class GuardedWeb:
    """Implements the port ``Web``. `close` it before the event loop ends."""

    def __init__(self, dialer: Dialer | None = None) -> None:
        self._dialer = dialer or Dialer()
        self._opening: asyncio.Task[tuple[ClientSession, ClientSession]] | None = None
        self._closed = False

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse:
        """Send a request; see `ports.web.Web.send`."""
        exchange = self.exchange(
            request.method, request.url, request.headers, request.body, policy, pooled=request.repeatable
        )
        async with exchange as response:
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                body += chunk
                if len(body) > request.max_bytes:
                    raise error(
                        Reason.PAYLOAD_TOO_LARGE, f"The answer has more than {request.max_bytes} bytes."
                    )
            headers: dict[str, str] = {}
            for raw_name, raw_value in response.headers.items():
                name, value = _as_text(raw_name).lower(), _as_text(raw_value)
                before = headers.get(name)
                headers[name] = value if before is None else f"{before}, {value}"
            return WebResponse(status=response.status, headers=headers, body=bytes(body))

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        policy: NetworkPolicy,
        *,
        pooled: bool = False,
    ) -> AsyncIterator[ClientResponse]:
        """Send one request and yield its answer as it arrives. Errors: as for `send`, also while reading."""
        pool, fresh = await self._sessions()
        target = _target(url)
        addresses = await self._dialer.addresses(target.raw_host or "", target.port or 0, policy)
        # The other side may close a pooled connection at any time. aiohttp then sends a repeatable request
        # again. For other requests it would be unknown whether they arrived, so they use a new connection.
        session = pool if pooled else fresh
        try:
            response = await _first_response(session, method, target, addresses, headers, body)
            try:
                yield response
            finally:
                response.close()
        except (OSError, ValueError, _client_errors()) as problem:
            raise _connection_error(problem, target) from None

    async def close(self) -> None:
        """Close all connections. No request can be sent afterwards."""
        self._closed = True
        if self._opening is not None:
            with contextlib.suppress(Exception):
                for session in await self._opening:
                    await session.close()

    # --- sessions -------------------------------------------------------------------------------

    async def _sessions(self) -> tuple[ClientSession, ClientSession]:
        if self._closed:
            raise NotStartedError(
                Reason.SERVER_DRAINING, "The server is stopping and sends no more requests."
            )
        failed = self._opening
        if failed is not None and failed.done() and (failed.cancelled() or failed.exception() is not None):
            # The import may have failed for lack of descriptors, so try again.
            self._opening = None
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> tuple[ClientSession, ClientSession]:
        """Open one session with a pool, and one that uses a new connection for each request."""
        pool = await open_session(self._dialer, None, limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_S)
        return pool, await open_session(self._dialer, None, limit=MAX_CONNECTIONS, force_close=True)


def _as_text(header: str) -> str:
    """Replace the bytes of a header that are not UTF-8 by U+FFFD.

    aiohttp represents them as surrogates, which no response of this server can contain.
    """
    return (
        header if header.isascii() else header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )


def _client_errors() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _target(url: str) -> URL:
    """Parse a URL. INPUT_INVALID if it cannot be requested."""
    from yarl import URL

    try:
        target = URL(url)
        host, port, authority = target.raw_host or "", target.port, urlsplit(url).netloc
    except ValueError:
        raise _invalid_url("it cannot be read") from None
    if target.scheme not in ("http", "https"):
        raise _invalid_url("it must begin with http:// or https://")
    if target.raw_user is not None or target.raw_password is not None:
        raise _invalid_url("it contains a user or a password; send them in a header")
    if problem := authority_problem(authority, host):
        raise _invalid_url(problem)
    if not port:
        raise _invalid_url("its port is 0")
    return target.with_fragment(None)


def _invalid_url(problem: str) -> WonderError:
    return error(Reason.INPUT_INVALID, f"The url cannot be requested: {problem}.", field="url")


async def _first_response(
    session: ClientSession,
    method: str,
    target: URL,
    addresses: Sequence[Address],
    headers: Mapping[str, str],
    body: bytes,
) -> ClientResponse:
    """Return the response from the first address that accepts a connection."""
    from aiohttp import ClientConnectorError, ClientSSLError, ConnectionTimeoutError

    sent = {"User-Agent": USER_AGENT, **headers, "Host": target.raw_authority}
    rejected: Exception = OSError()
    for address in addresses:
        try:
            return await session.request(
                method,
                target.with_host(str(address)),
                headers=sent,
                data=body or None,
                allow_redirects=False,
                server_hostname=target.raw_host if target.scheme == "https" else None,
            )
        except ClientSSLError:
            raise
        except (ClientConnectorError, ConnectionTimeoutError) as problem:
            rejected = problem
    raise rejected


def _connection_error(problem: Exception, target: URL) -> WonderError:
    """Return the error of a failed connection, without the library's messages: they contain whole URLs."""
    from aiohttp import ClientConnectorError, ClientSSLError, ConnectionTimeoutError, InvalidURL

    place = _host_port(target)
    if isinstance(problem, ClientSSLError):
        return error(Reason.TASK_FAILED, f"{place} has no valid certificate, or does not speak TLS.")
    if isinstance(problem, ConnectionTimeoutError):
        return NotStartedError(
            Reason.TASK_FAILED, f"{place} accepted no connection within {CONNECT_TIMEOUT_S} s."
        )
    if isinstance(problem, ClientConnectorError):
        return NotStartedError(Reason.TASK_FAILED, f"{place} does not accept connections.")
    if isinstance(problem, InvalidURL | ValueError) and not isinstance(problem, OSError):
        return error(Reason.INPUT_INVALID, "The request cannot be sent: its url or a header is not valid.")
    return error(Reason.TASK_FAILED, f"The connection to {place} was interrupted.", transient=True)


def _host_port(target: URL) -> str:
    return target.raw_authority
