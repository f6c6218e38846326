"""The list of a server's tools. Imported together with `session`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, ListToolsRequest, PaginatedRequestParams
from pydantic import RootModel, TypeAdapter

from wonder_server.adapters.mcp.message_filter import CURRENT_CALL, PendingCall, unreadable
from wonder_server.core.definitions.tool_sources import MAX_LISTED_TOOLS, TOO_MANY, ListedTool, ToolListing
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.printable import quoted

CONNECTION_LOST: Final = error(Reason.TASK_FAILED, "The MCP server ended during the call.", transient=True)

MAX_PAGES: Final = 200
"""Maximum number of pages of a list. A server with endless pages offers what these have."""

ENDLESS: Final = (
    f"The server's list of tools does not end: it repeats a page, or has more than {MAX_PAGES} pages. What "
    "follows is left out."
)

# The package checks a page by the protocol's schema first, and refuses all of it for one wrong field of one
# tool. So `MessageFilter` takes the tools out of the page before.
_PAGE: Final[TypeAdapter[RootModel[dict[str, Any]]]] = TypeAdapter(RootModel[dict[str, Any]])


async def list_tools(
    client: Client, server: str, deadline: float, pending: PendingCall
) -> ToolListing | WonderError:
    """Return the tools of a server, page by page. An error is returned, as for calls."""
    pending.lists = True
    token = CURRENT_CALL.set(pending)
    try:
        async with asyncio.timeout_at(deadline):
            return await _pages(client, pending)
    except TimeoutError:
        return error(Reason.TIMEOUT, "It does not answer the request of its tools in time.")
    except MCPError as problem:
        if problem.code == CONNECTION_CLOSED:
            return CONNECTION_LOST
        if problem.code == PARSE_ERROR:
            return unreadable(server)
        return error(Reason.TASK_FAILED, f"It rejects the request of its tools: {quoted(problem.message)}")
    except Exception:  # The package does not document its exceptions for invalid answers.
        return error(Reason.TASK_FAILED, "Its list of tools is invalid.")
    finally:
        CURRENT_CALL.reset(token)


async def _pages(client: Client, pending: PendingCall) -> ToolListing:
    tools: list[ListedTool] = []
    cursor: str | None = None
    seen = set[str]()
    for _ in range(MAX_PAGES):
        request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
        page = (await client.session.send_request(request, _PAGE)).root
        tools += [_tool(each) for each in pending.listed[: MAX_LISTED_TOOLS + 1]]
        if len(tools) > MAX_LISTED_TOOLS:
            return ToolListing(tools=tuple(tools[:MAX_LISTED_TOOLS]), cut=TOO_MANY)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return ToolListing(tools=tuple(tools))
        if cursor in seen:
            return ToolListing(tools=tuple(tools), cut=ENDLESS)
        seen.add(cursor)
    return ToolListing(tools=tuple(tools), cut=ENDLESS)


def _tool(given: object) -> ListedTool:
    """Return a tool of a page; fields of a wrong type are as if left out."""
    entry = given if isinstance(given, dict) else {}
    name, description = entry.get("name"), entry.get("description")
    return ListedTool(
        name=name if isinstance(name, str) else "",
        description=description if isinstance(description, str) else "",
        input_schema=entry.get("inputSchema"),
    )
