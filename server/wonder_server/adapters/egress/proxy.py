"""`Egress`: a forward proxy on loopback, for subprocesses that make connections of their own.

git, its ssh, and the helper processes of providers resolve names themselves, and may do so twice. So they get
none of that: each is given this proxy with a credential of its own, a `Lease`, and the proxy resolves the
host once, holds every address against the policy of the lease, and connects to an address that it checked. It
takes CONNECT, and absolute URLs of http, one request a connection. Requests are parsed and written anew
(`parsing`).

An operator's own proxy (``HTTPS_PROXY``) is the last hop where the lease allows it. It resolves names by
itself, so the server can only refuse hosts that are, or here resolve to, what the policy refuses. Where
``http_only_allowed`` is set, a host that does not resolve here is passed on only if ``http_allow`` names it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from wonder_server.adapters.egress.dialing import Dialer, refused
from wonder_server.adapters.egress.parsing import BadRequest, Body, parse
from wonder_server.core.definitions.network_policy import allow_only, is_named
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.network_address import host_port, parse_address
from wonder_server.logs import logger

_log = logger("egress")

MAX_HEAD: Final = 64 * 1024
MAX_CONNECTIONS: Final = 256
"""Connections that one socket's lease has at once. A command in a sandbox could open thousands."""
MAX_RECENT_FAILURES: Final = 100
REQUEST_TIMEOUT_S: Final = 10
"""How long a client of the proxy may take to say where it wants to go."""

_HIGH_WATER: Final = 256 * 1024


class Lease:
    """The right to use the proxy, until it is closed. ``who`` is for the log. ``problem`` is the last
    refusal.

    ``chained``: connections go through the operator's own proxy, if the environment names one for the host.
    ``idle_s``: a connection ends once no byte has moved for so many seconds; 0 sets no limit.
    """

    def __init__(
        self, egress: Egress, policy: NetworkPolicy, owner: str, *, chained: bool, idle_s: float = 0
    ) -> None:
        self.token = secrets.token_hex(24)
        self.policy = policy
        self.owner = owner
        self.chained = chained
        self.idle_s = idle_s
        self.problem: WonderError | None = None
        self.recent_failures: dict[str, WonderError] = {}
        """Places that could not be connected to the last time that they were asked for, and why."""
        self._egress = egress
        self._refused_count = 0
        self._last_refused = "", 0
        self._log_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port of the proxy on 127.0.0.1."""
        return self._egress.port

    @property
    def url(self) -> str:
        """The proxy with the credential: a secret of the subprocess, for its environment only."""
        return f"http://wonder:{self.token}@127.0.0.1:{self.port}"

    def refuse(self, problem: WonderError, host: str, port: int) -> None:
        """Note a refusal, and log it: the first at once, those of each second after it in one line."""
        self.problem = problem
        self._refused_count += 1
        self._last_refused = host[:253], port
        if self._log_timer is None:
            self._log()

    def _log(self) -> None:
        """Write what was refused since the last line, and look again in a second."""
        self._log_timer = None
        if self._refused_count:
            host, port = self._last_refused
            _log.warning("egress_refused", who=self.owner, host=host, port=port, refused=self._refused_count)
            self._refused_count = 0
            self._log_timer = asyncio.get_running_loop().call_later(1, self._log)

    def finish_logging(self) -> None:
        """Write what is not logged yet. Called by the proxy, in its loop."""
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._log()
            if self._log_timer is not None:
                self._log_timer.cancel()

    def close(self) -> None:
        """End the lease and the connections that it has open."""
        self._egress.end_lease(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Egress:
    """The proxy. It listens from the first lease on; `close` it before the loop ends.

    ``environment``: where ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY`` of the operator are looked up.
    """

    def __init__(self, dialer: Dialer | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.dialer = dialer or Dialer()
        self.port = 0
        self._environment = dict(environment or {})
        self._leases: dict[str, Lease] = {}
        self._connections: dict[_ClientEnd, Lease | None] = {}
        self._opening: asyncio.Task[asyncio.Server] | None = None
        self._closed = False

    async def lease(
        self, policy: NetworkPolicy, owner: str, *, chained: bool = False, idle_s: float = 0
    ) -> Lease:
        """Return a new lease. SERVER_DRAINING once the proxy is closed."""
        if self._closed:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)
        lease = Lease(self, policy, owner, chained=chained, idle_s=idle_s)
        self._leases[lease.token] = lease
        return lease

    async def listen_at(self, path: Path, lease: Lease) -> asyncio.Server:
        """Listen on a socket in the file system, for connections that all use ``lease``. Raises `OSError`."""
        return await asyncio.get_running_loop().create_unix_server(lambda: _ClientEnd(self, lease), str(path))

    def is_over_limit(self, lease: Lease) -> bool:
        """Whether ``lease`` has more connections than it may have."""
        return sum(held is lease for held in self._connections.values()) > MAX_CONNECTIONS

    def end_lease(self, lease: Lease) -> None:
        """See `Lease.close`. May be called from any thread."""
        self._leases.pop(lease.token, None)
        if self._opening is not None and not self._opening.get_loop().is_closed():
            self._opening.get_loop().call_soon_threadsafe(self._close_connections, lease)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self._closed = True
        for lease in self._leases.values():
            lease.finish_logging()
        self._leases.clear()
        if self._opening is not None:
            server = await self._opening
            server.close()
            for client in list(self._connections):
                client.abort()
            await server.wait_closed()

    @property
    def leases(self) -> int:
        """How many leases there are."""
        return len(self._leases)

    # --- for connections --------------------------------------------------------------------------

    def on_connected(self, client: _ClientEnd, lease: Lease | None) -> None:
        self._connections[client] = lease

    def on_disconnected(self, client: _ClientEnd) -> None:
        self._connections.pop(client, None)

    def lease_of(self, client: _ClientEnd, credential: bytes) -> Lease | None:
        """Return the lease that the client came with, or else the one that its ``Proxy-Authorization`` header
        names. None if there is none, or none any more."""
        held = self._connections.get(client)
        if held is not None:
            return self._leases.get(held.token)
        kind, _, encoded = credential.strip().partition(b" ")
        if kind.lower() != b"basic":
            return None
        try:
            token = base64.b64decode(encoded, validate=True).decode("ascii").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
        lease = self._leases.get(token)
        if lease is not None:
            self._connections[client] = lease
        return lease

    def upstream(self, lease: Lease, scheme: str, host: str, port: int) -> str:
        """The operator's proxy for this place, or empty."""
        spelled = parse_address(host)
        if not lease.chained or host == "localhost" or (spelled is not None and spelled.is_loopback):
            return ""

        def named(variable: str) -> str:
            return self._environment.get(variable) or self._environment.get(variable.upper()) or ""

        found = named(f"{scheme}_proxy")
        if not found or proxy_bypass_environment(host_port(host, port), {"no": named("no_proxy")}):
            return ""
        return found if "://" in found else f"http://{found}"

    # --- inside -----------------------------------------------------------------------------------

    async def _open(self) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(lambda: _ClientEnd(self), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _close_connections(self, lease: Lease) -> None:
        lease.finish_logging()
        for client in [client for client, held in self._connections.items() if held is lease]:
            client.abort()


class _Refusal(Exception):
    """An answer of the proxy itself."""

    def __init__(self, status: str, headers: str = "", text: str = "") -> None:
        super().__init__(status)
        body = f"{text or status}\n".encode("utf-8", "replace")
        head = (
            f"HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain; charset=utf-8\r\nContent-Length:"
            f" {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.answer = head.encode() + body


class _ProxyEnd(asyncio.Protocol):
    """One end of a connection through the proxy. What it receives, the other end sends."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _ProxyEnd | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self.on_activity()
        if self.other is not None and self.other.transport is not None:
            self.other.on_activity()
            self.other.transport.write(data)

    def on_activity(self) -> None:
        """Note that bytes moved through the connection."""

    def eof_received(self) -> bool:
        other = self.other
        if other is not None and other.transport is not None and other.transport.can_write_eof():
            with suppress(OSError, RuntimeError):
                other.transport.write_eof()
            return True
        return False

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, reason: Exception | None) -> None:
        other, self.other = self.other, None
        if other is not None and other.transport is not None:
            other.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _ClientEnd(_ProxyEnd):
    """A connection of a subprocess: first its request, then both ways."""

    def __init__(self, egress: Egress, lease: Lease | None = None) -> None:
        super().__init__()
        self._egress = egress
        self._lease = lease
        self._head = b""
        self._body: Body | None = None
        self._idle_s = 0.0
        self._last_activity = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._egress.on_connected(self, self._lease)
        if self._lease is not None and self._egress.is_over_limit(self._lease):
            self.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            try:
                passed = data if self._body is None else self._body.feed(data)
            except (
                BadRequest
            ):  # The request before it was sent, perhaps answered: there is no place for a 400.
                self.other.abort()
                self.abort()
                return
            super().data_received(passed)
            return
        self._head += data
        if self._task is None and (b"\r\n\r\n" in self._head or len(self._head) > MAX_HEAD):
            assert self.transport is not None and self._timer is not None
            self._timer.cancel()
            self.transport.pause_reading()
            self._task = asyncio.create_task(self._connect())

    def connection_lost(self, reason: Exception | None) -> None:
        super().connection_lost(reason)
        self._egress.on_disconnected(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def on_activity(self) -> None:
        self._last_activity = asyncio.get_running_loop().time()

    def start_idle_timer(self, idle_s: float) -> None:
        """End the connection once no byte has moved in either direction for ``idle_s``. 0 sets no limit."""
        self._idle_s = idle_s
        if idle_s:
            self.on_activity()
            self._check_idle()

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._last_activity + self._idle_s - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._check_idle)
            return
        if self.other is not None:
            self.other.abort()
        self.abort()

    async def _connect(self) -> None:
        assert self.transport is not None
        try:
            await self._open_upstream()
        except _Refusal as refusal:
            self.transport.write(refusal.answer)
            self.transport.close()
        except OSError:
            self.transport.abort()

    async def _open_upstream(self) -> None:
        assert self.transport is not None
        head, found, rest = self._head.partition(b"\r\n\r\n")
        if not found:
            raise _Refusal("431 Request Header Fields Too Large")
        try:
            asked = parse(head)
            body = None if asked.is_tunnel else Body(asked.length)
            begun = rest if body is None else body.feed(rest)
        except BadRequest as problem:
            raise _Refusal("400 Bad Request", text=str(problem)) from None
        lease = self._egress.lease_of(self, asked.credential)
        if lease is None:
            asks = 'Proxy-Authenticate: Basic realm="wonder"\r\n'
            raise _Refusal("407 Proxy Authentication Required", asks)
        upstream = self._egress.upstream(lease, asked.scheme, asked.host, asked.port)
        connection = await self._connect_target(lease, asked.host, asked.port, upstream)
        try:
            if body is None:
                if upstream:
                    await _connect_through_upstream(connection, upstream, host_port(asked.host, asked.port))
                # Before the far end can speak: an ssh server does so at once.
                self.transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                begun = asked.head(*_authorization(upstream), absolute=bool(upstream)) + begun
            far = _ProxyEnd()
            far.other = self
            await asyncio.get_running_loop().create_connection(lambda: far, sock=connection)
        except BaseException:
            connection.close()
            raise
        self.other, self._body = far, body
        assert far.transport is not None
        far.transport.write(begun)
        self.start_idle_timer(lease.idle_s)
        self.transport.resume_reading()

    async def _connect_target(self, lease: Lease, host: str, port: int, upstream: str) -> socket.socket:
        dialer = self._egress.dialer
        try:
            if not upstream:
                connection = await dialer.connect(host, port, lease.policy)
                lease.recent_failures.pop(host_port(host, port), None)
                return connection
            await _check_before_upstream(dialer, lease, host, port)
            parts = urlsplit(upstream)
            near, at = parts.hostname or "", parts.port or 80
            return await dialer.connect(near, at, allow_only(host_port(near, at)))
        except WonderError as problem:
            denied = problem.fault.reason in (Reason.PERMISSION_DENIED, Reason.INPUT_INVALID)
            if denied:
                lease.refuse(problem, host, port)
            else:
                lease.problem = problem
                lease.recent_failures[host_port(host, port)] = problem
                if len(lease.recent_failures) > MAX_RECENT_FAILURES:
                    del lease.recent_failures[next(iter(lease.recent_failures))]
            raise _Refusal(
                "403 Forbidden" if denied else "502 Bad Gateway", text=problem.fault.message
            ) from None


async def _check_before_upstream(dialer: Dialer, lease: Lease, host: str, port: int) -> None:
    """Refuse what is refused here. A name that only the operator's proxy can resolve passes, unless
    ``http_only_allowed`` is set and ``http_allow`` does not name it."""
    try:
        await dialer.addresses(host, port, lease.policy)
    except WonderError as problem:
        if problem.fault.reason is not Reason.TASK_FAILED:
            raise
        if lease.policy.http_only_allowed and not is_named(lease.policy, host, port):
            raise refused(host, port) from None


async def _connect_through_upstream(connection: socket.socket, upstream: str, there: str) -> None:
    """Have the operator's proxy connect to ``there``."""
    loop = asyncio.get_running_loop()
    lines = [
        f"CONNECT {there} HTTP/1.1".encode(),
        f"Host: {there}".encode(),
        *(name + b": " + value for name, value in _authorization(upstream)),
        b"",
        b"",
    ]
    await loop.sock_sendall(connection, b"\r\n".join(lines))
    head = b""
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        # One byte at a time: what follows the head belongs to the subprocess.
        while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD:
            received = await loop.sock_recv(connection, 1)
            if not received:
                break
            head += received
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise _Refusal("502 Bad Gateway", text="The proxy of this network does not connect.")


def _authorization(upstream: str) -> list[tuple[bytes, bytes]]:
    parts = urlsplit(upstream) if upstream else None
    if parts is None or not parts.username:
        return []
    plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return [(b"Proxy-Authorization", b"Basic " + base64.b64encode(plain))]
