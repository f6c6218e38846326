"""About how many bytes of text a value holds, for bounds on what waits for somebody."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import msgspec

_DEEPEST = 40


def text_bytes(value: Any, deepest: int = _DEEPEST) -> int:
    """The lengths of all texts in a frozen value, a JSON value, or a mixture of both; what lies deeper than
    such values do is not counted."""
    if isinstance(value, str):
        return len(value)
    if not deepest or value is None or isinstance(value, int | float):
        return 0
    if isinstance(value, dict):
        return sum(text_bytes(each, deepest - 1) for each in value.values()) + sum(map(len, value))
    if isinstance(value, list | tuple):
        return sum(text_bytes(each, deepest - 1) for each in value)
    if isinstance(value, msgspec.Struct):
        return sum(text_bytes(getattr(value, name), deepest - 1) for name in value.__struct_fields__)
    if is_dataclass(value):
        return sum(text_bytes(getattr(value, name), deepest - 1) for name in value.__dataclass_fields__)
    return 0
