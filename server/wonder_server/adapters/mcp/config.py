"""The operator's configuration of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping

from wonder_server.core.frozen import Value


class ServerConfig(Value, frozen=True, kw_only=True):
    """A server in the operator's configuration: ``command`` starts it here, or ``url`` is its address."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
