"""`GuardedWeb`: aiohttp, kept to the addresses that a project may reach.

The name of a host says nothing about where a connection goes: DNS may answer otherwise the next time. So
a host is resolved once, here; every address is held against the policy; and the connection is made to the
address itself, with the name in the ``Host`` header and in TLS. A connection from the pool leads to an
address that was checked for this very request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.network import Address, host_problem, literal, may_reach
from wonder_server.core.task.effects import NotBegunError
from wonder_server.ports.web import WebRequest, WebResponse

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

CONNECT_TIMEOUT_S: Final = 10
KEEP_ALIVE_S: Final = 15
MAX_CONNECTIONS: Final = 100
MAX_ADDRESSES: Final = 4
"""How many addresses of a host are tried, one after the other, until one answers."""
USER_AGENT: Final = "wonder"

_CHUNK_BYTES: Final = 64 * 1024

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, in the order in which to try them. Raises `OSError`."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedWeb:
    """Implements the port ``Web``. `close` it before the loop ends."""

    def __init__(self, resolve: Resolve = resolve) -> None:
        self._resolve = resolve
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
        addresses = await self._addresses(target, policy)
        # A connection from the pool may be closed from the other side at any moment. What may be repeated is
        # then sent again; of the rest nobody would know whether it arrived.
        session = pool if pooled else fresh
        try:
            response = await _first_answer(session, method, target, addresses, headers, body)
            try:
                yield response
            finally:
                response.close()
        except (OSError, ValueError, _errors()) as problem:
            raise _explained(problem, target) from None

    async def close(self) -> None:
        """Close all connections; nothing can be sent afterwards."""
        self._closed = True
        if self._opening is not None:
            for session in await self._opening:
                await session.close()

    # --- where to -------------------------------------------------------------------------------

    async def _addresses(self, target: URL, policy: NetworkPolicy) -> list[Address]:
        """The addresses of the URL's host, all of which the policy allows."""
        host, port = target.raw_host or "", target.port or 0
        spelled = literal(host)
        if spelled is not None:
            addresses = [spelled]
        else:
            try:
                found = await self._resolve(host, port)
            except OSError as problem:
                raise _unresolved(host, problem) from None
            # An address with a zone, such as fe80::1%eth0, is no public one; the zone does not matter.
            addresses = [ip_address(each.partition("%")[0]) for each in found]
        if not addresses:
            raise error(Reason.TASK_FAILED, f"The host {host} has no address.")
        if not all(may_reach(policy, host, port, each) for each in addresses):
            raise error(
                Reason.PERMISSION_DENIED,
                f"The project does not allow requests to {_place(target)}: its address is not public, or not"
                " among those that its network.http_allow names. This allows it:"
                f" wonder project allow PROJECT {f'[{host}]' if ':' in host else host}:{port}",
                field="url",
            )
        return addresses[:MAX_ADDRESSES]

    # --- sessions -------------------------------------------------------------------------------

    async def _sessions(self) -> tuple[ClientSession, ClientSession]:
        if self._closed:
            raise NotBegunError(Reason.SERVER_DRAINING, "The server is stopping; nothing can be requested.")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> tuple[ClientSession, ClientSession]:
        """One session with a pool, and one that makes a connection for each request."""
        # The import takes 150 ms, which streams would feel; in a thread they only share the processor.
        aiohttp = await asyncio.to_thread(import_module, "aiohttp")

        def session(**pooling: Any) -> ClientSession:
            made: ClientSession = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, **pooling),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                trust_env=False,
            )
            return made

        return session(keepalive_timeout=KEEP_ALIVE_S), session(force_close=True)


def _as_text(header: str) -> str:
    """Replace the bytes of a header that are not UTF-8 by U+FFFD.

    aiohttp leaves them as surrogates, which no answer of ours can carry."""
    return (
        header if header.isascii() else header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )


def _errors() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _target(url: str) -> URL:
    """The URL, fit to be requested. INPUT_INVALID."""
    from yarl import URL

    try:
        target = URL(url)
        host, port = target.raw_host or "", target.port
    except ValueError:
        raise _no_url("it cannot be read") from None
    if target.scheme not in ("http", "https"):
        raise _no_url("it must begin with http:// or https://")
    if target.raw_user is not None or target.raw_password is not None:
        raise _no_url("it holds a user or a password; send them in a header")
    if problem := host_problem(host):
        raise _no_url(problem)
    if not port:
        raise _no_url("its port is 0")
    return target.with_fragment(None)


def _no_url(problem: str) -> WonderError:
    return error(Reason.INPUT_INVALID, f"The url cannot be requested: {problem}.", field="url")


async def _first_answer(
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


def _explained(problem: Exception, target: URL) -> WonderError:
    """What went wrong on the way, without any of the library's words: they hold whole URLs."""
    from aiohttp import ClientConnectorError, ClientSSLError, ConnectionTimeoutError, InvalidURL

    place = _place(target)
    if isinstance(problem, ClientSSLError):
        return error(Reason.TASK_FAILED, f"{place} has no valid certificate, or does not speak TLS.")
    if isinstance(problem, ConnectionTimeoutError):
        return NotBegunError(Reason.TASK_FAILED, f"{place} let nobody connect for {CONNECT_TIMEOUT_S} s.")
    if isinstance(problem, ClientConnectorError):
        return NotBegunError(Reason.TASK_FAILED, f"{place} cannot be connected to.")
    if isinstance(problem, InvalidURL | ValueError) and not isinstance(problem, OSError):
        return error(Reason.INPUT_INVALID, "The request cannot be sent: its url or a header is not valid.")
    return error(Reason.TASK_FAILED, f"The connection to {place} broke.", transient=True)


def _unresolved(host: str, problem: OSError) -> WonderError:
    if isinstance(problem, socket.gaierror) and problem.errno == socket.EAI_NONAME:
        return error(Reason.TASK_FAILED, f"There is no host {host}.", field="url")
    return NotBegunError(Reason.TASK_FAILED, f"The address of {host} could not be found out.")


def _place(target: URL) -> str:
    return target.raw_authority
