"""Values that satisfy an output schema, made of a text by plain rules. Pure.

The rules know the common keywords of JSON Schema. The server checks the answer, so one for a schema beyond
them (such as ``pattern``) fails with OUTPUT_INVALID, as that of any other model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue

_MAX_LEVELS: Final = 8
_MAX_ITEMS: Final = 20
_MAX_VALUES: Final = 2_000
"""Maximum number of parts. References can make a schema of 1 KiB ask for millions."""
_MAX_PADDING: Final = 10_000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NO = re.compile(r"\b(?:no|not|never|false)\b", re.IGNORECASE)
_SCHEMA_PATHS: Final = (
    ("response_format", "json_schema", "schema"),
    ("text", "format", "schema"),
    ("output_config", "format", "schema"),
    ("generationConfig", "responseJsonSchema"),
)
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def schema_of(request: JsonObject) -> JsonObject | None:
    """Return the output schema that a request of any format contains; None without one."""
    for first, *rest in _SCHEMA_PATHS:
        value: JsonValue = request.get(first)
        if value is None:
            continue
        for key in rest:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            return value
    return None


def example_value(schema: JsonObject, text: str) -> JsonValue:
    """Return a value for ``schema``: texts are ``text``, numbers the first number in it, and so on.

    A schema that is not valid JSON Schema gets ``text``.
    """
    try:
        return _Maker(schema, text).value(schema, 0)
    except (TypeError, ValueError, ArithmeticError):
        return text


class _Maker:
    """Makes the parts of one value."""

    def __init__(self, root: JsonObject, text: str) -> None:
        self._root = root
        self._text = text
        self._left = _MAX_VALUES

    def value(self, schema: JsonValue, level: int) -> JsonValue:
        self._left -= 1
        if not isinstance(schema, Mapping) or level > _MAX_LEVELS or self._left < 0:
            return self._text if schema is True else None
        if isinstance(reference := schema.get("$ref"), str):
            return self.value(self._resolve(reference), level + 1)
        if "const" in schema:
            return schema["const"]
        if isinstance(options := schema.get("enum"), list) and options:
            said = self._text.lower()
            return next((each for each in options if str(each).lower() in said), options[0])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if isinstance(parts := schema.get(keyword), list) and parts:
                return self._combined(schema, keyword, parts, level)
        return self._of_type(schema, level)

    def _resolve(self, reference: str) -> JsonValue:
        value: JsonValue = self._root
        for key in reference.removeprefix("#").split("/")[1:]:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def _combined(self, schema: JsonObject, keyword: str, parts: list[JsonValue], level: int) -> JsonValue:
        rest = {name: value for name, value in schema.items() if name != keyword}
        known = [part for part in parts if isinstance(part, Mapping) and part.get("type") != "null"]
        for part in known if keyword == "allOf" else known[:1]:
            properties = {**rest.get("properties", {}), **part.get("properties", {})}
            required = [*rest.get("required", ()), *part.get("required", ())]
            rest = {**rest, **part}
            if properties:
                rest |= {"properties": properties, "required": required}
        return self.value(rest, level + 1)

    def _of_type(self, schema: JsonObject, level: int) -> JsonValue:
        types = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(types, list):
            types = next((each for each in types if each != "null"), "null")
        match types:
            case "object":
                return self._object(schema, level)
            case "array":
                return self._array(schema, level)
            case "integer" | "number":
                return self._number(schema, is_whole=types == "integer")
            case "boolean":
                return _NO.search(self._text) is None
            case "null":
                return None
            case _:
                return self._string(schema)

    def _object(self, schema: JsonObject, level: int) -> JsonDict:
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required") or ()
        names = [*known, *(name for name in required if name not in known)]
        # Optional fields of deep objects are omitted, so that a schema that refers to itself comes to an end.
        return {
            name: self.value(known.get(name, True), level + 1)
            for name in names
            if name in required or level < _MAX_LEVELS // 2
        }

    def _array(self, schema: JsonObject, level: int) -> list[JsonValue]:
        first = schema.get("prefixItems")
        items = [self.value(each, level + 1) for each in first] if isinstance(first, list) else []
        wanted = max(int(schema.get("minItems", 0)), 1 if level < _MAX_LEVELS // 2 else 0)
        most = min(int(schema.get("maxItems", _MAX_ITEMS)), _MAX_ITEMS)
        while len(items) < min(wanted, most) and schema.get("items", True) is not False:
            items.append(self.value(schema.get("items", True), level + 1))
        return items[:most]

    def _number(self, schema: JsonObject, *, is_whole: bool) -> JsonValue:
        found = _NUMBER.search(self._text)
        number = float(found[0]) if found else 0.0
        step = schema.get("multipleOf", 1 if is_whole else None)
        gap = step or 1
        low = schema.get("minimum", schema.get("exclusiveMinimum", number - gap) + gap)
        high = schema.get("maximum", schema.get("exclusiveMaximum", max(number, low) + gap) - gap)
        number = max(min(number, high), low)
        if step:
            number = round(number / step) * step
        return int(number) if is_whole or number == int(number) else number

    def _string(self, schema: JsonObject) -> str:
        if (given := _FORMATS.get(str(schema.get("format")))) is not None:
            return given
        text = self._text.ljust(min(int(schema.get("minLength", 0)), _MAX_PADDING), ".")
        return text[: int(schema.get("maxLength", len(text)))]
