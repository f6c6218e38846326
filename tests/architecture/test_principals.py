"""Principals are arguments: only `rpc` reads context variables, and only authentication makes callers."""

from __future__ import annotations

from tests.architecture.sources import SERVER, files, outline, text

CONTEXT_VARIABLES = ("contextvars", "structlog.contextvars")

EXEMPT = {
    # Merges the trace that rpc binds into each log line.
    "logs.py",
    # The MCP package writes a request in the task of its caller and offers no other way to know the call.
    "adapters/mcp/message_filter.py",
}


def test_only_rpc_uses_context_variables() -> None:
    users = {
        str(path.relative_to(SERVER))
        for path in files(SERVER)
        if any(found.name.startswith(CONTEXT_VARIABLES) for found in outline(path).imports)
        or "contextvars." in text(path)
    }
    assert {user for user in users if not user.startswith("rpc/")} == EXEMPT


def test_only_authentication_makes_principals_of_tokens() -> None:
    makers = {str(path.relative_to(SERVER)) for path in files(SERVER) if "PrincipalKind.TOKEN" in text(path)}
    assert makers == {"core/identity.py", "rpc/server/authorization.py"}
