"""Limits of JSON payloads of any shape: tool input, workflow context, model and tool output.

Payloads travel as ``google.protobuf.Struct``. A value nested deeper than 33 levels could not be serialised in
a response, and integers beyond 2^53 would lose digits. Both are refused where a payload enters, with their
path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict, JsonValue

MAX_DEPTH: Final = 30
MAX_INTEGER: Final = 2**53
_LEAST: Final = -MAX_INTEGER
MAX_BYTES: Final = 4 * 1024 * 1024


def check(value: JsonValue, *, field: str = "", max_bytes: int = MAX_BYTES) -> Fault | None:
    """Return the first fault that makes ``value`` invalid as a payload, or None.

    ``field`` is the path of the payload, which precedes the path inside it. The size is that of the texts in
    UTF-8 and an estimate of the rest, within a few percent of the JSON text. Faults: PAYLOAD_TOO_DEEP,
    PAYLOAD_TOO_LARGE, NUMBER_OUT_OF_RANGE, INPUT_INVALID.
    """
    if (type(value) is dict or type(value) is list) and _is_surely_valid(value, max_bytes - 2):
        return None
    try:
        _walk(value, 0, max_bytes)
    except _InvalidError as invalid:
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(invalid.trail)]
        place = (field + "".join(steps)).removeprefix(".")
        message = invalid.message.format(max_bytes=max_bytes)
        return Fault(reason=invalid.reason, message=message, field=place[:500])
    return None


_MEMBER_BYTES: Final = 12
"""Upper bound of the bytes of a member, in addition to the text in it and in its key."""

_MIN_KNOWN_LENGTH: Final = 8
"""The check remembers lists of at least this length. Shorter ones cost less to check again."""
_MAX_KNOWN_BYTES: Final = 64 * 1024
_MAX_KNOWN: Final = 64
"""The check remembers at most this many lists, none larger than `_MAX_KNOWN_BYTES`."""
_MAX_LARGE_BYTES: Final = 1 << 20
_MAX_LARGE: Final = 8
"""The check remembers as many larger lists, such as the tools of an agent, none above `_MAX_LARGE_BYTES`."""


class _KnownList(NamedTuple):
    """A list that was found valid: its length and an upper bound of its bytes then, and its levels."""

    value: list[JsonValue]
    length: int
    bytes: float
    levels: int


_large: dict[int, _KnownList] = {}
_known: dict[int, _KnownList] = {}
"""Valid lists by id. The messages of a model request pass the check four times in a turn: as the output of a
task, as a value of the context, as the output of the run. Values are never changed after a check, as
everywhere in the planners."""


def _is_surely_valid(value: JsonValue, left: float) -> bool:
    """Return True for an object or a list that is certainly a valid payload, as nearly all are.

    If the result is False, `_walk` finds the fault, if there is one.
    """
    if type(value) is list and len(value) >= _MIN_KNOWN_LENGTH:
        return _rest_after_long(value, left, 1)[0] >= 0
    return _rest_after(value, left, 1)[0] >= 0


def _rest_after(value: JsonValue, left: float, depth: int) -> tuple[float, int]:
    """Return the bytes that are left after an object or a list at this depth, and the depth of its innermost
    level. The bytes are negative if the value may be invalid.

    The walk goes level by level, which counts the depth without recursion, and overestimates the size. Only
    long lists have a walk of their own.
    """
    deepest, level = depth, [value]
    while level:
        if depth > MAX_DEPTH:
            return -1, depth
        inner: list[JsonValue] = []
        for container in level:
            if type(container) is list:
                if len(container) >= _MIN_KNOWN_LENGTH and container is not value:
                    left, innermost = _rest_after_long(container, left, depth)
                    deepest = max(deepest, innermost)
                else:
                    left = _pay_items(container, left - _MEMBER_BYTES * len(container), inner)
            else:
                left = _pay_members(container, left - _MEMBER_BYTES * len(container), inner)
            if left < 0:
                return -1, depth
        level, depth = inner, depth + 1
    return left, max(deepest, depth - 1)


def _rest_after_long(value: list[JsonValue], left: float, depth: int) -> tuple[float, int]:
    """Do what `_rest_after` does for a long list, and remember it if it is valid."""
    known = _known.get(id(value)) or _large.get(id(value))
    if known is not None and known.value is value and known.length == len(value):
        innermost = depth + known.levels - 1
        return (left - known.bytes if innermost <= MAX_DEPTH else -1), innermost
    rest, innermost = _rest_after(value, left, depth)
    if rest >= 0:
        found = _KnownList(value, len(value), left - rest, innermost - depth + 1)
        if found.bytes <= _MAX_KNOWN_BYTES:
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            _known[id(value)] = found
        elif found.bytes <= _MAX_LARGE_BYTES:
            _large.pop(id(value), None)
            if len(_large) >= _MAX_LARGE:
                del _large[next(iter(_large))]
            _large[id(value)] = found
    return rest, innermost


def _pay_items(container: list[JsonValue], left: float, inner: list[JsonValue]) -> float:
    """Return the bytes that are left after the items of a list, and append its containers to ``inner``."""
    for item in container:
        kind = type(item)
        if kind is dict or kind is list:
            inner.append(item)
        elif kind is str and item.isascii():
            left -= len(item)
        elif not (item is None or kind is bool or (kind is int and _LEAST <= item <= MAX_INTEGER)):
            left -= _bytes_of(item)
            if left < 0:
                return left
    return left


def _pay_members(container: JsonDict, left: float, inner: list[JsonValue]) -> float:
    """Return the bytes that are left after the members of an object, and append its containers to ``inner``.

    The result is negative if a key is not an ASCII text.
    """
    for key, member in container.items():
        if type(key) is not str or not key.isascii():
            return -1
        left -= len(key)
        kind = type(member)
        if kind is str and member.isascii():
            left -= len(member)
        elif kind is dict or kind is list:
            inner.append(member)
        elif not (member is None or kind is bool or (kind is int and _LEAST <= member <= MAX_INTEGER)):
            left -= _bytes_of(member)
            if left < 0:
                return left
    return left


def _bytes_of(value: JsonValue) -> float:
    """Return an upper bound of the bytes of a double or a text beyond ASCII; infinity for anything that may
    be invalid."""
    kind = type(value)
    if kind is float:
        return 0 if math.isfinite(value) else math.inf
    if kind is not str:
        return math.inf
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return math.inf


class _InvalidError(Exception):
    """A fault; ``trail`` is its path, innermost step first, extended while the exception propagates."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.trail: list[str | int] = []


_TOO_LARGE = "a payload may have at most {max_bytes} bytes"
_TOO_DEEP = f"a payload may be nested at most {MAX_DEPTH} levels deep"


def _walk(value: JsonValue, depth: int, left: int) -> int:
    """Return the bytes that are left after ``value``. Types are tested in the order of their frequency."""
    kind = type(value)
    if kind is str:
        left -= len(value) + 3 if value.isascii() else _encoded_length(value)
    elif kind is dict:
        left = _walk_members(value, depth, left - 2)
    elif kind is list or kind is tuple:
        left = _walk_items(value, depth, left - 2)
    elif isinstance(value, Mapping):
        left = _walk_members(value, depth, left - 2)
    else:
        left -= _scalar_bytes(value)
    if left < 0:
        raise _InvalidError(Reason.PAYLOAD_TOO_LARGE, _TOO_LARGE)
    return left


def _scalar_bytes(value: JsonValue) -> int:
    """Return the estimated bytes of null, a boolean or a number. Raises `_InvalidError` for anything else."""
    kind = type(value)
    if kind is bool or value is None:
        return 5
    if kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise _InvalidError(
                Reason.NUMBER_OUT_OF_RANGE, "integers must be within ±2^53: send larger ones as text"
            )
        return 8
    if kind is float:
        if not math.isfinite(value):
            raise _InvalidError(Reason.NUMBER_OUT_OF_RANGE, "JSON has no infinite numbers and no NaN")
        return 8
    raise _InvalidError(Reason.INPUT_INVALID, "only JSON values are allowed")


def _walk_members(value: Mapping[JsonValue, JsonValue], depth: int, left: int) -> int:
    if depth >= MAX_DEPTH:
        raise _InvalidError(Reason.PAYLOAD_TOO_DEEP, _TOO_DEEP)
    for key, member in value.items():
        if type(key) is not str:
            raise _InvalidError(Reason.INPUT_INVALID, "the keys of an object must be texts")
        left -= len(key) + 4 if key.isascii() else _encoded_length(key)
        # Most members are ASCII texts within the limit, which need no call.
        if type(member) is str and len(member) + 3 <= left and member.isascii():
            left -= len(member) + 3
            continue
        try:
            left = _walk(member, depth + 1, left)
        except _InvalidError as invalid:
            invalid.trail.append(key)
            raise
    return left


def _walk_items(value: list[JsonValue] | tuple[JsonValue, ...], depth: int, left: int) -> int:
    if depth >= MAX_DEPTH:
        raise _InvalidError(Reason.PAYLOAD_TOO_DEEP, _TOO_DEEP)
    index = 0
    try:
        for item in value:
            left = _walk(item, depth + 1, left - 1)
            index += 1
    except _InvalidError as invalid:
        invalid.trail.append(index)
        raise
    return left


def _encoded_length(text: str) -> int:
    try:
        return len(text.encode()) + 4
    except UnicodeEncodeError:
        raise _InvalidError(
            Reason.INPUT_INVALID, "the text holds half a character (a lone surrogate)"
        ) from None
