"""Parts of the specs of tools and of personas: who approves calls, and servers whose tools a persona has."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGate:
    """The gate of a tool's calls that wait for approval.

    Only ``user_ids`` may answer, if it has any. After ``expire_after_ms`` the call counts as rejected; 0 for
    never.
    """

    user_ids: tuple[str, ...] = ()
    expire_after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSource:
    """An MCP server whose tools a persona has. ``include`` and ``exclude`` are patterns of tool names, such
    as ``read_*``; an empty ``include`` takes all. ``timeout_ms`` limits each call. ``approval`` and
    ``approval_gate`` are those of each of the tools."""

    mcp: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    is_async: bool = False
    timeout_ms: int = 60_000
    approval: str = ""
    approval_gate: ApprovalGate = field(default_factory=ApprovalGate)
