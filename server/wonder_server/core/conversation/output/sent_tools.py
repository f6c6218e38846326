"""Tools of a request that the provider gets: a format may take fewer than the agent has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wonder_server.core.definitions.specs import PinnedAgent, PinnedSource
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import valid_request


def with_sent_tools(agent: PinnedAgent, request: JsonDict) -> tuple[JsonDict, tuple[PinnedSource, ...]]:
    """Return the request with the tools that are sent, and the agent's sources with their numbers of tools in
    it. A notice says how many of a source are not sent.
    """
    profile = agent.profile.spec
    sent, _ = valid_request(profile.format, request, profile.provider)
    tools = sent.get("tools")
    names = frozenset(_names(tools))
    request = {**request, "tools": tools} if tools else {k: v for k, v in request.items() if k != "tools"}
    return request, tuple(_counted(agent, source, names) for source in agent.sources)


def _counted(agent: PinnedAgent, source: PinnedSource, names: frozenset[str]) -> PinnedSource:
    offered = [tool for tool in agent.tools if tool.pin.library == f"mcp:{source.mcp}"]
    number = sum(1 for tool in offered if tool.spec.name in names)
    if number == len(offered):
        return source
    provider, omitted = agent.profile.spec.provider, len(offered) - number
    notice = (
        f"A request to {provider} takes {len(names):,} tools: {omitted:,} of this server are left out. Name "
        "fewer in 'include'."
    )
    return replace(source, tools=number, notices=(notice, *source.notices))


def _names(tools: JsonValue) -> Iterator[str]:
    """Yield the names of the tools of a request, in any format."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        function, declared = tool.get("function"), tool.get("functionDeclarations")
        if isinstance(declared, list):
            yield from _names(declared)
        else:
            yield str((function if isinstance(function, dict) else tool).get("name", ""))
