"""Limits of the nesting of JSON: of texts before they are decoded, and of values inside others.

The decoders of Python and of msgspec fail at a depth that depends on the stack below them: between 840 and
1,036 levels in the planners. A decision must not depend on it, or a replay could differ. So planners refuse a
deeper text before they decode it.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

import msgspec

from wonder_server.core.json_types import JsonValue

MAX_LEVELS: Final = 500
"""Maximum number of lists and objects around a value. Payloads have at most 30 (`payloads`)."""

_NEXT_BRACKET: Final = re.compile(
    r'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))*+([\[\]{}]|\Z)', re.DOTALL
)
"""Text and strings up to the next bracket outside of them, or to the end. It matches at every place, so that
no place is read twice."""

_STEP: Final = {"[": 1, "{": 1, "]": -1, "}": -1, "": 0}


def check_nesting(text: str, start: int = 0) -> None:
    """Raise ValueError if the JSON value at ``start`` has more than `MAX_LEVELS` levels.

    The text after the value does not count. The value need not be valid: a decoder finds the other faults.
    """
    if text.count("[", start) + text.count("{", start) <= MAX_LEVELS:
        return
    levels = list(accumulate(map(_STEP.__getitem__, _NEXT_BRACKET.findall(text, start))))
    end = levels.index(0) if 0 in levels else len(levels)
    if max(levels[:end], default=0) > MAX_LEVELS:
        raise ValueError(f"the text has more than {MAX_LEVELS} levels of lists and objects")


def deep_parts_as_text(value: JsonValue, max_levels: int) -> JsonValue:
    """Return the value with at most so many levels of lists and objects: what is deeper is its JSON text."""
    if not isinstance(value, list | tuple | dict):
        return value
    if max_levels <= 0:
        return msgspec.json.encode(value).decode()
    if isinstance(value, dict):
        return {name: deep_parts_as_text(member, max_levels - 1) for name, member in value.items()}
    return [deep_parts_as_text(item, max_levels - 1) for item in value]
