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
_LEAST: Final = -MAX_INTEGER
MAX_BYTES: Final = 4 * 1024 * 1024


def check(value: Any, *, field: str = "", max_bytes: int = MAX_BYTES) -> Fault | None:
    """The first thing that makes ``value`` no payload, or None.

    ``field`` is the path of the payload itself, before which the place inside it is put. Size is
    that of the texts in UTF-8 and the rest estimated: within a few percent of the JSON text.
    Faults: PAYLOAD_TOO_DEEP, PAYLOAD_TOO_LARGE, NUMBER_OUT_OF_RANGE, INPUT_INVALID.
    """
    if (type(value) is dict or type(value) is list) and _is_fine(value, max_bytes - 2):
        return None
    try:
        _walk(value, 0, max_bytes)
    except _UnfitError as unfit:
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(unfit.trail)]
        place = (field + "".join(steps)).removeprefix(".")
        message = unfit.message.format(max_bytes=max_bytes)
        return Fault(reason=unfit.reason, message=message, field=place[:500])
    return None


_AROUND: Final = 12
"""The most bytes that a member is counted with, besides the text in it and in its key."""


def _is_fine(value: Any, left: float) -> bool:
    """Whether an object or a list is seen at a glance to be a payload, as nearly all are.

    Goes down level by level, so that depth is counted and nothing recurses, and counts upwards: where it
    says no, `_walk` finds out what is wrong, if anything is.
    """
    depth, level = 0, [value]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return False
        inner: list[Any] = []
        for container in level:
            left -= _AROUND * len(container)
            if left < 0:
                return False
            if type(container) is list:
                for item in container:
                    kind = type(item)
                    if kind is dict or kind is list:
                        inner.append(item)
                    elif kind is str and item.isascii():
                        left -= len(item)
                    elif item is None or kind is bool or (kind is int and _LEAST <= item <= MAX_INTEGER):
                        pass  # What is around it counts enough.
                    else:
                        left -= _bytes_of(item)
                        if left < 0:
                            return False
                continue
            for key, member in container.items():
                if type(key) is not str or not key.isascii():
                    return False
                left -= len(key)
                kind = type(member)
                if kind is str and member.isascii():
                    left -= len(member)
                elif kind is dict or kind is list:
                    inner.append(member)
                elif member is None or kind is bool or (kind is int and _LEAST <= member <= MAX_INTEGER):
                    pass
                else:
                    left -= _bytes_of(member)
                    if left < 0:
                        return False
        if left < 0:
            return False
        level = inner
    return True


def _bytes_of(value: Any) -> float:
    """The most bytes that doubles and texts beyond ASCII are counted with, without what is around them;
    without end for anything that may be wrong."""
    kind = type(value)
    if kind is float:
        return 0 if math.isfinite(value) else math.inf
    if kind is not str:
        return math.inf
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return math.inf


class _UnfitError(Exception):
    """What is wrong; ``trail`` is the place, innermost step first, added to on the way out."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.trail: list[str | int] = []


_TOO_LARGE = "a payload may have at most {max_bytes} bytes"
_TOO_DEEP = f"a payload may be nested at most {MAX_DEPTH} levels deep"


def _walk(value: Any, depth: int, left: int) -> int:
    """How many bytes are left after ``value``; types in the order of how common they are."""
    kind = type(value)
    if kind is str:
        left -= len(value) + 3 if value.isascii() else _encoded_length(value)
    elif kind is dict:
        left = _walk_members(value, depth, left - 2)
    elif kind is list or kind is tuple:
        left = _walk_items(value, depth, left - 2)
    elif kind is bool or value is None:
        left -= 5
    elif kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise _UnfitError(
                Reason.NUMBER_OUT_OF_RANGE, "integers must lie within ±2^53: send larger ones as text"
            )
        left -= 8
    elif kind is float:
        if not math.isfinite(value):
            raise _UnfitError(Reason.NUMBER_OUT_OF_RANGE, "JSON has no infinite numbers and no NaN")
        left -= 8
    elif isinstance(value, Mapping):
        left = _walk_members(value, depth, left - 2)
    else:
        raise _UnfitError(Reason.INPUT_INVALID, "only JSON values are allowed")
    if left < 0:
        raise _UnfitError(Reason.PAYLOAD_TOO_LARGE, _TOO_LARGE)
    return left


def _walk_members(value: Mapping[Any, Any], depth: int, left: int) -> int:
    if depth >= MAX_DEPTH:
        raise _UnfitError(Reason.PAYLOAD_TOO_DEEP, _TOO_DEEP)
    for key, member in value.items():
        if type(key) is not str:
            raise _UnfitError(Reason.INPUT_INVALID, "the keys of an object must be texts")
        left -= len(key) + 4 if key.isascii() else _encoded_length(key)
        # Most are plain texts, which need no call unless they are too much.
        if type(member) is str and len(member) + 3 <= left and member.isascii():
            left -= len(member) + 3
            continue
        try:
            left = _walk(member, depth + 1, left)
        except _UnfitError as unfit:
            unfit.trail.append(key)
            raise
    return left


def _walk_items(value: list[Any] | tuple[Any, ...], depth: int, left: int) -> int:
    if depth >= MAX_DEPTH:
        raise _UnfitError(Reason.PAYLOAD_TOO_DEEP, _TOO_DEEP)
    index = 0
    try:
        for item in value:
            left = _walk(item, depth + 1, left - 1)
            index += 1
    except _UnfitError as unfit:
        unfit.trail.append(index)
        raise
    return left


def _encoded_length(text: str) -> int:
    try:
        return len(text.encode()) + 4
    except UnicodeEncodeError:
        raise _UnfitError(
            Reason.INPUT_INVALID, "the text holds half a character (a lone surrogate)"
        ) from None
