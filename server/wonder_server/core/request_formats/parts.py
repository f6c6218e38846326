"""Functions that the formats share: texts, ids and names of calls, schemas of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.schema.json_nesting import check_nesting

Request = JsonDict
Notes = list[str]

EMPTY_MESSAGE = "(An empty message.)"
LEFT_OUT = "(Earlier messages are left out.)"
EMPTY_RESULT = "(The result is empty.)"
UNNAMED = "unnamed"

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


def is_blank(text: object) -> bool:
    """Return True if ``text`` is no text or contains only white space."""
    return not isinstance(text, str) or not text or text.isspace() or not text.strip("\x00 \t\r\n")


def readable(text: str) -> str:
    """Return ``text`` without NUL and with lone surrogates replaced."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def all_readable(value: JsonValue) -> JsonValue:
    """Return the JSON value with every text made `readable`. A readable value is returned itself."""
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


def listed(value: JsonValue) -> list[JsonValue]:
    """Return ``value`` if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def objects(value: JsonValue) -> list[JsonDict]:
    """Return the objects of a list; nothing for any other value."""
    return [item for item in listed(value) if isinstance(item, dict)]


def without(request: Request, *names: str) -> Request:
    """Return the request without these fields."""
    if not any(name in request for name in names):
        return request
    return {name: value for name, value in request.items() if name not in names}


def valid_name(name: object, pattern: re.Pattern[str], max_length: int = 64) -> str:
    """Return a tool's name in the form that ``pattern`` requires, since a call needs a valid name to get a
    result.
    """
    if isinstance(name, str) and pattern.fullmatch(name):
        return name
    fitted = _UNFIT.sub("_", name)[:max_length] if isinstance(name, str) else ""
    return (
        fitted if fitted and pattern.fullmatch(fitted) else (f"_{fitted}"[:max_length] if fitted else UNNAMED)
    )


def json_object(text: object) -> str:
    """Return the arguments of a call as text; ``{}`` for a text that is no JSON object."""
    if isinstance(text, str):
        try:
            check_nesting(text)
            if isinstance(msgspec.json.decode(text.encode()), dict):
                return text
        except ValueError:  # msgspec's errors and those of encodings are ValueErrors too.
            pass
    return "{}"


class Ids:
    """Ids of calls that are valid in the format and unique in the request."""

    def __init__(self, max_length: int = 0) -> None:
        self._max_length = max_length
        self._taken: set[str] = set()

    def assign(self, given: object) -> str:
        """Return a valid unique id for ``given``."""
        wanted = given if isinstance(given, str) else ""
        if (
            (self._max_length and len(wanted) > self._max_length)
            or not wanted.isascii()
            or _UNFIT.search(wanted)
        ):
            wanted = _UNFIT.sub("_", wanted)[: self._max_length or None]
        wanted = wanted or "call"
        fitted, number = wanted, 1
        while fitted in self._taken:
            number += 1
            end = f"_{number}"
            fitted = f"{wanted[: self._max_length - len(end)] if self._max_length else wanted}{end}"
        self._taken.add(fitted)
        return fitted


# --- schemas of tools -------------------------------------------------------------------------------

NOT_AT_ROOT = ("anyOf", "oneOf", "allOf", "$ref", "not", "enum", "const")
"""Keywords that providers reject at the root of a tool's schema."""


def tool_schema(schema: JsonValue) -> JsonDict:
    """Return a schema that every provider accepts: an object at the root that lists its properties.

    Properties from alternatives and references are merged into the root. The platform still validates calls
    against the original schema.
    """
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
    merged = {**rest, "type": "object", "properties": properties}
    return {**merged, "required": sorted(required)} if required else merged


def _declared_properties(part: JsonValue, root: JsonObject, depth: int) -> tuple[JsonDict, set[str]]:
    """Return the properties that ``part`` may have, and the names of the required ones."""
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


def _referred(reference: JsonValue, root: JsonObject) -> JsonValue:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    place: JsonValue = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def valid_tools(
    tools: Iterable[JsonDict], pattern: re.Pattern[str], notes: Notes, taken: set[str] | None = None
) -> list[JsonDict]:
    """Return the tools with valid and unique names; ``notes`` gets a line for each omitted one.

    Names in ``taken`` are omitted too, and the names of the returned tools are added to it.
    """
    kept: list[JsonDict] = []
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


def shortened(tool: JsonDict, max_length: int, notes: Notes) -> JsonDict:
    """Return ``tool`` with its description cut to ``max_length`` characters; 0 means unlimited."""
    description = tool.get("description")
    if not max_length or not isinstance(description, str) or len(description) <= max_length:
        return tool
    notes.append(f"the description of the tool {str(tool.get('name'))!r} is cut to {max_length:,} characters")
    return {**tool, "description": description[: max_length - 1] + "…"}
