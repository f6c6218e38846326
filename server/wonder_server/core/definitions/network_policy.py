"""Network policies of projects: rules for hosts and addresses, without I/O.

Users and models write definitions, so the server does not trust an address in one. It may belong to the
server's machine, to a neighbour, or to a cloud's metadata service, which returns credentials to every caller.
Only public addresses are allowed, unless the project names others:

    ``http_allow``          a host (``ci.internal``), an address or a range (``10.0.0.0/8``), each for every
                            port or for one (``ci.internal:8080``, ``[fd00::/8]:443``)
    ``http_only_allowed``   only entries of ``http_allow`` are allowed

An IPv4 address inside IPv6 (mapped, 6to4, NAT64) is judged as that IPv4 address. A host that the project
names is trusted with all its addresses.

`allow_only` and `allow_public_and` build the policies of endpoints that the operator configured, such as the
address of a model provider, each with its host and port. No policy allows link-local and metadata addresses
(`is_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import ip_network
from typing import Final

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value
from wonder_server.core.network_address import (
    Address,
    Network,
    host_problem,
    is_metadata,
    is_public,
    is_within,
    target_of,
)

MAX_ENTRIES: Final = 100
NOWHERE: Final = NetworkPolicy(http_only_allowed=True)
"""The policy of work that needs no network."""


class Entry(Value, frozen=True, kw_only=True):
    """One entry of ``http_allow``: a host or a network, and the port; 0 is every port."""

    host: str = ""
    network: Network | None = None
    port: int = 0


def check_policy(policy: NetworkPolicy) -> tuple[str, str] | None:
    """Return the field and the message of a policy's first fault; None if the policy is valid."""
    if len(policy.http_allow) > MAX_ENTRIES:
        return "http_allow", f"http_allow has at most {MAX_ENTRIES} entries."
    for index, text in enumerate(policy.http_allow):
        allowed = entry(text)
        if allowed is None:
            wanted = "a host, an address or a range, with or without a port"
            return f"http_allow[{index}]", f"'{text[:100]}' is no entry of http_allow: {wanted}."
        if _is_never_reached(allowed):
            why = "link-local addresses and metadata services give credentials away, and are never reached"
            return f"http_allow[{index}]", f"'{text[:100]}' cannot be allowed: {why}."
    return None


def _is_never_reached(allowed: Entry) -> bool:
    """Return True for an entry that names only addresses that `is_metadata` refuses."""
    network = allowed.network
    if network is None:
        return is_metadata(allowed.host)
    ends = network.network_address, network.broadcast_address
    return all(is_metadata(str(end), end) for end in ends)


@lru_cache(maxsize=1024)
def entry(text: str) -> Entry | None:
    """Return the parsed entry of ``http_allow``; None if it is not valid."""
    rest, port = text.strip().lower(), ""
    if rest.startswith("["):
        rest, bracket, port = rest[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:] if port else ""
        if text.strip().endswith(":"):
            return None
    elif rest.count(":") == 1:
        rest, _, port = rest.partition(":")
        if not port:
            return None
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535):
        return None
    number = int(port) if port else 0
    try:
        return Entry(network=ip_network(rest), port=number)
    except ValueError:
        host = rest.removesuffix(".")
        return Entry(host=host, port=number) if not host_problem(host) and ":" not in host else None


def allow_only(*places: str) -> NetworkPolicy:
    """Return the policy that allows these endpoints of the operator and nothing else."""
    return NetworkPolicy(http_allow=places, http_only_allowed=True)


def allow_public_and(*places: str) -> NetworkPolicy:
    """Return the policy that allows public addresses and these endpoints of the operator."""
    return NetworkPolicy(http_allow=places)


def may_reach(policy: NetworkPolicy, host: str, port: int, address: Address) -> bool:
    """Return True if the policy allows a connection to ``address`` for a URL with this host and port."""
    if is_metadata(host, address):
        return False
    leads_to = target_of(address)
    if is_named(policy, host, port):
        return True
    if any(each.network is not None and is_within(leads_to, each.network) for each in _entries(policy, port)):
        return True
    return not policy.http_only_allowed and is_public(leads_to)


def is_named(policy: NetworkPolicy, host: str, port: int) -> bool:
    """Return True if ``http_allow`` contains this host by name for this port."""
    name = host.lower().removesuffix(".")
    return any(each.network is None and each.host == name for each in _entries(policy, port))


def may_resolve(policy: NetworkPolicy, host: str, port: int) -> bool:
    """Return False if the policy refuses the host whatever its addresses are, so that no DNS lookup is
    needed."""
    if not policy.http_only_allowed or is_named(policy, host, port):
        return True
    return any(each.network is not None for each in _entries(policy, port))


def _entries(policy: NetworkPolicy, port: int) -> Iterator[Entry]:
    """Yield the entries of ``http_allow`` that hold for ``port``."""
    for text in policy.http_allow:
        allowed = entry(text)
        if allowed is not None and allowed.port in (0, port):
            yield allowed
