"""The helper process of embedders: ``python -m wonder_server.adapters.embedders.worker FD``.

It talks to the server over the socket that it inherits as file descriptor ``FD``, in the frames of
`adapters.models.common.frames`. The first message is the configuration of `HelperEmbedder`; the helper
answers with ``{"ready": true}`` or ``{"fault": …}``. Each further message ``{"id", "texts"}`` gets the answer
``{"id", "vectors"}`` (base64 of unit-length float32) or ``{"id", "fault"}``. The helper ends when the socket
closes.
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

from wonder_server.adapters.egress.confine import confine
from wonder_server.adapters.models.common import frames, provider_errors
from wonder_server.adapters.models.litellm.errors import fault_from_exception
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]


def _by_litellm(hello: JsonDict) -> Embed:
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    options = {name: hello[name] for name in ("api_key", "api_base") if hello[name]}
    if "api_base" in options:
        # Self-hosted servers often need no key, but clients insist on sending one.
        options.setdefault("api_key", "none")
    options |= hello["options"]
    if hello["headers"]:
        options["extra_headers"] = hello["headers"]
    if hello["ask_dimensions"]:
        options["dimensions"] = hello["ask_dimensions"]

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        # Providers reject an empty text.
        answer = await litellm.aembedding(
            model=hello["model"],
            input=[text.strip() or "." for text in texts],
            encoding_format="float",
            num_retries=0,
            max_retries=0,
            timeout=50,
            **options,
        )
        rows = sorted(answer.data, key=lambda row: row["index"])
        return [row["embedding"] for row in rows]

    return embed


def _by_sentence_transformers(hello: JsonDict) -> Embed:
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
    """Execute calls and write their answers to ``writer``."""

    def __init__(self, writer: asyncio.StreamWriter, hello: JsonDict, embed: Embed) -> None:
        self._writer, self._hello, self._embed = writer, hello, embed
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, message: JsonDict) -> None:
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: JsonDict) -> None:
        try:
            vectors = [_normalize(values) for values in await self._embed(message["texts"])]
            answer: JsonDict = {"id": message["id"], "vectors": vectors}
        except Exception as failure:  # LiteLLM passes on the exceptions of its providers' clients.
            answer = {"id": message["id"], "fault": _fault(failure, self._hello)}
        self._writer.write(frames.encode(answer))
        await self._writer.drain()


def _fault(failure: Exception, hello: JsonDict) -> JsonDict:
    if hello["kind"] == "litellm":
        fault = fault_from_exception(failure, hello["model"].partition("/")[0])
    else:
        fault = _local_fault(failure, hello["model"])
    return frames.fault_to_json(provider_errors.redacted(fault, hello["secrets"]))


def _local_fault(failure: Exception, folder: str) -> Fault:
    if isinstance(failure, ImportError):
        cause = "sentence-transformers is not installed. Run: pip install sentence-transformers"
    else:
        cause = provider_errors.plain_text(str(failure)) or type(failure).__name__
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=provider_errors.as_sentence(f"The local embedder {folder} cannot be used: {cause}"),
        metadata={"kind": "local"},
    )


async def serve(connection: socket.socket) -> None:
    """Serve the other end of ``connection`` until it closes."""
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
    # The server has ended: exit without waiting for threads of the libraries.
    os._exit(0)


if __name__ == "__main__":
    main()
