"""JSON values and counts as short texts."""

from __future__ import annotations

import json

from wonder_sdk.json_types import JsonValue

_SHORT = 64


def one_line(value: JsonValue) -> str:
    """Format a JSON value in one line: an object as ``key: value`` pairs, with long texts cut."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_leaf(each)}" for key, each in value.items())
    return "" if value is None else _leaf(value)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: ``1 move``, ``2 moves``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def _leaf(value: JsonValue) -> str:
    if isinstance(value, str):
        return value if len(value) <= _SHORT else value[: _SHORT - 1] + "…"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{', '.join(_leaf(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{one_line(value)}}}"
    return json.dumps(value, ensure_ascii=False)
