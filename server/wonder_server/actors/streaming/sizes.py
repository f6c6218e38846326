"""Approximate text sizes of values, for limits on backlogs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass

import msgspec

_MAX_DEPTH = 40
_TYPES_WITHOUT_TEXT = frozenset({int, float, bool})


def text_bytes(value: object, max_depth: int = _MAX_DEPTH) -> int:
    """Return the total length of all strings in a frozen value, a JSON value, or a mixture.

    Parts nested deeper than ``max_depth`` do not count.
    """
    if isinstance(value, str):
        return len(value)
    if not max_depth:
        return 0
    if isinstance(value, dict):
        return sum(map(len, value)) + _total_bytes(value.values(), max_depth - 1)
    if isinstance(value, list | tuple):
        return _total_bytes(value, max_depth - 1)
    if isinstance(value, msgspec.Struct):
        return _total_bytes(msgspec.structs.astuple(value), max_depth - 1)
    if is_dataclass(value):
        return _total_bytes([getattr(value, name) for name in value.__dataclass_fields__], max_depth - 1)
    return 0


def _total_bytes(values: Iterable[object], max_depth: int) -> int:
    """Return the total text of ``values``, most of which are short or have their default."""
    total = 0
    for each in values:
        if isinstance(each, str):
            total += len(each)
        elif each and type(each) not in _TYPES_WITHOUT_TEXT:
            total += text_bytes(each, max_depth)
    return total
