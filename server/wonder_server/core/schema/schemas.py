"""JSON Schema 2020-12: checked when a definition is saved, applied when it runs.

Schemas come from users and models, so what they may do is narrowed: ``$ref`` points only to a place in
the same schema (nothing is ever fetched), regular expressions run on RE2 in linear time, and all the
work of a check is metered (`json_schema`), since a few lines can describe endless work. Features A6, C7, G3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from wonder_server.core.schema import patterns, payloads
from wonder_server.core.schema.json_schema import Check, Failure, TooMuchWorkError, Trail

MAX_SCHEMA_BYTES = 128 * 1024
MAX_PARTS = 3_000  # The meta-schema costs 0.4 µs a part; the checks of this module cost 8 µs.
MAX_SENTENCES = 20

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a schema, and the place in it (``properties.name.pattern``)."""

    message: str
    path: str = ""


# --- when saved ---------------------------------------------------------------------------------

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_UNSUPPORTED = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef")

_META_SCHEMA: Final = Draft202012Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"})
"""The meta-schema, which the library contains. Nothing else is checked by it: it has no budget."""

Place = tuple[str | int, ...]


def check_schema(schema: Schema) -> Problem | None:
    """The first reason why a schema cannot be used, or None."""
    fault = payloads.check(schema, max_bytes=MAX_SCHEMA_BYTES)
    if fault is not None:
        return Problem(message=fault.message.replace("payload", "schema"), path=fault.field)
    if _size(schema) > MAX_PARTS:
        return Problem(message=f"a schema may have at most {MAX_PARTS} parts")
    if not _META_SCHEMA.is_valid(schema):
        return _problem(min(_META_SCHEMA.iter_errors(schema), key=lambda error: len(error.instance_path)))
    parts = dict(_parts(schema, ()))
    targets = {tuple(map(str, place)) for place in parts}
    has_patterns = any("patternProperties" in part for part in parts.values())
    for place, part in parts.items():
        problem = _check_part(place, part, targets, has_patterns)
        if problem is not None:
            return problem
    return None


def _problem(error: ValidationError) -> Problem:
    """Return the fault that the meta-schema found, as a sentence."""
    place = tuple(error.instance_path)
    if place[-1:] == ("type",):
        return Problem(message=f"must be one of {', '.join(_TYPES)}, or a list of them", path=_dotted(place))
    wanted = error.kind.value
    if isinstance(error.kind, ValidationErrorKind.Type):
        wanted = sorted(error.kind.types, key=list(_TYPES).index)
    return Problem(message=_sentence(error.kind.name, wanted), path=_dotted(place))


def _size(value: Any) -> int:
    """How many schemas there may be in a value: objects and booleans, those in data included."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return int(isinstance(value, bool))


def _parts(schema: Any, place: Place) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Every schema inside a schema, with its place; data such as ``const`` and ``enum`` left out."""
    if not isinstance(schema, Mapping):
        return
    yield place, schema
    for keyword in _NAMED:
        for name, part in schema.get(keyword, {}).items():
            yield from _parts(part, (*place, keyword, name))
    for keyword in _LISTED:
        for index, part in enumerate(schema.get(keyword, ())):
            yield from _parts(part, (*place, keyword, index))
    for keyword in _SINGLE:
        yield from _parts(schema.get(keyword), (*place, keyword))


def _check_part(
    place: Place, part: Mapping[str, Any], targets: set[tuple[str, ...]], has_patterns: bool
) -> Problem | None:
    def problem(message: str, *steps: str) -> Problem:
        return Problem(message=message, path=_dotted((*place, *steps)))

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
    for expression in part.get("patternProperties", ()):
        message = _check_pattern(expression)
        if message:
            return problem(message, "patternProperties", expression)
    if "pattern" in part:
        message = _check_pattern(part["pattern"])
        if message:
            return problem(message, "pattern")
    return None


def _check_reference(reference: str, targets: set[tuple[str, ...]]) -> str:
    if not reference.startswith("#"):
        return "$ref may only point into this schema, as in '#/$defs/name': nothing is fetched"
    steps = [step.replace("~1", "/").replace("~0", "~") for step in reference[1:].split("/")]
    if steps[0]:
        return "$ref takes a path, as in '#/$defs/name', not the name of an anchor"
    if tuple(steps[1:]) not in targets:
        return f"there is no schema at '{reference[:200]}'"
    return ""


def _check_pattern(expression: str) -> str:
    try:
        patterns.compiled(expression)
    except patterns.PatternError as fault:
        return str(fault)
    return ""


# --- when run -----------------------------------------------------------------------------------

_ANY_OBJECT = {"type": "object"}
"""The schema of most values; what fits it is seen at a glance."""


def validate(schema: Schema, value: Any, *, name: str = "") -> list[str]:
    """What is wrong with ``value``, one plain sentence each, at most 20; empty if it fits.

    A sentence starts with the place, before which ``name`` is put: ``input.items[2].id: is missing``.
    One sentence says so when checking takes more than `json_schema.BUDGET` units of work.
    The schema must have passed `check_schema`; if not, that is a sentence too.
    """
    if not schema or (type(value) is dict and schema == _ANY_OBJECT):
        return []
    found = Check(schema).failures(value, schema)
    try:
        return [_located(failure, name) for failure in islice(found, MAX_SENTENCES)]
    except (TooMuchWorkError, RecursionError):
        return [f"{name or 'the value'}: checking this takes too long: the schema or the value is too large"]
    except Exception:  # a schema that was never checked: it raises anything then
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


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:199] + "…"


def _one_of(names: Any) -> str:
    return " or ".join(_TYPES.get(name, str(name)) for name in ([names] if isinstance(names, str) else names))


_SENTENCES: dict[str, Callable[[Any], str]] = {
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


def _sentence(keyword: str, wanted: Any) -> str:
    known = _SENTENCES.get(keyword)
    return known(wanted) if known else f"does not satisfy '{keyword or 'the schema'}'"


def _located(failure: Failure, name: str) -> str:
    path = _dotted(_place(failure.trail))
    whole = f"{name}{'' if path.startswith('[') or not path else '.'}{path}" if name else path
    return f"{whole[:300] or 'the value'}: {_sentence(failure.keyword, failure.wanted)}"


def _place(trail: Trail) -> Place:
    steps: list[str | int] = []
    while trail:
        trail, step = trail
        steps.append(step)
    return tuple(reversed(steps))


def _dotted(place: Place) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")
