"""`EventDecoder`: decoding of server-sent events from bytes as they arrive. Pure.

Source: the HTML standard, section 9.2.6. The decoder returns only ``data``: model providers repeat event
names in the data, and use neither ids nor reconnection times.
"""

from __future__ import annotations

import json

import msgspec

from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.tool_arguments import clean_text
from wonder_server.core.content.answer_images import MAX_IMAGES_BYTES
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonValue

MAX_EVENT_BYTES = MAX_IMAGES_BYTES + (2 << 20)
"""Maximum size of an event: the images of an answer in base64, and 2 MiB for all else. A faulty provider
could fill the memory."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventDecoder:
    """A decoder of events that arrive in pieces of any size."""

    __slots__ = ("_data", "_ended_with_cr", "_first", "_pending", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """The pieces of the incomplete line. Joining them at each piece would take quadratic time."""
        self._data: list[bytes] = []
        self._pending = 0
        self._ended_with_cr = False
        self._first = True

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that ``received`` completes.

        Raises a transient MODEL_UNAVAILABLE for an event above `MAX_EVENT_BYTES`.
        """
        if self._ended_with_cr or b"\r" in received:
            received = self._normalize_line_ends(received)
        self._pending += len(received)
        if self._pending > MAX_EVENT_BYTES + len(received):
            raise error(
                Reason.MODEL_UNAVAILABLE,
                f"The model provider sent an event of more than {MAX_EVENT_BYTES} bytes.",
                transient=True,
            )
        if b"\n" not in received:
            self._rest.append(received)
            return []
        if self._rest:
            received = b"".join((*self._rest, received))
        lines = received.split(b"\n")
        last = lines.pop()
        self._rest = [last] if last else []
        events = self._lines(lines)
        self._pending = len(last) + sum(map(len, self._data))
        return events

    def _lines(self, lines: list[bytes]) -> list[bytes]:
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
            elif line == b"data":
                self._data.append(b"")
        return events

    def _normalize_line_ends(self, received: bytes) -> bytes:
        """Return ``received`` with LF in place of CR LF and CR.

        A CR at the end ends the line immediately; an LF at the start of the next piece is then ignored.
        """
        if self._ended_with_cr:
            received = received.removeprefix(b"\n")
        self._ended_with_cr = received.endswith(b"\r")
        return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_data(data: bytes) -> JsonValue:
    """Return an event's data as JSON. Raises a transient MODEL_UNAVAILABLE if it is not JSON.

    Lone surrogates, which JSON can contain and UTF-8 cannot, become U+FFFD.
    """
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return _clean(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as problem:
        raise WonderError(provider_errors.UNREADABLE) from problem


def _clean(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(name): _clean(item) for name, item in value.items()}
    return value
