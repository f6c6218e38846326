"""JSON Schema 2020-12: checked when a definition is saved, applied when it runs.

Schemas come from users and models, so what they may do is narrowed: ``$ref`` points only to a place in
the same schema (nothing is ever fetched), regular expressions run on RE2 in linear time, and following
references is metered, since a few lines of them can describe endless work. Features A6, C7, G3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry

from wonder_server.core import patterns, payloads

MAX_SCHEMA_BYTES = 128 * 1024
MAX_SENTENCES = 20
MAX_REFERENCES = 20_000

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

Place = tuple[str | int, ...]


def check_schema(schema: Schema) -> Problem | None:
    """The first reason why a schema cannot be used, or None."""
    fault = payloads.check(schema, max_bytes=MAX_SCHEMA_BYTES)
    if fault is not None:
        return Problem(message=fault.message.replace("payload", "schema"), path=fault.field)
    try:
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        place = tuple(error.path)
        if place[-1:] == ("type",):
            return Problem(
                message=f"must be one of {', '.join(_TYPES)}, or a list of them", path=_dotted(place)
            )
        return Problem(message=_sentence(error), path=_dotted(place))
    parts = dict(_parts(schema, ()))
    for place, part in parts.items():
        problem = _check_part(place, part, parts)
        if problem is not None:
            return problem
    return None


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


def _check_part(place: Place, part: Mapping[str, Any], parts: Mapping[Place, Any]) -> Problem | None:
    def problem(message: str, *steps: str) -> Problem:
        return Problem(message=message, path=_dotted((*place, *steps)))

    for keyword in _UNSUPPORTED:
        if keyword in part:
            return problem(f"{keyword} is not supported: use $ref to a place in this schema", keyword)
    if place and "$id" in part:
        return problem("only the whole schema may have an $id", "$id")
    if "unevaluatedProperties" in part and any("patternProperties" in other for other in parts.values()):
        return problem(
            "unevaluatedProperties cannot be combined with patternProperties", "unevaluatedProperties"
        )
    if "$ref" in part:
        message = _check_reference(part["$ref"], parts)
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


def _check_reference(reference: str, parts: Mapping[Place, Any]) -> str:
    if not reference.startswith("#"):
        return "$ref may only point into this schema, as in '#/$defs/name': nothing is fetched"
    steps = [step.replace("~1", "/").replace("~0", "~") for step in reference[1:].split("/")]
    if steps[0]:
        return "$ref takes a path, as in '#/$defs/name', not the name of an anchor"
    wanted = steps[1:]
    if not any(wanted == [str(step) for step in place] for place in parts):
        return f"there is no schema at '{reference[:200]}'"
    return ""


def _check_pattern(expression: str) -> str:
    try:
        patterns.compiled(expression)
    except patterns.PatternError as fault:
        return str(fault)
    return ""


# --- when run -----------------------------------------------------------------------------------


def validate(schema: Schema, value: Any, *, name: str = "") -> list[str]:
    """What is wrong with ``value``, one plain sentence each, at most 20; empty if it fits.

    A sentence starts with the place, before which ``name`` is put: ``input.items[2].id: is missing``.
    The schema must have passed `check_schema`; if not, that is a sentence too.
    """
    if not schema:
        return []
    budget = _references_left.set(MAX_REFERENCES)
    try:
        validator = _validator(json.dumps(schema, separators=(",", ":")))
        return [_located(error, name) for error in islice(validator.iter_errors(value), MAX_SENTENCES)]
    except (_TooManyReferencesError, RecursionError):
        return [f"{name or 'the value'}: takes too much work to check: the schema's references go in circles"]
    except Exception:  # the library meets a schema that was never checked: it raises anything then
        return [f"{name or 'the value'}: cannot be checked: the schema is not valid"]
    finally:
        _references_left.reset(budget)


class _TooManyReferencesError(Exception):
    """The meter of one validation ran out."""


_references_left: ContextVar[int] = ContextVar("references_left")


def _ref(validator: Any, reference: str, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    left = _references_left.get()
    if left <= 0:
        raise _TooManyReferencesError
    _references_left.set(left - 1)
    yield from Draft202012Validator.VALIDATORS["$ref"](validator, reference, instance, schema)


def _pattern(validator: Any, expression: str, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not patterns.compiled(expression).found_in(instance):
        yield ValidationError("")


def _pattern_properties(
    validator: Any, properties: Schema, instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for expression, part in properties.items():
            for key, value in instance.items():
                if patterns.compiled(expression).found_in(key):
                    yield from validator.descend(value, part, path=key, schema_path=expression)


def _additional_properties(
    validator: Any, rest: Any, instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known = schema.get("properties", {})
    expressions = [patterns.compiled(text) for text in schema.get("patternProperties", ())]
    for key, value in instance.items():
        if key in known or any(expression.found_in(key) for expression in expressions):
            continue
        if rest is False:
            yield ValidationError("", path=(key,))
        elif rest is not True:
            yield from validator.descend(value, rest, path=key)


_extend: Any = validators.extend  # its stub has no types
_Validator = _extend(
    Draft202012Validator,
    {
        "$ref": _ref,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)


@lru_cache(maxsize=512)
def _validator(schema: str) -> Any:
    return _Validator(json.loads(schema), registry=Registry())


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
}


def _sentence(error: Any) -> str:
    known = _SENTENCES.get(error.validator)
    return known(error.validator_value) if known else f"does not satisfy '{error.validator or 'the schema'}'"


def _located(error: Any, name: str) -> str:
    place: Place = tuple(error.absolute_path)
    sentence = _sentence(error)
    if error.validator == "required":
        missing = next((key for key in error.validator_value if key not in error.instance), "")
        place, sentence = (
            (*place, _first_named(error.message, error.validator_value) or missing),
            "is missing",
        )
    path = _dotted(place)
    whole = f"{name}{'' if path.startswith('[') or not path else '.'}{path}" if name else path
    return f"{whole[:300] or 'the value'}: {sentence}"


def _first_named(message: str, names: list[str]) -> str:
    """Which required field an error of ``required`` is about: it is only in its message."""
    return next((key for key in names if message == f"{key!r} is a required property"), "")


def _dotted(place: Place) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")
