"""The floor: a grpc.aio server that knows nothing and only sends bytes.

``/bare/Stream`` takes one request, ``{"size": 90, "count": 50, "delay_ms": 20}``, and sends ``count``
messages of ``size`` bytes, pausing between them; then, with ``"hold": true``, it stays open.
``/bare/Unary`` answers with what it was sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from grpc import aio


async def unary(request: bytes, _context: Any) -> bytes:
    return request


async def stream(requests: AsyncIterator[bytes], context: Any) -> None:
    async for request in requests:
        wanted = json.loads(request)
        message, pause = b"x" * wanted["size"], wanted.get("delay_ms", 0) / 1000
        for _ in range(wanted["count"]):
            await context.write(message)
            if pause:
                await asyncio.sleep(pause)
        if wanted.get("hold"):
            await asyncio.Event().wait()


async def main(folder: Path) -> None:
    server = aio.server()
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    fresh = folder / "ADDRESS.new"
    fresh.write_text(f"127.0.0.1:{port}\n")
    fresh.replace(folder / "ADDRESS")
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
