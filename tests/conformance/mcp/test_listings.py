"""Lists of tools: of a real MCP server, and of one whose pages a test writes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes import listing_mcp_server, mcp_server
from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.listing import ENDLESS, MAX_PAGES
from wonder_server.adapters.mcp.servers import McpServers
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.tool_sources import (
    MAX_LISTED_TOOLS,
    TOO_MANY,
    ListedTool,
    ToolListing,
    check_listing,
)
from wonder_server.core.errors import Reason, WonderError

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEMA = {"type": "object"}


@pytest_asyncio.fixture(loop_scope="session")
async def servers(tmp_path: Path) -> AsyncIterator[McpServers]:
    listing = (listing_mcp_server.__file__, str(tmp_path / "pages"))
    web = GuardedWeb()
    servers = McpServers(
        [
            ServerConfig(name="listing", command=sys.executable, args=listing),
            ServerConfig(
                name="fake", command=sys.executable, args=(mcp_server.__file__, str(tmp_path / "n"))
            ),
            ServerConfig(name="unheard", url="http://127.0.0.1:1/mcp"),
        ],
        web,
    )
    yield servers
    await servers.close()
    await web.close()


async def listed(servers: McpServers, folder: Path, *pages: Any) -> ToolListing:
    write(folder, [page if isinstance(page, str) else json.dumps(page) for page in pages])
    return await servers.tools("listing", 60)


def write(folder: Path, lines: list[str]) -> None:
    (folder / "pages").write_text("\n".join(lines))


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": "Do.", "inputSchema": SCHEMA} for name in names]


async def test_a_server_lists_its_tools(servers: McpServers) -> None:
    found = await servers.tools("fake", 60)
    assert [tool.name for tool in found.tools[:2]] == ["add", "say"] and not found.cut
    assert found.tools[0].description == "Add two numbers."
    assert isinstance(found.tools[0].input_schema, dict)
    assert set(found.tools[0].input_schema["properties"]) == {"a", "b"}


async def test_all_pages_are_read_and_a_change_is_seen(servers: McpServers, tmp_path: Path) -> None:
    found = await listed(servers, tmp_path, tools("a", "b"), tools("c"))
    assert [tool.name for tool in found.tools] == ["a", "b", "c"]
    found = await listed(servers, tmp_path, tools("d"))
    assert found.tools == (ListedTool(name="d", description="Do.", input_schema=SCHEMA),)
    assert (await listed(servers, tmp_path, [])).tools == ()


async def test_a_tool_may_lack_a_description(servers: McpServers, tmp_path: Path) -> None:
    found = await listed(servers, tmp_path, [{"name": "", "inputSchema": SCHEMA}, *tools("well")])
    assert [(tool.name, tool.description) for tool in found.tools] == [("", ""), ("well", "Do.")]


async def test_long_and_endless_lists_are_cut(servers: McpServers, tmp_path: Path) -> None:
    half = tools(*[f"t{number}" for number in range(MAX_LISTED_TOOLS // 2 + 1)])
    found = await listed(servers, tmp_path, half, half)
    assert len(found.tools) == MAX_LISTED_TOOLS and found.cut == TOO_MANY
    found = await listed(servers, tmp_path, *[tools("a")] * (MAX_PAGES + 1))
    assert len(found.tools) == MAX_PAGES and found.cut == ENDLESS


async def test_a_list_that_repeats_a_page_ends(servers: McpServers, tmp_path: Path) -> None:
    found = await listed(servers, tmp_path, tools("a"), tools("b"), "again")
    assert [tool.name for tool in found.tools] == ["a", "b"] and found.cut == ENDLESS
    assert "does not end" in check_listing("listing", found).notices[0]


@pytest.mark.parametrize(
    ("wrong", "notice"),
    [
        (5, "number 2 is left out: a name has 1 to 200 characters"),
        ({"name": 7, "inputSchema": SCHEMA}, "number 2 is left out: a name has 1 to 200 characters"),
        ({"name": "a"}, "a is left out: its input schema is not an object"),
        ({"name": "a", "inputSchema": [1]}, "a is left out: its input schema is not an object"),
        (
            {"name": "a", "inputSchema": {"type": "objekt"}},
            "a is left out: its input schema is invalid: type: must be one of object",
        ),
    ],
)
async def test_a_tool_that_the_protocol_forbids_does_not_take_its_list_with_it(
    servers: McpServers, tmp_path: Path, wrong: object, notice: str
) -> None:
    found = check_listing("listing", await listed(servers, tmp_path, [*tools("x"), wrong, *tools("z")]))
    assert [tool.name for tool in found.tools] == ["x", "z"]
    (only,) = found.notices
    assert notice in only


@pytest.mark.parametrize("page", ['{"a": 1}', "5", "null"])
async def test_a_page_that_is_no_list_is_an_error(servers: McpServers, tmp_path: Path, page: str) -> None:
    with pytest.raises(WonderError) as refused:
        await listed(servers, tmp_path, page)
    assert refused.value.fault.message == "Its list of tools is invalid."


async def test_a_list_above_the_size_of_a_message_is_an_error_and_the_next_is_read(
    servers: McpServers, tmp_path: Path
) -> None:
    with pytest.raises(WonderError) as refused:
        await listed(servers, tmp_path, [{"name": "a", "description": "x" * (5 << 20), "inputSchema": {}}])
    assert refused.value.fault.reason is Reason.PAYLOAD_TOO_LARGE
    assert len((await listed(servers, tmp_path, tools("a"))).tools) == 1


async def test_a_server_that_is_not_there_is_an_error(servers: McpServers, tmp_path: Path) -> None:
    for name, reason in (
        ("listing", Reason.TASK_FAILED),
        ("unheard", Reason.TASK_FAILED),
        ("unknown", Reason.FIELD_INVALID),
    ):
        with pytest.raises(WonderError) as refused:
            await servers.tools(name, 60)
        assert refused.value.fault.reason is reason, refused.value.fault
