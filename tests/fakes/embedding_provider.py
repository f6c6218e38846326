"""A provider of embeddings in OpenAI's format, on this machine."""

from __future__ import annotations

import asyncio
import json
from array import array

from wonder_server.adapters.embedders.hashing import HashingEmbedder


class EmbeddingProvider:
    """A server that answers ``POST …/embeddings`` with the built-in embedder's vectors, of length 3.

    With a ``status`` other than 200 it refuses the requests.
    """

    def __init__(self) -> None:
        self.status = 200
        self.batches: list[list[str]] = []
        self._inner = HashingEmbedder()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split()[0])
            texts = json.loads(await reader.readexactly(length))["input"]
            texts = [texts] if isinstance(texts, str) else texts
            self.batches.append(texts)
            body = json.dumps(await self._answer(texts)).encode()
            writer.write(
                f"HTTP/1.1 {self.status} X\r\ncontent-type: application/json\r\nconnection: close\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, texts: list[str]) -> object:
        if self.status != 200:
            return {"error": {"message": "Overloaded just now.", "type": "server_error"}}
        vectors = [array("f", vector) for vector in await self._inner.embed(texts)]
        data = [
            {"object": "embedding", "index": index, "embedding": [3 * value for value in vector]}
            for index, vector in enumerate(vectors)
        ]
        return {
            "object": "list",
            "model": "small",
            # In another order than in the request, as the format allows.
            "data": data[::-1],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
