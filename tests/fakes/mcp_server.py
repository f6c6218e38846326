"""An MCP server for tests.

``python mcp_server.py FILE`` uses stdio and writes a line for each event to FILE. `made` returns the same
server for HTTP.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

KEY = "wonder.v1/idempotency-key"


def made(note: Callable[[str], None]) -> MCPServer:
    """Return the server. It calls ``note`` with each event."""
    server = MCPServer("fake", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        note("add")
        return {"sum": a + b}

    @server.tool()
    def say(text: str, context: Context) -> str:  # type: ignore[type-arg]
        """Return the text and the call's idempotency key."""
        note(f"say {dict(context.request_context.meta or {}).get(KEY)}")
        return text

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("the disk is full")

    @server.tool()
    async def work(context: Context) -> str:  # type: ignore[type-arg]
        """Report progress."""
        await context.report_progress(1, 4, "begun")
        await context.report_progress(9, 4, "nearly")
        return "done"

    @server.tool()
    async def hang() -> str:
        """Never return."""
        note("hanging")
        try:
            await asyncio.Event().wait()
        finally:
            note("stopped")
        return ""

    @server.tool()
    def variable(name: str) -> str:
        """Return a variable of the process's environment."""
        return os.environ.get(name, "")

    @server.tool()
    def die() -> str:
        """End the process."""
        note("dying")
        os._exit(1)

    return server


if __name__ == "__main__":
    file = Path(sys.argv[1])

    def write(line: str) -> None:
        with file.open("a") as out:
            out.write(line + "\n")

    write(f"started {os.getpid()}")
    made(write).run("stdio")
    write("ended")
