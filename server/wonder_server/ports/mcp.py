"""Tools of MCP servers (Model Context Protocol)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value

McpProgressCallback = Callable[[str, float | None], None]
"""Takes a message for people and the part that is done, from 0 to 1, if it is known."""


class McpCall(Value, frozen=True, kw_only=True):
    """One call of a tool. Exactly one of ``server``, a name that the operator gave, and ``url`` is set.

    ``headers`` go with a ``url``. ``key`` is the idempotency key, for servers that want to know it.
    ``timeout_s`` bounds all of it: starting a process, beginning a session, the call itself.
    """

    tool: str
    arguments: Mapping[str, Any]
    server: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    key: str = ""
    timeout_s: float = 30


class McpResult(Value, frozen=True, kw_only=True):
    """What the tool said. ``content``: MCP's content blocks as JSON; ``structured``: None if it gave none."""

    content: list[Any]
    structured: Any = None
    is_error: bool = False


class Mcp(Protocol):
    """One way of reaching MCP servers.

    ``call`` makes exactly one call. It raises `WonderError`: FIELD_INVALID for a server that the operator
    does not name, PERMISSION_DENIED for a ``url`` that the policy does not allow, TASK_FAILED for what the
    server refuses, `NotBegunError` where the server was not reached, TASK_FAILED with ``transient=True``
    where it went away meanwhile, PAYLOAD_TOO_LARGE for an answer that is not read to its end, TIMEOUT for a
    server that does not answer: final before the tool was asked for, ``transient=True`` after. Cancelling
    tells the server to stop.
    """

    async def call(
        self, call: McpCall, policy: NetworkPolicy, progress: McpProgressCallback | None = None
    ) -> McpResult: ...

    async def close(self) -> None: ...
