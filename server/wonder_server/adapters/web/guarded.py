"""`GuardedWeb`: aiohttp, kept to the addresses that a project may reach.

The name of a host says nothing about where a connection goes: DNS may answer otherwise the next time. So
the `Dialer` resolves a host once and holds every address against the policy, and the connection is made to
the address itself, with the name in the ``Host`` header and in TLS. A connection from the pool leads to an
address that was checked for this very request.
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
from wonder_server.core.task.effects import NotStartedError
from wonder_server.ports.web import WebRequest, WebResponse

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

KEEP_ALIVE_S: Final = 15
MAX_CONNECTIONS: Final = 100
USER_AGENT: Final = "wonder"

_CHUNK_BYTES: Final = 64 * 1024


class GuardedWeb:
    """Implements the port ``Web``. `close` it before the loop ends."""

    def __init__(self, dialer: Dialer | None = None) -> None:
        self._dialer = dialer or Dialer()
        self._opening: asyncio.Task[tuple[ClientSession, ClientSession]] | None = None
        self._closed = False

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse:
        """See `ports.web.Web.send`."""
        asked = self.exchange(
            request.method, request.url, request.headers, request.body, policy, pooled=request.repeatable
        )
        async with asked as response:
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
        """One request and its answer as it arrives. Errors as `send`, those of reading it included."""
        pool, fresh = await self._sessions()
        target = _target(url)
        addresses = await self._dialer.addresses(target.raw_host or "", target.port or 0, policy)
        # A connection from the pool may be closed from the other side at any moment. What may be repeated is
        # then sent again; of the rest nobody would know whether it arrived.
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
        """Close all connections; nothing can be sent afterwards."""
        self._closed = True
        if self._opening is not None:
            with contextlib.suppress(Exception):
                for session in await self._opening:
                    await session.close()

    # --- sessions -------------------------------------------------------------------------------

    async def _sessions(self) -> tuple[ClientSession, ClientSession]:
        if self._closed:
            raise NotStartedError(Reason.SERVER_DRAINING, "The server is stopping; nothing can be requested.")
        failed = self._opening
        if failed is not None and failed.done() and (failed.cancelled() or failed.exception() is not None):
            # As when there were no descriptors for the import: it may well succeed now.
            self._opening = None
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> tuple[ClientSession, ClientSession]:
        """One session with a pool, and one that makes a connection for each request."""
        pool = await open_session(self._dialer, None, limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_S)
        return pool, await open_session(self._dialer, None, limit=MAX_CONNECTIONS, force_close=True)


def _as_text(header: str) -> str:
    """Replace the bytes of a header that are not UTF-8 by U+FFFD.

    aiohttp leaves them as surrogates, which no answer of ours can carry."""
    return (
        header if header.isascii() else header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )


def _client_errors() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _target(url: str) -> URL:
    """The URL, fit to be requested. INPUT_INVALID."""
    from yarl import URL

    try:
        target = URL(url)
        host, port, authority = target.raw_host or "", target.port, urlsplit(url).netloc
    except ValueError:
        raise _invalid_url("it cannot be read") from None
    if target.scheme not in ("http", "https"):
        raise _invalid_url("it must begin with http:// or https://")
    if target.raw_user is not None or target.raw_password is not None:
        raise _invalid_url("it holds a user or a password; send them in a header")
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
    """The answer from the first address that lets itself be connected to."""
    from aiohttp import ClientConnectorError, ClientSSLError, ConnectionTimeoutError

    sent = {"User-Agent": USER_AGENT, **headers, "Host": target.raw_authority}
    refused: Exception = OSError()
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
            refused = problem
    raise refused


def _connection_error(problem: Exception, target: URL) -> WonderError:
    """What went wrong on the way, without any of the library's words: they hold whole URLs."""
    from aiohttp import ClientConnectorError, ClientSSLError, ConnectionTimeoutError, InvalidURL

    place = _host_port(target)
    if isinstance(problem, ClientSSLError):
        return error(Reason.TASK_FAILED, f"{place} has no valid certificate, or does not speak TLS.")
    if isinstance(problem, ConnectionTimeoutError):
        return NotStartedError(Reason.TASK_FAILED, f"{place} let nobody connect for {CONNECT_TIMEOUT_S} s.")
    if isinstance(problem, ClientConnectorError):
        return NotStartedError(Reason.TASK_FAILED, f"{place} cannot be connected to.")
    if isinstance(problem, InvalidURL | ValueError) and not isinstance(problem, OSError):
        return error(Reason.INPUT_INVALID, "The request cannot be sent: its url or a header is not valid.")
    return error(Reason.TASK_FAILED, f"The connection to {place} broke.", transient=True)


def _host_port(target: URL) -> str:
    return target.raw_authority
