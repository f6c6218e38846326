"""`Egress`: a forward proxy on loopback, for subprocesses that make connections of their own.

git, its ssh and the helper processes of providers resolve names themselves, possibly twice. So they may not
connect directly: each gets this proxy with a credential of its own, a `Lease`. The proxy resolves the host
once, checks every address against the policy of the lease, and connects to a checked address. It accepts
CONNECT and absolute http URLs, one request per connection. It parses requests and writes them again
(`parsing`).

The operator's own proxy (``HTTPS_PROXY``) is the last hop if the lease allows it. It resolves names itself,
so the server can only reject hosts that the policy forbids, or that resolve here to a forbidden address. With
``http_only_allowed``, a host that does not resolve here is forwarded only if ``http_allow`` names it.
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
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.parsing import BadRequest, Body, ResponseHead, parse
from wonder_server.adapters.egress.upstream import (
    MAX_HEAD,
    REQUEST_TIMEOUT_S,
    Refusal,
    authorization,
    check_before_upstream,
    connect_through,
)
from wonder_server.core.definitions.network_policy import allow_only
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.network_address import host_port, parse_address
from wonder_server.logs import logger

_log = logger("egress")

MAX_CONNECTIONS: Final = 256
"""Maximum number of connections of one socket's lease. A command in a sandbox could open thousands."""
MAX_RECENT_FAILURES: Final = 100
MIN_BYTES: Final = 4_096
"""Bytes that a connection with a limit ``slow_s`` must move in that time, in both directions together."""

_HIGH_WATER: Final = 256 * 1024


class Lease:
    """The right to use the proxy, until it is closed.

    ``owner`` is for the log. ``problem`` is the last rejection. With ``chained``, connections use the
    operator's own proxy if the environment names one for the host. A connection ends after ``idle_s`` seconds
    without a byte, and after ``slow_s`` seconds with fewer than `MIN_BYTES`; 0 sets no limit.
    """

    def __init__(
        self,
        egress: Egress,
        policy: NetworkPolicy,
        owner: str,
        *,
        chained: bool,
        idle_s: float,
        slow_s: float,
    ) -> None:
        self.token = secrets.token_hex(24)
        self.policy = policy
        self.owner = owner
        self.chained = chained
        self.idle_s = idle_s
        self.slow_s = slow_s
        self.problem: WonderError | None = None
        self.recent_failures: dict[str, WonderError] = {}
        """Targets whose last connection attempt failed, with the error."""
        self._egress = egress
        self._refused_count = 0
        self._last_refused = "", 0
        self._log_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """Return the port of the proxy on 127.0.0.1."""
        return self._egress.port

    @property
    def url(self) -> str:
        """Return the proxy's URL with the credential: a secret for the environment of the subprocess."""
        return f"http://wonder:{self.token}@127.0.0.1:{self.port}"

    def refuse(self, problem: WonderError, host: str, port: int) -> None:
        """Record and log a rejection: the first immediately, those of each following second in one line."""
        self.problem = problem
        self._refused_count += 1
        self._last_refused = host[:253], port
        if self._log_timer is None:
            self._log()

    def _log(self) -> None:
        """Log the rejections since the last line, and schedule the next check in a second."""
        self._log_timer = None
        if self._refused_count:
            host, port = self._last_refused
            _log.warning(
                "egress_refused", owner=self.owner, host=host, port=port, refused=self._refused_count
            )
            self._refused_count = 0
            self._log_timer = asyncio.get_running_loop().call_later(1, self._log)

    def finish_logging(self) -> None:
        """Log pending rejections. The proxy calls this in its loop."""
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._log()
            if self._log_timer is not None:
                self._log_timer.cancel()

    def close(self) -> None:
        """End the lease and its open connections."""
        self._egress.end_lease(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Egress:
    """The proxy. It listens from the first lease on; `close` it before the loop ends.

    ``environment`` has the operator's ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``.
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
        self,
        policy: NetworkPolicy,
        owner: str,
        *,
        chained: bool = False,
        idle_s: float = 0,
        slow_s: float = 0,
    ) -> Lease:
        """Return a new lease. SERVER_DRAINING after the proxy was closed."""
        if self._closed:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)
        lease = Lease(self, policy, owner, chained=chained, idle_s=idle_s, slow_s=slow_s)
        self._leases[lease.token] = lease
        return lease

    async def listen_at(self, path: Path, lease: Lease) -> asyncio.Server:
        """Listen on a socket in the file system, for connections that all use ``lease``. Raises `OSError`."""
        return await asyncio.get_running_loop().create_unix_server(lambda: _ClientEnd(self, lease), str(path))

    def is_over_limit(self, lease: Lease) -> bool:
        """Return True if ``lease`` has more than `MAX_CONNECTIONS` connections."""
        return sum(held is lease for held in self._connections.values()) > MAX_CONNECTIONS

    def end_lease(self, lease: Lease) -> None:
        """End a lease and its connections. May be called from any thread."""
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
        """Return the number of leases."""
        return len(self._leases)

    # --- for connections --------------------------------------------------------------------------

    def on_connected(self, client: _ClientEnd, lease: Lease | None) -> None:
        self._connections[client] = lease

    def on_disconnected(self, client: _ClientEnd) -> None:
        self._connections.pop(client, None)

    def lease_of(self, client: _ClientEnd, credential: bytes) -> Lease | None:
        """Return the lease of the client's socket, or the one that its ``Proxy-Authorization`` header names.

        None if there is none, or if it was closed.
        """
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
        """Return the URL of the operator's proxy for this target, or ""."""
        literal = parse_address(host)
        if not lease.chained or host == "localhost" or (literal is not None and literal.is_loopback):
            return ""

        def variable(name: str) -> str:
            return self._environment.get(name) or self._environment.get(name.upper()) or ""

        found = variable(f"{scheme}_proxy")
        if not found or proxy_bypass_environment(host_port(host, port), {"no": variable("no_proxy")}):
            return ""
        return found if "://" in found else f"http://{found}"

    # --- helpers ----------------------------------------------------------------------------------

    async def _open(self) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(lambda: _ClientEnd(self), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _close_connections(self, lease: Lease) -> None:
        lease.finish_logging()
        for client in [client for client, held in self._connections.items() if held is lease]:
            client.abort()


class _ProxyEnd(asyncio.Protocol):
    """One end of a connection through the proxy. The other end sends what this one receives."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _ProxyEnd | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self.on_moved(len(data))
        if self.other is not None and self.other.transport is not None:
            self.other.on_moved(len(data))
            self.other.transport.write(data)

    def on_moved(self, count: int) -> None:
        """Record that bytes moved through the connection."""

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


class _RemoteEnd(_ProxyEnd):
    """A connection to the server of an http URL."""

    def __init__(self) -> None:
        super().__init__()
        self._head = ResponseHead()

    def data_received(self, data: bytes) -> None:
        super().data_received(self._head.feed(data))

    def eof_received(self) -> bool:
        super().data_received(self._head.rest())
        return super().eof_received()


class _ClientEnd(_ProxyEnd):
    """A connection of a subprocess. After its request, bytes are copied in both directions."""

    def __init__(self, egress: Egress, lease: Lease | None = None) -> None:
        super().__init__()
        self._egress = egress
        self._lease = lease
        self._head = b""
        self._body: Body | None = None
        self._idle_s = 0.0
        self._last_activity = 0.0
        self._moved = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None

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
                allowed = data if self._body is None else self._body.feed(data)
            except BadRequest:
                # The request was forwarded and perhaps answered, so a 400 is impossible now.
                self.other.abort()
                self.abort()
                return
            super().data_received(allowed)
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
        for timer in (self._timer, self._slow_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def on_moved(self, count: int) -> None:
        self._moved += count
        self._last_activity = asyncio.get_running_loop().time()

    def start_timers(self, lease: Lease) -> None:
        """End the connection when it moves no byte, or few, for as long as the lease allows."""
        self._idle_s = lease.idle_s
        if lease.idle_s:
            self.on_moved(0)
            self._check_idle()
        if lease.slow_s:
            self._check_speed(lease.slow_s, -MIN_BYTES)

    def _check_speed(self, slow_s: float, moved_before: int) -> None:
        if self._moved - moved_before < MIN_BYTES:
            self._end()
            return
        loop = asyncio.get_running_loop()
        self._slow_timer = loop.call_later(slow_s, self._check_speed, slow_s, self._moved)

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        remaining = self._last_activity + self._idle_s - loop.time()
        if remaining > 0:
            self._timer = loop.call_later(remaining, self._check_idle)
            return
        self._end()

    def _end(self) -> None:
        if self.other is not None:
            self.other.abort()
        self.abort()

    async def _connect(self) -> None:
        assert self.transport is not None
        try:
            await self._open_upstream()
        except Refusal as refusal:
            self.transport.write(refusal.answer)
            self.transport.close()
        except OSError:
            self.transport.abort()

    async def _open_upstream(self) -> None:
        assert self.transport is not None
        head, found, rest = self._head.partition(b"\r\n\r\n")
        if not found:
            raise Refusal("431 Request Header Fields Too Large")
        try:
            request = parse(head)
            body = None if request.is_tunnel else Body(request.length)
            initial = rest if body is None else body.feed(rest)
        except BadRequest as problem:
            raise Refusal("400 Bad Request", text=str(problem)) from None
        lease = self._egress.lease_of(self, request.credential)
        if lease is None:
            challenge = 'Proxy-Authenticate: Basic realm="wonder"\r\n'
            raise Refusal("407 Proxy Authentication Required", challenge)
        upstream = self._egress.upstream(lease, request.scheme, request.host, request.port)
        connection = await self._connect_target(lease, request.host, request.port, upstream)
        try:
            if body is None:
                if upstream:
                    target = host_port(request.host, request.port)
                    await connect_through(connection, upstream, target)
                # Respond before the target can send: an ssh server sends immediately.
                self.transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                initial = request.head(*authorization(upstream), absolute=bool(upstream)) + initial
            remote = _ProxyEnd() if body is None else _RemoteEnd()
            remote.other = self
            await asyncio.get_running_loop().create_connection(lambda: remote, sock=connection)
        except BaseException:
            connection.close()
            raise
        self.other, self._body = remote, body
        assert remote.transport is not None
        remote.transport.write(initial)
        self.start_timers(lease)
        self.transport.resume_reading()

    async def _connect_target(self, lease: Lease, host: str, port: int, upstream: str) -> socket.socket:
        dialer = self._egress.dialer
        try:
            if not upstream:
                connection = await dialer.connect(host, port, lease.policy)
                lease.recent_failures.pop(host_port(host, port), None)
                return connection
            await check_before_upstream(dialer, lease.policy, host, port)
            parts = urlsplit(upstream)
            proxy_host, proxy_port = parts.hostname or "", parts.port or 80
            return await dialer.connect(proxy_host, proxy_port, allow_only(host_port(proxy_host, proxy_port)))
        except WonderError as problem:
            denied = problem.fault.reason in (Reason.PERMISSION_DENIED, Reason.INPUT_INVALID)
            if denied:
                lease.refuse(problem, host, port)
            else:
                lease.problem = problem
                lease.recent_failures[host_port(host, port)] = problem
                if len(lease.recent_failures) > MAX_RECENT_FAILURES:
                    del lease.recent_failures[next(iter(lease.recent_failures))]
            raise Refusal(
                "403 Forbidden" if denied else "502 Bad Gateway", text=problem.fault.message
            ) from None
