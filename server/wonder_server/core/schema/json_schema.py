"""JSON Schema 2020-12 applied to a value, every step of it metered.

Both the schema and the value may come from strangers, and a short schema can ask for endless work: a
list of 20,000 objects compared pairwise, 300 forms tried on 300 items, references that double. So all
work is paid for out of one budget per check: a unit is roughly a microsecond at most, and what is
proportional to a size costs that size. Features A6, C7, G3.

Left out, since `schemas.check_schema` refuses them: references out of the schema and dynamic ones.
``format`` only informs. Values are JSON: dict, list, str, int, float, bool, None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import re2

from wonder_server.core.schema import patterns

BUDGET: Final = 200_000
# A value nests 30 levels; references and alternatives add theirs. Well below Python's own limit.
_MAX_LEVELS: Final = 200
_CHARACTERS_A_UNIT: Final = 64
_COMPILING: Final = 50
_KEY: Final = 4
# RE2 takes at worst some 5 ns for each character and each instruction of the compiled expression.
_STEPS_A_UNIT: Final = 200
_EXACT: Final = 2**53
_one_text: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

Trail = tuple[Any, ...]
"""A place, innermost step first: ``(outer, step)``, or ``()``: long paths cost nothing until shown."""


class TooMuchWorkError(Exception):
    """The budget of one check is spent."""


class Failure(NamedTuple):
    """One thing wrong: where, and the keyword and what it was set to."""

    trail: Trail
    keyword: str
    wanted: Any


Failures = Iterator[Failure]


class Check:
    """One check of one value against ``root``. Made for one use.

    Raises `TooMuchWorkError`, `RecursionError`, or anything for a schema that is not valid.
    """

    def __init__(self, root: Any, budget: int = BUDGET) -> None:
        self.left = budget
        self._root = root
        self._levels = 0
        self._references: dict[str, Any] = {}
        self._patterns: dict[str, tuple[patterns.Pattern, int]] = {}
        self._enums: dict[int, set[Any]] = {}

    def pay(self, units: int) -> None:
        """Take units of work out of the budget. Raises `TooMuchWorkError` when there are too few."""
        self.left -= units
        if self.left < 0:
            raise TooMuchWorkError

    def failures(self, value: Any, schema: Any, trail: Trail = ()) -> Failures:
        """All that is wrong with ``value``, in the order of the schema's keywords."""
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

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether nothing is wrong; found out up to the first failure only."""
        found = self.failures(value, schema)
        try:
            return next(found, None) is None
        finally:
            found.close()  # type: ignore[attr-defined]

    def key(self, value: Any) -> Any:
        """What two values have in common exactly when JSON Schema calls them equal.

        1 equals 1.0, but not true; the order of an object's fields does not count. It is a text or
        holds one, never a bare number: only the hashes of texts cannot be made to collide on purpose.
        """
        if type(value) is str:
            self.pay(1 + len(value) // _CHARACTERS_A_UNIT)
            return value
        self.pay(_KEY)
        return (_one_text(self._plain(value)),)

    def found(self, expression: str, text: str) -> bool:
        """Whether a regular expression matches anywhere in the text."""
        if expression not in self._patterns:
            self.pay(_COMPILING)
            pattern = patterns.compiled(expression)
            size: int = re2.compile(expression).programsize
            self._patterns[expression] = (pattern, size)
            self.pay(size // 10)
        pattern, size = self._patterns[expression]
        self.pay(10 + len(text) * (size + 4) // _STEPS_A_UNIT)
        return pattern.found_in(text)

    def target(self, reference: str) -> Any:
        """The schema in this schema that ``#/a/b`` points to."""
        if reference not in self._references:
            if not reference.startswith("#"):
                raise ValueError(reference)
            found = self._root
            for step in reference.split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found[int(name)] if isinstance(found, list) else found[name]
            self._references[reference] = found
        return self._references[reference]

    def one_of(self, allowed: list[Any], value: Any) -> bool:
        """Whether the value is among the allowed ones, whose keys are prepared once."""
        keys = self._enums.get(id(allowed))
        if keys is None:
            keys = self._enums[id(allowed)] = {self.key(each) for each in allowed}
        return self.key(value) in keys

    def _plain(self, value: Any) -> Any:
        """The value with whole floats as integers, so that equal values have one text."""
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


# --- keywords that look at the value itself: whether it is as wanted ------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


_IS: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": _is_whole,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _type(check: Check, wanted: Any, value: Any) -> bool:
    if isinstance(wanted, str):
        return _IS[wanted](value)
    check.pay(len(wanted))
    return any(_IS[name](value) for name in wanted)


def _multiple_of(check: Check, wanted: Any, value: Any) -> bool:
    if not _is_number(value):
        return True
    if isinstance(value, int) and isinstance(wanted, int):
        return value % wanted == 0
    quotient = value / wanted
    return bool(math.fmod(value, wanted) == 0 if math.isinf(quotient) else quotient == int(quotient))


def _unique(check: Check, wanted: Any, value: Any) -> bool:
    if not wanted or not isinstance(value, list):
        return True
    return len({check.key(item) for item in value}) == len(value)


Assertion = Callable[[Check, Any, Any], bool]


def _when(kind: Callable[[Any], bool], fits: Callable[[Any, Any], bool]) -> Assertion:
    """A keyword that is about values of one kind only."""
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


# --- keywords that apply other schemas, or say what is wrong more closely ---------------------------


def _reference(check: Check, wanted: str, value: Any, schema: Any, trail: Trail) -> Failures:
    return check.failures(value, check.target(wanted), trail)


def _all_of(check: Check, wanted: list[Any], value: Any, schema: Any, trail: Trail) -> Failures:
    for part in wanted:
        yield from check.failures(value, part, trail)


def _any_of(check: Check, wanted: list[Any], value: Any, schema: Any, trail: Trail) -> Failures:
    if not any(check.fits(value, part) for part in wanted):
        yield Failure(trail, "anyOf", wanted)


def _one_of(check: Check, wanted: list[Any], value: Any, schema: Any, trail: Trail) -> Failures:
    if sum(check.fits(value, part) for part in wanted) != 1:
        yield Failure(trail, "oneOf", wanted)


def _if(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    branch = "then" if check.fits(value, wanted) else "else"
    if branch in schema:
        yield from check.failures(value, schema[branch], trail)


def _required(check: Check, wanted: list[str], value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted) // 4)
        for name in wanted:
            if name not in value:
                yield Failure((trail, name), "required", wanted)


def _dependent_required(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted))
        for name, needed in wanted.items():
            if name in value:
                yield from _required(check, needed, value, schema, trail)


def _dependent_schemas(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted))
        for name, part in wanted.items():
            if name in value:
                yield from check.failures(value, part, trail)


def _properties(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        check.pay(len(wanted))
        for name, part in wanted.items():
            if name in value:
                yield from check.failures(value[name], part, (trail, name))


def _pattern_properties(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        for expression, part in wanted.items():
            for name, member in value.items():
                if check.found(expression, name):
                    yield from check.failures(member, part, (trail, name))


def _rest(check: Check, value: Any, schema: Any) -> Iterator[str]:
    """The fields that ``additionalProperties`` is about."""
    named, expressions = schema.get("properties", {}), schema.get("patternProperties", ())
    for name in value:
        check.pay(1)
        if name not in named and not any(check.found(expression, name) for expression in expressions):
            yield name


def _additional_properties(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict) and wanted is not True:
        for name in _rest(check, value, schema):
            if wanted is False:
                yield Failure((trail, name), "additionalProperties", wanted)
            else:
                yield from check.failures(value[name], wanted, (trail, name))


def _property_names(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        for name in value:
            if not check.fits(name, wanted):
                yield Failure((trail, name), "propertyNames", wanted)


def _prefix_items(check: Check, wanted: list[Any], value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, list):
        for index, (item, part) in enumerate(zip(value, wanted, strict=False)):
            yield from check.failures(item, part, (trail, index))


def _items(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, list):
        for index in range(len(schema.get("prefixItems", ())), len(value)):
            yield from check.failures(value[index], wanted, (trail, index))


def _contains(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, list):
        least, most = schema.get("minContains", 1), schema.get("maxContains", math.inf)
        fitting = sum(check.fits(item, wanted) for item in value)
        if fitting < least:
            yield Failure(trail, "contains" if least == 1 else "minContains", least)
        if fitting > most:
            yield Failure(trail, "maxContains", most)


def _unevaluated_properties(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, dict):
        seen = _seen(check, value, schema)
        if any(name not in seen and not check.fits(member, wanted) for name, member in value.items()):
            yield Failure(trail, "unevaluatedProperties", wanted)


def _unevaluated_items(check: Check, wanted: Any, value: Any, schema: Any, trail: Trail) -> Failures:
    if isinstance(value, list):
        seen = _seen(check, value, schema)
        if any(index not in seen and not check.fits(item, wanted) for index, item in enumerate(value)):
            yield Failure(trail, "unevaluatedItems", wanted)


Applicator = Callable[[Check, Any, Any, Any, Trail], Failures]

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


# --- what the keywords of a schema have looked at, for the unevaluated ones ------------------------


def _seen(check: Check, value: Any, schema: Any, *, nested: bool = False) -> set[Any]:
    """The fields of an object, or indices of a list, that a schema's keywords have looked at."""
    if isinstance(schema, bool):
        return set()
    check.pay(1 + len(schema))
    if isinstance(value, dict):
        seen: set[Any] = _seen_fields(check, value, schema, nested)
    else:
        seen = _seen_items(check, value, schema, nested)
    for part in _in_place(check, value, schema):
        found = _seen(check, value, part, nested=True)
        check.pay(len(found))
        seen |= found
    return seen


def _seen_fields(check: Check, value: dict[str, Any], schema: Any, nested: bool) -> set[Any]:
    check.pay(len(value))
    if "additionalProperties" in schema or (nested and "unevaluatedProperties" in schema):
        return set(value)
    seen = {name for name in value if name in schema.get("properties", {})}
    for expression in schema.get("patternProperties", ()):
        seen.update(name for name in value if check.found(expression, name))
    return seen


def _seen_items(check: Check, value: list[Any], schema: Any, nested: bool) -> set[Any]:
    check.pay(len(value))
    if "items" in schema or (nested and "unevaluatedItems" in schema):
        return set(range(len(value)))
    seen = set(range(min(len(value), len(schema.get("prefixItems", ())))))
    if "contains" in schema:
        seen.update(index for index, item in enumerate(value) if check.fits(item, schema["contains"]))
    return seen


def _in_place(check: Check, value: Any, schema: Any) -> Iterator[Any]:
    """The schemas that a schema applies to the value itself and that it fits."""
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
