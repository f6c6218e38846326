"""An MCP server whose tools a file describes: ``python listing_mcp_server.py FILE`` uses stdio.

FILE has the pages of the list, one JSON value per line (``again`` last: the page before it never ends); the
server reads it anew for each request, so a test changes the tools while the server runs. Without the file
the server ends. A tool answers with its own name and arguments. The call of a tool ``change`` writes the
text of its argument ``pages`` to FILE first. It imports only the standard library, so that it starts
quickly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1] if len(sys.argv) > 1 else "pages")


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    given = message.get("params") or {}
    if message["method"] == "initialize":
        about = {"name": "listing", "version": "1"}
        version = given["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if message["method"] == "tools/list":
        pages = FILE.read_text(encoding="utf-8").splitlines()
        number = int(given.get("cursor") or 0)
        following = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
        if pages[-1] == "again" and number + 2 == len(pages):
            following = {"nextCursor": "1"}
        page: dict[str, Any] = {"tools": json.loads(pages[number]), **following}
        return page
    if given["name"] == "change":
        FILE.write_text(given["arguments"]["pages"], encoding="utf-8")
    said = f"{given['name']} {json.dumps(given.get('arguments'), sort_keys=True)}"
    return {"content": [{"type": "text", "text": said}], "isError": False}


def main() -> None:
    """Serve requests until the input or the file ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if not FILE.exists():
            sys.exit(1)
        if message["method"] in ("initialize", "tools/list", "tools/call"):
            sent: dict[str, Any] = {"result": answer(message)}
        else:
            sent = {"error": {"code": -32601, "message": "Method not found"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **sent}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
