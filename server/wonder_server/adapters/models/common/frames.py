"""The protocol between the server and the LiteLLM helper process. Pure.

A frame is a length of four bytes (big-endian) and a JSON object. Frames to the helper::

    {"endpoints": {provider: {…}}, "proxy_port": n}                   first, once
    {"call": id, "format": …, "provider": …, "model": …, "request": {…}, "timeout_ms": …}
    {"cancel": id}

Frames to the server::

    {"ready": true}                             litellm is imported
    {"id": id, "text": "…"}                     a piece of the answer
    {"id": id, "reasoning": "…"}                a piece of the reasoning
    {"id": id, "arguments": {…}}                a piece of a tool call: the fields of `ArgumentsDelta`
    {"id": id}                                  a sign of life
    {"id": id, "counted": {…}, "letters": n}    the usage so far
    {"id": id, "result": {…}, "images": […]}    the answer: the last frame of a call
    {"id": id, "fault": {…}}                    the error: the last frame of a call
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from msgspec import structs

from wonder_server.core.content.answer_images import AnswerImage
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.ports.model import ArgumentsDelta, Finished, ReasoningDelta, TextDelta

_LENGTH = 4


def encode(message: JsonDict) -> bytes:
    """Return a message as one frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return len(body).to_bytes(_LENGTH, "big") + body


class FrameBuffer:
    """A decoder of frames that arrive in pieces of any size."""

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[JsonDict]:
        """Yield the messages that ``data`` completes."""
        self._received += data
        start = 0
        while len(self._received) - start >= _LENGTH:
            body = start + _LENGTH
            end = body + int.from_bytes(self._received[start:body], "big")
            if len(self._received) < end:
                break
            yield json.loads(self._received[body:end])
            start = end
        del self._received[:start]


def piece_to_json(piece: TextDelta | ReasoningDelta | ArgumentsDelta) -> JsonDict:
    """Return the fields of a piece's frame."""
    if isinstance(piece, ArgumentsDelta):
        return {"arguments": structs.asdict(piece)}
    return {"text" if isinstance(piece, TextDelta) else "reasoning": piece.text}


def aside_from_json(message: JsonDict) -> ReasoningDelta | ArgumentsDelta:
    """Return the piece of a frame with ``reasoning`` or ``arguments``."""
    if "reasoning" in message:
        return ReasoningDelta(message["reasoning"])
    return ArgumentsDelta(**message["arguments"])


def finished_to_json(result: ModelResult, images: Sequence[AnswerImage]) -> JsonDict:
    """Return the fields of the frame with the answer."""
    return {"result": asdict(result), "images": [structs.asdict(image) for image in images]}


def finished_from_json(message: JsonDict) -> Finished:
    """Return the answer of a frame."""
    images = tuple(AnswerImage(**image) for image in message["images"])
    return Finished(_result_from_json(message["result"]), images=images)


def _result_from_json(value: JsonDict) -> ModelResult:
    calls = tuple(ToolCall(**call) for call in value["tool_calls"])
    return ModelResult(**{**value, "tool_calls": calls, "usage": Usage(**value["usage"])})


def fault_to_json(fault: Fault) -> JsonDict:
    return asdict(fault)


def fault_from_json(value: JsonDict) -> Fault:
    return Fault(**{**value, "reason": Reason(value["reason"])})
