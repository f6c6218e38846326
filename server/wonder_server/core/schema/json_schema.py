"""Metered validation of values by JSON Schema 2020-12.

Untrusted users may write both the schema and the value, and a short schema can cause endless work: a list of
20,000 objects compared pairwise, 300 forms tried on 300 items, references that double. All work is therefore
paid out of one budget per check. A unit is at most about a microsecond, and work that is proportional to a
size costs that size. Features A6, C7, G3.

Not supported, since `schemas.check_schema` refuses them: references out of the schema, and dynamic
references. ``format`` is only informative. Values are JSON: dict, list, str, int, float, bool, None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema import patterns

BUDGET: Final = 200_000
# A value has at most 30 levels; references and alternatives add levels. Each level takes two to three frames,
# so that a check fits below a caller that has used two thirds of Python's recursion limit.
_MAX_LEVELS: Final = 100
_CHARACTERS_A_UNIT: Final = 64
_COMPILING: Final = 50
_KEY: Final = 4
# RE2 takes at worst some 5 ns for each character and each instruction of the compiled expression.
_STEPS_A_UNIT: Final = 200
_EXACT: Final = 2**53
_one_text: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

Trail = tuple[JsonValue, ...]
"""A path, innermost step first: ``(outer, step)``, or ``()``. A long path costs nothing until it is shown."""


class TooMuchWorkError(Exception):
    """The budget of one check is exhausted."""


class Failure(NamedTuple):
    """One fault: its path, and the keyword with its value."""

    trail: Trail
    keyword: str
    wanted: JsonValue


Failures = Iterator[Failure]


class Check:
    """One check of one value against ``root``. An instance is used once.

    Raises `TooMuchWorkError`, `RecursionError`, or any exception for a schema that is not valid.
    """

    def __init__(self, root: JsonValue, budget: int = BUDGET) -> None:
        self.left = budget
        self._root = root
        self._levels = 0
        self._references: JsonDict = {}
        self._patterns: dict[str, patterns.Pattern] = {}
        self._enums: dict[int, set[JsonValue]] = {}

    def pay(self, units: int) -> None:
        """Take units of work from the budget. Raises `TooMuchWorkError` if the budget is exhausted."""
        self.left -= units
        if self.left < 0:
            raise TooMuchWorkError

    def failures(self, value: JsonValue, schema: JsonValue, trail: Trail = ()) -> Failures:
        """Yield all faults of ``value``, in the order of the schema's keywords."""
        if schema is True:
            return
        if schema is False:
            yield Failure(trail, "false", schema)
            return
        self.pay(1 + len(schema))
        if self._levels >= _MAX_LEVELS:
            raise TooMuchWorkError
        self._levels += 1
        try:
            for keyword, wanted in schema.items():
                if (assertion := _ASSERTIONS.get(keyword)) is not None:
                    if not assertion(self, wanted, value):
                        yield Failure(trail, keyword, wanted)
                elif (applicator := _APPLICATORS.get(keyword)) is not None:
                    yield from applicator(self, wanted, value, schema, trail)
        finally:
            self._levels -= 1

    def fits(self, value: JsonValue, schema: JsonValue) -> bool:
        """Return True if ``value`` is valid. The check ends at the first fault."""
        found = self.failures(value, schema)
        try:
            return next(found, None) is None
        finally:
            found.close()  # type: ignore[attr-defined]

    def key(self, value: JsonValue) -> JsonValue:
        """Return a key that is equal for two values exactly if JSON Schema calls them equal.

        1 equals 1.0 but not true; the order of an object's fields does not count. The key is a text or
        contains one, never a bare number: only hashes of texts are protected against chosen collisions.
        """
        if type(value) is str:
            self.pay(1 + len(value) // _CHARACTERS_A_UNIT)
            return value
        self.pay(_KEY)
        return (_one_text(self._plain(value)),)

    def found(self, expression: str, text: str) -> bool:
        """Return True if a regular expression matches anywhere in the text."""
        if expression not in self._patterns:
            self.pay(_COMPILING)
            pattern = self._patterns[expression] = patterns.compiled(expression)
            self.pay(pattern.size // 10)
        pattern = self._patterns[expression]
        self.pay(10 + len(text) * (pattern.size + 4) // _STEPS_A_UNIT)
        return pattern.found_in(text)

    def target(self, reference: str) -> JsonValue:
        """Return the schema that ``#/a/b`` points to."""
        if reference not in self._references:
            if not reference.startswith("#"):
                raise ValueError(reference)
            found = self._root
            for step in reference.split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found[int(name)] if isinstance(found, list) else found[name]
            self._references[reference] = found
        return self._references[reference]

    def one_of(self, allowed: list[JsonValue], value: JsonValue) -> bool:
        """Return True if the value is one of the allowed ones. Their keys are computed once."""
        keys = self._enums.get(id(allowed))
        if keys is None:
            keys = self._enums[id(allowed)] = {self.key(each) for each in allowed}
        return self.key(value) in keys

    def _plain(self, value: JsonValue) -> JsonValue:
        """Return the value with whole floats as integers, so that equal values have one text."""
        self.pay(1)
        if isinstance(value, str):
            self.pay(len(value) // _CHARACTERS_A_UNIT)
            return value
        if isinstance(value, dict):
            self.pay(sum(map(len, value)) // _CHARACTERS_A_UNIT + len(value))
            return {name: self._plain(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        return value


# --- keywords that test the value itself ---------------------------------------------------------


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: JsonValue) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


_IS: Final[dict[str, Callable[[JsonValue], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": _is_whole,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _type(check: Check, wanted: JsonValue, value: JsonValue) -> bool:
    if isinstance(wanted, str):
        return _IS[wanted](value)
    check.pay(len(wanted))
    return any(_IS[name](value) for name in wanted)


def _multiple_of(check: Check, wanted: JsonValue, value: JsonValue) -> bool:
    if not _is_number(value):
        return True
    if isinstance(value, int) and isinstance(wanted, int):
        return value % wanted == 0
    quotient = value / wanted
    return bool(math.fmod(value, wanted) == 0 if math.isinf(quotient) else quotient == int(quotient))


def _unique(check: Check, wanted: JsonValue, value: JsonValue) -> bool:
    if not wanted or not isinstance(value, list):
        return True
    return len({check.key(item) for item in value}) == len(value)


Assertion = Callable[[Check, JsonValue, JsonValue], bool]


def _when(kind: Callable[[JsonValue], bool], fits: Callable[[JsonValue, JsonValue], bool]) -> Assertion:
    """Return the assertion of a keyword that applies to values of one kind only."""
    return lambda check, wanted, value: not kind(value) or fits(wanted, value)


_ASSERTIONS: Final[dict[str, Assertion]] = {
    "type": _type,
    "enum": lambda check, wanted, value: check.one_of(wanted, value),
    "const": lambda check, wanted, value: check.key(wanted) == check.key(value),
    "multipleOf": _multiple_of,
    "minimum": _when(_is_number, lambda wanted, value: value >= wanted),
    "maximum": _when(_is_number, lambda wanted, value: value <= wanted),
    "exclusiveMinimum": _when(_is_number, lambda wanted, value: value > wanted),
    "exclusiveMaximum": _when(_is_number, lambda wanted, value: value < wanted),
    "minLength": _when(_IS["string"], lambda wanted, value: len(value) >= wanted),
    "maxLength": _when(_IS["string"], lambda wanted, value: len(value) <= wanted),
    "minItems": _when(_IS["array"], lambda wanted, value: len(value) >= wanted),
    "maxItems": _when(_IS["array"], lambda wanted, value: len(value) <= wanted),
    "minProperties": _when(_IS["object"], lambda wanted, value: len(value) >= wanted),
    "maxProperties": _when(_IS["object"], lambda wanted, value: len(value) <= wanted),
    "pattern": lambda check, wanted, value: not isinstance(value, str) or check.found(wanted, value),
    "uniqueItems": _unique,
    "not": lambda check, wanted, value: not check.fits(value, wanted),
}


# --- keywords that apply other schemas, or report several faults ------------------------------------


def _reference(check: Check, wanted: str, value: JsonValue, schema: JsonValue, trail: Trail) -> Failures:
    return check.failures(value, check.target(wanted), trail)


def _all_of(
    check: Check, wanted: list[JsonValue], value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    for part in wanted:
        yield from check.failures(value, part, trail)


def _any_of(
    check: Check, wanted: list[JsonValue], value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if not any(check.fits(value, part) for part in wanted):
        yield Failure(trail, "anyOf", wanted)


def _one_of(
    check: Check, wanted: list[JsonValue], value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if sum(check.fits(value, part) for part in wanted) != 1:
        yield Failure(trail, "oneOf", wanted)


def _if(check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail) -> Failures:
    branch = "then" if check.fits(value, wanted) else "else"
    if branch in schema:
        yield from check.failures(value, schema[branch], trail)


def _required(check: Check, wanted: list[str], value: JsonValue, schema: JsonValue, trail: Trail) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted) // 4)
        for name in wanted:
            if name not in value:
                yield Failure((trail, name), "required", wanted)


def _dependent_required(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted))
        for name, needed in wanted.items():
            if name in value:
                yield from _required(check, needed, value, schema, trail)


def _dependent_schemas(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted))
        for name, part in wanted.items():
            if name in value:
                yield from check.failures(value, part, trail)


def _properties(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted))
        for name, part in wanted.items():
            if name in value:
                yield from check.failures(value[name], part, (trail, name))


def _pattern_properties(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict):
        for expression, part in wanted.items():
            for name, member in value.items():
                if check.found(expression, name):
                    yield from check.failures(member, part, (trail, name))


def _rest(check: Check, value: JsonValue, schema: JsonValue) -> Iterator[str]:
    """Yield the fields to which ``additionalProperties`` applies."""
    named, expressions = schema.get("properties", {}), schema.get("patternProperties", ())
    for name in value:
        check.pay(1)
        if name not in named and not any(check.found(expression, name) for expression in expressions):
            yield name


def _additional_properties(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict) and wanted is not True:
        for name in _rest(check, value, schema):
            if wanted is False:
                yield Failure((trail, name), "additionalProperties", wanted)
            else:
                yield from check.failures(value[name], wanted, (trail, name))


def _property_names(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict):
        for name in value:
            if not check.fits(name, wanted):
                yield Failure((trail, name), "propertyNames", wanted)


def _prefix_items(
    check: Check, wanted: list[JsonValue], value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, list):
        for index, (item, part) in enumerate(zip(value, wanted, strict=False)):
            yield from check.failures(item, part, (trail, index))


def _items(check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail) -> Failures:
    if isinstance(value, list):
        for index in range(len(schema.get("prefixItems", ())), len(value)):
            yield from check.failures(value[index], wanted, (trail, index))


def _contains(check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail) -> Failures:
    if isinstance(value, list):
        least, most = schema.get("minContains", 1), schema.get("maxContains", math.inf)
        fitting = sum(check.fits(item, wanted) for item in value)
        if fitting < least:
            yield Failure(trail, "contains" if least == 1 else "minContains", least)
        if fitting > most:
            yield Failure(trail, "maxContains", most)


def _unevaluated_properties(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, dict):
        seen = _seen(check, value, schema)
        if any(name not in seen and not check.fits(member, wanted) for name, member in value.items()):
            yield Failure(trail, "unevaluatedProperties", wanted)


def _unevaluated_items(
    check: Check, wanted: JsonValue, value: JsonValue, schema: JsonValue, trail: Trail
) -> Failures:
    if isinstance(value, list):
        seen = _seen(check, value, schema)
        if any(index not in seen and not check.fits(item, wanted) for index, item in enumerate(value)):
            yield Failure(trail, "unevaluatedItems", wanted)


Applicator = Callable[[Check, JsonValue, JsonValue, JsonValue, Trail], Failures]

_APPLICATORS: Final[dict[str, Applicator]] = {
    "$ref": _reference,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "if": _if,
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "prefixItems": _prefix_items,
    "items": _items,
    "contains": _contains,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
}


# --- evaluated fields and items, for the unevaluated keywords --------------------------------------


def _seen(check: Check, value: JsonValue, schema: JsonValue, *, nested: bool = False) -> set[JsonValue]:
    """Return the fields of an object, or the indices of a list, that a schema's keywords evaluate."""
    if isinstance(schema, bool):
        return set()
    check.pay(1 + len(schema))
    if isinstance(value, dict):
        seen: set[JsonValue] = _seen_fields(check, value, schema, nested)
    else:
        seen = _seen_items(check, value, schema, nested)
    for part in _in_place(check, value, schema):
        found = _seen(check, value, part, nested=True)
        check.pay(len(found))
        seen |= found
    return seen


def _seen_fields(check: Check, value: JsonDict, schema: JsonValue, nested: bool) -> set[JsonValue]:
    check.pay(len(value))
    if "additionalProperties" in schema or (nested and "unevaluatedProperties" in schema):
        return set(value)
    seen = {name for name in value if name in schema.get("properties", {})}
    for expression in schema.get("patternProperties", ()):
        seen.update(name for name in value if check.found(expression, name))
    return seen


def _seen_items(check: Check, value: list[JsonValue], schema: JsonValue, nested: bool) -> set[JsonValue]:
    check.pay(len(value))
    if "items" in schema or (nested and "unevaluatedItems" in schema):
        return set(range(len(value)))
    seen = set(range(min(len(value), len(schema.get("prefixItems", ())))))
    if "contains" in schema:
        seen.update(index for index, item in enumerate(value) if check.fits(item, schema["contains"]))
    return seen


def _in_place(check: Check, value: JsonValue, schema: JsonValue) -> Iterator[JsonValue]:
    """Yield the schemas that a schema applies to the value itself and that the value matches."""
    if "$ref" in schema:
        yield check.target(schema["$ref"])
    yield from schema.get("allOf", ())
    for keyword in ("anyOf", "oneOf"):
        yield from (part for part in schema.get(keyword, ()) if check.fits(value, part))
    if "if" in schema:
        holds = check.fits(value, schema["if"])
        if holds:
            yield schema["if"]
        if (branch := "then" if holds else "else") in schema:
            yield schema[branch]
    if isinstance(value, dict):
        yield from (part for name, part in schema.get("dependentSchemas", {}).items() if name in value)
