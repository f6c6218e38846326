"""Server-sent events, decoded from bytes as they arrive. Pure.

Source: the HTML standard, section 9.2.6; only what model providers use (``event`` and ``data``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wonder_server.core.errors import Reason, error

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""No provider sends an event this long; without a bound a broken one would fill the memory."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name (empty where none was given) and its data."""

    name: str
    data: str


class EventDecoder:
    """Feed it bytes, cut anywhere, and it gives back the events that became whole."""

    __slots__ = ("_data", "_line", "_name", "_size")

    def __init__(self) -> None:
        self._line = b""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, received: bytes) -> Iterator[Event]:
        """Raises MODEL_UNAVAILABLE when an event outgrows `MAX_EVENT_BYTES`."""
        *lines, self._line = (self._line + received).split(b"\n")
        self._size += len(received)
        if self._size > MAX_EVENT_BYTES:
            raise error(
                Reason.MODEL_UNAVAILABLE, "The model provider sent an event without end.", transient=True
            )
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line:
                self._field(line)
            elif event := self._take():
                yield event

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value

    def _take(self) -> Event | None:
        event = Event(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._size = "", [], len(self._line)
        return event
