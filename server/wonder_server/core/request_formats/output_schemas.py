"""Output schemas in the forms that providers accept.

Providers accept a part of JSON Schema. A form for a provider may allow more values than the schema, since the
server checks every answer against the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.schema.schemas import parts_of

NAME: Final = "output"
"""Name of the schema in formats that require one."""

_FORMATS: Final = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
_STRICT: Final = frozenset(
    "type title description properties required additionalProperties items enum const anyOf $ref $defs format"
    " pattern minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems".split()
)
_MAX_STRICT_LEVELS: Final = 10

_CLOSED: Final = frozenset("type title description default enum const $ref".split())
_SAYING: Final = ("type", "enum", "const", "anyOf", "$ref")
_DEFINITIONS: Final = ("$defs", "definitions")


def is_strict(schema: JsonObject) -> bool:
    """Return True if OpenAI accepts the schema as strict: every object lists all its fields as required and
    allows no others. Source: OpenAI, "Structured model outputs", supported schemas.
    """
    if "anyOf" in schema:
        return False
    for place, part in parts_of(schema):
        if not part.keys() <= _STRICT or len(place) > 2 * _MAX_STRICT_LEVELS:
            return False
        if part.get("format", "date") not in _FORMATS or not any(name in part for name in _SAYING):
            return False
        if "properties" in part or "object" in _type_names(part):
            if part.get("additionalProperties") is not False:
                return False
            if set(part.get("required", ())) != set(part.get("properties", ())):
                return False
    return True


def closed(schema: JsonObject) -> JsonDict | None:
    """Return the schema in Anthropic's part of JSON Schema; None if it cannot be said there.

    Every object is closed. Other keywords become part of the description. Free-form objects, values of any
    type and recursive schemas cannot be said. Source: Anthropic, "Structured outputs", limitations.
    """
    if _is_recursive(schema):
        return None
    try:
        return _closed(schema)
    except _OpenError:
        return None


class _OpenError(Exception):
    """A part of the schema cannot be said."""


def _closed(part: JsonValue) -> JsonDict:
    if not isinstance(part, Mapping):
        raise _OpenError
    kept: JsonDict = {name: value for name, value in part.items() if _is_kept(name, value)}
    if "items" in part:
        kept["items"] = _closed(part["items"])
    if options := part.get("anyOf", part.get("oneOf")):
        kept["anyOf"] = [_closed(option) for option in options]
    for name in _DEFINITIONS:
        if name in part:
            kept[name] = {key: _closed(value) for key, value in part[name].items()}
    if "properties" in part or "object" in _type_names(part):
        kept |= _closed_object(part)
    if not any(name in kept for name in _SAYING):
        raise _OpenError
    rest = {name: value for name, value in part.items() if name not in kept and name != "oneOf"}
    if rest:
        said = json.dumps(rest, ensure_ascii=False)
        kept["description"] = f"{kept.get('description', '')} Constraints: {said}".strip()
    return kept


def _is_kept(keyword: str, value: JsonValue) -> bool:
    if keyword == "minItems":
        return value in (0, 1)
    return keyword in _CLOSED or (keyword == "format" and value in (*_FORMATS, "uri"))


def _closed_object(part: JsonObject) -> JsonDict:
    properties = part.get("properties")
    if not properties or part.get("additionalProperties", False) is not False or "patternProperties" in part:
        raise _OpenError
    return {
        "properties": {name: _closed(value) for name, value in properties.items()},
        "required": list(part.get("required", ())),
        "additionalProperties": False,
    }


def _type_names(part: JsonObject) -> list[JsonValue]:
    wanted = part.get("type", [])
    return [wanted] if isinstance(wanted, str) else list(wanted)


def _is_recursive(schema: JsonObject) -> bool:
    """Return True if a definition refers to itself, or a reference does not name a definition."""
    edges: dict[str, set[str]] = {}
    for place, part in parts_of(schema):
        if "$ref" in part:
            owner = f"#/{place[0]}/{place[1]}" if place[:1] in (("$defs",), ("definitions",)) else "#"
            edges.setdefault(owner, set()).add(part["$ref"])
    left = {reference for targets in edges.values() for reference in targets}
    if not all(reference.count("/") == 2 and reference.split("/")[1] in _DEFINITIONS for reference in left):
        return bool(left)
    while leaves := {reference for reference in left if not edges.get(reference, set()) & left}:
        left -= leaves
    return bool(left)
