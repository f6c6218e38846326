"""Sessions with MCP servers, through the package `mcp`. Imported together with it, at the first use.

The package requires one task to open and close a session. So a session over the network lasts for one call,
in the caller's task. A session with a process runs in a task of its own (`StdioSession`), because processes
start slowly and serve many callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast
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

from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.limits import ServerLog, fraction
from wonder_server.adapters.mcp.listing import CONNECTION_LOST, list_tools
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
from wonder_server.core.definitions.tool_sources import ToolListing
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.printable import printable, quoted
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.logs import logger
from wonder_server.ports.mcp import McpCall, McpProgressCallback, McpResult

START_TIMEOUT_S: Final = 30
"""Seconds until a session must have begun, including the start of its process."""

FAST_FAILURE_S: Final = 5
"""A start that fails within these seconds may be retried. Retries of slow starts would add up."""

IDLE_S: Final = 300
"""Seconds without a call after which a process ends."""

KEY: Final = "wonder.v1/idempotency-key"
"""The name of a call's idempotency key in its ``_meta``."""

_CLIENT_INFO: Final = Implementation(name="wonder", version="1")
_ANSWER: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(
    CallToolResult | InputRequiredResult
)

_log = logger("mcp")

T = TypeVar("T")

# The package logs what servers send, with stack traces, several lines per answer. This module logs what
# matters.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The place of a server on the network, and the policy of connections to it."""

    url: str
    headers: Mapping[str, str]
    policy: NetworkPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[T]):
    """A request in a session. ``outcome`` makes it with a client, for the server of this name, until a
    deadline; it returns its errors. ``timeout_s`` limits the total time."""

    outcome: Callable[[Client, str, float, PendingCall], Awaitable[T | WonderError]]
    timeout_s: float


def tool_call(call: McpCall, progress: McpProgressCallback | None) -> Request[McpResult]:
    """Return the request that calls a tool."""

    async def outcome(
        client: Client, server: str, deadline: float, pending: PendingCall
    ) -> McpResult | WonderError:
        return await _outcome(client, server, call, deadline, progress, pending)

    return Request(outcome=outcome, timeout_s=call.timeout_s)


def tool_list(timeout_s: float) -> Request[ToolListing]:
    """Return the request that lists the tools."""
    return Request(outcome=list_tools, timeout_s=timeout_s)


async def request_at(web: GuardedWeb, address: Address, request: Request[T]) -> T:
    """Make a request of a server on the network, in a session of its own. Errors: as for
    `ports.mcp.Mcp.call`."""
    url, headers, policy = address.url, address.headers, address.policy
    server = _host_of(url)
    transport, message_filter = GuardedTransport(web, policy, server), MessageFilter()
    started = asyncio.get_running_loop().time()
    is_called, outcome = False, cast("T | WonderError | None", None)
    http = httpx2.AsyncClient(transport=transport, headers=dict(headers), timeout=None, trust_env=False)
    streams = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_BODY_BYTES)
    try:
        async with asyncio.timeout_at(started + min(START_TIMEOUT_S, request.timeout_s)) as start_timeout:
            async with http, _client(_filtered(streams, message_filter, transport)) as client:
                is_called = True
                # The call has its own deadline, and so has the end of the session.
                start_timeout.reschedule(None)
                outcome = await request.outcome(client, server, started + request.timeout_s, PendingCall())
    except Exception as problem:  # Usually an exception group.
        # With an outcome, errors of closing the session do not matter.
        if outcome is None:
            if start_timeout.expired():
                raise _start_timeout(server, request.timeout_s) from None
            _log.debug("mcp_session_failed", server=server, problem=_reason(problem))
            raise _session_error(transport.problem, server, is_called) from None
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


def _session_error(problem: WonderError | None, server: str, is_called: bool) -> WonderError:
    """Return the error of a failed session. Before the call was sent, the tool has certainly not run."""
    if problem is None:
        problem = error(
            Reason.TASK_FAILED, f"The server at {server} is not an MCP server.", transient=is_called
        )
    if is_called or not problem.fault.transient:
        return problem
    return NotStartedError(problem.fault.reason, problem.fault.message)


def _start_timeout(server: str, timeout_s: float) -> WonderError:
    """Return the error of a session that did not begin in time. It is final, since a retry would take as
    long."""
    waited = min(START_TIMEOUT_S, timeout_s)
    message = f"The MCP server '{server}' did not begin a session within {waited:g} s: it does not answer."
    return error(Reason.TIMEOUT, message)


def _host_of(url: str) -> str:
    """Return the host of a URL for errors and logs. The rest of a URL may contain secrets."""
    with contextlib.suppress(ValueError):
        return printable(urlsplit(url).hostname or "", 200)
    return ""


class StdioSession:
    """A server that runs as a process, and the session with it. The constructor starts both.

    The session ends when the process ends or violates a limit, or after `IDLE_S` without a call. If
    ``is_ended``, it takes no more calls. ``exited`` is done after the process has ended too.
    """

    def __init__(self, server: ServerConfig, log: ServerLog) -> None:
        self.is_ended = False
        self._name = server.name
        self._server = server
        self._log = log
        self._filter = MessageFilter()
        self._link: StdioConnection | None = None
        self._calls = 0
        self._last_used = 0.0
        self._is_wanted = True
        self._end_requested = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.create_task(self._run())

    async def request(self, request: Request[T]) -> T:
        """Make a request. Errors: as for `ports.mcp.Mcp.call`."""
        started = asyncio.get_running_loop().time()
        pending = PendingCall()
        self._calls += 1
        try:
            client = await self._wait_ready(request.timeout_s)
            if self.is_ended:
                raise NotStartedError(Reason.TASK_FAILED, f"The MCP server '{self._name}' has ended.")
            deadline = started + request.timeout_s
            outcome = await request.outcome(client, self._name, deadline, pending)
        finally:
            self._filter.discard(pending)
            self._calls -= 1
            self._last_used = asyncio.get_running_loop().time()
        if isinstance(outcome, WonderError):
            raise pending.problem or (self._cut_off_error() if outcome is CONNECTION_LOST else outcome)
        return outcome

    async def close(self) -> None:
        """End the session and the process, and wait for both."""
        self._is_wanted = False
        self._stop_accepting()
        if not self._ready.done():
            self.exited.cancel()
        await asyncio.wait([self.exited])

    async def _wait_ready(self, timeout_s: float) -> Client:
        """Wait for the beginning of the session and return its client."""
        try:
            async with asyncio.timeout(min(START_TIMEOUT_S, timeout_s)):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise _start_timeout(self._name, timeout_s) from None

    def _cut_off_error(self) -> WonderError:
        """Return the error of an interrupted call that did not cause the interruption."""
        if self._link is not None and self._link.problem is not None:
            return self._link.problem
        message = f"The MCP server '{self._name}' ended during the call."
        return error(Reason.TASK_FAILED, message, transient=True)

    def _stop_accepting(self) -> None:
        self.is_ended = True
        self._end_requested.set()

    async def _run(self) -> None:
        started = asyncio.get_running_loop().time()
        client = _client(self._streams())
        try:
            async with asyncio.timeout(START_TIMEOUT_S) as start_timeout:
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
            if start_timeout.expired():
                self._fail(_start_timeout(self._name, START_TIMEOUT_S))
            else:
                took = asyncio.get_running_loop().time() - started
                self._fail(self._start_error(problem, may_retry=took < FAST_FAILURE_S))
        finally:
            self._stop_accepting()
            self._fail(
                NotStartedError(Reason.SERVER_DRAINING, "The server is stopping and calls no more tools.")
            )

    def _server_at_fault(self) -> bool:
        return self._link is not None and self._link.problem is not None

    def _start_error(self, problem: Exception, *, may_retry: bool) -> WonderError:
        reason = self._cut_off_error().fault.message if self._server_at_fault() else _reason(problem)
        message = f"The MCP server '{self._name}' does not start: {reason}"
        if may_retry:
            return NotStartedError(Reason.TASK_FAILED, message)
        return error(Reason.TASK_FAILED, message)

    def _fail(self, problem: WonderError) -> None:
        """Fail the callers that wait for the session."""
        if not self._ready.done():
            if self._is_wanted:
                self._log.log_failure(problem.fault.message)
            self._ready.set_exception(problem)
            self._ready.exception()  # Retrieved, so that asyncio logs no warning if no caller waits.

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        async with run_server(self._server, self._filter, self._log, self._stop_accepting) as link:
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


def _reason(problem: BaseException) -> str:
    """Return the cause of a failure without secrets and without the package's messages for programmers."""
    if isinstance(problem, BaseExceptionGroup):
        return _reason(problem.exceptions[0])
    if isinstance(problem, MCPError) and problem.code not in (CONNECTION_CLOSED, PARSE_ERROR):
        return f"it rejects a session: {quoted(problem.message)}"
    if isinstance(problem, MCPError):
        return "it ended before a session had begun."
    if isinstance(problem, OSError):
        return f"{problem.strerror or 'the system refuses'}."
    return "it violates the protocol."


# --- one call -----------------------------------------------------------------------------------


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
    """Return the outcome of a call. An error is returned, because the session would raise it inside a
    group."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if report_progress is not None:
            report_progress(printable(message or ""), fraction(progress, total))

    # The package's own `call_tool` checks results against the server's schema with Python's regular
    # expressions, which a hostile server could make run forever.
    meta = cast("RequestParamsMeta", {KEY: call.key}) if call.key else None
    parameters = CallToolRequestParams(name=call.tool, arguments=dict(call.arguments), _meta=meta)
    token = CURRENT_CALL.set(pending)
    try:
        async with asyncio.timeout_at(deadline):
            answer = await client.session.send_request(
                CallToolRequest(params=parameters),
                _ANSWER,
                progress_callback=on_progress if report_progress else None,
            )
    except TimeoutError:
        message = f"The MCP server '{server}' did not answer the call of '{call.tool}' within"
        return error(Reason.TIMEOUT, f"{message} {call.timeout_s:g} s.", transient=True)
    except MCPError as problem:
        if problem.code == CONNECTION_CLOSED:
            return CONNECTION_LOST
        if problem.code == PARSE_ERROR:
            return unreadable(server)
        return error(
            Reason.TASK_FAILED,
            f"The MCP server rejected the call of '{call.tool}': {quoted(problem.message)}",
        )
    except Exception:  # The package does not document its exceptions for invalid answers.
        return error(Reason.TASK_FAILED, f"The tool '{call.tool}' returned an invalid result.")
    finally:
        CURRENT_CALL.reset(token)
    if isinstance(answer, InputRequiredResult):
        return error(
            Reason.TASK_FAILED, f"The tool '{call.tool}' requests more input, which no client can provide."
        )
    return McpResult(
        content=[block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content],
        structured=answer.structured_content,
        is_error=answer.is_error,
    )
