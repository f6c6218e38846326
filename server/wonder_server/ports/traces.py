"""Port: spans, the finished pieces of work of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from wonder_server.core.frozen import Value


class Span(Value, frozen=True, kw_only=True):
    """A finished piece of work. Times are in milliseconds since 1970 UTC.

    ``trace_id`` has 32 hexadecimal digits, ``span_id`` and ``parent_id`` 16; ``parent_id`` is "" for the
    first span of a trace. ``error`` is the reason of the fault, never its message; "" without one.
    ``is_client``: the work was done elsewhere, such as by a provider.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]
    error: str = ""
    is_client: bool = False


class Spans(Protocol):
    """Receives spans."""

    def wants(self, trace_id: str) -> bool:
        """Return True if the trace is sampled. All servers with the same share decide the same."""
        ...

    def add(self, span: Span) -> None:
        """Queue a span and return at once. It is dropped if the queue is full."""
        ...
