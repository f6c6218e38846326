"""Sessions with MCP servers, through the package `mcp`. Imported with it, which is on first use.

The package wants a session opened and closed by one task. So a session with a place on the network lasts for
one call, in the caller's task; one with a process is kept by `Held` in a task of its own, since processes
take their time to start, and callers come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    RequestParamsMeta,
)
from pydantic import TypeAdapter

from wonder_server.adapters.mcp.limits import ServerLog, fraction
from wonder_server.adapters.mcp.message_filter import CURRENT_CALL, MessageFilter, PendingCall, unreadable
from wonder_server.adapters.mcp.process import StdioConnection, run_server
from wonder_server.adapters.mcp.transport import (
    MAX_BODY_BYTES,
    FilteredStream,
    GuardedTransport,
    RecordedStream,
)
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.printable import printable, quoted
from wonder_server.core.task.effects import NotStartedError
from wonder_server.logs import logger
from wonder_server.ports.mcp import McpCall, McpProgressCallback, McpResult

START_TIMEOUT_S: Final = 30
"""How long a server may take until its session has begun, its process's start included."""

FAST_FAILURE_S: Final = 5
"""A start that fails this soon is worth another try. Tries of slow ones would add up."""

IDLE_S: Final = 300
"""A process that nobody has called for this long is ended."""

KEY: Final = "wonder.v1/idempotency-key"
"""Where a call's ``_meta`` holds its idempotency key."""

_CLIENT_INFO: Final = Implementation(name="wonder", version="1")
_ANSWER: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(
    CallToolResult | InputRequiredResult
)

_log = logger("mcp")

# The package logs what servers send, with stack traces, several lines an answer. What is worth a line is
# said here.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False


async def call_at(
    web: GuardedWeb,
    url: str,
    headers: Mapping[str, str],
    policy: NetworkPolicy,
    call: McpCall,
    progress: McpProgressCallback | None,
) -> McpResult:
    """One call of a server on the network, in a session of its own. Errors as `ports.mcp.Mcp.call`."""
    server = _host_of(url)
    transport, message_filter = GuardedTransport(web, policy, server), MessageFilter()
    began = asyncio.get_running_loop().time()
    asked, outcome = False, None
    http = httpx2.AsyncClient(transport=transport, headers=dict(headers), timeout=None, trust_env=False)
    streams = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_BODY_BYTES)
    try:
        async with asyncio.timeout_at(began + min(START_TIMEOUT_S, call.timeout_s)) as patience:
            async with http, _client(_filtered(streams, message_filter, transport)) as client:
                asked = True
                # From here on the call's own deadline holds; the session's end has one too.
                patience.reschedule(None)
                outcome = await _outcome(
                    client, server, call, began + call.timeout_s, progress, PendingCall()
                )
    except Exception as problem:  # mostly a group of them
        # Once there is an outcome, trouble with closing the session is nobody's.
        if outcome is None:
            if patience.expired():
                raise _start_timeout(server, call.timeout_s) from None
            _log.debug("mcp_session_failed", server=server, why=_why(problem))
            raise _session_error(transport.problem, server, asked) from None
    if isinstance(outcome, WonderError):
        raise transport.problem or outcome
    assert outcome is not None, "a session without an outcome has failed"
    return outcome


@asynccontextmanager
async def _filtered(
    streams: AbstractAsyncContextManager[tuple[Any, Any]],
    message_filter: MessageFilter,
    transport: GuardedTransport,
) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (incoming, outgoing):
        yield FilteredStream(incoming, message_filter, transport), RecordedStream(outgoing, message_filter)


def _session_error(problem: WonderError | None, server: str, asked: bool) -> WonderError:
    """Why a session came to nothing. Before the tool was asked for, nothing can have happened."""
    if problem is None:
        problem = error(Reason.TASK_FAILED, f"What answers at {server} is no MCP server.", transient=asked)
    if asked or not problem.fault.transient:
        return problem
    return NotStartedError(problem.fault.reason, problem.fault.message)


def _start_timeout(server: str, timeout_s: float) -> WonderError:
    """The error of a session that did not begin in time. Another try would take as long, so it is final."""
    waited = min(START_TIMEOUT_S, timeout_s)
    message = f"The MCP server '{server}' has not begun a session within {waited:g} s: it does not answer."
    return error(Reason.TIMEOUT, message)


def _host_of(url: str) -> str:
    """The host of a URL, for errors and logs: the rest may hold secrets."""
    with contextlib.suppress(ValueError):
        return printable(urlsplit(url).hostname or "", 200)
    return ""


class StdioSession:
    """A server that runs as a process, and the session with it; begins at once.

    It ends by itself: when the process does or breaks a rule, or after `IDLE_S` without a call. ``ended``
    says that it takes no more calls; ``gone`` is done when the process has ended too.
    """

    def __init__(
        self, name: str, command: str, args: tuple[str, ...], env: Mapping[str, str], log: ServerLog
    ) -> None:
        self.is_ended = False
        self._name = name
        self._process = (command, args, env)
        self._log = log
        self._filter = MessageFilter()
        self._link: StdioConnection | None = None
        self._calls = 0
        self._last_used = 0.0
        self._is_wanted = True
        self._end_requested = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.create_task(self._run())

    async def call(self, call: McpCall, progress: McpProgressCallback | None) -> McpResult:
        """Errors as `ports.mcp.Mcp.call`."""
        began = asyncio.get_running_loop().time()
        asked = PendingCall()
        self._calls += 1
        try:
            client = await self._wait_ready(call.timeout_s)
            if self.is_ended:
                raise NotStartedError(Reason.TASK_FAILED, f"The MCP server '{self._name}' has ended.")
            deadline = began + call.timeout_s
            outcome = await _outcome(client, self._name, call, deadline, progress, asked)
        finally:
            self._filter.discard(asked)
            self._calls -= 1
            self._last_used = asyncio.get_running_loop().time()
        if isinstance(outcome, WonderError):
            raise asked.problem or (self._cut_off_error() if outcome is _CONNECTION_LOST else outcome)
        return outcome

    async def close(self) -> None:
        """End the session and the process, and wait until they have."""
        self._is_wanted = False
        self._stop_accepting()
        if not self._ready.done():
            self.exited.cancel()
        await asyncio.wait([self.exited])

    async def _wait_ready(self, timeout_s: float) -> Client:
        """The session, once it has begun."""
        try:
            async with asyncio.timeout(min(START_TIMEOUT_S, timeout_s)):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise _start_timeout(self._name, timeout_s) from None

    def _cut_off_error(self) -> WonderError:
        """Why a call was cut off that the server is not to blame for, as far as is known."""
        if self._link is not None and self._link.problem is not None:
            return self._link.problem
        message = f"The MCP server '{self._name}' went away during the call."
        return error(Reason.TASK_FAILED, message, transient=True)

    def _stop_accepting(self) -> None:
        self.is_ended = True
        self._end_requested.set()

    async def _run(self) -> None:
        began = asyncio.get_running_loop().time()
        client = _client(self._streams())
        try:
            async with asyncio.timeout(START_TIMEOUT_S) as patience:
                await client.__aenter__()
            try:
                self._ready.set_result(client)
                await self._until_over()
            finally:
                self._stop_accepting()
                await client.__aexit__(None, None, None)
            if self._is_wanted:
                self._log.log_failure(
                    self._cut_off_error().fault.message
                    if self._server_at_fault()
                    else "its process has ended"
                )
        except Exception as problem:
            if patience.expired():
                self._fail(_start_timeout(self._name, START_TIMEOUT_S))
            else:
                took = asyncio.get_running_loop().time() - began
                self._fail(self._start_error(problem, again=took < FAST_FAILURE_S))
        finally:
            self._stop_accepting()
            self._fail(
                NotStartedError(Reason.SERVER_DRAINING, "The server is stopping; no tool can be called.")
            )

    def _server_at_fault(self) -> bool:
        return self._link is not None and self._link.problem is not None

    def _start_error(self, problem: Exception, *, again: bool) -> WonderError:
        why = self._cut_off_error().fault.message if self._server_at_fault() else _why(problem)
        message = f"The MCP server '{self._name}' does not start: {why}"
        return NotStartedError(Reason.TASK_FAILED, message) if again else error(Reason.TASK_FAILED, message)

    def _fail(self, problem: WonderError) -> None:
        """Tell those who wait for the session that there is none."""
        if not self._ready.done():
            if self._is_wanted:
                self._log.log_failure(problem.fault.message)
            self._ready.set_exception(problem)
            self._ready.exception()  # nobody may be waiting for it

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        command, args, env = self._process
        async with run_server(
            self._name, command, args, env, self._filter, self._log, self._stop_accepting
        ) as link:
            self._link = link
            yield link.incoming, link.outgoing

    async def _until_over(self) -> None:
        while not self._end_requested.is_set():
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._end_requested.wait()
            except TimeoutError:
                now = asyncio.get_running_loop().time()
                if not self._calls and now - self._last_used >= IDLE_S:
                    self._is_wanted = False
                    return


def _why(problem: BaseException) -> str:
    """What went wrong, in words that show no secrets and none of the package's: they are for programmers."""
    if isinstance(problem, BaseExceptionGroup):
        return _why(problem.exceptions[0])
    if isinstance(problem, MCPError) and problem.code not in (CONNECTION_CLOSED, PARSE_ERROR):
        return f"it refuses a session: {quoted(problem.message)}"
    if isinstance(problem, MCPError):
        return "it ended before a session had begun."
    if isinstance(problem, OSError):
        return f"{problem.strerror or 'the system refuses'}."
    return "it does not keep to the protocol."


# --- one call -----------------------------------------------------------------------------------


_CONNECTION_LOST: Final = error(
    Reason.TASK_FAILED, "The MCP server went away during the call.", transient=True
)


def _client(transport: Any) -> Client:
    return Client(transport, client_info=_CLIENT_INFO, cache=None)


async def _outcome(
    client: Client,
    server: str,
    call: McpCall,
    deadline: float,
    report_progress: McpProgressCallback | None,
    pending: PendingCall,
) -> McpResult | WonderError:
    """What came of a call. An error is handed back: raised, it would come out of the session in a group."""

    async def told(progress: float, total: float | None, message: str | None) -> None:
        if report_progress is not None:
            report_progress(printable(message or ""), fraction(progress, total))

    # The package's own `call_tool` checks results against the schema of the server with regular expressions
    # of Python, which a hostile server could make run for ever.
    meta = cast("RequestParamsMeta", {KEY: call.key}) if call.key else None
    parameters = CallToolRequestParams(name=call.tool, arguments=dict(call.arguments), _meta=meta)
    token = CURRENT_CALL.set(pending)
    try:
        async with asyncio.timeout_at(deadline):
            answer = await client.session.send_request(
                CallToolRequest(params=parameters),
                _ANSWER,
                progress_callback=told if report_progress else None,
            )
    except TimeoutError:
        message = f"The MCP server '{server}' has not answered the call of '{call.tool}' within"
        return error(Reason.TIMEOUT, f"{message} {call.timeout_s:g} s.", transient=True)
    except MCPError as problem:
        if problem.code == CONNECTION_CLOSED:
            return _CONNECTION_LOST
        if problem.code == PARSE_ERROR:
            return unreadable(server)
        said = quoted(problem.message)
        return error(Reason.TASK_FAILED, f"The MCP server refuses to call '{call.tool}': {said}")
    except Exception:  # what the package makes of answers that are none is not documented
        return error(Reason.TASK_FAILED, f"The tool '{call.tool}' answered what is no result.")
    finally:
        CURRENT_CALL.reset(token)
    if isinstance(answer, InputRequiredResult):
        return error(Reason.TASK_FAILED, f"The tool '{call.tool}' wants more input, which nobody can give.")
    return McpResult(
        content=[block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content],
        structured=answer.structured_content,
        is_error=answer.is_error,
    )
