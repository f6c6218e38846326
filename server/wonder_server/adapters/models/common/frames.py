"""What the server and the LiteLLM helper process say to each other. Pure.

A frame is four bytes of length (big-endian) and a JSON object. To the helper::

    {"endpoints": {provider: {…}}, "allow_remote": bool}              first, once
    {"call": id, "format": …, "provider": …, "model": …, "request": {…}, "timeout_ms": …}
    {"cancel": id}

and back::

    {"ready": true}                                                   after litellm's import
    {"id": id, "text": "…"}     a piece of the answer
    {"id": id}                  something arrived that is not text
    {"id": id, "counted": {…}, "letters": n}    what was used so far
    {"id": id, "result": {…}}   or {"id": id, "fault": {…}}: the last word on a call
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.model import ModelResult, ToolCall, Usage

_LENGTH = 4


def encode(message: dict[str, Any]) -> bytes:
    """One frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return len(body).to_bytes(_LENGTH, "big") + body


class FrameBuffer:
    """Feed it bytes, cut anywhere, and it gives back the messages that became whole."""

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
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


def result_to_json(result: ModelResult) -> dict[str, Any]:
    return asdict(result)


def result_from_json(value: dict[str, Any]) -> ModelResult:
    calls = tuple(ToolCall(**call) for call in value["tool_calls"])
    return ModelResult(**{**value, "tool_calls": calls, "usage": Usage(**value["usage"])})


def fault_to_json(fault: Fault) -> dict[str, Any]:
    return asdict(fault)


def fault_from_json(value: dict[str, Any]) -> Fault:
    return Fault(**{**value, "reason": Reason(value["reason"])})
