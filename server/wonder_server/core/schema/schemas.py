"""JSON Schema 2020-12: checks of schemas when a definition is saved, validation of values when it runs.

Users and models write schemas, so a schema's abilities are limited. ``$ref`` only points into the same
schema, and nothing is fetched. Regular expressions run on RE2 in linear time. All work of a check is metered
(`json_schema`), since a few lines can describe endless work. Features A6, C7, G3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from wonder_server.core.json_types import JsonObject, JsonValue
from wonder_server.core.schema import patterns, payloads
from wonder_server.core.schema.json_schema import Check, Failure, TooMuchWorkError, Trail

MAX_SCHEMA_BYTES = 128 * 1024
MAX_PARTS = 3_000  # The meta-schema costs 0.4 µs a part; the checks of this module cost 8 µs.
MAX_PATTERN_SIZE = 100_000
"""Limit of the instructions of all regular expressions of a schema. Compiling takes about 1 µs for each, and
1,000 characters of expressions can have 9,000."""
MAX_SENTENCES = 20

Schema = JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault of a schema and its path in the schema (``properties.name.pattern``)."""

    message: str
    path: str = ""


# --- checks of schemas ---------------------------------------------------------------------------

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_UNSUPPORTED = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef")

_META_SCHEMA: Final = Draft202012Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"})
"""The meta-schema, which the library contains. The library checks nothing else: it has no budget of work."""

Place = tuple[str | int, ...]


def check_schema(schema: Schema) -> Problem | None:
    """Return the first fault that makes a schema unusable, or None."""
    fault = payloads.check(schema, max_bytes=MAX_SCHEMA_BYTES)
    if fault is not None:
        return Problem(message=fault.message.replace("payload", "schema"), path=fault.field)
    if _size(schema) > MAX_PARTS:
        return Problem(message=f"a schema may have at most {MAX_PARTS} parts")
    if not _META_SCHEMA.is_valid(schema):
        return _problem(min(_META_SCHEMA.iter_errors(schema), key=lambda error: len(error.instance_path)))
    parts = dict(parts_of(schema, ()))
    targets = {tuple(map(str, place)) for place in parts}
    has_patterns = any("patternProperties" in part for part in parts.values())
    for place, part in parts.items():
        problem = _check_part(place, part, targets, has_patterns)
        if problem is not None:
            return problem
    return _check_patterns(parts)


def _problem(error: ValidationError) -> Problem:
    """Return the fault that the meta-schema found, as a sentence."""
    place = tuple(error.instance_path)
    if place[-1:] == ("type",):
        return Problem(message=f"must be one of {', '.join(_TYPES)}, or a list of them", path=dotted(place))
    wanted = error.kind.value
    if isinstance(error.kind, ValidationErrorKind.Type):
        wanted = sorted(error.kind.types, key=list(_TYPES).index)
    return Problem(message=_sentence(error.kind.name, wanted), path=dotted(place))


def _size(value: JsonValue) -> int:
    """Return an upper bound of the number of schemas in a value: objects and booleans, including those in
    data."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return int(isinstance(value, bool))


def parts_of(schema: JsonValue, place: Place = ()) -> Iterator[tuple[Place, JsonObject]]:
    """Yield every schema inside a schema with its path. Data such as ``const`` and ``enum`` is left out."""
    if not isinstance(schema, Mapping):
        return
    yield place, schema
    for keyword in _NAMED:
        for name, part in schema.get(keyword, {}).items():
            yield from parts_of(part, (*place, keyword, name))
    for keyword in _LISTED:
        for index, part in enumerate(schema.get(keyword, ())):
            yield from parts_of(part, (*place, keyword, index))
    for keyword in _SINGLE:
        yield from parts_of(schema.get(keyword), (*place, keyword))


def _check_part(
    place: Place, part: JsonObject, targets: set[tuple[str, ...]], has_patterns: bool
) -> Problem | None:
    def problem(message: str, *steps: str) -> Problem:
        return Problem(message=message, path=dotted((*place, *steps)))

    for keyword in _UNSUPPORTED:
        if keyword in part:
            return problem(f"{keyword} is not supported: use $ref to a place in this schema", keyword)
    if place and "$id" in part:
        return problem("only the whole schema may have an $id", "$id")
    if "unevaluatedProperties" in part and has_patterns:
        return problem(
            "unevaluatedProperties cannot be combined with patternProperties", "unevaluatedProperties"
        )
    if "$ref" in part:
        message = _check_reference(part["$ref"], targets)
        if message:
            return problem(message, "$ref")
    return None


def _check_patterns(parts: Mapping[Place, Schema]) -> Problem | None:
    """Return the first regular expression that is invalid or exceeds `MAX_PATTERN_SIZE`, or None."""
    known: set[str] = set()
    left = MAX_PATTERN_SIZE
    for place, expression in _patterns_of(parts):
        if expression in known:
            continue
        try:
            left -= patterns.compiled(expression).size
        except patterns.PatternError as fault:
            return Problem(message=str(fault), path=dotted(place))
        known.add(expression)
        if left < 0:
            message = "the regular expressions up to this one are too large together: "
            return Problem(
                message=f"{message}use fewer, or smaller counts such as {{1,64}}", path=dotted(place)
            )
    return None


def _patterns_of(parts: Mapping[Place, Schema]) -> Iterator[tuple[Place, str]]:
    """Yield the regular expressions of a schema with their places."""
    for place, part in parts.items():
        for expression in part.get("patternProperties", ()):
            yield (*place, "patternProperties", expression), expression
        if "pattern" in part:
            yield (*place, "pattern"), part["pattern"]


def _check_reference(reference: str, targets: set[tuple[str, ...]]) -> str:
    if not reference.startswith("#"):
        return "$ref may only point into this schema, as in '#/$defs/name': nothing is fetched"
    steps = [step.replace("~1", "/").replace("~0", "~") for step in reference[1:].split("/")]
    if steps[0]:
        return "$ref takes a path, as in '#/$defs/name', not the name of an anchor"
    if tuple(steps[1:]) not in targets:
        return f"there is no schema at '{reference[:200]}'"
    return ""


# --- validation of values ------------------------------------------------------------------------

_ANY_OBJECT = {"type": "object"}
"""The schema of most values, which needs no full check."""


def validate(schema: Schema, value: JsonValue, *, name: str = "") -> list[str]:
    """Return the faults of ``value``, one plain sentence each, at most 20; empty if it is valid.

    A sentence starts with the path, which starts with ``name``: ``input.items[2].id: is missing``. A check
    that needs more than `json_schema.BUDGET` units of work returns one sentence about that. A schema that did
    not pass `check_schema` returns one sentence as well.
    """
    if not schema or (type(value) is dict and schema == _ANY_OBJECT):
        return []
    found = Check(schema).failures(value, schema)
    try:
        return [_located(failure, name) for failure in islice(found, MAX_SENTENCES)]
    except (TooMuchWorkError, RecursionError):
        return [f"{name or 'the value'}: checking this takes too long: the schema or the value is too large"]
    except Exception:  # A schema that was never checked can raise any exception.
        return [f"{name or 'the value'}: cannot be checked: the schema is not valid"]


# --- sentences ----------------------------------------------------------------------------------

_TYPES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _shown(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:199] + "…"


def _one_of(names: JsonValue) -> str:
    return " or ".join(_TYPES.get(name, str(name)) for name in ([names] if isinstance(names, str) else names))


_SENTENCES: dict[str, Callable[[JsonValue], str]] = {
    "type": lambda wanted: f"must be {_one_of(wanted)}",
    "enum": lambda wanted: f"must be one of {_shown(wanted)}",
    "const": lambda wanted: f"must be {_shown(wanted)}",
    "additionalProperties": lambda wanted: "is not a known field",
    "unevaluatedProperties": lambda wanted: "has unknown fields",
    "pattern": lambda wanted: f"must match the pattern {_shown(wanted)}",
    "minLength": lambda wanted: f"must have at least {wanted} characters",
    "maxLength": lambda wanted: f"must have at most {wanted} characters",
    "minItems": lambda wanted: f"must have at least {wanted} items",
    "maxItems": lambda wanted: f"must have at most {wanted} items",
    "uniqueItems": lambda wanted: "must not have an item twice",
    "minProperties": lambda wanted: f"must have at least {wanted} fields",
    "maxProperties": lambda wanted: f"must have at most {wanted} fields",
    "minimum": lambda wanted: f"must be at least {wanted}",
    "maximum": lambda wanted: f"must be at most {wanted}",
    "exclusiveMinimum": lambda wanted: f"must be more than {wanted}",
    "exclusiveMaximum": lambda wanted: f"must be less than {wanted}",
    "multipleOf": lambda wanted: f"must be a multiple of {wanted}",
    "anyOf": lambda wanted: "fits none of the allowed forms",
    "oneOf": lambda wanted: "must fit exactly one of the allowed forms",
    "not": lambda wanted: "has a form that is not allowed",
    "contains": lambda wanted: "lacks an item that is required",
    "minContains": lambda wanted: f"must have at least {wanted} items of the required form",
    "maxContains": lambda wanted: f"must have at most {wanted} items of that form",
    "required": lambda wanted: "is missing",
    "propertyNames": lambda wanted: "is not a name that a field may have",
    "false": lambda wanted: "is not allowed",
}


def _sentence(keyword: str, wanted: JsonValue) -> str:
    known = _SENTENCES.get(keyword)
    return known(wanted) if known else f"does not satisfy '{keyword or 'the schema'}'"


def _located(failure: Failure, name: str) -> str:
    path = dotted(_place(failure.trail))
    whole = f"{name}{'' if path.startswith('[') or not path else '.'}{path}" if name else path
    return f"{whole[:300] or 'the value'}: {_sentence(failure.keyword, failure.wanted)}"


def _place(trail: Trail) -> Place:
    steps: list[str | int] = []
    while trail:
        trail, step = trail
        steps.append(step)
    return tuple(reversed(steps))


def dotted(place: Place) -> str:
    """Return a path as text: ``properties.name.items[0]``."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")
