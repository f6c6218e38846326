"""About how many bytes of text a value holds, for bounds on what waits for somebody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import msgspec

_DEEPEST = 40
_TEXTLESS = frozenset({int, float, bool})


def text_bytes(value: Any, deepest: int = _DEEPEST) -> int:
    """The lengths of all texts in a frozen value, a JSON value, or a mixture of both; what lies deeper than
    such values do is not counted."""
    if isinstance(value, str):
        return len(value)
    if not deepest:
        return 0
    if isinstance(value, dict):
        return sum(map(len, value)) + _together(value.values(), deepest - 1)
    if isinstance(value, list | tuple):
        return _together(value, deepest - 1)
    if isinstance(value, msgspec.Struct):
        return _together(msgspec.structs.astuple(value), deepest - 1)
    if is_dataclass(value):
        return _together([getattr(value, name) for name in value.__dataclass_fields__], deepest - 1)
    return 0


def _together(values: Iterable[Any], deepest: int) -> int:
    """The texts of all ``values``, most of which are short of depth, or have their default."""
    total = 0
    for each in values:
        kind = type(each)
        if kind is str:
            total += len(each)
        elif each and kind not in _TEXTLESS:
            total += text_bytes(each, deepest)
    return total
