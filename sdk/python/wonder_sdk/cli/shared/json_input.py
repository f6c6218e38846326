"""JSON on the command line: as it is, ``@file``, or ``-`` for what is piped in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

_MAX_DEPTH = 32
"""How deep values may be nested that travel as ``Struct``."""


def read(text: str, flag: str) -> Any:
    """What ``flag`` was given. Raises ValueError with a plain sentence."""
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
            raise ValueError(f"{source}: this is no UTF-8 text") from None
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise ValueError(f"{source}: this is no JSON ({problem.msg.lower()}, {where})") from None
    except RecursionError:
        raise ValueError(f"{source}: this is nested too deeply") from None
    if _depth(value) > _MAX_DEPTH:
        raise ValueError(f"{source}: this is nested more than {_MAX_DEPTH} levels deep")
    return value


def read_object(text: str | None, flag: str, settings: Iterable[str] = ()) -> dict[str, Any] | None:
    """An object, with ``settings`` put into it; None if there is neither.

    A setting is ``key=text`` or ``key:=json``; dots in the key lead into objects.
    """
    value = None if text is None else read(text, flag)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f'{flag}: an object is wanted, such as {{"name": "value"}}')
    for setting in settings:
        value = {} if value is None else value
        _set(value, setting)
    return value


def _set(value: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    is_json, key = key.endswith(":"), key.removesuffix(":")
    *path, last = key.split(".")
    if not equals or not all((*path, last)):
        raise ValueError(f"--set {setting}: say it as key=text, or as key:=json")
    for name in path:
        below = value.setdefault(name, {})
        if not isinstance(below, dict):
            raise ValueError(f"--set {setting}: {name} is no object")
        value = below
    value[last] = read(text, f"--set {key}") if is_json else text


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is no number of JSON", constant, 0)


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        deepest += 1
    return deepest
