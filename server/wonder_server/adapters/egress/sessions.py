"""HTTP clients of this process that connect only through a `Dialer`: aiohttp sessions and urllib3 pools."""

from __future__ import annotations

import asyncio
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from wonder_server.adapters.egress.dialing import CONNECT_TIMEOUT_S, Dialer
from wonder_server.core.definitions.network_policy import NOWHERE, may_reach
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.network_address import is_metadata, parse_address

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from urllib3 import PoolManager

MAX_CHECKED_ADDRESSES: Final = 10_000


async def open_session(
    dialer: Dialer,
    policy: NetworkPolicy | None,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    **pooling: Any,
) -> ClientSession:
    """Return a session whose connections go to addresses that ``policy`` allows. The caller closes it.

    With ``policy`` None the session accepts only URLs with addresses, which the caller got from
    `Dialer.addresses`. ``pooling`` are arguments of ``aiohttp.TCPConnector``. The session stores no cookies
    and reads no environment variables.
    """
    # The import takes 150 ms, which would delay streams. In a thread they only share the processor.
    # The import takes 150 ms, which streams would feel; in a thread they only share the processor.
    aiohttp = await asyncio.to_thread(import_module, "aiohttp")
    checked = _CheckedAddresses(policy)

    class Resolver(aiohttp.abc.AbstractResolver):  # type: ignore[misc, name-defined]
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
            addresses = await dialer.addresses(host, port, policy or NOWHERE)
            for address in addresses:
                checked.allow(str(address), port)
            return [
                {
                    "hostname": host,
                    "host": str(address),
                    "port": port,
                    "family": socket.AF_INET if address.version == 4 else socket.AF_INET6,
                    "proto": 0,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
                for address in addresses
            ]

        async def close(self) -> None: ...

    session: ClientSession = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=Resolver(), use_dns_cache=False, socket_factory=checked.socket, **pooling
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        trust_env=False,
    )
    return session


class _CheckedAddresses:
    """The addresses that a session may connect to.

    aiohttp calls no resolver for a URL with an address, but it creates every socket through this class.
    """

    def __init__(self, policy: NetworkPolicy | None) -> None:
        self._policy = policy
        self._addresses: dict[tuple[str, int], None] = {}

    def allow(self, address: str, port: int) -> None:
        self._addresses[address, port] = None
        if len(self._addresses) > MAX_CHECKED_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]

    def socket(self, info: Any) -> socket.socket:
        """Return a socket for aiohttp's address info. Raises `PermissionError`."""
        family, kind, proto, _, (host, port, *_) = info
        address = parse_address(host.partition("%")[0])
        if address is None or is_metadata(host, address):
            raise PermissionError(f"connections to {host} are forbidden")
        known = self._policy is None or (str(address), port) in self._addresses
        if (
            not known
            and self._policy is not None
            and not may_reach(self._policy, str(address), port, address)
        ):
            raise PermissionError(f"connections to {host} are forbidden")
        return socket.socket(family, kind, proto)


def open_pool(dialer: Dialer, policy: NetworkPolicy, **options: Any) -> PoolManager:
    """Return a urllib3 pool whose connections go through ``dialer``. For threads; it opens nothing yet."""
    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.exceptions import NewConnectionError

    def dialed(connection: Any) -> socket.socket:
        timeout = connection.timeout if isinstance(connection.timeout, int | float) else CONNECT_TIMEOUT_S
        try:
            return dialer.connect_now(connection.host.strip("[]"), connection.port, policy, timeout)
        except Exception as problem:
            raise NewConnectionError(connection, str(problem)) from None

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return dialed(self)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return dialed(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    pool = urllib3.PoolManager(**options)
    pool.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return pool
