"""Validation of tool-call arguments and text that models write. Pure.

Accepted values fit into ``google.protobuf.Struct`` and UTF-8. So nesting over 30 levels, integers beyond
2^53, and numbers that JSON does not have are malformed.
"""

from __future__ import annotations

import json
from typing import NoReturn

from wonder_server.core.json_types import JsonDict, JsonValue

MAX_DEPTH = 30
MAX_INTEGER = 2**53


class _MalformedError(ValueError):
    pass


def parse_arguments(text: str) -> JsonDict | None:
    """Return the JSON object in ``text``, or None if it is not an acceptable one.

    Empty text means no arguments: several providers send it for tools without parameters.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_reject_constant, parse_int=_integer, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and is_acceptable(value) else None


def is_acceptable(value: JsonValue) -> bool:
    """Return True if a JSON value is within the limits and all strings are UTF-8 text."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        match item:
            case dict() | list() if depth > MAX_DEPTH:
                return False
            case dict():
                if not all(_is_text(key) for key in item):
                    return False
                pending.extend((child, depth + 1) for child in item.values())
            case list():
                pending.extend((child, depth + 1) for child in item)
            case str() if not _is_text(item):
                return False
            case int() if abs(item) > MAX_INTEGER:
                return False
    return True


def clean_text(text: str) -> str:
    """Return ``text`` with U+FFFD in place of lone surrogates, which JSON can contain and UTF-8 cannot."""
    if _is_text(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reject_constant(constant: str) -> NoReturn:
    raise _MalformedError(constant)


def _integer(digits: str) -> int:
    if len(digits) > 17:
        raise _MalformedError(digits)
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _MalformedError(text)
    return number
