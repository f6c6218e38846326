"""Tools of MCP servers (Model Context Protocol)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.tool_sources import ToolListing
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonObject, JsonValue

McpProgressCallback = Callable[[str, float | None], None]
"""Receives a message for people and the completed part, from 0 to 1 or None."""


class McpCall(Value, frozen=True, kw_only=True):
    """One call of a tool. Exactly one of ``server``, a name that the operator configured, and ``url`` is
    set.

    ``headers`` are sent to the ``url``. ``key`` is the idempotency key, for servers that use it.
    ``timeout_s`` limits the total time: the start of a process, the start of a session and the call.
    """

    tool: str
    arguments: JsonObject
    server: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    key: str = ""
    timeout_s: float = 30


class McpResult(Value, frozen=True, kw_only=True):
    """The result of a tool. ``content`` are MCP's content blocks as JSON; ``structured`` is None if there is
    none."""

    content: list[JsonValue]
    structured: JsonValue = None
    is_error: bool = False


class Mcp(Protocol):
    """A way to call MCP servers.

    ``call`` makes exactly one call. It raises `WonderError`:

    - FIELD_INVALID for a server that the operator did not configure
    - PERMISSION_DENIED for a ``url`` that the policy does not allow
    - TASK_FAILED if the server rejects the call, with ``transient=True`` if the connection was lost during
      the call
    - `NotStartedError` if the server was not reached
    - PAYLOAD_TOO_LARGE for a result above the limit
    - TIMEOUT if the server does not answer, with ``transient=True`` after the tool was requested

    Cancelling sends the server a cancellation.

    ``tools`` returns the tools of a server that the operator configured, as the server lists them: at most
    `MAX_LISTED_TOOLS`. It raises the same errors.
    """

    async def call(
        self, call: McpCall, policy: NetworkPolicy, progress: McpProgressCallback | None = None
    ) -> McpResult: ...

    async def tools(self, server: str, timeout_s: float) -> ToolListing: ...

    async def close(self) -> None: ...
