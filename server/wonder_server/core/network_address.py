"""Hosts and network addresses: their spelling, and whether they are public or belong to a metadata service.

The functions do no I/O. An IPv4 address inside an IPv6 address (mapped, 6to4, NAT64) counts as the IPv4
address.
"""

from __future__ import annotations

import re
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

MAX_HOST: Final = 253
"""Maximum length of a host name."""

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


def host_problem(host: str) -> str:
    """Return the problem with the host of a URL, as a clause; "" if the host is valid.

    Unusual spellings of addresses are invalid: ``2130706433``, ``0x7f.1`` and ``0177.0.0.1`` all mean
    127.0.0.1.
    """
    if not host:
        return "it names no host"
    if "%" in host:
        return "its address names a network interface"
    plain = host.lower().removesuffix(".")
    if parse_address(plain) is not None:
        return ""
    if _NUMBER.match(plain.rpartition(".")[2]):
        return "its host is a number, but not an address such as 192.0.2.1"
    if len(plain) > MAX_HOST or not _HOST.match(plain):
        return "its host is not a valid host name"
    return ""


def authority_problem(authority: str, host: str) -> str:
    """Return the problem with the host of a URL with this authority, like `host_problem`.

    URL parsers drop the brackets of ``[v1.x]``, an address of a future IP version. Without them it would
    look like a host name.
    """
    if "[" in authority and ":" not in host:
        return "its host in brackets is not an IPv6 address"
    return host_problem(host)


def parse_address(host: str) -> Address | None:
    """Return the address that a host spells; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def host_port(host: str, port: int) -> str:
    """Return an entry of ``http_allow`` for one host and port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_port_of(url: str) -> str:
    """Return the entry of ``http_allow`` for an http(s) URL. Raises `ValueError` for one without a valid host
    or port.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    port = parts.port if parts.port is not None else {"http": 80, "https": 443}.get(parts.scheme, 0)
    if problem := authority_problem(parts.netloc, host):
        raise ValueError(problem)
    if not port:
        raise ValueError("it has no port")
    return host_port(host, port)


def is_metadata(host: str, address: Address | None = None) -> bool:
    """Return True for the metadata services of clouds, by name or by address, and for link-local addresses.

    They give credentials to every caller, so no policy allows them.
    """
    if host.lower().removesuffix(".") in _METADATA_NAMES:
        return True
    target = target_of(address) if address is not None else parse_address(host.lower().removesuffix("."))
    return target is not None and any(is_within(target_of(target), each) for each in _METADATA)


def is_public(address: Address) -> bool:
    """Return True if the address is globally routable unicast: neither private nor special."""
    address = target_of(address)
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv4Address):
        return address not in _RELAYS
    return address in _UNICAST and address not in _DOCUMENTATION


def target_of(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = IPv4Address(int(address) & 0xFFFF_FFFF)
    return inner or address


def is_within(address: Address, network: Network) -> bool:
    """Return True if the address belongs to the network."""
    return address.version == network.version and address in network
