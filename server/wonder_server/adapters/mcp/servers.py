"""`McpServers`: tools of the MCP servers that the operator configures, and of those that a project may reach.

Only the operator may allow a process on this machine: definitions name such servers and cannot describe them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.limits import ServerLog
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.network_policy import allow_only
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.tool_sources import ToolListing
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.network_address import host_port_of
from wonder_server.core.suggestions import did_you_mean
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.mcp import McpCall, McpProgressCallback, McpResult

if TYPE_CHECKING:
    from wonder_server.adapters.mcp.session import Request, StdioSession

T = TypeVar("T")


class McpServers:
    """Implements the port ``Mcp``. `close` it before the event loop ends."""

    def __init__(self, servers: Iterable[ServerConfig], web: GuardedWeb) -> None:
        self._servers = {server.name: server for server in servers}
        self._web = web
        self._sessions: dict[str, StdioSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._logs: dict[str, ServerLog] = {}
        self._session_module: Any = None
        self._closed = False

    async def call(
        self, call: McpCall, policy: NetworkPolicy, progress: McpProgressCallback | None = None
    ) -> McpResult:
        """Call a tool; see `ports.mcp.Mcp.call`."""
        server = self._named(call.server) if call.server else None
        session = await self._sessions_module()
        request = session.tool_call(call, progress)
        if server is not None:
            return cast("McpResult", await self._request(server, request))
        address = session.Address(url=call.url, headers=call.headers, policy=policy)
        return cast("McpResult", await session.request_at(self._web, address, request))

    async def tools(self, server: str, timeout_s: float) -> ToolListing:
        """Return the tools of a server; see `ports.mcp.Mcp`."""
        named = self._named(server)
        session = await self._sessions_module()
        return cast("ToolListing", await self._request(named, session.tool_list(timeout_s)))

    async def _request(self, server: ServerConfig, request: Request[T]) -> T:
        """Make a request of a server that the operator configured."""
        if server.command:
            return await self._session_of(server).request(request)
        session = self._session_module
        address = session.Address(url=server.url, headers=server.headers, policy=_own_host_policy(server))
        return cast("T", await session.request_at(self._web, address, request))

    async def _sessions_module(self) -> Any:
        """Return the module of sessions. SERVER_DRAINING after `close`."""
        if self._session_module is None:
            # The import takes half a second, which would delay streams. In a thread they share the processor.
            self._session_module = await asyncio.to_thread(
                import_module, "wonder_server.adapters.mcp.session"
            )
        if self._closed:
            raise NotStartedError(Reason.SERVER_DRAINING, "The server is stopping and calls no more tools.")
        return self._session_module

    async def close(self) -> None:
        """End all sessions and processes. No tool can be called afterwards."""
        self._closed = True
        running = [session.close() for session in self._sessions.values()]
        await asyncio.gather(*running, *self._closing, return_exceptions=True)

    def _session_of(self, server: ServerConfig) -> StdioSession:
        """Return the session with a process; start one if none takes calls."""
        session = self._sessions.get(server.name)
        if session is not None and not session.is_ended:
            return session
        if session is not None and not session.exited.done():
            self._closing.add(session.exited)
            session.exited.add_done_callback(self._closing.discard)
        if server.name not in self._logs:
            self._logs[server.name] = ServerLog(server.name)
        started: StdioSession = self._session_module.StdioSession(server, self._logs[server.name])
        self._sessions[server.name] = started
        return started

    def _named(self, name: str) -> ServerConfig:
        server = self._servers.get(name)
        if server is None:
            raise _unknown(name, self._servers)
        return server


def _own_host_policy(server: ServerConfig) -> NetworkPolicy:
    """Return a policy that allows only the server's own host and port. FIELD_INVALID."""
    try:
        return allow_only(host_port_of(server.url))
    except ValueError as problem:
        raise error(
            Reason.FIELD_INVALID,
            f"The operator's configuration gives the MCP server '{server.name}' an invalid url: {problem}.",
            field="server",
        ) from None


def _unknown(name: str, known: Mapping[str, ServerConfig]) -> WonderError:
    return error(
        Reason.FIELD_INVALID,
        f"The operator's configuration has no MCP server '{name}'{did_you_mean(name, known)}.",
        field="server",
    )
