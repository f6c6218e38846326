"""`McpServers` and servers that misbehave: the error is plain, the log is bounded, the next call works."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.launch import PATH
from tests.fakes import hostile_mcp_server as hostile
from wonder_server import logs
from wonder_server.adapters.mcp import message_filter, process, session, transport
from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.servers import McpServers
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.mcp import McpCall, McpResult

LOOPBACK = NetworkPolicy(http_allow=("127.0.0.1",))
MOST_LINES = 25
FUZZED = 150

INTERNALS = re.compile(
    r"Traceback|\b[A-Z]\w*(Error|Exception|Group)\b(?!:)|pydantic|validation error|JSONRPC|File \"/"
)
"""Text that appears in errors and log lines only inside a quotation of the server."""


class Log:
    """Recorded log lines."""

    def __init__(self) -> None:
        self.out = io.StringIO()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def check(self) -> None:
        """Each line is one JSON object, bounded, printable, and shows nothing of how this is made."""
        lines = self.lines()
        assert len(lines) <= MOST_LINES
        for line in lines:
            if line.get("exception") in ("BrokenPipeError", "ConnectionResetError"):
                continue  # The hostile site is in this process, too; its client hung up.
            assert line["event"].startswith("mcp_s"), line
            assert len(line.get("text", "")) <= 501 and line.get("text", "").isprintable()
            assert not INTERNALS.search(json.dumps({**line, "text": ""})), line


@pytest.fixture
def log() -> Log:
    log = Log()
    logs.configure("json", "info", stream=log.out)
    return log


class Hostile:
    """The servers, one for each way to start."""

    def __init__(self, servers: McpServers, pids: Path) -> None:
        self.servers = servers
        self._pids = pids

    async def call(
        self, tool: str, start: str = "well", *, url: str = "", timeout_s: float = 600, **arguments: Any
    ) -> McpResult:
        """Call a tool: of the process that starts in this way, or of the server at the ``url``."""
        where = {"url": url} if url else {"server": start}
        asked = McpCall(tool=tool, arguments=arguments, key="k", timeout_s=timeout_s, **where)
        return await self.servers.call(asked, LOOPBACK, lambda *_: None)

    async def refused(self, tool: str, start: str = "well", **given: Any) -> WonderError:
        with pytest.raises(WonderError) as caught:
            await self.call(tool, start, **given)
        fault = caught.value.fault
        assert not INTERNALS.search(fault.message), fault.message
        assert len(fault.message) < 800 and fault.message.isprintable()
        return caught.value

    async def begun(self, number: int) -> None:
        """Wait for a number of processes."""
        while len(self.pids()) < number:  # noqa: ASYNC110 - others write them
            await asyncio.sleep(0.005)

    async def called(self, number: int, start: str = "well") -> None:
        """Wait for a number of calls under way."""
        while start not in self.servers._sessions or len(self.waiting(start)) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def waiting(self, start: str) -> list[object]:
        return [each for each in self.servers._sessions[start]._filter._pending.values() if each is not None]

    def pids(self) -> list[int]:
        return [int(pid) for pid in self._pids.read_text().split()] if self._pids.exists() else []


@pytest.fixture
async def bad(tmp_path: Path, log: Log) -> AsyncIterator[Hostile]:
    pids, reach = tmp_path / "pids", GuardedWeb()
    servers = McpServers(
        [
            ServerConfig(name=each, command=sys.executable, args=(hostile.__file__, each, str(pids)))
            for each in hostile.STARTS
        ],
        reach,
    )
    yield Hostile(servers, pids)
    await servers.close()
    await reach.close()
    assert [pid for pid in Hostile(servers, pids).pids() if lives(pid)] == [], "no process is left"


def lives(pid: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def parent(pid: int) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


FAILED = (Reason.TASK_FAILED, False)
BROKEN = (Reason.TASK_FAILED, True)
TOO_LARGE = (Reason.PAYLOAD_TOO_LARGE, False)

REFUSED: dict[str, tuple[Reason, bool]] = {
    "huge": TOO_LARGE,
    "id_last": TOO_LARGE,
    "endless": BROKEN,
    "log_flood": BROKEN,
    "progress_flood": BROKEN,
    "list_flood": BROKEN,
    "request_flood": BROKEN,
    "answer_flood": BROKEN,
    "blank_flood": BROKEN,
    "junk_flood": BROKEN,
    "exit": BROKEN,
    "partial": BROKEN,
    "closed_error": BROKEN,
    **dict.fromkeys(["no_utf8", "deep", "surrogate", "no_result", "number", "null", "content_text"], FAILED),
    **dict.fromkeys(["unknown_content", "wants_input", "error_text", "error", "parse_error"], FAILED),
}

ANSWERED: dict[str, str] = {
    "well": "fine",
    "sampling": "-32601",
    "elicitation": "-32601",
    "roots": "-32601",
    "unknown_request": "-32601",
    "ping": "{}",
    "many_requests": "fine",
    "noisy": "fine",
    "daemon": "fine",
    "wrong_ids": "fine",
    "fits": "xxx",
    "junk_first": "fine",
    "bad_progress": "fine",
}


@pytest.fixture
def _low_message_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message rate that every flood exceeds.

    The default is 1,000 a second. A server handles 1,070 messages of progress a second on two shared cores.
    On a slower machine the flood stays below the limit, and the call times out.
    """
    monkeypatch.setattr(message_filter, "MESSAGES_PER_S", 1)


@pytest.mark.usefixtures("_low_message_rate")
@pytest.mark.parametrize("tool", REFUSED)
async def test_a_call_that_goes_wrong_fails_plainly_and_the_next_works(
    bad: Hostile, log: Log, tool: str
) -> None:
    problem = await bad.refused(tool)
    assert (problem.fault.reason, problem.fault.transient) == REFUSED[tool]
    assert not isinstance(problem, NotStartedError)
    assert (await bad.call("well")).content == [{"type": "text", "text": "fine"}]
    log.check()


@pytest.mark.parametrize("tool", ANSWERED)
async def test_what_does_no_harm_does_not_fail_a_call(bad: Hostile, log: Log, tool: str) -> None:
    result = await bad.call(tool)
    assert ANSWERED[tool] in result.content[0]["text"]
    assert (await bad.call("well")).content == [{"type": "text", "text": "fine"}]
    assert len(set(bad.pids()) - {bad.pids()[-1]}) <= 1
    log.check()


@pytest.mark.parametrize(
    ("tool", "structured"),
    [
        ("deeper_than_we_take", list),
        ("fits_small", list),
        ("nan", float),
        ("big_number", int),
        ("both", None),
    ],
)
async def test_what_is_odd_but_legible_is_handed_on_or_refused(
    bad: Hostile, log: Log, tool: str, structured: type | None
) -> None:
    """The check of the action's result rejects content that no payload may have."""
    try:
        result = await bad.call(tool)
        assert structured is None or isinstance(result.structured["a"], structured)
    except WonderError as problem:
        assert (problem.fault.reason, problem.fault.transient) == FAILED
    assert (await bad.call("well")).content
    log.check()


async def test_mutated_messages_give_an_answer_or_a_plain_error(bad: Hostile, log: Log) -> None:
    for seed in range(FUZZED):
        try:
            result = await bad.call("fuzz", seed=seed)
            assert not result.content or result.content[0]["type"]
        except WonderError as problem:
            fault = problem.fault
            assert fault.reason is Reason.TASK_FAILED and not INTERNALS.search(fault.message), seed
            assert fault.message.isprintable() and len(fault.message) < 800, seed
        assert (await bad.call("well")).content == [{"type": "text", "text": "fine"}], seed
    log.check()


# --- starts -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_low_message_rate")
@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("ends", "it ended before a session had begun."),
        ("dies", "it ended before a session had begun."),
        ("refuses", "it rejects a session: no reason was given"),
        ("huge_start", "sent more than 4194304 bytes in one message"),
        ("wrong_version", "it violates the protocol."),
        ("wrong_types", "it violates the protocol."),
        ("flood_start", "messages that are not answers"),
    ],
)
async def test_a_start_that_goes_wrong_says_what_it_was(
    bad: Hostile, log: Log, start: str, said: str
) -> None:
    with pytest.raises(NotStartedError) as caught:
        await bad.call("well", start)
    message = caught.value.fault.message
    assert message.startswith(f"The MCP server '{start}' does not start: ") and said in message
    assert message.isprintable() and len(message) < 800
    [line] = [line for line in log.lines() if line["event"] == "mcp_server_failed"]
    assert line["server"] == start and said in line["problem"]


async def test_junk_before_a_session_does_not_hinder_it(bad: Hostile, log: Log) -> None:
    assert (await bad.call("well", "junk_start")).content
    log.check()


async def test_a_server_that_never_answers_is_named_and_not_tried_again(bad: Hostile, log: Log) -> None:
    problem = await bad.refused("well", "silent", timeout_s=0.05)
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TIMEOUT, False)
    assert "'silent' did not begin a session within 0.05 s" in problem.fault.message


async def test_a_start_has_a_time_of_its_own(bad: Hostile, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_TIMEOUT_S", 0.05)
    problem = await bad.refused("well", "silent", timeout_s=600)
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TIMEOUT, False)
    await bad.servers._sessions["silent"].exited
    log.check()


async def test_a_slow_failure_to_start_is_not_tried_again(
    bad: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FAST_FAILURE_S", 0)
    problem = await bad.refused("well", "ends")
    assert (problem.fault.reason, problem.fault.transient) == FAILED


# --- calls under way ----------------------------------------------------------------------------


async def test_a_call_that_is_not_answered_says_so_and_may_have_had_an_effect(bad: Hostile) -> None:
    await bad.call("well")
    problem = await bad.refused("deaf", timeout_s=0.2)
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TIMEOUT, True)
    assert "'well' did not answer the call of 'deaf' within 0.2 s" in problem.fault.message


async def test_a_server_that_does_not_read_loses_its_session(
    bad: Hostile, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "WRITE_TIMEOUT_S", 0.05)
    deaf = asyncio.create_task(bad.refused("deaf"))
    await bad.called(1)
    unread = await bad.refused("well", padding="x" * (2 << 20))
    assert "does not read its input" in unread.fault.message and unread.fault.transient
    assert "does not read its input" in (await deaf).fault.message
    assert (await bad.call("well")).content
    log.check()


async def test_an_answer_that_is_too_large_takes_others_along_quickly_and_says_so(
    bad: Hostile, log: Log
) -> None:
    await bad.call("well")
    calls = await asyncio.gather(*(bad.refused("huge") for _ in range(3)))
    faults = [each.fault for each in calls]
    assert [fault.reason for fault in faults].count(Reason.PAYLOAD_TOO_LARGE) == 1
    others = [fault for fault in faults if fault.reason is not Reason.PAYLOAD_TOO_LARGE]
    assert all(
        fault.transient and "Its session and all its calls were ended" in fault.message for fault in others
    )
    assert len(bad.pids()) == 1
    assert (await bad.call("well")).content
    assert len(bad.pids()) == 2
    log.check()


async def test_a_close_ends_what_a_start_has_begun(bad: Hostile) -> None:
    waiting = asyncio.create_task(bad.refused("well", "silent"))
    await bad.begun(1)
    await bad.servers.close()
    assert (await waiting).fault.reason is Reason.SERVER_DRAINING


# --- what it writes beside ----------------------------------------------------------------------


async def test_its_standard_error_is_logged_line_by_line_and_most_of_a_flood_left_out(
    bad: Hostile, log: Log
) -> None:
    await bad.call("noisy")
    await bad.servers.close()
    said = [line for line in log.lines() if line["event"] == "mcp_server_stderr"]
    assert said[0] == {
        "event": "mcp_server_stderr",
        "level": "info",
        "component": "mcp",
        "server": "well",
        "text": "\\x1b[31mred\\x00\ufffd\ufffd \\u202e",
        "timestamp": said[0]["timestamp"],
    }
    assert said[1]["text"] == "Traceback (most recent call last):"
    assert len(said) <= MOST_LINES
    assert sum(line.get("omitted", 0) for line in said) + len(said) >= 6_000


# --- processes ----------------------------------------------------------------------------------

PLATFORM = """
import asyncio, os, signal, sys
from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.servers import McpServers
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.ports.mcp import McpCall

async def main():
    server = ServerConfig(name="well", command=sys.executable, args=tuple(sys.argv[1:]))
    servers = McpServers([server], GuardedWeb())
    await servers.call(McpCall(server="well", tool="daemon", arguments={}), NetworkPolicy())
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_no_process_outlives_a_platform_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    platform = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PLATFORM, hostile.__file__, "well", str(pids), env={"PYTHONPATH": PATH}
    )
    assert await platform.wait() == -signal.SIGKILL
    found = [int(line) for line in pids.read_text().split()]
    assert len(found) == 2, "the server and its daemon"
    async with asyncio.timeout(60):
        while any(lives(pid) for pid in found):  # noqa: ASYNC110 - other processes end
            await asyncio.sleep(0.01)


async def test_killing_the_supervisor_ends_the_server(bad: Hostile) -> None:
    await bad.call("well")
    [server] = bad.pids()
    os.kill(parent(server), signal.SIGKILL)
    async with asyncio.timeout(60):
        while lives(server):  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.01)
    await bad.servers._sessions["well"].exited
    assert (await bad.call("well")).content


# --- the network --------------------------------------------------------------------------------


class HostileSite:
    """Speaks MCP over HTTP; the name of a tool is what it does wrong when called."""

    def __init__(self) -> None:
        self.url = ""
        self.gets = 0
        self.received: list[Any] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            self.gets += 1
            return await self.events(request, "id: 1\nretry: 0\n\n")
        if request.method == "DELETE":
            return web.Response()
        message = await request.json()
        if "method" not in message:
            self.received.append(message)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        about = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            result = hostile.begun(message)
            return web.json_response({**about, "result": result}, headers={"Mcp-Session-Id": "s1"})
        if message["method"] == "tools/call":
            called: web.StreamResponse = await getattr(self, message["params"]["name"])(request, about)
            return called
        return web.json_response({**about, "error": {"code": -32601, "message": "Method not found"}})

    async def events(self, request: web.Request, *texts: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for text in texts:
                await response.write(text.encode())
        return response

    def event(self, message: dict[str, Any]) -> str:
        return f"event: message\ndata: {json.dumps(message)}\n\n"

    async def well(self, request: web.Request, about: Any) -> web.StreamResponse:
        return web.json_response({**about, "result": hostile.text("fine")})

    async def huge(self, request: web.Request, about: Any) -> web.StreamResponse:
        return web.json_response({**about, "result": hostile.text("x" * (40 << 20))})

    async def huge_event(self, request: web.Request, about: Any) -> web.StreamResponse:
        return await self.events(request, self.event({**about, "result": hostile.text("x" * (40 << 20))}))

    async def drip(self, request: web.Request, about: Any) -> web.StreamResponse:
        return await self.events(request, "data: ", *["x" * 1000] * (8 << 10))

    async def junk(self, request: web.Request, about: Any) -> web.StreamResponse:
        return web.Response(body=b"\xff{", content_type="application/json")

    async def deep(self, request: web.Request, about: Any) -> web.StreamResponse:
        return web.Response(body=b"[" * 100_000, content_type="application/json")

    async def junk_event(self, request: web.Request, about: Any) -> web.StreamResponse:
        return await self.events(request, "event: message\ndata: {]\n\n")

    async def page(self, request: web.Request, about: Any) -> web.StreamResponse:
        return web.Response(text=hostile.TRACEBACK, content_type="text/html")

    async def flood(self, request: web.Request, about: Any) -> web.StreamResponse:
        notice = self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        return await self.events(request, *[notice * 100] * 200)

    async def asks(self, request: web.Request, about: Any) -> web.StreamResponse:
        ask = {"jsonrpc": "2.0", "method": "sampling/createMessage", "params": {}}
        asked = [self.event({**ask, "id": f"theirs{number}"}) for number in range(100)]
        return await self.events(request, *asked, self.event({**about, "result": hostile.text("fine")}))

    async def broken(self, request: web.Request, about: Any) -> web.StreamResponse:
        return await self.events(request, "id: 1\nretry: 0\ndata: \n\n")

    async def elsewhere(self, request: web.Request, about: Any) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://169.254.169.254/latest")

    async def circle(self, request: web.Request, about: Any) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(self.url)

    async def silent(self, request: web.Request, about: Any) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()


@pytest.fixture
async def site(bad: Hostile) -> AsyncIterator[HostileSite]:
    site, app = HostileSite(), web.Application()
    app.router.add_route("*", "/mcp", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    yield site
    await runner.cleanup()


OVER_HTTP: dict[str, tuple[Reason, bool]] = {
    **dict.fromkeys(["huge", "huge_event", "drip"], TOO_LARGE),
    **dict.fromkeys(["junk", "deep", "junk_event", "page", "elsewhere", "circle"], FAILED),
    "flood": BROKEN,
    "broken": BROKEN,
}


@pytest.mark.usefixtures("_low_message_rate")
@pytest.mark.parametrize("tool", OVER_HTTP)
async def test_over_http_a_call_that_goes_wrong_fails_plainly(
    bad: Hostile, site: HostileSite, log: Log, tool: str
) -> None:
    problem = await bad.refused(tool, url=site.url)
    assert (problem.fault.reason, problem.fault.transient) == OVER_HTTP[tool]
    assert (await bad.call("well", url=site.url)).content == [{"type": "text", "text": "fine"}]
    assert site.gets <= transport.MAX_RESUMPTIONS
    log.check()


async def test_over_http_a_server_may_ask_a_little_and_is_refused(bad: Hostile, site: HostileSite) -> None:
    assert (await bad.call("asks", url=site.url)).content
    assert len(site.received) <= transport.MAX_REQUESTS_OF_SERVER
    assert all("error" in received for received in site.received)


async def test_over_http_a_silent_call_ends_in_time(bad: Hostile, site: HostileSite) -> None:
    problem = await bad.refused("silent", url=site.url, timeout_s=0.3)
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TIMEOUT, True)


async def test_over_http_a_place_that_takes_connections_and_says_nothing_is_named(bad: Hostile) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    problem = await bad.refused("well", url=url, timeout_s=0.1)
    assert (problem.fault.reason, problem.fault.transient) == (Reason.TIMEOUT, False)
    assert "'127.0.0.1' did not begin a session within 0.1 s" in problem.fault.message
    listening.close()
