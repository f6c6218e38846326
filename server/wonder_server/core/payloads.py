"""Checks of JSON payloads of unknown shape: tool input, workflow context, model and tool output.

They travel as ``google.protobuf.Struct``: nested deeper than 33 levels, the server's own answer could
not be serialised, and integers beyond 2^53 would come out as other numbers. So both are refused where
a payload comes in, with the place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from wonder_server.core.errors import Fault, Reason

MAX_DEPTH: Final = 30
MAX_INTEGER: Final = 2**53
MAX_BYTES: Final = 4 * 1024 * 1024


def check(value: Any, *, field: str = "", max_bytes: int = MAX_BYTES) -> Fault | None:
    """The first thing that makes ``value`` no payload, or None.

    ``field`` is the path of the payload itself, before which the place inside it is put. Size is
    that of the texts in UTF-8 and the rest estimated: within a few percent of the JSON text.
    Faults: PAYLOAD_TOO_DEEP, PAYLOAD_TOO_LARGE, NUMBER_OUT_OF_RANGE, INPUT_INVALID.
    """
    walk = _Walk(max_bytes)
    problem = walk.visit(value, 0)
    if problem is None:
        return None
    reason, message = problem
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(walk.trail))
    place = (field + path).removeprefix(".")
    return Fault(reason=reason, message=message, field=place[:500])


Problem = tuple[Reason, str]


class _Walk:
    """One walk over a payload; ``trail`` is the place of the problem, innermost step first."""

    __slots__ = ("_left", "_max", "trail")

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._max = max_bytes
        self.trail: list[str | int] = []

    def visit(self, value: Any, depth: int) -> Problem | None:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is bool or value is None:
            return self._spend(5)
        if kind is int:
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                return Reason.NUMBER_OUT_OF_RANGE, "integers must lie within ±2^53: send larger ones as text"
            return self._spend(8)
        if kind is float:
            if not math.isfinite(value):
                return Reason.NUMBER_OUT_OF_RANGE, "JSON has no infinite numbers and no NaN"
            return self._spend(8)
        if isinstance(value, Mapping):
            return self._enter(depth) or self._members(value, depth + 1)
        if isinstance(value, (list, tuple)):
            return self._enter(depth) or self._items(value, depth + 1)
        return Reason.INPUT_INVALID, "only JSON values are allowed"

    def _members(self, value: Mapping[Any, Any], depth: int) -> Problem | None:
        for key, member in value.items():
            if not isinstance(key, str):
                return Reason.INPUT_INVALID, "the keys of an object must be texts"
            problem = self._text(key) or self.visit(member, depth)
            if problem is not None:
                self.trail.append(key)
                return problem
        return None

    def _items(self, value: list[Any] | tuple[Any, ...], depth: int) -> Problem | None:
        for index, item in enumerate(value):
            problem = self.visit(item, depth)
            if problem is not None:
                self.trail.append(index)
                return problem
        return None

    def _enter(self, depth: int) -> Problem | None:
        if depth >= MAX_DEPTH:
            return Reason.PAYLOAD_TOO_DEEP, f"a payload may be nested at most {MAX_DEPTH} levels deep"
        return self._spend(2)

    def _text(self, text: str) -> Problem | None:
        if text.isascii():
            return self._spend(len(text) + 3)
        try:
            return self._spend(len(text.encode()) + 3)
        except UnicodeEncodeError:
            return Reason.INPUT_INVALID, "the text holds half a character (a lone surrogate)"

    def _spend(self, size: int) -> Problem | None:
        self._left -= size
        if self._left < 0:
            return Reason.PAYLOAD_TOO_LARGE, f"a payload may have at most {self._max} bytes"
        return None
