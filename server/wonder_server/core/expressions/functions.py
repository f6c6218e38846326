"""The functions of expressions: CEL's functions for JSON types, its usual extensions for strings and lists,
and some that mappings need. All are pure and metered. ``x.f(y)`` and ``f(x, y)`` are the same call.

==============================================  ====================================================
``size(x)``                                     characters of a text, items of a list, keys of a map
``int(x) double(x) string(x) bool(x) dyn(x)``   conversions
``type(x)``                                     ``type(x) == string``; also int double bool list map null_type
``contains startsWith endsWith matches``        tests on texts; ``matches`` searches by RE2
``lower upper lowerAscii upperAscii trim``      texts
``replace(t, old, new) split(t, sep)``
``substring(t, from[, to]) indexOf lastIndexOf``
``truncate(t, n)``                              the first n characters; the last is ``…`` if the text was cut
``indent(t, prefix[, first])``                  ``first`` before the first line, ``prefix`` before others
``now()``                                       the time of the step that the run plans, such as
                                                ``2026-11-23T09:30:00.000Z``; only in workflows
``join(list[, sep])``                           one text of a list of texts
``flatten(list)``                               one level: items of nested lists replace those lists
``first(list) last(list) slice(list, a, b)``    ``first`` and ``last`` of an empty list are null
``reverse distinct sort``                       lists
``min max sum abs``                             of a list of numbers; ``abs`` of one number
``keys(map) values(map)``                       lists
``merge(map, map)``                             the second wins
``get(map, key, default)``                      a member that may be missing
``to_json(x) parse_json(text)``                 JSON as text, and back
``provider_messages(list, format)``             messages in the neutral form, in a request format's form
``provider_tools(list, format)``                tools in a request format's form
==============================================  ====================================================
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from wonder_server.core.expressions.faults import SyntaxFault
from wonder_server.core.expressions.provider_functions import provider_messages, provider_tools
from wonder_server.core.expressions.times import utc_text
from wonder_server.core.expressions.values import (
    Frame,
    compare,
    contains,
    fitting,
    is_number,
    type_name,
    whole,
)
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats.indentation import indent, with_newlines
from wonder_server.core.schema import patterns
from wonder_server.core.schema.json_nesting import check_nesting

PATTERN_COST = 2_000
"""Cost of compiling a regular expression, in units of the budget; a large one takes 1 ms."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function and its minimum and maximum number of arguments. ``has_no_cost``: it uses nothing of the
    budget and needs no frame."""

    run: Callable[..., JsonValue]
    least: int
    most: int
    has_no_cost: bool = False


# --- types of arguments -------------------------------------------------------------------------


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise SyntaxFault(f"it takes a text, not {type_name(value)}")
    return value


def _list(value: JsonValue) -> Sequence[JsonValue]:
    if not isinstance(value, (list, tuple)):
        raise SyntaxFault(f"it takes a list, not {type_name(value)}")
    return value


def _map(value: JsonValue) -> JsonObject:
    if type(value) is not dict and not isinstance(value, Mapping):
        raise SyntaxFault(f"it takes a map, not {type_name(value)}")
    return value


def _position(value: JsonValue, most: int) -> int:
    position = whole(value)
    if not 0 <= position <= most:
        raise SyntaxFault(f"the position {position} is outside 0 to {most}")
    return position


# --- time ---------------------------------------------------------------------------------------

NOW = "now()"
"""Key of the time in milliseconds in a scope. No variable can have this name."""


def _now(frame: Frame) -> str:
    if NOW not in frame:
        raise SyntaxFault(ONLY_IN_WORKFLOWS)
    return utc_text(frame[NOW])


ONLY_IN_WORKFLOWS = "now() exists only in workflows; pass the time to a task or tool in its input"


# --- conversions --------------------------------------------------------------------------------


def _size(frame: Frame, value: JsonValue) -> int:
    if isinstance(value, (str, list, tuple, Mapping)):
        return len(value)
    raise SyntaxFault(f"it takes a text, a list or a map, not {type_name(value)}")


def _int(frame: Frame, value: JsonValue) -> int:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 19:
            return int(fitting(int(value)))
    elif is_number(value):
        return int(fitting(int(fitting(value))))
    _unconvertible(value, "an integer")


def _double(frame: Frame, value: JsonValue) -> float:
    if is_number(value):
        return float(value)
    if isinstance(value, str) and value.isascii() and "_" not in value:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    _unconvertible(value, "a number")


def _string(frame: Frame, value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if is_number(value):
        return str(value)
    _unconvertible(value, "a text: use to_json()")


def _bool(frame: Frame, value: JsonValue) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "True", "TRUE", "t", "1"):
        return True
    if value in ("false", "False", "FALSE", "f", "0"):
        return False
    _unconvertible(value, "true or false")


def _unconvertible(value: JsonValue, wanted: str) -> NoReturn:
    source = f"the text '{value[:40]}'" if isinstance(value, str) else type_name(value)
    raise SyntaxFault(f"{source} cannot be made into {wanted}")


# --- texts --------------------------------------------------------------------------------------


def _matches(frame: Frame, text: JsonValue, expression: JsonValue) -> bool:
    if _text(expression) not in frame.patterns:
        frame.patterns |= {expression}
        frame.spend(PATTERN_COST)
    frame.spend(8 + (len(_text(text)) >> 3))
    try:
        return patterns.compiled(expression).found_in(text)
    except patterns.PatternError as fault:
        raise SyntaxFault(str(fault)) from None


def _contains(frame: Frame, whole: JsonValue, part: JsonValue) -> bool:
    if not isinstance(whole, str):
        return contains(frame, part, _list(whole))
    frame.spend(len(whole) >> 5)
    return _text(part) in whole


def _on_text(change: Callable[[str], str]) -> Callable[[Frame, JsonValue], str]:
    def run(frame: Frame, text: JsonValue) -> str:
        frame.spend(len(_text(text)) >> 5)
        return change(text)

    return run


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(mark) if mark.isascii() else mark for mark in text)


def _replace(frame: Frame, text: JsonValue, old: JsonValue, new: JsonValue) -> str:
    times = _text(text).count(_text(old)) if old else len(text) + 1
    frame.spend((len(text) + times * len(_text(new))) >> 5)
    return str(text.replace(old, new))


def _split(frame: Frame, text: JsonValue, separator: JsonValue) -> list[str]:
    if not _text(separator):
        frame.spend(len(_text(text)))
        return list(text)
    frame.spend(_text(text).count(separator) + (len(text) >> 5))
    return list(text.split(separator))


def _substring(frame: Frame, text: JsonValue, start: JsonValue, end: JsonValue = None) -> str:
    stop = len(_text(text)) if end is None else _position(end, len(text))
    frame.spend(len(text) >> 5)
    return str(text[_position(start, stop) : stop])


def _index_of(frame: Frame, text: JsonValue, part: JsonValue) -> int:
    frame.spend(len(_text(text)) >> 5)
    return int(text.find(_text(part)))


def _last_index_of(frame: Frame, text: JsonValue, part: JsonValue) -> int:
    frame.spend(len(_text(text)) >> 5)
    return int(text.rfind(_text(part)))


def _truncate(frame: Frame, text: JsonValue, most: JsonValue) -> str:
    limit = _position(most, 1 << 31)
    if len(_text(text)) <= limit:
        return str(text)
    frame.spend(limit >> 5)
    return text[: limit - 1] + "…" if limit else ""


def _indent(frame: Frame, text: JsonValue, prefix: JsonValue, first: JsonValue = "") -> str:
    """Return the text with ``first`` before its first line and ``prefix`` before each further line that is
    not empty. Every kind of line break becomes a newline.
    """
    lines, start, beginning = with_newlines(_text(text)), _text(prefix), _text(first)
    frame.spend((len(text) + lines.count("\n") * len(start) + len(beginning)) >> 5)
    return indent(lines, start, beginning)


# --- lists and maps -----------------------------------------------------------------------------


def _join(frame: Frame, items: JsonValue, separator: JsonValue = "") -> str:
    texts = _list(items)
    for item in texts:
        if type(item) is not str:
            _text(item)
    frame.spend(len(texts) + ((sum(map(len, texts)) + len(texts) * len(_text(separator))) >> 5))
    return str(separator.join(texts))


def _flatten(frame: Frame, items: JsonValue) -> list[JsonValue]:
    flat: list[JsonValue] = []
    for item in _list(items):
        part = item if isinstance(item, (list, tuple)) else (item,)
        frame.left -= 1 + len(part)
        if frame.left < 0:
            frame.spend(0)
        flat.extend(part)
    return flat


def _slice(frame: Frame, items: JsonValue, start: JsonValue, end: JsonValue) -> list[JsonValue]:
    stop = _position(end, len(_list(items)))
    frame.spend(stop)
    return list(items[_position(start, stop) : stop])


def _reverse(frame: Frame, items: JsonValue) -> list[JsonValue]:
    frame.spend(len(_list(items)))
    return list(reversed(items))


def _distinct(frame: Frame, items: JsonValue) -> list[JsonValue]:
    kept: list[JsonValue] = []
    seen: set[tuple[str, JsonValue]] = set()
    frame.spend(len(_list(items)))
    for item in items:
        if isinstance(item, (list, tuple, Mapping)):
            if not contains(frame, item, kept):
                kept.append(item)
            continue
        key = ("number" if is_number(item) else type_name(item), item)
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


def _sort(frame: Frame, items: JsonValue) -> list[JsonValue]:
    values = _list(items)
    frame.spend(2 * len(values))
    for left, right in itertools.pairwise(values):
        compare("<", left, right)
    return sorted(values)


def _chosen(symbol: str) -> Callable[[Frame, JsonValue], JsonValue]:
    def run(frame: Frame, items: JsonValue) -> JsonValue:
        values = _list(items)
        frame.spend(len(values))
        if not values:
            raise SyntaxFault("the list is empty")
        best = values[0]
        for value in values[1:]:
            if compare(symbol, value, best):
                best = value
        return best

    return run


def _sum(frame: Frame, items: JsonValue) -> int | float:
    total: int | float = 0
    frame.spend(len(_list(items)))
    for item in items:
        if not is_number(item):
            raise SyntaxFault(f"it adds numbers, not {type_name(item)}")
        total = fitting(total + item)
    return total


def _abs(frame: Frame, value: JsonValue) -> int | float:
    if not is_number(value):
        raise SyntaxFault(f"it takes a number, not {type_name(value)}")
    return fitting(abs(value))


def _listed(frame: Frame, items: JsonValue) -> list[JsonValue]:
    frame.spend(len(items))
    return list(items)


def _merge(frame: Frame, first: JsonValue, second: JsonValue) -> JsonDict:
    frame.spend(len(_map(first)) + len(_map(second)))
    return {**first, **second}


def _get(frame: Frame, source: JsonValue, key: JsonValue, default: JsonValue) -> JsonValue:
    return _map(source).get(_text(key), default)


# --- JSON ---------------------------------------------------------------------------------------


def _to_json(frame: Frame, value: JsonValue) -> str:
    frame.spend_on(value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    frame.spend(len(text) >> 5)
    return text


def _parse_json(frame: Frame, text: JsonValue) -> JsonValue:
    frame.spend(len(_text(text)) >> 3)
    try:
        check_nesting(text)
        value = json.loads(text, parse_constant=_no_constant)
        frame.spend_on(value)
    except ValueError:
        raise SyntaxFault("the text is not valid JSON") from None
    return value


_MAX_BRACKETS = 64
"""Limit of brackets at which `find_json` tries to read JSON."""

_TRAILING_COMMA = re.compile(r",(\s*[\]}])")


def _find_json(frame: Frame, text: JsonValue, default: JsonValue) -> JsonValue:
    """Return the longest JSON list or object within a text; ``default`` if there is none.

    Commas before a closing bracket are ignored.
    """
    given = _text(text)
    frame.spend(len(given) >> 3)
    found, longest, at = default, 0, 0
    for _ in range(_MAX_BRACKETS):
        starts = [start for start in (given.find("[", at), given.find("{", at)) if start >= 0]
        if not starts:
            break
        start = min(starts)
        frame.spend((len(given) - start) >> 3)
        value, end = _json_at(given, start)
        if end - start > longest:
            found, longest = value, end - start
        at = max(end, start + 1)
    frame.spend_on(found)
    return found


def _json_at(text: str, start: int) -> tuple[JsonValue, int]:
    """Return the JSON value that starts at ``start``, and its end; the end is ``start`` if there is none."""
    try:
        check_nesting(text, start)
        return _DECODER.raw_decode(text, start)
    except ValueError:
        pass
    tidied = _TRAILING_COMMA.sub(r"\1", text[start:])
    try:
        check_nesting(tidied)
        value, end = _DECODER.raw_decode(tidied)
    except ValueError:
        return None, start
    return value, min(len(text), start + end)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)

FUNCTIONS: dict[str, Function] = {
    # Without the frame it could not be called inside a loop.
    "now": Function(_now, 0, 0),
    "size": Function(_size, 1, 1, has_no_cost=True),
    "int": Function(_int, 1, 1, has_no_cost=True),
    "double": Function(_double, 1, 1, has_no_cost=True),
    "string": Function(_string, 1, 1, has_no_cost=True),
    "bool": Function(_bool, 1, 1, has_no_cost=True),
    "dyn": Function(lambda frame, value: value, 1, 1, has_no_cost=True),
    "type": Function(lambda frame, value: type_name(value), 1, 1, has_no_cost=True),
    "contains": Function(_contains, 2, 2),
    "startsWith": Function(
        lambda frame, text, part: _text(text).startswith(_text(part)), 2, 2, has_no_cost=True
    ),
    "endsWith": Function(lambda frame, text, part: _text(text).endswith(_text(part)), 2, 2, has_no_cost=True),
    "matches": Function(_matches, 2, 2),
    "lower": Function(_on_text(str.lower), 1, 1),
    "upper": Function(_on_text(str.upper), 1, 1),
    "lowerAscii": Function(_on_text(_ascii(str.lower)), 1, 1),
    "upperAscii": Function(_on_text(_ascii(str.upper)), 1, 1),
    "trim": Function(_on_text(str.strip), 1, 1),
    "replace": Function(_replace, 3, 3),
    "split": Function(_split, 2, 2),
    "substring": Function(_substring, 2, 3),
    "indexOf": Function(_index_of, 2, 2),
    "lastIndexOf": Function(_last_index_of, 2, 2),
    "truncate": Function(_truncate, 2, 2),
    "indent": Function(_indent, 2, 3),
    "join": Function(_join, 1, 2),
    "flatten": Function(_flatten, 1, 1),
    "first": Function(lambda frame, items: _list(items)[0] if items else None, 1, 1, has_no_cost=True),
    "last": Function(lambda frame, items: _list(items)[-1] if items else None, 1, 1, has_no_cost=True),
    "slice": Function(_slice, 3, 3),
    "reverse": Function(_reverse, 1, 1),
    "distinct": Function(_distinct, 1, 1),
    "sort": Function(_sort, 1, 1),
    "min": Function(_chosen("<"), 1, 1),
    "max": Function(_chosen(">"), 1, 1),
    "sum": Function(_sum, 1, 1),
    "abs": Function(_abs, 1, 1, has_no_cost=True),
    "keys": Function(lambda frame, source: _listed(frame, _map(source).keys()), 1, 1),
    "values": Function(lambda frame, source: _listed(frame, _map(source).values()), 1, 1),
    "merge": Function(_merge, 2, 2),
    "get": Function(_get, 3, 3, has_no_cost=True),
    "to_json": Function(_to_json, 1, 1),
    "parse_json": Function(_parse_json, 1, 1),
    "find_json": Function(_find_json, 2, 2),
    "provider_messages": Function(provider_messages, 2, 2),
    "provider_tools": Function(provider_tools, 2, 2),
}
