"""What a project's work may reach on the network: the rules for hosts and addresses, without any I/O.

Definitions are written by users and models, so an address in one is not to be trusted: it may be that of
the machine itself, of its neighbours, or of the cloud's metadata service, which gives credentials to
whoever asks. Only public addresses are reached, unless the project names others:

    ``http_allow``          a host (``ci.internal``), an address or a range (``10.0.0.0/8``), each for every
                            port or for one (``ci.internal:8080``, ``[fd00::/8]:443``)
    ``http_only_allowed``   nothing is reached but what ``http_allow`` names

An address is judged by what it leads to: IPv4 inside IPv6 (mapped, 6to4, NAT64) counts as that IPv4.
A host that the project names is trusted with all its addresses.

Places that the operator configured, such as the address of a model provider, are named by `only` and
`public_and`, each with its host and port. Link-local and metadata addresses are refused to everyone: no
policy allows them (`is_metadata`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final
from urllib.parse import urlsplit

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value

MAX_ENTRIES: Final = 100
MAX_HOST: Final = 253

NOWHERE: Final = NetworkPolicy(http_only_allowed=True)
"""For what needs no network."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_UNICAST: Final = IPv6Network("2000::/3")
_DOCUMENTATION: Final = IPv6Network("3fff::/20")
_RELAYS: Final = IPv4Network("192.88.99.0/24")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_METADATA: Final = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local: AWS, Azure, Google Cloud, Oracle Cloud, DigitalOcean, Hetzner, …
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure, the host's own agent
        "192.0.0.192/32",  # Oracle Cloud
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::/32",  # Google Cloud
        "fd00:42::42/128",  # Scaleway
    )
)
_METADATA_NAMES: Final = frozenset(
    ("metadata", "instance-data", "instance-data.ec2.internal", "metadata.google.internal", "metadata.goog",
     "metadata.internal", "metadata.azure.internal", "metadata.tencentyun.com")
)  # fmt: skip
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\Z")
_NUMBER: Final = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")


class Entry(Value, frozen=True, kw_only=True):
    """One entry of ``http_allow``: a host or a network, and the port; 0 is every port."""

    host: str = ""
    network: Network | None = None
    port: int = 0


def check_policy(policy: NetworkPolicy) -> tuple[str, str] | None:
    """What is wrong with a policy: the field and a sentence; None if nothing is."""
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
    """Return True for an entry that names nothing but what `is_metadata` refuses."""
    network = allowed.network
    if network is None:
        return is_metadata(allowed.host)
    ends = network.network_address, network.broadcast_address
    return all(is_metadata(str(end), end) for end in ends)


@lru_cache(maxsize=1024)
def entry(text: str) -> Entry | None:
    """An entry of ``http_allow``; None if it is none."""
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


def host_problem(host: str) -> str:
    """What is wrong with the host of a URL, as a clause; empty if nothing is.

    Numbers that are no address as people write it are refused: ``2130706433``, ``0x7f.1`` and ``0177.0.0.1``
    are all ways of saying 127.0.0.1.
    """
    if not host:
        return "it names no host"
    if "%" in host:
        return "its address names a network interface"
    plain = host.lower().removesuffix(".")
    if literal(plain) is not None:
        return ""
    if _NUMBER.match(plain.rpartition(".")[2]):
        return "its host is a number that is no address, such as 192.0.2.1"
    if len(plain) > MAX_HOST or not _HOST.match(plain):
        return "its host is no name of a host"
    return ""


def authority_problem(authority: str, host: str) -> str:
    """As `host_problem`, for the host of a URL with this authority. Parsers of URLs drop the brackets of
    ``[v1.x]``, an address of a future version of IP; without them it would pass for a name."""
    if "[" in authority and ":" not in host:
        return "its host in brackets is no IPv6 address"
    return host_problem(host)


def literal(host: str) -> Address | None:
    """The address that a host spells, None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def place(host: str, port: int) -> str:
    """Return an entry of ``http_allow`` for one host and port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def only(*places: str) -> NetworkPolicy:
    """Return the policy that allows these places of the operator (see `place`) and nothing else."""
    return NetworkPolicy(http_allow=places, http_only_allowed=True)


def public_and(*places: str) -> NetworkPolicy:
    """Return the policy that allows public addresses and these places of the operator."""
    return NetworkPolicy(http_allow=places)


def place_of(url: str) -> str:
    """Return the `place` of an http(s) URL. Raises `ValueError` for one without a usable host or port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    port = parts.port if parts.port is not None else {"http": 80, "https": 443}.get(parts.scheme, 0)
    if problem := authority_problem(parts.netloc, host):
        raise ValueError(problem)
    if not port:
        raise ValueError("it has no port")
    return place(host, port)


def is_metadata(host: str, address: Address | None = None) -> bool:
    """Return True for the metadata services of clouds, by name or by address, and for link-local addresses.

    They give credentials to whoever asks, so no policy allows them."""
    if host.lower().removesuffix(".") in _METADATA_NAMES:
        return True
    leads_to = _leads_to(address) if address is not None else literal(host.lower().removesuffix("."))
    return leads_to is not None and any(_within(_leads_to(leads_to), each) for each in _METADATA)


def may_reach(policy: NetworkPolicy, host: str, port: int, address: Address) -> bool:
    """Whether work may connect to ``address`` on behalf of a URL with this host and port."""
    if is_metadata(host, address):
        return False
    leads_to = _leads_to(address)
    if is_named(policy, host, port):
        return True
    if any(each.network is not None and _within(leads_to, each.network) for each in _entries(policy, port)):
        return True
    return not policy.http_only_allowed and is_public(leads_to)


def is_named(policy: NetworkPolicy, host: str, port: int) -> bool:
    """Return True if ``http_allow`` has this host by its name, for this port."""
    name = host.lower().removesuffix(".")
    return any(each.network is None and each.host == name for each in _entries(policy, port))


def may_resolve(policy: NetworkPolicy, host: str, port: int) -> bool:
    """Return False if the policy refuses the host whatever its addresses are, so that no resolver need be
    asked for them."""
    if not policy.http_only_allowed or is_named(policy, host, port):
        return True
    return any(each.network is not None for each in _entries(policy, port))


def _entries(policy: NetworkPolicy, port: int) -> Iterator[Entry]:
    """Yield the entries of ``http_allow`` that hold for ``port``."""
    for text in policy.http_allow:
        allowed = entry(text)
        if allowed is not None and allowed.port in (0, port):
            yield allowed


def is_public(address: Address) -> bool:
    """Whether anyone on the internet could have this address: neither private nor special in any way."""
    address = _leads_to(address)
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv4Address):
        return address not in _RELAYS
    return address in _UNICAST and address not in _DOCUMENTATION


def _leads_to(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that is only a wrapping of it; else the address."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = IPv4Address(int(address) & 0xFFFF_FFFF)
    return inner or address


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network
