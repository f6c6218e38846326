"""`McpServers`: tools of the MCP servers that the operator names, and of those that a project may reach.

A process on this machine is the operator's to allow: definitions name such servers and cannot describe them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wonder_server.adapters.mcp.limits import ServerLog
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.network_policy import allow_only
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import Value
from wonder_server.core.network_address import host_port_of
from wonder_server.core.suggestions import did_you_mean
from wonder_server.core.task.effects import NotStartedError
from wonder_server.ports.mcp import McpCall, McpProgressCallback, McpResult

if TYPE_CHECKING:
    from wonder_server.adapters.mcp.session import StdioSession


class ServerConfig(Value, frozen=True, kw_only=True):
    """What the operator says of a server: ``command`` starts it here, or ``url`` is where it is."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}


class McpServers:
    """Implements the port ``Mcp``. `close` it before the loop ends."""

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
        """See `ports.mcp.Mcp.call`."""
        server = self._named(call.server) if call.server else None
        if self._session_module is None:
            # The import takes half a second, which streams would feel; in a thread they share the processor.
            self._session_module = await asyncio.to_thread(
                import_module, "wonder_server.adapters.mcp.session"
            )
        session = self._session_module
        if self._closed:
            raise NotStartedError(Reason.SERVER_DRAINING, "The server is stopping; no tool can be called.")
        if server is not None and server.command:
            result: McpResult = await self._session_of(server).call(call, progress)
            return result
        if server is not None:
            url, headers, policy = server.url, server.headers, _own_host_policy(server)
        else:
            url, headers = call.url, call.headers
        result = await session.call_at(self._web, url, headers, policy, call, progress)
        return result

    async def close(self) -> None:
        """End all sessions and processes; nothing can be called afterwards."""
        self._closed = True
        running = [held.close() for held in self._sessions.values()]
        await asyncio.gather(*running, *self._closing, return_exceptions=True)

    def _session_of(self, server: ServerConfig) -> StdioSession:
        """The session with a process, begun anew if there is none that takes calls."""
        held = self._sessions.get(server.name)
        if held is not None and not held.is_ended:
            return held
        if held is not None and not held.exited.done():
            self._closing.add(held.exited)
            held.exited.add_done_callback(self._closing.discard)
        if server.name not in self._logs:
            self._logs[server.name] = ServerLog(server.name)
        log = self._logs[server.name]
        made: StdioSession = self._session_module.StdioSession(
            server.name, server.command, server.args, server.env, log
        )
        self._sessions[server.name] = made
        return made

    def _named(self, name: str) -> ServerConfig:
        server = self._servers.get(name)
        if server is None:
            raise _unknown(name, self._servers)
        return server


def _own_host_policy(server: ServerConfig) -> NetworkPolicy:
    """The operator's word allows the server's own host and port, and nothing else. FIELD_INVALID."""
    try:
        return allow_only(host_port_of(server.url))
    except ValueError as problem:
        raise error(
            Reason.FIELD_INVALID,
            f"The url that this server's operator gives for the MCP server '{server.name}' cannot be used:"
            f" {problem}.",
            field="server",
        ) from None


def _unknown(name: str, known: Mapping[str, ServerConfig]) -> WonderError:
    return error(
        Reason.FIELD_INVALID,
        f"This server's operator names no MCP server '{name}'{did_you_mean(name, known)}.",
        field="server",
    )
