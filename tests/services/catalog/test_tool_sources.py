"""`ToolSources`: lists of MCP servers, kept, refreshed, and missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import STANDARD, make, persona
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.resources import Agent, NetworkPolicy
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.definitions.tool_sources import ListedTool, ToolListing
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.mcp import McpCall, McpResult
from wonder_server.services.catalog import tool_sources
from wonder_server.services.catalog.library import Library
from wonder_server.services.catalog.tool_sources import RETRY_S, ToolSources

MAX_AGE_S = 30


class Servers:
    """MCP servers by name, each with its tools or its error. Implements the port ``Mcp``."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, ...] | Exception] = {"files": ("read", "write")}
        self.fetches = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def tools(self, server: str, timeout_s: float) -> ToolListing:
        self.fetches += 1
        await self.gate.wait()
        found = self.names.get(server, error(Reason.FIELD_INVALID, f"There is no MCP server '{server}'."))
        if isinstance(found, Exception):
            raise found
        return ToolListing(tools=tuple(ListedTool(name=each, input_schema={}) for each in found))

    async def call(self, call: McpCall, policy: NetworkPolicy, progress: Any = None) -> McpResult:
        raise AssertionError("no tool is called")

    async def close(self) -> None:
        return None


class Stage:
    """An agent with the sources ``files`` and ``gone``."""

    def __init__(self, library: Library, servers: Servers) -> None:
        self.library = library
        self.servers = servers
        self.now_s = 0.0
        self.sources = ToolSources(servers, MAX_AGE_S, lambda: self.now_s)

    async def pin(self) -> PinnedAgent:
        return await self.sources.extend(await self.library.pin_agent("bot"))

    async def names(self) -> list[str]:
        return [tool.spec.name for tool in (await self.pin()).tools]


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    helper = persona("helper", tool_sources=[{"mcp": "files"}])
    await library.definitions.apply("team", [helper])
    await library.agents.create(Agent(id="", name="bot", project_ids=(), persona_id="team/helper"))
    stage = Stage(library, Servers())
    yield stage
    await stage.sources.close()


async def test_a_list_is_fetched_once_for_its_age_and_the_agent_is_the_same_object(stage: Stage) -> None:
    one, *others = await asyncio.gather(*(stage.pin() for _ in range(20)))
    assert [tool.spec.name for tool in one.tools] == ["read", "write"]
    assert all(each is one for each in others) and stage.servers.fetches == 1
    stage.now_s = MAX_AGE_S - 1
    assert await stage.pin() is one and stage.servers.fetches == 1
    stage.now_s = MAX_AGE_S
    assert await stage.pin() is one, "the same list gives the same agent"
    assert stage.servers.fetches == 2


async def test_a_changed_list_changes_the_next_pin_and_not_the_last(stage: Stage) -> None:
    before = await stage.pin()
    stage.servers.names["files"] = ("read", "erase")
    stage.now_s = MAX_AGE_S
    after = await stage.pin()
    assert [tool.spec.name for tool in before.tools] == ["read", "write"]
    assert [tool.spec.name for tool in after.tools] == ["read", "erase"]
    assert before.sources[0].digest != after.sources[0].digest


async def test_a_server_that_fails_leaves_the_last_known_tools_and_a_notice(stage: Stage) -> None:
    known = await stage.pin()
    stage.servers.names["files"] = error(Reason.TASK_FAILED, "The process has ended.")
    stage.now_s = MAX_AGE_S
    failing = await stage.pin()
    assert failing.tools == known.tools
    assert failing.sources[0].notices == (
        "The MCP server 'files' does not list its tools: The process has ended. The tools are those of its "
        "last list.",
    )
    fetches = stage.servers.fetches
    assert await stage.pin() is failing and stage.servers.fetches == fetches, "it is not asked at once again"
    stage.servers.names["files"] = ("read", "write")
    stage.now_s += RETRY_S
    assert (await stage.pin()).sources == known.sources


async def test_a_server_that_is_down_at_the_start_leaves_the_agent_without_its_tools(stage: Stage) -> None:
    stage.servers.names["files"] = error(Reason.TASK_FAILED, "No such file.")
    pinned = await stage.pin()
    assert pinned.tools == () and "does not list its tools: No such file." in pinned.sources[0].notices[0]
    stage.servers.names["files"] = ("read",)
    stage.now_s = RETRY_S
    assert await stage.names() == ["read"]


async def test_an_unexpected_error_is_a_notice_too_without_what_the_error_holds(stage: Stage) -> None:
    stage.servers.names["files"] = ValueError("Bearer secret")
    pinned = await stage.pin()
    assert pinned.tools == ()
    assert pinned.sources[0].notices == (
        "The MCP server 'files' does not list its tools: The request failed with ValueError.",
    )
    fetches = stage.servers.fetches
    await stage.pin()
    assert stage.servers.fetches == fetches, "it is not asked at once again"


async def test_definitions_with_a_server_that_is_not_configured_get_a_notice(stage: Stage) -> None:
    drafts = [
        persona("helper", tool_sources=[{"mcp": "files"}, {"mcp": "gone"}]),
        persona("plain"),
    ]
    sources = ToolSources(stage.servers, MAX_AGE_S, lambda: 0.0, {"files", "web"})
    assert sources.notices(drafts) == [
        "The persona 'helper' has tools of the MCP server 'gone', which this server does not have. Add it to "
        "the setting mcp_servers. There are: files, web."
    ]
    assert stage.sources.notices(drafts) == [], "the names are not known"
    many = [persona(f"p{number}", tool_sources=[{"mcp": "gone"}]) for number in range(200)]
    assert len(sources.notices(many)) == 100


async def test_an_unknown_server_is_a_notice_of_the_turn(stage: Stage) -> None:
    await stage.library.definitions.apply("team", [persona("helper", tool_sources=[{"mcp": "unknown"}])])
    (source,) = (await stage.pin()).sources
    assert "There is no MCP server 'unknown'." in source.notices[0]


async def test_a_silent_server_holds_the_first_turn_for_a_time_and_later_turns_hardly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_sources, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(tool_sources, "REFRESH_WAIT_S", 0.01)
    stage.servers.gate.clear()
    pinned = await stage.pin()
    assert pinned.tools == () and "has not listed its tools" in pinned.sources[0].notices[0]
    assert await stage.names() == [] and stage.servers.fetches == 1, "one fetch is in progress"
    stage.servers.gate.set()
    monkeypatch.setattr(tool_sources, "REFRESH_WAIT_S", 60)
    assert await stage.names() == ["read", "write"]


async def test_close_ends_a_fetch(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_sources, "FIRST_WAIT_S", 0.01)
    stage.servers.gate.clear()
    await stage.pin()
    await stage.sources.close()
    assert all(server.fetch is None for server in stage.sources._servers.values())


async def test_an_agent_without_sources_is_itself(stage: Stage) -> None:
    plain = await stage.library.pin_agent("assistant")
    assert await stage.sources.extend(plain) is plain and stage.servers.fetches == 0


async def test_the_library_adds_the_tools_only_for_turns(stage: Stage) -> None:
    library = replace_sources(stage)
    assert [tool.spec.name for tool in (await library.pin_agent("bot")).tools] == ["read", "write"]
    assert (await library.pin_persona("bot")).tools == ()


def replace_sources(stage: Stage) -> Library:
    stage.library._tool_sources = stage.sources
    return stage.library


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"mcp": ""}, "tool_sources[0].mcp"),
        ({"mcp": "n" * 101}, "tool_sources[0].mcp"),
        ({"mcp": "files", "include": ["x"] * 101}, "tool_sources[0].include"),
        ({"mcp": "files", "include": [""]}, "tool_sources[0].include[0]"),
        ({"mcp": "files", "exclude": ["x" * 201]}, "tool_sources[0].exclude[0]"),
        ({"mcp": "files", "timeout_ms": 0}, "tool_sources[0].timeout_ms"),
        ({"mcp": "files", "timeout_ms": 86_400_001}, "tool_sources[0].timeout_ms"),
        ({"mcp": "files", "approval": "input."}, "tool_sources[0].approval"),
        ({"mcp": "files", "approval": "output.x"}, "tool_sources[0].approval"),
        ({"mcp": "files", "approval_gate": {"user_ids": ["ann"]}}, "tool_sources[0].approval_gate"),
        (
            {"mcp": "files", "approval": "always", "approval_gate": {"user_ids": [" "]}},
            "tool_sources[0].approval_gate.user_ids[0]",
        ),
        (
            {"mcp": "files", "approval": "always", "approval_gate": {"user_ids": ["u"] * 101}},
            "tool_sources[0].approval_gate.user_ids",
        ),
        (
            {"mcp": "files", "approval": "always", "approval_gate": {"expire_after_ms": -1}},
            "tool_sources[0].approval_gate.expire_after_ms",
        ),
    ],
)
async def test_an_invalid_source_is_refused_with_its_place(
    stage: Stage, source: dict[str, Any], field: str
) -> None:
    with pytest.raises(WonderError) as refused:
        await stage.library.definitions.apply("team", [persona("bad", tool_sources=[source])])
    assert [fault.field for fault in refused.value.faults] == [f"definitions[0].persona.{field}"]


async def test_too_many_sources_and_the_same_twice_are_refused(stage: Stage) -> None:
    sources = [{"mcp": f"s{number}"} for number in range(20)]
    for given, field in (([*sources, {"mcp": "s20"}], ""), ([*sources[:2], {"mcp": "s1"}], "[2].mcp")):
        with pytest.raises(WonderError) as refused:
            await stage.library.definitions.apply("team", [persona("bad", tool_sources=given)])
        assert refused.value.faults[0].field == f"definitions[0].persona.tool_sources{field}"
