"""`Dialer`: resolves a host once, checks every address against a policy, and connects to a checked
address."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Final

from wonder_server.core.definitions.network_policy import may_reach, may_resolve
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.network_address import Address, host_port, host_problem, is_metadata, parse_address
from wonder_server.core.task.outcome_errors import NotStartedError

CONNECT_TIMEOUT_S: Final = 10
MAX_ADDRESSES: Final = 4
"""Maximum number of addresses of a host that are tried, one by one."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host in the order in which to try them. Raises `OSError`."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve_now(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver, blocking. For threads."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Dialer:
    """Open all connections that leave the server.

    Errors: PERMISSION_DENIED for a host or address that the policy does not allow, INPUT_INVALID for an
    invalid host, and `NotStartedError` (TASK_FAILED) if no address answers.
    """

    def __init__(
        self, resolve: Resolve = resolve, resolve_now: Callable[[str, int], Sequence[str]] = resolve_now
    ) -> None:
        self._resolve = resolve
        self._resolve_now = resolve_now

    async def addresses(self, host: str, port: int, policy: NetworkPolicy) -> list[Address]:
        """Return the addresses to try for ``host``, all of which ``policy`` allows."""
        spelled = _check_literal(host, port, policy)
        if spelled is not None:
            return _allowed_addresses(host, port, [spelled], policy)
        try:
            found = await self._resolve(host, port)
        except OSError as problem:
            raise _resolve_failed(host, problem) from None
        return _allowed_addresses(host, port, _parse_addresses(found), policy)

    async def connect(self, host: str, port: int, policy: NetworkPolicy) -> socket.socket:
        """Return a connected, non-blocking socket. The caller closes it."""
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        for address in await self.addresses(host, port, policy):
            connection = _socket(address)
            connection.setblocking(False)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await loop.sock_connect(connection, (str(address), port))
            except OSError as problem:  # TimeoutError is an OSError.
                connection.close()
                failure = problem
                continue
            except BaseException:
                connection.close()
                raise
            return connection
        raise _connect_timeout(host, port) from failure

    def connect_now(self, host: str, port: int, policy: NetworkPolicy, timeout_s: float) -> socket.socket:
        """Return a connected, blocking socket, for threads.

        ``timeout_s`` applies to each address and stays the socket's timeout.
        """
        spelled = _check_literal(host, port, policy)
        try:
            found = [spelled] if spelled is not None else _parse_addresses(self._resolve_now(host, port))
        except OSError as problem:
            raise _resolve_failed(host, problem) from None
        started = time.monotonic()
        for address in _allowed_addresses(host, port, found, policy):
            connection = _socket(address)
            connection.settimeout(timeout_s)
            try:
                connection.connect((str(address), port))
            except OSError:
                connection.close()
                if time.monotonic() - started > CONNECT_TIMEOUT_S:
                    break
                continue
            return connection
        raise _connect_timeout(host, port)


def check_host(host: str, port: int, policy: NetworkPolicy) -> None:
    """Check a host without resolving it. Errors: as for `Dialer`.

    Rejects an invalid host, an address that ``policy`` does not allow, and the name of a metadata service.
    """
    spelled = _check_literal(host, port, policy)
    if spelled is not None:
        _allowed_addresses(host, port, [spelled], policy)


def _check_literal(host: str, port: int, policy: NetworkPolicy) -> Address | None:
    """Return the address if the host is one; None for a name that may be resolved."""
    if problem := host_problem(host):
        raise error(Reason.INPUT_INVALID, f"The url cannot be requested: {problem}.", field="url")
    if is_metadata(host):
        raise _fault_metadata(host)
    spelled = parse_address(host.lower().removesuffix("."))
    if spelled is None and not may_resolve(policy, host, port):
        raise refused(host, port)
    return spelled


def _parse_addresses(found: Sequence[str]) -> list[Address]:
    # An address with a zone, such as fe80::1%eth0, is never public, so the zone does not matter.
    return [ip_address(each.partition("%")[0]) for each in found]


def _allowed_addresses(
    host: str, port: int, found: Sequence[Address], policy: NetworkPolicy
) -> list[Address]:
    if not found:
        raise error(Reason.TASK_FAILED, f"The host {host} has no address.")
    for address in found:
        if is_metadata(host, address):
            raise _fault_metadata(host)
        if not may_reach(policy, host, port, address):
            raise refused(host, port)
    return list(found[:MAX_ADDRESSES])


def _socket(address: Address) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return socket.socket(family, socket.SOCK_STREAM)


def refused(host: str, port: int) -> WonderError:
    """Return the error for a host whose addresses the policy does not allow."""
    target = host_port(host, port)
    return error(
        Reason.PERMISSION_DENIED,
        f"The project does not allow requests to {target}: its address is not public, or the project's"
        f" network.http_allow does not name it. To allow it, run: wonder project allow PROJECT {target}",
        field="url",
    )


def _fault_metadata(host: str) -> WonderError:
    return error(
        Reason.PERMISSION_DENIED,
        f"Requests to {host} are forbidden: link-local addresses and metadata services reveal credentials. No"
        " project can allow them.",
        field="url",
    )


def _resolve_failed(host: str, problem: OSError) -> WonderError:
    if isinstance(problem, socket.gaierror) and problem.errno == socket.EAI_NONAME:
        return error(Reason.TASK_FAILED, f"The host {host} does not exist.", field="url")
    return NotStartedError(Reason.TASK_FAILED, f"The address of {host} could not be resolved.")


def _connect_timeout(host: str, port: int) -> WonderError:
    return NotStartedError(Reason.TASK_FAILED, f"{host_port(host, port)} does not accept connections.")
