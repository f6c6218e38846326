"""A model provider on loopback with little CPU of its own: OpenAI chat and Anthropic messages, streamed.

The model's name selects the answer: ``50`` sends fifty tokens as fast as possible, each in a separate write;
``50@20`` pauses 20 ms before each. A request of the standard library for facts to remember gets an empty
list. Frames are encoded once. Like all measured servers it writes its address into ``ADDRESS``. It implements
only the HTTP that its two clients use.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
EXTRACTION = b"You keep the long-term memory of an assistant."
"""The beginning of the instructions for memory extraction (`wonder_server/std/extract_memory.yaml`)."""
NO_FACTS = "0"
"""The model whose answer is an empty list."""


class ProviderProtocol(asyncio.Protocol):
    """One connection with sequential requests."""

    def __init__(self) -> None:
        self._received = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        size = _length(head) if found else 0
        if found and len(rest) >= size:
            self._received = rest[size:]
            body = rest[:size]
            model = NO_FACTS if EXTRACTION in body else json.loads(body)["model"]
            self._answer(head.split(b" ", 2)[1], model)

    def _answer(self, path: bytes, model: str) -> None:
        count, _, delay_ms = model.partition("@")
        frames = iter((HEAD, *_frames(path.decode(), int(count)), END))
        pause = int(delay_ms or 0) / 1000
        again: Callable[[], object] = lambda: self._next(frames, pause)  # noqa: E731
        self._again = again
        again()

    def _next(self, frames: Iterator[bytes], pause: float) -> None:
        frame = next(frames, None)
        if frame is None or self._transport.is_closing():
            return
        self._transport.write(frame)
        if pause and frame not in (HEAD, END):
            self._loop.call_later(pause, self._again)
        else:
            self._loop.call_soon(self._again)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise ValueError("the request has no content-length")


@cache
def _frames(path: str, count: int) -> tuple[bytes, ...]:
    """Return the events of the answer, each as a chunk of the body."""
    speak = _anthropic if path.endswith("/messages") else _openai
    return tuple(b"%x\r\n%b\r\n" % (len(event), event) for event in speak(count))


def _openai(count: int) -> list[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "loopback"}

    def event(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({**base, "choices": [choice], **more}).encode() + b"\n\n"

    usage = {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": count + 10}
    return [
        event({"role": "assistant", "content": ""}),
        *(event({"content": word}) for word in _words(count)),
        event({}, "stop"),
        b"data: " + json.dumps({**base, "choices": [], "usage": usage}).encode() + b"\n\n",
        b"data: [DONE]\n\n",
    ]


def _anthropic(count: int) -> list[bytes]:
    def event(kind: str, **more: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "loopback", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1},
    }  # fmt: skip
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
            for word in _words(count)
        ),
        event("content_block_stop", index=0),
        event("message_delta", delta=stop, usage={"output_tokens": count}),
        event("message_stop"),
    ]


def _words(count: int) -> list[str]:
    return [f"word{number} " for number in range(count)] or ["[]"]


async def main(folder: Path) -> None:
    server = await asyncio.get_running_loop().create_server(ProviderProtocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fresh = folder / "ADDRESS.new"
    fresh.write_text(f"http://127.0.0.1:{port}\n")
    fresh.replace(folder / "ADDRESS")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
