"""Network policies: hosts, addresses and entries of ``http_allow``."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from wonder_server.core.definitions.network_policy import (
    NOWHERE,
    allow_only,
    allow_public_and,
    check_policy,
    entry,
    may_reach,
)
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.network_address import host_port_of, host_problem, is_metadata, is_public


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "0.1.2.3", "::"),
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd00::1", "fec0::1"),
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fd00:ec2::254"),
        *("224.0.0.1", "239.1.1.1", "255.255.255.255", "ff02::1", "ff0e::1"),
        *("192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1"),
        *("2001:db8::1", "3fff::1", "2001::1", "100::1", "5f00::1", "64:ff9b:1::1"),
        # IPv4 addresses inside IPv6: mapped, compatible, 6to4, NAT64.
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "::ffff:10.0.0.1", "2002:c0a8:1::1"),
    ],
)
def test_addresses_of_this_machine_its_neighbours_and_the_cloud_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))
    assert not may_reach(NetworkPolicy(), "example.com", 443, ip_address(address))


@pytest.mark.parametrize(
    ("allowed", "host", "port", "address", "may"),
    [
        ("10.0.0.0/8", "ci.internal", 80, "10.1.2.3", True),
        ("10.0.0.0/8", "ci.internal", 80, "11.1.2.3", True),  # public
        ("10.0.0.0/8", "ci.internal", 80, "192.168.0.1", False),
        ("10.0.0.0/8", "ci.internal", 80, "::ffff:10.1.2.3", True),
        ("10.0.0.0/8:8080", "ci.internal", 8080, "10.1.2.3", True),
        ("10.0.0.0/8:8080", "ci.internal", 80, "10.1.2.3", False),
        ("ci.internal:8080", "CI.internal.", 8080, "127.0.0.1", True),
        ("ci.internal:8080", "ci.internal", 8081, "127.0.0.1", False),
        ("ci.internal", "other.internal", 80, "10.0.0.1", False),
        ("ci.internal", "evil.ci.internal", 80, "10.0.0.1", False),
        ("127.0.0.1", "localhost", 80, "127.0.0.1", True),
        ("127.0.0.1", "localhost", 80, "127.0.0.2", False),
        ("[::1]:50051", "localhost", 50051, "::1", True),
        ("[fd00::/8]:443", "a.b", 443, "fd12::1", True),
        ("fd00::/8", "a.b", 443, "fd12::1", True),
        ("::1", "a.b", 443, "::1", True),
        ("nonsense entry", "a.b", 443, "10.0.0.1", False),
    ],
)
def test_a_project_can_allow_further_destinations(
    allowed: str, host: str, port: int, address: str, may: bool
) -> None:
    assert may_reach(NetworkPolicy(http_allow=(allowed,)), host, port, ip_address(address)) is may


def test_a_project_can_allow_only_its_entries() -> None:
    only = NetworkPolicy(http_allow=("api.example.com", "10.0.0.0/8"), http_only_allowed=True)
    public, private = ip_address("8.8.8.8"), ip_address("10.0.0.1")
    assert may_reach(only, "api.example.com", 443, public)
    assert may_reach(only, "other.example.com", 443, private)
    assert not may_reach(only, "other.example.com", 443, public)
    assert not may_reach(NetworkPolicy(http_only_allowed=True), "api.example.com", 443, public)


def test_an_endpoint_of_the_operator_can_have_any_address_but_only_its_host_and_port() -> None:
    policy = allow_only(host_port_of("http://llm.internal:8080/v1"), host_port_of("https://[fd00::1]/"))
    assert policy.http_allow == ("llm.internal:8080", "[fd00::1]:443")
    for address in ("127.0.0.1", "::1", "10.0.0.1", "fd00::1", "8.8.8.8"):
        assert may_reach(policy, "llm.internal", 8080, ip_address(address))
        assert not may_reach(policy, "llm.internal", 80, ip_address(address))
        assert not may_reach(policy, "other.internal", 8080, ip_address(address))
    assert may_reach(allow_public_and("a:1"), "example.com", 443, ip_address("8.8.8.8"))
    assert not may_reach(NOWHERE, "example.com", 443, ip_address("8.8.8.8"))


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://0x7f.1/", "http://a:99999/", "ssh://a/"])
def test_a_url_without_host_or_port_is_no_endpoint(url: str) -> None:
    with pytest.raises(ValueError):
        host_port_of(url)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "169.254.169.254",
            "169.254.170.2",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
        ),
        *("fd00:ec2::254", "fd20:ce::254", "fe80::a9fe:a9fe"),
        *("::ffff:169.254.169.254", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe"),
    ],
)
def test_no_policy_allows_a_metadata_service(address: str) -> None:
    found = ip_address(address)
    for entry_ in ("0.0.0.0/0", "::/0", "a", "a:80", address, f"[{address}]:80"):
        assert not may_reach(NetworkPolicy(http_allow=(entry_,)), "a", 80, found)
    assert is_metadata(address) and is_metadata("a", found)


@pytest.mark.parametrize("name", ["metadata.google.internal", "METADATA.google.internal.", "instance-data"])
def test_no_policy_allows_the_name_of_a_metadata_service(name: str) -> None:
    policy = NetworkPolicy(http_allow=(name.lower().removesuffix("."),))
    assert not may_reach(policy, name, 80, ip_address("8.8.8.8"))
    assert not is_metadata("example.com") and not is_metadata("a", ip_address("10.0.0.1"))


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "EXAMPLE.com.",
        "a",
        "ci_runner.internal",
        "xn--mnchen-3ya.de",
        "127.0.0.1",
        "::1",
        "1and1.com",
        "3com",
    ],
)
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert host_problem(host) == ""


@pytest.mark.parametrize(
    "host",
    [
        *(
            "",
            ".",
            "a..b",
            "-a.com",
            "a-.com",
            "a b",
            "a/b",
            "a@b",
            "a:80",
            "ü.de",
            "a" * 64,
            "a." * 127 + "com",
        ),
        *(
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "1.2.3.4.5",
            "256.1.1.1",
            "a.0x",
        ),
        *("fe80::1%eth0", "fe80::1%25eth0", "1.2.3.08"),
    ],
)
def test_numbers_that_only_look_like_an_address_are_no_host(host: str) -> None:
    assert host_problem(host)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "a:",
        "a:0",
        "a:65536",
        "a:x",
        "[::1",
        "[::1]:",
        "[::1]80",
        "10.0.0.1/8",
        "a b",
        "http://a",
        "a/b",
        "2130706433",
        "*.a.com",
        "a:+1",
        "a:²",
    ],
)
def test_an_invalid_entry_is_refused_with_its_path(text: str) -> None:
    assert entry(text) is None
    policy = NetworkPolicy(http_allow=("ci.internal", text))
    assert (found := check_policy(policy)) is not None
    assert found[0] == "http_allow[1]"


@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254",
        "169.254.169.254:80",
        "169.254.0.0/16",
        "169.254.169.0/24",
        "metadata.google.internal",
        "[fe80::1]:80",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
    ],
)
def test_metadata_addresses_cannot_be_allowed(text: str) -> None:
    assert (found := check_policy(NetworkPolicy(http_allow=("0.0.0.0/0", text)))) is not None
    assert found[0] == "http_allow[1]" and "never reached" in found[1]


def test_the_entries_of_a_policy_are_limited() -> None:
    assert check_policy(NetworkPolicy(http_allow=("a.b",) * 100)) is None
    assert check_policy(NetworkPolicy(http_allow=("a.b",) * 101)) is not None


@pytest.mark.parametrize("url", ["http://[v1.x]/", "https://[vF.here]:8443/", "http://[vA.metadata]/"])
def test_an_address_of_a_future_version_of_ip_is_no_name(url: str) -> None:
    with pytest.raises(ValueError, match="IPv6"):
        host_port_of(url)
