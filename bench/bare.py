"""The floors: a grpc.aio server that only sends messages.

``/bare/Stream`` takes requests like ``{"size": 90, "count": 50, "delay_ms": 20}``, and for each sends
``count`` messages of about ``size`` bytes with a pause between them, each made and encoded on its own. With
``"hold": true`` the stream then stays open. ``/bare/Unary`` returns its request.

``/bare/Grouped`` takes the same requests. A task makes the texts, as a model does, and puts them into the
queue of the stream; the stream sends what is there in one message, then an empty one at the end. So it groups
messages as Wonder does for its readers.

``/bare/Relay`` takes requests like ``{"url": "http://…/v1/chat/completions", "body": {…}}``, posts them with
aiohttp, and forwards each piece of text, then an empty one. It stores nothing and has no timeouts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import aiohttp
import grpc
from google.protobuf.wrappers_pb2 import StringValue
from grpc import aio

ServerContext: TypeAlias = aio.ServicerContext[bytes, StringValue]


async def unary(request: bytes, _context: ServerContext) -> bytes:
    return request


async def stream(requests: AsyncIterator[bytes], context: ServerContext) -> None:
    async for request in requests:
        wanted = json.loads(request)
        text, pause = "x" * wanted["size"], wanted.get("delay_ms", 0) / 1000
        for _ in range(wanted["count"]):
            await context.write(StringValue(value=text))
            if pause:
                await asyncio.sleep(pause)
        if wanted.get("hold"):
            await asyncio.Event().wait()


async def grouped(requests: AsyncIterator[bytes], context: ServerContext) -> None:
    async for request in requests:
        wanted = json.loads(request)
        texts, arrived = list[str | None](), asyncio.Event()
        speaking = asyncio.create_task(_speak(wanted, texts, arrived))
        while not speaking.done() or texts:
            await arrived.wait()
            arrived.clear()
            found = [text for text in texts if text is not None]
            has_ended = len(found) < len(texts)
            texts.clear()
            if found:
                await context.write(StringValue(value="".join(found)))
            if has_ended:
                await context.write(StringValue())
                break
        await speaking


async def _speak(wanted: dict[str, int], texts: list[str | None], arrived: asyncio.Event) -> None:
    """Put the texts into a stream's queue, then None. Without a pause they arrive together."""
    text, pause = "x" * wanted["size"], wanted.get("delay_ms", 0) / 1000
    for _ in range(wanted["count"]):
        texts.append(text)
        arrived.set()
        if pause:
            await asyncio.sleep(pause)
    texts.append(None)
    arrived.set()


class Relay:
    """A minimal relay: it reads and parses each line and forwards the text."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def stream(self, requests: AsyncIterator[bytes], context: ServerContext) -> None:
        async for request in requests:
            wanted = json.loads(request)
            async with self._session.post(wanted["url"], json=wanted["body"]) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            if text := choice["delta"].get("content"):
                                await context.write(StringValue(value=text))
            await context.write(StringValue())


async def main(folder: Path) -> None:
    server = aio.server()
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.stream_stream_rpc_method_handler(
            stream, response_serializer=StringValue.SerializeToString
        ),
        "Grouped": grpc.stream_stream_rpc_method_handler(
            grouped, response_serializer=StringValue.SerializeToString
        ),
        "Relay": grpc.stream_stream_rpc_method_handler(
            Relay().stream, response_serializer=StringValue.SerializeToString
        ),
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
