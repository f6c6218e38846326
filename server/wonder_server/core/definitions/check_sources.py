"""Validation of the tool sources of a persona."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.definitions.check_gates import check_approval
from wonder_server.core.definitions.check_rules import MAX_TIMEOUT_MS, Rules
from wonder_server.core.definitions.tool_specs import ToolSource

MAX_SOURCES: Final = 20
MAX_PATTERNS: Final = 100
MAX_PATTERN: Final = 200
MAX_SERVER_NAME: Final = 100


def check_sources(sources: Sequence[ToolSource], rules: Rules) -> None:
    """Refuse invalid sources. The name of a server is not checked, as in actions: the operator may add it."""
    rules.count("tool_sources", sources, MAX_SOURCES)
    seen: set[str] = set()
    for index, source in enumerate(sources):
        path = f"tool_sources[{index}]"
        if not 1 <= len(source.mcp) <= MAX_SERVER_NAME:
            rules.refuse(
                f"{path}.mcp",
                f"Name a server of the setting mcp_servers, in 1 to {MAX_SERVER_NAME} characters.",
            )
        if source.mcp in seen:
            rules.refuse(f"{path}.mcp", f"'{source.mcp[:100]}' is a source already. Add its patterns there.")
        seen.add(source.mcp)
        for name, patterns in (("include", source.include), ("exclude", source.exclude)):
            rules.count(f"{path}.{name}", patterns, MAX_PATTERNS)
            for at, pattern in enumerate(patterns):
                if not 1 <= len(pattern) <= MAX_PATTERN:
                    rules.refuse(f"{path}.{name}[{at}]", f"A pattern has 1 to {MAX_PATTERN} characters.")
        rules.number(f"{path}.timeout_ms", source.timeout_ms, 1, MAX_TIMEOUT_MS)
        check_approval(source.approval, source.approval_gate, path, rules)
