"""An MCP server over standard input and output: the stock of a pantry, kept in memory.

Plain Python without a library, to read and to copy. Each line is one JSON-RPC message. Wonder
starts the process, since `wonder.toml` names it.
"""

import json
import sys

STOCK = {"tea": 3, "rice": 2, "salt": 1}

TOOLS = [
    {
        "name": "list_stock",
        "description": "List what is in the pantry, with the number of packets.",
        "inputSchema": {"type": "object", "properties": {}},
    },
    {
        "name": "take",
        "description": "Take packets of one thing out of the pantry.",
        "inputSchema": {
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            "required": ["item"],
        },
    },
]


def call(name: str, arguments: dict) -> dict:
    """Return the result of a tool. A text for people and models, and the same as data."""
    if name == "list_stock":
        return result(dict(STOCK))
    if name != "take":
        return failure(f"There is no tool {name!r}.")
    item, count = arguments["item"], arguments.get("count", 1)
    if STOCK.get(item, 0) < count:
        return failure(f"The pantry has {STOCK.get(item, 0)} of {item!r}.")
    STOCK[item] -= count
    return result({"taken": item, "count": count, "left": STOCK[item]})


def result(data: dict) -> dict:
    return {"content": [{"type": "text", "text": json.dumps(data)}], "structuredContent": data}


def failure(text: str) -> dict:
    """Return an error of a tool. The model reads it and can try something else."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def answer(method: str, params: dict) -> dict | None:
    """Return the result of a request; None for a method that this server does not have."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "pantry", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue  # A notification gets no answer.
    found = answer(message.get("method", ""), message.get("params") or {})
    outcome = (
        {"error": {"code": -32601, "message": "Unknown method."}} if found is None else {"result": found}
    )
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
