"""Checks of output schemas, which a model's answer must satisfy.

Providers and models get an output schema, so it is checked more strictly than other schemas: the root is an
object, every keyword is known, and some value can satisfy it. A misspelled keyword would check nothing, and a
schema without a valid value would fail every turn after two paid calls of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wonder_server.core.json_types import JsonObject, JsonValue
from wonder_server.core.schema import payloads
from wonder_server.core.schema.json_schema import Check, TooMuchWorkError
from wonder_server.core.schema.schemas import Place, Problem, check_schema, dotted, parts_of
from wonder_server.core.suggestions import did_you_mean

MAX_OUTPUT_SCHEMA_BYTES: Final = 32 * 1024
"""Every request to the model contains the schema: 32 KiB are some 8,000 tokens."""

_ANNOTATIONS = "title description default examples deprecated readOnly writeOnly format $comment $id $schema"
_CORE = "$ref $anchor $defs definitions type enum const contentEncoding contentMediaType contentSchema"
_OBJECTS = (
    "properties patternProperties additionalProperties propertyNames required minProperties maxProperties"
    " dependentRequired dependentSchemas unevaluatedProperties"
)
_ARRAYS = "items prefixItems contains minContains maxContains minItems maxItems uniqueItems unevaluatedItems"
_SCALARS = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern"
_COMBINED = "allOf anyOf oneOf not if then else"
KEYWORDS: Final = frozenset(" ".join((_ANNOTATIONS, _CORE, _OBJECTS, _ARRAYS, _SCALARS, _COMBINED)).split())
"""The keywords of JSON Schema 2020-12 that `schemas` checks, and those that only describe."""

_RANGES = (
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minContains", "maxContains"),
    ("minimum", "maximum"),
)
_OPEN_RANGES = (
    ("exclusiveMinimum", "maximum"),
    ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
)
"""Ranges that exclude a bound, so that equal bounds leave no value."""
_MAX_LEVELS = 100
_BUDGET = 100_000
"""Units of work of one check, each of at most about a microsecond: a schema of 32 KiB that lists values and
repeats references could occupy the server for minutes."""
_VISIT = 5
"""Units for one visit of a schema, in addition to its keywords."""
_ALL_TYPES = frozenset("object array string number boolean null".split())


def check_output_schema(schema: JsonObject) -> Problem | None:
    """Return the first fault that makes ``schema`` unusable as an output schema, or None.

    An empty schema asks for nothing and is valid. The search for a contradiction is incomplete: it finds no
    fault in some schemas that no value satisfies.
    """
    if not schema:
        return None
    fault = payloads.check(schema, max_bytes=MAX_OUTPUT_SCHEMA_BYTES)
    if fault is not None:
        return Problem(message=f"{fault.message} in an output schema", path=fault.field)
    problem = check_schema(schema)
    if problem is not None:
        return problem
    if schema.get("type") != "object":
        return Problem(message="an output schema describes an object: set the type 'object'", path="type")
    for place, part in parts_of(schema):
        for keyword in part:
            if keyword not in KEYWORDS and not keyword.startswith("x-"):
                meant = did_you_mean(keyword, KEYWORDS)
                message = f"'{keyword[:80]}' is not a keyword of JSON Schema{meant}"
                return Problem(message=message, path=dotted((*place, keyword)))
    try:
        return _Contradictions(schema).find(schema, (), _ALL_TYPES)
    except TooMuchWorkError:
        return Problem(
            message="checking this schema takes too long: use fewer references, listed values or levels"
        )


class _Contradictions:
    """A search for parts that every value must satisfy and that no value can satisfy.

    Raises `TooMuchWorkError` when its budget is exhausted.
    """

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = _BUDGET
        self._open: list[int] = []
        """Ids of the schemas whose required parts are being searched. One that requires itself has only
        infinite values."""
        self._passed: set[tuple[int, frozenset[str]]] = set()
        """Schemas without a contradiction, by id, with the types that their values may have."""
        self._targets: dict[str, JsonValue] = {}

    def find(self, schema: JsonValue, place: Place, types: frozenset[str]) -> Problem | None:
        """Return the first contradiction that every value of ``schema`` meets, or None.

        ``types`` are those that other schemas leave to the value.
        """
        if schema is False:
            return Problem(message="no value satisfies 'false'", path=dotted(place))
        if not isinstance(schema, Mapping):
            return None
        key = (id(schema), types)
        self._pay(1)
        if key in self._passed:
            return None
        if id(schema) in self._open:
            return Problem(message="a part that requires itself has no finite value", path=dotted(place))
        if len(self._open) > _MAX_LEVELS:
            raise TooMuchWorkError
        self._pay(_VISIT + len(schema))
        self._open.append(id(schema))
        problem = self._found(schema, place, types & _types(schema))
        self._open.pop()
        if problem is None:
            self._passed.add(key)
        return problem

    def _pay(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise TooMuchWorkError

    def _found(self, schema: JsonObject, place: Place, types: frozenset[str]) -> Problem | None:
        if not types:
            return Problem(message="no value has all these types", path=dotted((*place, "type")))
        return (
            _own(schema, place)
            or self._listed(schema, place)
            or self._in_place(schema, place, types)
            or (self._required(schema, place) if types == {"object"} else None)
            or (self._items(schema, place) if types == {"array"} else None)
        )

    def _in_place(self, schema: JsonObject, place: Place, types: frozenset[str]) -> Problem | None:
        """Search the schemas that apply to the value itself."""
        parts: list[tuple[JsonValue, Place]] = []
        if "$ref" in schema:
            parts.append((self._target(schema["$ref"]), (*place, "$ref")))
        parts += [(part, (*place, "allOf", index)) for index, part in enumerate(schema.get("allOf", ()))]
        for part, within in parts:
            if problem := self.find(part, within, types):
                return problem
            types &= _types(part)
        for keyword in ("anyOf", "oneOf"):
            if problem := self._options(schema.get(keyword, ()), (*place, keyword), types):
                return problem
        return None

    def _options(self, options: Sequence[JsonValue], place: Place, types: frozenset[str]) -> Problem | None:
        """Return the contradiction of the first option if every option has one."""
        first = None
        for index, part in enumerate(options):
            problem = self.find(part, (*place, index), types)
            if problem is None:
                return None
            first = first or problem
        return first

    def _required(self, schema: JsonObject, place: Place) -> Problem | None:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        if len(required) > schema.get("maxProperties", len(required)):
            message = f"{len(required)} fields are required, but at most {schema['maxProperties']} allowed"
            return Problem(message=message, path=dotted((*place, "required")))
        self._pay(len(required))
        for name in required:
            if name in properties:
                if problem := self.find(properties[name], (*place, "properties", name), _ALL_TYPES):
                    return problem
            elif schema.get("additionalProperties") is False and not schema.get("patternProperties"):
                return Problem(
                    message=f"'{name[:80]}' is required, but no property and not allowed as another field",
                    path=dotted((*place, "required")),
                )
        return None

    def _items(self, schema: JsonObject, place: Place) -> Problem | None:
        if schema.get("minItems", 0) > len(schema.get("prefixItems", ())):
            return self.find(schema.get("items"), (*place, "items"), _ALL_TYPES)
        return None

    def _listed(self, schema: JsonObject, place: Place) -> Problem | None:
        """Return the contradiction of a list of values that other keywords exclude, or None."""
        listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if listed is None:
            return None
        rest = {name: value for name, value in schema.items() if name in _CHECKED_WITH_ENUM}
        check = Check(rest, self._left)
        fits = any(check.fits(value, rest) for value in listed)
        self._left = check.left
        if fits:
            return None
        keyword = "enum" if "enum" in schema else "const"
        return Problem(message="no listed value satisfies the other keywords", path=dotted((*place, keyword)))

    def _target(self, reference: str) -> JsonValue:
        """Return the schema that a reference points to. `check_schema` found that it exists."""
        if reference not in self._targets:
            found: JsonValue = self._root
            for step in reference[1:].split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                found = found[int(step)] if isinstance(found, list) else found[step]
            self._targets[reference] = found
        return self._targets[reference]


def _own(schema: JsonObject, place: Place) -> Problem | None:
    """Return the contradiction between limits of one schema, or None."""
    for least, most in (*_RANGES, *_OPEN_RANGES):
        if least in schema and most in schema and _applies(schema, least):
            is_open = (least, most) in _OPEN_RANGES
            if schema[least] > schema[most] or (is_open and schema[least] == schema[most]):
                message = f"{least} {schema[least]} is {_ORDER[is_open]} {most} {schema[most]}"
                return Problem(message=message, path=dotted((*place, least)))
    if "not" in schema and schema["not"] in (True, {}):
        message = "no value satisfies this: 'not' excludes every value"
        return Problem(message=message, path=dotted((*place, "not")))
    return None


_ORDER: Final = {False: "greater than", True: "not less than"}
_CHECKED_WITH_ENUM = frozenset(f"type const {_SCALARS}".split())
_TYPES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "minLength": ("string",),
    "minItems": ("array",),
    "minContains": ("array",),
    "minProperties": ("object",),
    "minimum": ("number", "integer"),
    "exclusiveMinimum": ("number", "integer"),
}


def _applies(schema: JsonObject, keyword: str) -> bool:
    """Return True if the only type of the schema is that to which the keyword applies."""
    return schema.get("type") in _TYPES_OF[keyword]


def _types(schema: JsonValue) -> frozenset[str]:
    """Return the types that a schema allows. A whole number counts as a number."""
    wanted = schema.get("type", _ALL_TYPES) if isinstance(schema, Mapping) else _ALL_TYPES
    names = {wanted} if isinstance(wanted, str) else wanted
    return frozenset("number" if name == "integer" else name for name in names)
