"""The helper process of embedders: ``python -m wonder_server.adapters.embedders.worker FD``.

It talks to the server over the socket that it inherits as file descriptor ``FD``, in the frames of
`adapters.models.frames`: first what `HelperEmbedder` says of itself, answered with ``{"ready": true}`` or
``{"fault": …}``; then ``{"id", "texts"}``, answered with ``{"id", "vectors"}`` (base64 of unit-length
float32) or ``{"id", "fault"}``. It ends when the socket does.
"""

from __future__ import annotations

import asyncio
import base64
import math
import os
import socket
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from wonder_server.adapters.egress.confine import confine
from wonder_server.adapters.models.common import frames, provider_errors
from wonder_server.adapters.models.litellm.errors import fault_from_exception
from wonder_server.core.errors import Fault, Reason

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]


def _by_litellm(hello: dict[str, Any]) -> Embed:
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    where = {name: hello[name] for name in ("api_key", "api_base") if hello[name]}
    if "api_base" in where:
        # A server of one's own often asks for no key, but clients insist on sending one.
        where.setdefault("api_key", "none")
    where |= hello["options"]
    if hello["headers"]:
        where["extra_headers"] = hello["headers"]
    if hello["ask_dimensions"]:
        where["dimensions"] = hello["ask_dimensions"]

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        # A provider refuses an empty text.
        answer = await litellm.aembedding(
            model=hello["model"],
            input=[text.strip() or "." for text in texts],
            encoding_format="float",
            num_retries=0,
            max_retries=0,
            timeout=50,
            **where,
        )
        rows = sorted(answer.data, key=lambda row: row["index"])
        return [row["embedding"] for row in rows]

    return embed


def _by_sentence_transformers(hello: dict[str, Any]) -> Embed:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(hello["model"], local_files_only=True)

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = (await asyncio.to_thread(model.encode, list(texts))).tolist()
        return found

    return embed


def _normalize(values: Sequence[float]) -> str:
    length = math.sqrt(math.fsum(value * value for value in values))
    packed = array("f", [value / length for value in values] if length > 0.0 else values)
    if sys.byteorder == "big":
        packed.byteswap()
    return base64.b64encode(packed.tobytes()).decode()


class _Worker:
    """Makes calls and reports on them through ``writer``."""

    def __init__(self, writer: asyncio.StreamWriter, hello: dict[str, Any], embed: Embed) -> None:
        self._writer, self._hello, self._embed = writer, hello, embed
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, message: dict[str, Any]) -> None:
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            vectors = [_normalize(values) for values in await self._embed(message["texts"])]
            answer: dict[str, Any] = {"id": message["id"], "vectors": vectors}
        except Exception as failure:  # LiteLLM raises whatever its providers' clients do.
            answer = {"id": message["id"], "fault": _fault(failure, self._hello)}
        self._writer.write(frames.encode(answer))
        await self._writer.drain()


def _fault(failure: Exception, hello: dict[str, Any]) -> dict[str, Any]:
    if hello["kind"] == "litellm":
        fault = fault_from_exception(failure, hello["model"].partition("/")[0])
    else:
        fault = _local_fault(failure, hello["model"])
    return frames.fault_to_json(provider_errors.redacted(fault, hello["secrets"]))


def _local_fault(failure: Exception, folder: str) -> Fault:
    if isinstance(failure, ImportError):
        why = "the package sentence-transformers is not installed: pip install sentence-transformers"
    else:
        why = provider_errors.plain_text(str(failure)) or type(failure).__name__
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=provider_errors.as_sentence(f"The local embedder {folder} cannot be used: {why}"),
        metadata={"kind": "local"},
    )


async def serve(connection: socket.socket) -> None:
    """Serves the other end of ``connection`` until it closes."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 26)
    buffer = frames.FrameBuffer()
    worker: _Worker | None = None
    while data := await reader.read(1 << 16):
        for message in buffer.feed(data):
            if worker is not None:
                worker.handle(message)
                continue
            confine(message["proxy_port"])
            make = _by_litellm if message["kind"] == "litellm" else _by_sentence_transformers
            try:
                worker = _Worker(writer, message, make(message))
            except Exception as failure:
                writer.write(frames.encode({"fault": _fault(failure, message)}))
                await writer.drain()
                return
            writer.write(frames.encode({"ready": True}))


def main() -> None:
    with suppress(KeyboardInterrupt, ConnectionError):
        asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
    # The server is gone: the libraries' threads are not worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    main()
