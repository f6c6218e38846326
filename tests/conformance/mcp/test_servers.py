"""`McpServers` against a real MCP server: as a process, and over HTTP on this machine.

A process takes a second of CPU to import MCP, so the tests that leave it standing share one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from aiohttp import web

from tests.fakes import mcp_server
from wonder_server.adapters.mcp import transport
from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.servers import McpServers
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.mcp import McpCall

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOOPBACK = NetworkPolicy(http_allow=("127.0.0.1",))
NOTHING = NetworkPolicy(http_only_allowed=True)


class Notes:
    """Lines that the server has reported since the notes were opened."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.received: list[str] = []
        self._old = len(self._written())

    def lines(self) -> list[str]:
        return self.received or self._written()[self._old :]

    async def wait_for(self, line: str) -> None:
        while line not in self.lines():  # noqa: ASYNC110 - another process writes them
            await asyncio.sleep(0.005)

    def _written(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def processes(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith("started ")]


class QuietServer(uvicorn.Server):
    """Leaves the signals of the process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


@pytest_asyncio.fixture(loop_scope="session")
async def url(notes: Notes) -> AsyncIterator[str]:
    app = mcp_server.made(notes.received.append).streamable_http_app()
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=0)
    server = QuietServer(config)
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    server.should_exit = server.force_exit = True
    await serving
    listening.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reach() -> AsyncIterator[GuardedWeb]:
    reach = GuardedWeb()
    yield reach
    await reach.close()


def mcp_servers(reach: GuardedWeb, notes: Path) -> McpServers:
    process = ServerConfig(
        name="fake",
        command=sys.executable,
        args=(mcp_server.__file__, str(notes)),
        env={"GIVEN": "by the operator"},
    )
    nowhere = [
        ServerConfig(name="missing", command="/nonexistent/mcp-server"),
        ServerConfig(name="no-mcp", command="/bin/true"),
        ServerConfig(name="unheard", url="http://127.0.0.1:1/mcp"),
    ]
    return McpServers([process, *nowhere], reach)


@pytest_asyncio.fixture(loop_scope="session")
async def servers(reach: GuardedWeb, notes: Notes) -> AsyncIterator[McpServers]:
    """Return servers whose process no other test has used."""
    servers = mcp_servers(reach, notes.file)
    yield servers
    await servers.close()


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared") / "notes"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(reach: GuardedWeb, shared_file: Path) -> AsyncIterator[McpServers]:
    """Return the servers of the tests that call a tool both ways."""
    servers = mcp_servers(reach, shared_file)
    yield servers
    await servers.close()


@pytest.fixture(params=["process", "http"])
def target(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the part of a call that names its server."""
    if request.param == "process":
        return {"server": "fake"}
    return {"url": request.getfixturevalue("url")}


@pytest.fixture
def noted(target: dict[str, str], notes: Notes, shared_file: Path) -> Notes:
    """Return the notes of the server that ``target`` names."""
    return notes if "url" in target else Notes(shared_file)


def asked(target: dict[str, str], tool: str, **arguments: Any) -> McpCall:
    return McpCall(tool=tool, arguments=arguments, key="op_1/node/step", **target)


async def refused(servers: McpServers, call: McpCall, policy: NetworkPolicy = LOOPBACK) -> WonderError:
    with pytest.raises(WonderError) as caught:
        await servers.call(call, policy)
    return caught.value


# --- both ways ----------------------------------------------------------------------------------


async def test_a_tool_answers_with_content_and_structure(shared: McpServers, target: dict[str, str]) -> None:
    result = await shared.call(asked(target, "add", a=1, b=2), LOOPBACK)
    assert result.structured == {"sum": 3}
    assert [block["type"] for block in result.content] == ["text"]
    assert not result.is_error


async def test_the_key_of_the_step_goes_along(
    shared: McpServers, target: dict[str, str], noted: Notes
) -> None:
    result = await shared.call(asked(target, "say", text="hello"), LOOPBACK)
    assert result.content == [{"type": "text", "text": "hello"}]
    assert "say op_1/node/step" in noted.lines()


async def test_a_tool_tells_how_far_it_is(shared: McpServers, target: dict[str, str]) -> None:
    received: list[tuple[str, float | None]] = []
    await shared.call(asked(target, "work"), LOOPBACK, lambda *progress: received.append(progress))
    assert received == [("begun", 0.25), ("nearly", 1.0)]


@pytest.mark.parametrize(("tool", "arguments"), [("fail", {}), ("missing", {}), ("add", {"a": "x"})])
async def test_an_error_of_a_tool_is_a_result(
    shared: McpServers, target: dict[str, str], tool: str, arguments: dict[str, Any]
) -> None:
    result = await shared.call(asked(target, tool, **arguments), LOOPBACK)
    assert result.is_error and result.content


async def test_a_cancel_stops_the_tool_and_the_server_stays_usable(
    shared: McpServers, target: dict[str, str], noted: Notes
) -> None:
    calling = asyncio.create_task(shared.call(asked(target, "hang"), LOOPBACK))
    await noted.wait_for("hanging")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await noted.wait_for("stopped")
    assert (await shared.call(asked(target, "add", a=1, b=1), LOOPBACK)).structured == {"sum": 2}


async def test_calls_go_side_by_side(shared: McpServers, target: dict[str, str], noted: Notes) -> None:
    hanging = asyncio.create_task(shared.call(asked(target, "hang"), LOOPBACK))
    await noted.wait_for("hanging")
    results = await asyncio.gather(
        *(shared.call(asked(target, "add", a=n, b=n), LOOPBACK) for n in range(10))
    )
    assert [result.structured["sum"] for result in results] == [2 * n for n in range(10)]
    hanging.cancel()
    await asyncio.wait([hanging])


# --- processes ----------------------------------------------------------------------------------


async def test_one_process_serves_all_calls_and_ends_with_the_server(
    servers: McpServers, notes: Notes
) -> None:
    call = asked({"server": "fake"}, "add", a=1, b=2)
    await asyncio.gather(*(servers.call(call, NOTHING) for _ in range(5)))
    assert len(notes.processes()) == 1
    await servers.close()
    assert notes.lines()[-1] == "ended"
    assert isinstance(await refused(servers, call), NotStartedError)


async def test_a_process_that_dies_takes_its_calls_along_and_the_next_starts_another(
    servers: McpServers, notes: Notes
) -> None:
    problem = await refused(servers, asked({"server": "fake"}, "die"))
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TASK_FAILED, True)
    assert not isinstance(problem, NotStartedError), "its effects before its death are unknown"
    await servers.call(asked({"server": "fake"}, "add", a=1, b=2), NOTHING)
    assert len(notes.processes()) == 2


async def test_a_process_that_died_unused_fails_no_call(servers: McpServers, notes: Notes) -> None:
    await servers.call(asked({"server": "fake"}, "add", a=1, b=2), NOTHING)
    os.kill(notes.processes()[0], signal.SIGKILL)
    await servers._sessions["fake"]._end_requested.wait()
    await servers.call(asked({"server": "fake"}, "add", a=1, b=2), NOTHING)
    assert len(notes.processes()) == 2


async def test_a_process_sees_what_the_operator_gives_it_and_none_of_our_secrets(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    for name, seen in {"GIVEN": "by the operator", "OPENAI_API_KEY": ""}.items():
        result = await servers.call(asked({"server": "fake"}, "variable", name=name), NOTHING)
        assert result.content[0]["text"] == seen


@pytest.mark.parametrize("name", ["missing", "no-mcp"])
async def test_what_does_not_start_was_never_asked(servers: McpServers, name: str) -> None:
    problem = await refused(servers, asked({"server": name}, "add"))
    assert isinstance(problem, NotStartedError)
    assert f"'{name}'" in problem.fault.message and "/nonexistent" not in problem.fault.message


async def test_an_unknown_server_is_rejected(servers: McpServers) -> None:
    problem = await refused(servers, asked({"server": "fakes"}, "add"))
    assert (problem.fault.reason, problem.fault.field) == (Reason.FIELD_INVALID, "server")
    assert "did you mean 'fake'" in problem.fault.message


# --- the network --------------------------------------------------------------------------------


async def test_a_url_is_held_to_what_the_project_may_reach(
    servers: McpServers, url: str, notes: Notes
) -> None:
    problem = await refused(servers, asked({"url": url}, "add", a=1, b=2), NetworkPolicy())
    assert (problem.fault.reason, problem.fault.field) == (Reason.PERMISSION_DENIED, "url")
    assert notes.lines() == []


async def test_an_address_of_the_operator_is_not(reach: GuardedWeb, url: str) -> None:
    servers = McpServers([ServerConfig(name="site", url=url)], reach)
    result = await servers.call(asked({"server": "site"}, "add", a=1, b=2), NOTHING)
    assert result.structured == {"sum": 3}


async def test_a_call_without_a_listener_has_not_started(servers: McpServers) -> None:
    assert isinstance(await refused(servers, asked({"server": "unheard"}, "add")), NotStartedError)


class Stubborn:
    """Opens a session, and then answers nothing any more, not even its end."""

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(status=405)
        if request.method == "DELETE":
            self.left.set()
            await asyncio.Event().wait()
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        about = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stubborn", "version": "1"},
            }
            return web.json_response({**about, "result": result}, headers={"Mcp-Session-Id": "s1"})
        if message["method"] == "tools/call":
            self.asked.set()
            await asyncio.Event().wait()
        return web.json_response({**about, "error": {"code": -32601, "message": "Method not found"}})


async def test_a_server_that_does_not_end_its_session_delays_no_call(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "END_TIMEOUT_S", 1)
    stubborn, app = Stubborn(), web.Application()
    app.router.add_route("*", "/mcp", stubborn.answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    calling = asyncio.create_task(servers.call(asked({"url": url}, "add"), LOOPBACK))
    await stubborn.asked.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert stubborn.left.is_set()
    await runner.cleanup()


async def test_what_is_no_mcp_server_is_a_fault(servers: McpServers, url: str) -> None:
    problem = await refused(servers, asked({"url": url.removesuffix("/mcp") + "/elsewhere"}, "add"))
    assert problem.fault.reason is Reason.TASK_FAILED
    problem = await refused(servers, asked({"url": "not a url"}, "add"))
    assert problem.fault.reason is Reason.INPUT_INVALID
