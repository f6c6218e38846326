"""`ToolSources`: the tools of MCP servers for the agents that use them (feature M10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.specs import Persona, PinnedAgent
from wonder_server.core.definitions.tool_sources import KnownTools, check_listing, with_sources
from wonder_server.core.errors import WonderError
from wonder_server.core.printable import printable
from wonder_server.logs import logger
from wonder_server.ports.mcp import Mcp

FETCH_TIMEOUT_S: Final = 30
FIRST_WAIT_S: Final = 10
"""Seconds that a turn waits for the first list of a server."""

REFRESH_WAIT_S: Final = 1
"""Seconds that a turn waits for a later list. Then it goes on with the last known one."""

RETRY_S: Final = 15
"""Seconds after a failure until the server is asked again."""

MAX_NOTICES: Final = 100
"""Maximum number of notices about definitions."""

MAX_CACHED: Final = 1_000

_log = logger("mcp")


class ToolSources:
    """Keeps the tools of each server for ``max_age_s`` seconds, and adds them to pinned agents.

    A server that does not answer fails no turn: its agents get its last known tools, or none, and a notice.
    An agent is the same object until its definitions or one of its lists change, so that its record has each
    list once.
    """

    def __init__(
        self,
        mcp: Mcp,
        max_age_s: float,
        monotonic_s: Callable[[], float],
        configured: Collection[str] | None = None,
    ) -> None:
        """``configured`` are the names of the servers; None if they are not known before a request."""
        self._mcp = mcp
        self._configured = configured
        self._max_age_s = max_age_s
        self._monotonic_s = monotonic_s
        self._servers: dict[str, _Server] = {}
        self._extended: dict[int, tuple[PinnedAgent, tuple[KnownTools, ...], PinnedAgent]] = {}

    async def extend(self, agent: PinnedAgent) -> PinnedAgent:
        """Return the agent with the tools of its persona's sources."""
        if not agent.persona.tool_sources:
            return agent
        names = dict.fromkeys(source.mcp for source in agent.persona.tool_sources)
        known = tuple(await asyncio.gather(*[self._tools(name) for name in names]))
        cached = self._extended.get(id(agent))
        if cached is not None and cached[0] is agent and cached[1] == known:
            return cached[2]
        extended = with_sources(agent, {each.server: each for each in known})
        if len(self._extended) >= MAX_CACHED:
            self._extended.clear()
        self._extended[id(agent)] = agent, known, extended
        return extended

    def notices(self, drafts: Iterable[DefinitionDraft]) -> list[str]:
        """Return a sentence for each server that a persona of ``drafts`` names and that does not exist."""
        if self._configured is None:
            return []
        known = ", ".join(sorted(self._configured)) or "none"
        return [
            f"The persona '{draft.name}' has tools of the MCP server '{source.mcp}', which this server "
            f"does not have. Add it to the setting mcp_servers. There are: {known}."
            for draft in drafts
            if isinstance(draft.spec, Persona)
            for source in draft.spec.tool_sources
            if source.mcp not in self._configured
        ][:MAX_NOTICES]

    async def close(self) -> None:
        """Cancel running fetches."""
        running = [server.fetch for server in self._servers.values() if server.fetch is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _tools(self, name: str) -> KnownTools:
        server = self._servers.get(name)
        if server is None:
            server = self._servers[name] = _Server(name)
        if self._monotonic_s() < server.fresh_until_s:
            return server.known
        if server.fetch is None:
            server.fetch = asyncio.create_task(self._fetch(server))
        wait_s = REFRESH_WAIT_S if server.is_tried else FIRST_WAIT_S
        await asyncio.wait([server.fetch], timeout=wait_s)
        if not server.is_tried:
            server.is_tried = True
            server.fail(f"The MCP server '{name}' has not listed its tools within {wait_s} s.")
        return server.known

    async def _fetch(self, server: _Server) -> None:
        """Ask a server for its tools, and keep them or the reason why there are none."""
        fresh_s: float = RETRY_S
        try:
            listing = await self._mcp.tools(server.name, FETCH_TIMEOUT_S)
            # Checking 5,000 schemas takes half a second.
            found = await asyncio.to_thread(check_listing, server.name, listing)
            fresh_s = self._max_age_s
            if found.digest != server.known.digest:
                _log.info(
                    "mcp_tools_changed",
                    server=server.name,
                    tools=len(found.tools),
                    hash=found.digest,
                    notices=len(found.notices),
                )
            # The same list stays the same object: comparing it is then one step.
            server.known = server.known if found == server.known else found
        except Exception as problem:  # Of an adapter or a library: the turns go on without the tools.
            text = problem.fault.message if isinstance(problem, WonderError) else _described(problem)
            text = printable(text)
            _log.warning("mcp_tools_failed", server=server.name, problem=text)
            server.fail(f"The MCP server '{server.name}' does not list its tools: {text}")
        finally:
            server.is_tried = True
            server.fresh_until_s = self._monotonic_s() + fresh_s
            server.fetch = None


def _described(problem: Exception) -> str:
    """Return an unexpected error in one line, without its arguments, which may hold a header or a key."""
    return f"The request failed with {type(problem).__name__}."


class _Server:
    """The state of one server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = KnownTools(server=name)
        self.fresh_until_s = float("-inf")
        self.is_tried = False
        self.fetch: asyncio.Task[None] | None = None

    def fail(self, problem: str) -> None:
        """Note why the tools are not known, or may be out of date."""
        if self.known.digest:
            problem = f"{problem} The tools are those of its last list."
        self.known = replace(self.known, problem=problem)
