"""JSON values of flags: literal, ``@file``, or ``-`` for standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from wonder_sdk.json_types import JsonDict, JsonValue

_MAX_DEPTH = 32
"""Maximum nesting of values that are sent as ``Struct``."""


def read(text: str, flag: str) -> JsonValue:
    """Return the JSON value of a flag. Raises ValueError with a sentence for the user."""
    source = flag
    if text == "-":
        text, source = sys.stdin.read(), f"{flag} (standard input)"
    elif text.startswith("@"):
        source = f"{flag} {text}"
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except OSError as problem:
            raise ValueError(f"{source}: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{source}: the content is not UTF-8 text") from None
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise ValueError(f"{source}: the value is not JSON ({problem.msg.lower()}, {where})") from None
    except RecursionError:
        raise ValueError(f"{source}: the value is nested too deeply") from None
    if _depth(value) > _MAX_DEPTH:
        raise ValueError(f"{source}: the value is nested more than {_MAX_DEPTH} levels deep")
    return value


def read_object(text: str | None, flag: str, settings: Iterable[str] = ()) -> JsonDict | None:
    """Return the object of a flag with ``settings`` added, or None without both.

    A setting is ``key=text`` or ``key:=json``; dots in the key address nested objects.
    """
    value = None if text is None else read(text, flag)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f'{flag}: the value is not an object. Use one such as {{"name": "value"}}')
    for setting in settings:
        value = {} if value is None else value
        _set(value, setting)
    return value


def _set(value: JsonDict, setting: str) -> None:
    key, equals, text = setting.partition("=")
    is_json, key = key.endswith(":"), key.removesuffix(":")
    *path, last = key.split(".")
    if not equals or not all((*path, last)):
        raise ValueError(f"--set {setting}: use key=text or key:=json")
    for name in path:
        child = value.setdefault(name, {})
        if not isinstance(child, dict):
            raise ValueError(f"--set {setting}: {name} is not an object")
        value = child
    value[last] = read(text, f"--set {key}") if is_json else text


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not a JSON number", constant, 0)


def _depth(value: JsonValue) -> int:
    deepest, level = 0, [value]
    while level:
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        deepest += 1
    return deepest
