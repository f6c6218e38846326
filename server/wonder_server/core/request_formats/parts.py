"""What the formats share: texts, ids and names of calls, and the schemas of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Request = dict[str, Any]
Notes = list[str]

EMPTY_MESSAGE = "(An empty message.)"
LEFT_OUT = "(Earlier messages are left out.)"
EMPTY_RESULT = "(The result is empty.)"
UNNAMED = "unnamed"

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


def is_blank(text: object) -> bool:
    """Whether nothing can be read: no text, or nothing but white space."""
    return not isinstance(text, str) or not text or text.isspace() or not text.strip("\x00 \t\r\n")


def readable(text: str) -> str:
    """``text`` without what no text holds: NUL, and halves of characters."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def all_readable(value: Any) -> Any:
    """The same JSON value with every text in it `readable`; the very same if all are."""
    match value:
        case str():
            return readable(value)
        case dict():
            texts = {readable(key): all_readable(each) for key, each in value.items()}
            same = len(texts) == len(value) and all(
                value.get(key, texts) is each for key, each in texts.items()
            )
            return value if same else texts
        case list() | tuple():
            items = [all_readable(each) for each in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; anything else in it, and anything that is no list, is left out."""
    return [item for item in listed(value) if isinstance(item, dict)]


def without(request: Request, *names: str) -> Request:
    if not any(name in request for name in names):
        return request
    return {name: value for name, value in request.items() if name not in names}


def fitting_name(name: object, pattern: re.Pattern[str], most: int = 64) -> str:
    """A tool's name as the format takes it: a call that names none must still be told so."""
    if isinstance(name, str) and pattern.fullmatch(name):
        return name
    fitted = _UNFIT.sub("_", name)[:most] if isinstance(name, str) else ""
    return fitted if fitted and pattern.fullmatch(fitted) else (f"_{fitted}"[:most] if fitted else UNNAMED)


def json_object(text: object) -> str:
    """Arguments of a call as text; ``{}`` for what is no JSON object."""
    if isinstance(text, str):
        try:
            if isinstance(msgspec.json.decode(text.encode()), dict):
                return text
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            pass
    return "{}"


class Ids:
    """Gives each call an id that the format takes and no other call of the request has."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._taken: set[str] = set()

    def fitting(self, given: object) -> str:
        wanted = given if isinstance(given, str) else ""
        if (self._most and len(wanted) > self._most) or not wanted.isascii() or _UNFIT.search(wanted):
            wanted = _UNFIT.sub("_", wanted)[: self._most or None]
        wanted = wanted or "call"
        fitted, number = wanted, 1
        while fitted in self._taken:
            number += 1
            end = f"_{number}"
            fitted = f"{wanted[: self._most - len(end)] if self._most else wanted}{end}"
        self._taken.add(fitted)
        return fitted


# --- schemas of tools -------------------------------------------------------------------------------

NOT_AT_ROOT = ("anyOf", "oneOf", "allOf", "$ref", "not", "enum", "const")
"""Keywords that providers refuse at the root of a tool's schema."""


def tool_schema(schema: Any) -> dict[str, Any]:
    """A schema as every provider takes it: an object at the root, whose properties stand there. What is said
    there by choice or by reference is told as what may be sent; the platform holds calls to all of it."""
    given = dict(schema) if isinstance(schema, Mapping) else {}
    if not any(keyword in given for keyword in NOT_AT_ROOT):
        if given.get("type") == "object" and isinstance(given.get("properties"), Mapping):
            return given
        properties = given.get("properties")
        return {
            **given,
            "type": "object",
            "properties": properties if isinstance(properties, Mapping) else {},
        }
    properties, required = _declared_properties(given, given, 0)
    rest = {name: value for name, value in given.items() if name not in NOT_AT_ROOT}
    rest.pop("required", None)
    told = {**rest, "type": "object", "properties": properties}
    return {**told, "required": sorted(required)} if required else told


def _declared_properties(part: Any, root: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], set[str]]:
    """The properties that ``part`` may have, and those that it must."""
    if not isinstance(part, Mapping) or depth > 8:
        return {}, set()
    found = part.get("properties")
    properties = dict(found) if isinstance(found, Mapping) else {}
    required = {name for name in listed(part.get("required")) if isinstance(name, str)}
    pieces = [*listed(part.get("allOf")), _referred(part.get("$ref"), root)]
    for piece in pieces:
        more, needed = _declared_properties(piece, root, depth + 1)
        properties = {**more, **properties}
        required |= needed
    for keyword in ("anyOf", "oneOf"):
        choices = [_declared_properties(choice, root, depth + 1) for choice in listed(part.get(keyword))]
        for more, _ in choices:
            properties = {**more, **properties}
        if choices:
            required |= set.intersection(*(needed for _, needed in choices))
    return properties, {name for name in required if name in properties}


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    place: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def fit_tools(
    tools: Iterable[dict[str, Any]], pattern: re.Pattern[str], notes: Notes, taken: set[str] | None = None
) -> list[dict[str, Any]]:
    """Those whose names the format takes, each name once, none of those ``taken``, which these are from then
    on; ``notes`` say which are left out."""
    kept: list[dict[str, Any]] = []
    taken = set() if taken is None else taken
    for tool in tools:
        name = tool.get("name")
        if not isinstance(name, str) or not pattern.fullmatch(name):
            notes.append(f"the tool {str(name)[:80]!r} is left out: the request's format takes no such name")
        elif name in taken:
            notes.append(f"a second tool {name!r} is left out: names must differ")
        else:
            taken.add(name)
            kept.append(tool)
    return kept


def shortened(tool: dict[str, Any], most: int, notes: Notes) -> dict[str, Any]:
    """``tool`` with a description of so many characters at most; 0 for any number."""
    said = tool.get("description")
    if not most or not isinstance(said, str) or len(said) <= most:
        return tool
    notes.append(f"the description of the tool {str(tool.get('name'))!r} is cut to {most:,} characters")
    return {**tool, "description": said[: most - 1] + "…"}
