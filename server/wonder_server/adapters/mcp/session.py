"""Sessions with MCP servers, through the package `mcp`. Imported with it, which is on first use.

The package wants a session opened and closed by one task. So a session with a place on the network lasts for
one call, in the caller's task; one with a process is kept by `Held` in a task of its own, since processes
take their time to start, and callers come and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, cast

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    RequestParamsMeta,
)
from pydantic import TypeAdapter, ValidationError

from wonder_server.adapters.mcp.transport import GuardedTransport
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.task.effects import NotBegunError
from wonder_server.logs import logger
from wonder_server.ports.mcp import McpCall, McpResult, ToldProgress

START_TIMEOUT_S: Final = 30
IDLE_S: Final = 300
"""A process that nobody has called for this long is ended."""

KEY: Final = "wonder.v1/idempotency-key"
"""Where a call's ``_meta`` holds its idempotency key."""

_US: Final = Implementation(name="wonder", version="1")
_ANSWER: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(
    CallToolResult | InputRequiredResult
)
_MESSAGE_LENGTH: Final = 500

_log = logger("mcp")


async def call_at(
    web: GuardedWeb,
    url: str,
    headers: Mapping[str, str],
    policy: NetworkPolicy,
    call: McpCall,
    progress: ToldProgress | None,
) -> McpResult:
    """One call of a server on the network, in a session of its own. Errors as `ports.mcp.Mcp.call`."""
    transport = GuardedTransport(web, policy)
    asked, outcome = False, None
    try:
        async with (
            httpx2.AsyncClient(
                transport=transport, headers=dict(headers), timeout=None, trust_env=False
            ) as http,
            _client(streamable_http_client(url, http_client=http)) as client,
        ):
            asked = True
            outcome = await _outcome(client, call, progress)
    except Exception as problem:  # mostly a group of them
        # Once there is an outcome, trouble with closing the session is nobody's.
        if outcome is None:
            _log.debug("mcp session failed", why=_names(problem))
            raise _unreached(transport.problem, asked) from None
    if isinstance(outcome, WonderError):
        raise transport.problem or outcome
    assert outcome is not None, "a session without an outcome has failed"
    return outcome


def _unreached(problem: WonderError | None, asked: bool) -> WonderError:
    """Why a session came to nothing. Before the tool was asked for, nothing can have happened."""
    if problem is None:
        problem = error(Reason.TASK_FAILED, "What answers there is no MCP server.", transient=asked)
    if asked or not problem.fault.transient:
        return problem
    return NotBegunError(problem.fault.reason, problem.fault.message)


class Held:
    """A server that runs as a process, and the session with it; begins at once.

    It ends by itself: when the process does, or after `IDLE_S` without a call. ``ended`` says that it takes
    no more calls.
    """

    def __init__(self, name: str, command: str, args: tuple[str, ...], env: Mapping[str, str]) -> None:
        self.ended = False
        self._name = name
        self._process = StdioServerParameters(command=command, args=list(args), env=dict(env))
        self._calls = 0
        self._last_used = 0.0
        self._over = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())

    async def call(self, call: McpCall, progress: ToldProgress | None) -> McpResult:
        """Errors as `ports.mcp.Mcp.call`."""
        self._calls += 1
        try:
            client = await asyncio.shield(self._ready)
            if self.ended:
                raise NotBegunError(Reason.TASK_FAILED, f"The MCP server '{self._name}' has ended.")
            outcome = await _outcome(client, call, progress)
        finally:
            self._calls -= 1
            self._last_used = asyncio.get_running_loop().time()
        if isinstance(outcome, WonderError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """End the session and the process, and wait until they have."""
        self._end()
        await asyncio.wait([self._task])

    def _end(self) -> None:
        self.ended = True
        self._over.set()

    async def _live(self) -> None:
        client = _client(_watched(stdio_client(self._process), self._end))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await client.__aenter__()
            try:
                self._ready.set_result(client)
                await self._until_over()
            finally:
                self._end()
                await client.__aexit__(None, None, None)
        except Exception as problem:
            _log.warning("mcp server failed", server=self._name, why=_names(problem))
        finally:
            self._end()
            if not self._ready.done():
                message = f"The MCP server '{self._name}' does not start; the server's log says more."
                self._ready.set_exception(NotBegunError(Reason.TASK_FAILED, message))
                self._ready.exception()  # nobody may be waiting for it

    async def _until_over(self) -> None:
        while not self._over.is_set():
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._over.wait()
            except TimeoutError:
                now = asyncio.get_running_loop().time()
                if not self._calls and now - self._last_used >= IDLE_S:
                    return


def _names(problem: BaseException) -> str:
    """What went wrong, for the log: without texts, which may quote secrets, but for those of the system."""
    if isinstance(problem, BaseExceptionGroup):
        return ", ".join(map(_names, problem.exceptions))
    words = problem.strerror if isinstance(problem, OSError) else ""
    return f"{type(problem).__name__} {words or ''}".strip()


# --- one call -----------------------------------------------------------------------------------


def _client(transport: Any) -> Client:
    return Client(transport, client_info=_US, cache=None)


async def _outcome(client: Client, call: McpCall, tell: ToldProgress | None) -> McpResult | WonderError:
    """What came of a call. An error is handed back: raised, it would come out of the session in a group."""

    async def told(progress: float, total: float | None, message: str | None) -> None:
        if tell is not None:
            tell(message or "", min(max(progress / total, 0.0), 1.0) if total else None)

    # The package's own `call_tool` checks results against the schema of the server with regular expressions
    # of Python, which a hostile server could make run for ever.
    meta = cast("RequestParamsMeta", {KEY: call.key}) if call.key else None
    parameters = CallToolRequestParams(name=call.tool, arguments=dict(call.arguments), _meta=meta)
    try:
        answer = await client.session.send_request(
            CallToolRequest(params=parameters), _ANSWER, progress_callback=told if tell else None
        )
    except MCPError as problem:
        if problem.code == CONNECTION_CLOSED:
            return error(Reason.TASK_FAILED, "The MCP server went away during the call.", transient=True)
        said = problem.message[:_MESSAGE_LENGTH]
        return error(Reason.TASK_FAILED, f"The MCP server refuses to call '{call.tool}': {said}")
    except (ValidationError, ValueError, RuntimeError):
        return error(Reason.TASK_FAILED, f"The tool '{call.tool}' answered what is no result.")
    if isinstance(answer, InputRequiredResult):
        return error(Reason.TASK_FAILED, f"The tool '{call.tool}' wants more input, which nobody can give.")
    return McpResult(
        content=[block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content],
        structured=answer.structured_content,
        is_error=answer.is_error,
    )


class _Watched:
    """A stream of messages that says when it has ended."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> Any:
        return await self._stream.__aexit__(*problem)


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], ended: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """The transport, with ``ended`` called when nothing more comes from it."""
    async with transport as (incoming, outgoing):
        yield _Watched(incoming, ended), outgoing
