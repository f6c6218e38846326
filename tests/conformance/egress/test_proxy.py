"""The egress proxy: what a subprocess reaches through it, and what it does not."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import pytest
from structlog.testing import capture_logs

from wonder_server.adapters.egress.dialing import Dialer, check_host
from wonder_server.adapters.egress.environments import helper_environment
from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.adapters.egress.sessions import open_pool, open_session
from wonder_server.core.definitions.network_policy import allow_only, allow_public_and
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError

HERE = "127.0.0.1"


class Names:
    """A resolver. What a name leads to may change with every question; each question is noted."""

    def __init__(self, **names: Sequence[str | Sequence[str]]) -> None:
        self._names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return self.now(host, port)

    def now(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self._names:
            raise OSError("no such name")
        answers = self._names[host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [answer] if isinstance(answer, str) else answer


def dialer(names: Names) -> Dialer:
    return Dialer(names, names.now)


class RemoteServer:
    """A server that keeps what it was sent, answers it, and says which connections it had."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.requests = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            self.requests.set()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def far_away() -> AsyncIterator[RemoteServer]:
    far = RemoteServer()
    server = await asyncio.start_server(far.serve, HERE, 0)
    far.port = server.sockets[0].getsockname()[1]
    async with server:
        yield far


@pytest.fixture
async def far() -> AsyncIterator[RemoteServer]:
    async with far_away() as found:
        yield found


@asynccontextmanager
async def leased(
    names: Names,
    policy: NetworkPolicy,
    *,
    chained: bool = False,
    environment: dict[str, str] | None = None,
    idle_s: float = 0,
    slow_s: float = 0,
) -> AsyncIterator[Lease]:
    egress = Egress(dialer(names), environment)
    try:
        lease = await egress.lease(policy, "a test", chained=chained, idle_s=idle_s, slow_s=slow_s)
        with lease:
            yield lease
    finally:
        await egress.close()


async def said(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HERE, port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def asking(target: str, token: str, method: str = "GET", *more: str) -> bytes:
    credential = base64.b64encode(f"wonder:{token}".encode()).decode()
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: x",
        f"Proxy-Authorization: Basic {credential}",
        *more,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


async def test_a_request_goes_to_the_address_that_was_checked_without_the_proxys_own_headers(
    far: RemoteServer,
) -> None:
    names = Names(code_example=[HERE, "10.0.0.1"])
    async with leased(names, NetworkPolicy(http_allow=("code.example",))) as lease:
        answer = await said(lease.port, asking(f"http://code.example:{far.port}/a?b=c", lease.token))
    assert answer.endswith(b"hello") and names.asked == ["code.example"]
    there = f"Host: code.example:{far.port}".encode()
    assert far.heads[0].startswith(b"GET /a?b=c HTTP/1.1\r\n" + there + b"\r\n")
    assert b"proxy" not in far.heads[0].lower() and b"Connection: close" in far.heads[0]


async def test_a_tunnel_carries_bytes_both_ways(far: RemoteServer) -> None:
    async with leased(Names(), allow_only(f"{HERE}:{far.port}")) as lease:
        reader, writer = await asyncio.open_connection(HERE, lease.port)
        writer.write(asking(f"{HERE}:{far.port}", lease.token, "CONNECT") + b"first ")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"second\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
    assert far.heads == [b"first second\r\n\r\n"]


@pytest.mark.parametrize(
    "host",
    [
        *(HERE, "[::1]", "localhost.example", "10.0.0.1", "192.168.1.1", "[fd00::1]", "0.0.0.0", "[::]"),
        *("169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "metadata.google.internal."),
        *("2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]"),
        *(
            "[2002:7f00:1::]",
            "[64:ff9b::7f00:1]",
            "[fe80::1%25eth0]",
            "[::ffff:169.254.169.254]",
            "100.64.0.1",
        ),
        *("rebound.example", "both.example"),
    ],
)
async def test_nothing_near_is_reached_however_it_is_written(host: str) -> None:
    names = Names(localhost_example=[HERE], rebound_example=[HERE, HERE], both_example=[["8.8.8.8", HERE]])
    async with leased(names, NetworkPolicy()) as lease:
        for request in (asking(f"{host}:80", lease.token, "CONNECT"), asking(f"http://{host}/", lease.token)):
            if host == "rebound.example" and request.startswith(b"GET"):
                continue
            answer = await said(lease.port, request)
            assert answer.split()[1] in (b"403", b"400"), answer
            assert lease.problem is None or lease.problem.fault.reason in (
                Reason.PERMISSION_DENIED,
                Reason.INPUT_INVALID,
            )


@pytest.mark.parametrize(
    "request_line",
    [
        *("GET / HTTP/1.1", "GET file:///etc/passwd HTTP/1.1", "CONNECT a HTTP/1.1", "CONNECT a:0 HTTP/1.1"),
        *("CONNECT u@a:80 HTTP/1.1", "CONNECT a:80/x HTTP/1.1", "GET http://u:p@a/ HTTP/1.1", "GET"),
        *(
            "GET http://[::1 HTTP/1.1",
            "GET https://a/ HTTP/1.1",
            "G\xffT http://a/ HTTP/1.1",
            "CONNECT [::1 X",
        ),
    ],
)
async def test_what_is_no_proxy_request_is_refused(request_line: str) -> None:
    names = Names(a=[HERE])
    async with leased(names, NetworkPolicy()) as lease:
        rest = asking("x", lease.token).partition(b"\r\n")[2]
        answer = await said(lease.port, request_line.encode("latin-1") + b"\r\n" + rest)
        assert answer.startswith(b"HTTP/1.1 400 ") and names.asked == []


async def test_a_request_without_a_valid_credential_is_rejected(
    far: RemoteServer,
) -> None:
    async with leased(Names(), allow_only(f"{HERE}:{far.port}")) as lease:
        there = f"http://{HERE}:{far.port}/"
        for request in (
            f"GET {there} HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
            asking(there, "guess"),
            asking(there, ""),
            asking(there, lease.token).replace(b"Basic", b"Bearer"),
            b"GET " + b"a" * 70_000,
        ):
            assert (await said(lease.port, request)).split()[1] in (b"407", b"431")
        assert (await said(lease.port, asking(there, lease.token))).endswith(b"hello")
        lease.close()
        assert (await said(lease.port, asking(there, lease.token))).startswith(b"HTTP/1.1 407 ")
    assert len(far.heads) == 1


async def test_one_lease_does_not_give_what_another_allows(far: RemoteServer) -> None:
    egress = Egress(dialer(Names()))
    mine, other = (
        await egress.lease(allow_only(f"{HERE}:{far.port}"), "mine"),
        await egress.lease(NetworkPolicy(), "o"),
    )
    there = f"http://{HERE}:{far.port}/"
    assert (await said(egress.port, asking(there, other.token))).startswith(b"HTTP/1.1 403 ")
    assert (await said(egress.port, asking(there, mine.token))).endswith(b"hello")
    await egress.close()
    with pytest.raises(WonderError) as caught:
        await egress.lease(NetworkPolicy(), "late")
    assert caught.value.fault.reason is Reason.SERVER_DRAINING


async def test_connections_end_with_their_lease(far: RemoteServer) -> None:
    async with leased(Names(), allow_only(f"{HERE}:{far.port}")) as lease:
        reader, writer = await asyncio.open_connection(HERE, lease.port)
        writer.write(asking(f"{HERE}:{far.port}", lease.token, "CONNECT"))
        await reader.readuntil(b"\r\n\r\n")
        lease.close()
        with pytest.raises((EOFError, OSError)):
            if not await reader.read():
                raise EOFError
        writer.close()


async def test_a_chained_lease_goes_through_the_operators_proxy_and_still_refuses(far: RemoteServer) -> None:
    environment = {"HTTP_PROXY": f"http://me:word@{HERE}:{far.port}", "NO_PROXY": "direct.example"}
    names = Names(near_example=["10.0.0.1"], code_example=["8.8.8.8"], direct_example=["10.0.0.1"])
    async with leased(names, NetworkPolicy(), chained=True, environment=environment) as lease:
        for host in ("code.example", "unknown.example"):
            assert (await said(lease.port, asking(f"http://{host}/x", lease.token))).endswith(b"hello")
        for host in ("near.example", "direct.example", "169.254.169.254", "metadata.google.internal", HERE):
            assert (await said(lease.port, asking(f"http://{host}/x", lease.token))).split()[1] == b"403"
    assert far.heads[0].startswith(b"GET http://code.example/x HTTP/1.1")
    assert b"Basic " + base64.b64encode(b"me:word") in far.heads[0] and len(far.heads) == 2


SMUGGLED = b"GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://good.example/ HTTP/1.1\r\nX: a\n\n" + SMUGGLED + b"@\r\n",
        b"GET http://good.example/ HTTP/1.1\r\nX: a\rConnection: keep-alive\r\n@\r\n",
        b"GET http://good.example/ HTTP/1.1\r\nX: a\r\n Connection: keep-alive\r\n@\r\n",
        b"GET http://good.example/\nX:y HTTP/1.1\r\n@\r\n",
        b"GET http://good.example/\t HTTP/1.1\r\n@\r\n",
        b"GET http://169.254.169.254\n.good.example/ HTTP/1.1\r\n@\r\n",
        b"GET http://good.example#@169.254.169.254/ HTTP/1.1\r\n@\r\n",
        b"GET \x01http://good.example/ HTTP/1.1\r\n@\r\n",
        b"GET http://good.example/ HTTP/1.1\r\n@\r\n" + SMUGGLED + b"\r\n",
        b"POST http://good.example/ HTTP/1.1\r\nContent-Length: 2\r\n@\r\nok" + SMUGGLED + b"\r\n",
        b"POST http://good.example/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n@\r\n0\r\n"
        b"\r\n",
        b"POST http://good.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n@\r\n0\r\n\r\n" + SMUGGLED,
        b"CONNECT good.example\n:443 HTTP/1.1\r\n@\r\n",
    ],
)
async def test_nothing_but_what_was_checked_reaches_the_operators_proxy(
    far: RemoteServer, request_: bytes
) -> None:
    names = Names(good_example=["93.184.216.34"])
    environment = {"http_proxy": f"http://{HERE}:{far.port}", "https_proxy": f"http://{HERE}:{far.port}"}
    async with leased(names, NetworkPolicy(), chained=True, environment=environment) as lease:
        credential = asking("x", lease.token).split(b"\r\n")[2] + b"\r\n"
        answer = await said(lease.port, request_.replace(b"@\r\n", credential + b"\r\n"))
    assert answer.startswith(b"HTTP/1.1 400 ") and far.heads == [] and names.asked == []


async def test_the_operators_proxy_gets_the_host_of_the_target_and_no_second_request(
    far: RemoteServer,
) -> None:
    names = Names(good_example=["93.184.216.34"])
    environment = {"http_proxy": f"http://{HERE}:{far.port}"}
    async with leased(names, NetworkPolicy(), chained=True, environment=environment) as lease:
        reader, writer = await asyncio.open_connection(HERE, lease.port)
        writer.write(asking("http://good.example/", lease.token, "POST", "Content-Length: 4"))
        await far.requests.wait()
        writer.write(b"body" + SMUGGLED + b"\r\n")
        with suppress(OSError):
            await reader.read()
        writer.close()
    assert far.heads[0].startswith(b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\n")
    assert len(far.heads) == 1 and b"169.254" not in far.heads[0]


async def test_a_body_reaches_the_far_end_with_the_framing_it_was_declared_with() -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        received.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, leased(Names(), allow_only(f"{HERE}:{port}")) as lease:
        asked = asking(f"http://{HERE}:{port}/", lease.token, "PUT", "Transfer-Encoding: chunked")
        answer = await said(lease.port, asked + b"005\r\nhello\r\n0\r\n\r\n")
    assert answer == b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    assert received == [b"5\r\nhello\r\n0\r\n\r\n"]


async def test_an_only_list_is_held_by_name_before_anything_is_resolved_or_asked(far: RemoteServer) -> None:
    names = Names(pub_example=["8.8.8.8"])
    environment = {"http_proxy": f"http://{HERE}:{far.port}", "https_proxy": f"http://{HERE}:{far.port}"}
    policy = NetworkPolicy(http_allow=("good.example",), http_only_allowed=True)
    async with leased(names, policy, chained=True, environment=environment) as lease:
        for host in ("evil.example", "secret-db.internal", "pub.example"):
            for request in (
                asking(f"http://{host}/", lease.token),
                asking(f"{host}:443", lease.token, "CONNECT"),
            ):
                assert (await said(lease.port, request)).startswith(b"HTTP/1.1 403 ")
        assert names.asked == [] and far.heads == []
        assert (await said(lease.port, asking("http://good.example/", lease.token))).endswith(b"hello")
    with_ranges = NetworkPolicy(http_allow=("good.example", "10.0.0.0/8"), http_only_allowed=True)
    async with leased(names, with_ranges, chained=True, environment=environment) as lease:
        answer = await said(lease.port, asking("http://evil.example/", lease.token))
        assert answer.startswith(b"HTTP/1.1 403 ") and names.asked[-1] == "evil.example"
        assert (await said(lease.port, asking("http://good.example/", lease.token))).endswith(b"hello")
    assert len(far.heads) == 2
    for policy, port, allowed in (
        (allow_only("a.example:81"), 80, False),
        (allow_only("a.example:81"), 81, True),
    ):
        found = await asyncio.gather(
            dialer(Names(a_example=["8.8.8.8"])).addresses("a.example", port, policy), return_exceptions=True
        )
        assert isinstance(found[0], list) is allowed


async def test_a_connection_on_which_nothing_moves_ends() -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(1000):
                pass
        ended.set()
        writer.close()

    server = await asyncio.start_server(silent, HERE, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, leased(Names(), allow_only(f"{HERE}:{port}"), idle_s=0.05) as lease:
        with suppress(OSError):
            assert await said(lease.port, asking(f"http://{HERE}:{port}/", lease.token)) == b""
        await ended.wait()


async def test_a_connection_on_which_little_moves_ends_and_a_quick_one_stays() -> None:
    dripped = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        quick = b"quick" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            for _ in range(30 if quick else 1_000_000):
                writer.write(b"x" * (8_192 if quick else 1))
                await writer.drain()
                await asyncio.sleep(0.01)
        if not quick:
            dripped.set()
        writer.close()

    server = await asyncio.start_server(drip, HERE, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, leased(Names(), allow_only(f"{HERE}:{port}"), slow_s=0.2) as lease:
        with suppress(OSError):
            await said(lease.port, asking(f"http://{HERE}:{port}/", lease.token))
        await dripped.wait()
        answer = await said(lease.port, asking(f"http://{HERE}:{port}/quick", lease.token))
        assert answer.count(b"x") == 30 * 8_192


async def test_a_session_connects_to_what_was_checked_and_to_nothing_that_is_spelled_out(
    far: RemoteServer,
) -> None:
    names = Names(llm_example=[HERE, "10.0.0.1"], other_example=[HERE])
    session = await open_session(dialer(names), allow_public_and(f"llm.example:{far.port}"))
    async with session:
        async with session.get(f"http://llm.example:{far.port}/") as response:
            assert await response.text() == "hello"
        assert names.asked == ["llm.example"]
        for host in ("other.example", "localhost", "127.0.0.2", "[::1]", "169.254.169.254", "10.0.0.1"):
            with pytest.raises((WonderError, OSError)):
                await session.get(f"http://{host}:{far.port}/")
    assert len(far.heads) == 1


async def test_a_pool_of_a_thread_connects_to_what_was_checked(far: RemoteServer) -> None:
    names = Names(s3_example=[HERE, "10.0.0.1"], other_example=["10.0.0.1"])
    pool = open_pool(dialer(names), allow_only(f"s3.example:{far.port}"), retries=False)

    def ask(host: str) -> bytes:
        return bytes(pool.request("GET", f"http://{host}:{far.port}/").data)

    assert await asyncio.to_thread(ask, "s3.example") == b"hello"
    assert names.asked == ["s3.example"]
    import urllib3

    for host in ("other.example", HERE, "169.254.169.254"):
        with pytest.raises(urllib3.exceptions.HTTPError):
            await asyncio.to_thread(ask, host)


def test_hosts_are_checked_without_a_resolver() -> None:
    for host in (HERE, "::1", "0x7f.1", "metadata.google.internal", "169.254.169.254"):
        with pytest.raises(WonderError):
            check_host(host, 80, NetworkPolicy())
    check_host("example.com", 80, NetworkPolicy())
    check_host(str(ip_address("8.8.8.8")), 80, NetworkPolicy())


PROBE = """
import socket, sys
from wonder_server.adapters.egress.confine import confine
confine({port})
for host, port in {tried}:
    try:
        socket.create_connection((host, port), timeout=5).close()
        print("reached")
    except ConnectionRefusedError as problem:
        print("refused" if "proxy" in str(problem) else "no listener")
print(socket.gethostname() != "")
"""


async def test_a_helper_process_connects_to_the_proxy_only(far: RemoteServer) -> None:
    async with leased(Names(), NetworkPolicy()) as lease:
        tried = [(HERE, lease.port), (HERE, far.port), ("localhost", lease.port), ("169.254.169.254", 80)]
        program = PROBE.format(port=lease.port, tried=tried)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **helper_environment(lease)},
            check=False,
        )
    assert done.stdout.split() == ["reached", "refused", "refused", "refused", "True"], done.stderr


async def test_the_environment_of_helpers_turns_metadata_off_and_lets_nothing_by_the_proxy() -> None:
    async with leased(Names(), NetworkPolicy()) as lease:
        environment = helper_environment(lease)
        assert environment["HTTPS_PROXY"] == environment["https_proxy"] == lease.url
        assert environment["NO_PROXY"] == environment["no_proxy"] == ""
        for nothing in (environment, helper_environment(None)):
            assert nothing["AWS_EC2_METADATA_DISABLED"] == "true" and nothing["NO_GCE_CHECK"] == "true"


async def test_refusals_are_one_line_at_once_and_the_rest_in_another(far: RemoteServer) -> None:
    with capture_logs() as logs:
        async with leased(Names(), NetworkPolicy()) as lease:
            for number in range(5):
                answer = await said(lease.port, asking(f"http://10.0.0.{number}/", lease.token))
                assert answer.startswith(b"HTTP/1.1 403")
            assert [line["refused"] for line in logs] == [1]
        await asyncio.sleep(0)  # a lease ends in the loop's next round
    assert [line["event"] for line in logs] == ["egress_refused"] * 2
    assert [line["refused"] for line in logs] == [1, 4]
    assert logs[-1]["host"] == "10.0.0.4"
