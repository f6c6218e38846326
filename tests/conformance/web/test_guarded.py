"""`GuardedWeb` against a real HTTP server on this machine, which a policy must allow first."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web

from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.web import WebRequest, WebResponse

LOOPBACK = NetworkPolicy(http_allow=("127.0.0.1",))


class Site:
    """A site that records its requests and the number of connections."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.peers: set[Any] = set()
        self.hanging, self.disconnected = asyncio.Event(), asyncio.Event()
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        match request.path:
            case "/cookie":
                return web.Response(text="ok", headers={"Set-Cookie": "session=1"})
            case "/bomb":
                return web.Response(
                    body=gzip.compress(b"0" * 50_000_000), headers={"Content-Encoding": "gzip"}
                )
            case "/broken":
                response = web.StreamResponse(headers={"Content-Length": "100"})
                await response.prepare(request)
                await response.write(b"half")
                request.transport.abort()
                return response
            case "/redirect":
                return web.Response(status=302, headers={"Location": "/elsewhere"})
            case "/hang":
                self.hanging.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.disconnected.set()
        return web.json_response({"path": request.path_qs})


class Names:
    """A resolver with fixed addresses that counts its calls."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known = known
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return self.known[host]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", site.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    where = web.TCPSite(runner, "127.0.0.1", 0)
    await where.start()
    assert where._server is not None
    site.port = where._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield site
    await runner.cleanup()


@pytest.fixture
def names() -> Names:
    return Names(here=["127.0.0.1"], localhost=["127.0.0.1"])


@pytest.fixture
async def reach(names: Names) -> AsyncIterator[GuardedWeb]:
    reach = GuardedWeb(Dialer(names))
    yield reach
    await reach.close()


def get(url: str, **more: Any) -> WebRequest:
    return WebRequest(**{"method": "GET", "url": url, "max_bytes": 1_000_000, **more})


async def refused(reach: GuardedWeb, request: WebRequest, policy: NetworkPolicy = LOOPBACK) -> WonderError:
    with pytest.raises(WonderError) as caught:
        await reach.send(request, policy)
    return caught.value


async def test_a_request_arrives_as_it_was_asked_for(reach: GuardedWeb, site: Site) -> None:
    request = get(
        f"http://here:{site.port}/a%20b?q=1#part", method="POST", headers={"X-Key": "ü"}, body=b"{}"
    )
    response = await reach.send(request, LOOPBACK)
    assert response.status == 200
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.body == b'{"path": "/a%20b?q=1"}'
    [seen] = site.requests
    assert (seen.method, seen.host, seen.headers["X-Key"]) == ("POST", f"here:{site.port}", "ü")
    assert (site.bodies, seen.headers["User-Agent"]) == ([b"{}"], "wonder")


async def test_a_redirect_is_an_answer_like_any_other(reach: GuardedWeb, site: Site) -> None:
    response = await reach.send(get(f"http://here:{site.port}/redirect"), LOOPBACK)
    assert (response.status, response.headers["location"]) == (302, "/elsewhere")
    assert len(site.requests) == 1


async def test_no_cookie_is_kept(reach: GuardedWeb, site: Site) -> None:
    for _ in range(2):
        await reach.send(get(f"http://here:{site.port}/cookie"), LOOPBACK)
    assert "Cookie" not in site.requests[1].headers


async def test_no_proxy_of_the_environment_is_used(
    reach: GuardedWeb, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await reach.send(get(f"http://here:{site.port}/"), LOOPBACK)).status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "here", "[::ffff:127.0.0.1]", "127.0.0.1."])
async def test_this_machine_is_not_reached_unless_the_project_says_so(
    reach: GuardedWeb, site: Site, names: Names, host: str
) -> None:
    names.known["127.0.0.1."] = ["127.0.0.1"]
    problem = await refused(reach, get(f"http://{host}:{site.port}/?key=secret"), NetworkPolicy())
    assert (problem.fault.reason, problem.fault.field) == (Reason.PERMISSION_DENIED, "url")
    assert "secret" not in problem.fault.message and not problem.fault.transient
    assert site.requests == []


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "here",
            "//here/",
            "ftp://here/",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://here:0/",
        ),
        *("http://u:p@here/", "http://u@here/", "http://here:99999/", "http://[::1/", "http://here\\@evil/"),
        *(
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://[fe80::1%25lo]/",
            "http://[v1.x]/",
            "http://[vF.here]:80/",
        ),
        *(
            "http://here:80:80/",
            "http:// here/",
            "http://he re/",
            "javascript:alert(1)",
            "unix:///tmp/socket",
        ),
    ],
)
async def test_what_is_no_url_to_request_is_refused(reach: GuardedWeb, url: str) -> None:
    problem = await refused(reach, get(url))
    assert (problem.fault.reason, problem.fault.field) == (Reason.INPUT_INVALID, "url")


async def test_every_address_of_a_host_counts(reach: GuardedWeb, site: Site, names: Names) -> None:
    names.known["mixed"] = ["127.0.0.1", "10.0.0.1"]
    problem = await refused(reach, get(f"http://mixed:{site.port}/"))
    assert problem.fault.reason is Reason.PERMISSION_DENIED


async def test_a_host_that_moves_is_checked_again_though_a_connection_is_open(
    reach: GuardedWeb, site: Site, names: Names
) -> None:
    url = f"http://here:{site.port}/"
    await reach.send(get(url, repeatable=True), LOOPBACK)
    names.known["here"] = ["127.0.0.2"]
    problem = await refused(reach, get(url, repeatable=True))
    assert problem.fault.reason is Reason.PERMISSION_DENIED
    assert names.asked == ["here", "here"], "each request resolves the host once"


async def test_an_open_connection_is_no_way_around_another_projects_policy(
    reach: GuardedWeb, site: Site
) -> None:
    request = get(f"http://127.0.0.1:{site.port}/", repeatable=True)
    await reach.send(request, LOOPBACK)
    problem = await refused(reach, request, NetworkPolicy())
    assert problem.fault.reason is Reason.PERMISSION_DENIED


async def test_connections_are_used_again_for_what_can_be_repeated_and_for_nothing_else(
    reach: GuardedWeb, site: Site
) -> None:
    url = f"http://here:{site.port}/"
    for _ in range(3):
        await reach.send(get(url, repeatable=True), LOOPBACK)
    assert len(site.peers) == 1
    for _ in range(2):
        await reach.send(get(url), LOOPBACK)
    assert len(site.peers) == 3


async def test_the_next_address_is_tried_if_the_first_has_no_listener(
    reach: GuardedWeb, site: Site, names: Names
) -> None:
    names.known["two"] = ["127.0.0.2", "127.0.0.1"]
    policy = NetworkPolicy(http_allow=("127.0.0.0/8",))
    assert (await reach.send(get(f"http://two:{site.port}/"), policy)).status == 200


async def test_a_request_without_a_listener_has_not_started(reach: GuardedWeb, names: Names) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        problem = await refused(reach, get(f"http://here:{port}/", method="POST"))
    assert isinstance(problem, NotStartedError)
    assert problem.fault.message == f"here:{port} does not accept connections."


async def test_an_unknown_host_is_a_fault_for_good_and_a_silent_name_server_is_not(
    reach: GuardedWeb, names: Names
) -> None:
    problem = await refused(reach, get("http://nowhere/"))
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TASK_FAILED, False)

    async def silent(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    other = GuardedWeb(Dialer(silent))
    assert isinstance(await refused(other, get("http://nowhere/")), NotStartedError)
    await other.close()


async def test_an_answer_that_breaks_off_is_transient(reach: GuardedWeb, site: Site) -> None:
    problem = await refused(reach, get(f"http://here:{site.port}/broken"))
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TASK_FAILED, True)
    assert not isinstance(problem, NotStartedError)


async def test_an_answer_that_is_too_long_is_refused_before_it_fills_the_memory(
    reach: GuardedWeb, site: Site
) -> None:
    problem = await refused(reach, get(f"http://here:{site.port}/bomb"))
    assert problem.fault.reason is Reason.PAYLOAD_TOO_LARGE


async def test_a_server_without_tls_is_no_https_server(reach: GuardedWeb, site: Site) -> None:
    problem = await refused(reach, get(f"https://here:{site.port}/"))
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TASK_FAILED, False)
    assert "TLS" in problem.fault.message


async def test_a_header_with_a_line_break_is_refused(reach: GuardedWeb, site: Site) -> None:
    problem = await refused(reach, get(f"http://here:{site.port}/", headers={"X": "a\r\nEvil: 1"}))
    assert problem.fault.reason is Reason.INPUT_INVALID
    assert site.requests == []


async def test_a_cancel_closes_the_connection(reach: GuardedWeb, site: Site) -> None:
    asking = asyncio.create_task(reach.send(get(f"http://here:{site.port}/hang"), LOOPBACK))
    await site.hanging.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await site.disconnected.wait()


async def test_after_closing_nothing_is_sent(site: Site) -> None:
    reach = GuardedWeb(Dialer(Names(here=["127.0.0.1"])))
    assert isinstance(await reach.send(get(f"http://here:{site.port}/"), LOOPBACK), WebResponse)
    await reach.close()
    assert isinstance(await refused(reach, get(f"http://here:{site.port}/")), NotStartedError)
    await reach.close()
