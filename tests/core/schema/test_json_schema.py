"""Validation by a schema: its work is bounded, and the keywords follow the standard."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.depth import by_depth
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema.json_schema import BUDGET, Check, TooMuchWorkError
from wonder_server.core.schema.schemas import check_schema, validate

TOO_LONG = ["the value: checking this takes too long: the schema or the value is too large"]
TEXTS = [f"x{i}" for i in range(100_000)]
FIELDS = dict.fromkeys(TEXTS[:60_000], 1)
FEW = dict.fromkeys(TEXTS[:5_000], 1)
DOUBLED: JsonDict = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(26)}

HOSTILE: dict[str, tuple[JsonDict, Any]] = {
    "uniqueItems": ({"uniqueItems": True}, [{"a": i, "b": [i], "c": {}} for i in range(40_000)]),
    "enum of objects": ({"items": {"enum": [{"a": 1}]}}, [{"a": 1.0}] * 200_000),
    "anyOf": ({"items": {"items": {"anyOf": [{"const": i} for i in range(300)]}}}, [[299] * 300] * 300),
    "oneOf": ({"items": {"oneOf": [{"const": i} for i in range(400)]}}, list(range(400))),
    "not": ({"items": {"not": {"required": [*TEXTS[:10_000], "y"]}}}, [FIELDS] * 200),
    "contains": ({"items": {"contains": {"const": "x"}, "minContains": 0}}, [[1] * 1_000] * 1_000),
    "dependentSchemas": (
        {"items": {"dependentSchemas": {name: {"type": "object"} for name in TEXTS[:200]}}},
        [FIELDS] * 300,
    ),
    "patternProperties": ({"patternProperties": {f"^{name}y$": {} for name in TEXTS[:100]}}, FIELDS),
    "additionalProperties": (
        {"patternProperties": {f"^{name}y$": {} for name in TEXTS[:100]}, "additionalProperties": {}},
        FIELDS,
    ),
    "propertyNames": ({"propertyNames": {"allOf": [{"type": "string"}] * 10}}, FIELDS),
    "const": ({"items": {"const": FEW}}, [FEW] * 200),
    "pattern": ({"pattern": "((((a?){20}){10}){5})c"}, "a" * 4_000_000),
    "references": ({"$defs": {**DOUBLED, "d26": {"type": "string"}}, "$ref": "#/$defs/d0"}, "x"),
    "unevaluatedProperties": (
        {"unevaluatedProperties": False, "allOf": [{"properties": {"x1": {}}}] * 100},
        FIELDS,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_endless_work_is_stopped(name: str) -> None:
    schema, value = HOSTILE[name]
    assert check_schema(schema) is None
    with pytest.raises(TooMuchWorkError):
        list(Check(schema, budget=BUDGET // 10).failures(value, schema))


def test_endless_work_is_reported_as_a_sentence() -> None:
    assert validate(*HOSTILE["references"]) == TOO_LONG


def work(schema: Any, value: Any) -> int:
    check = Check(schema)
    assert list(check.failures(value, schema)) == []
    return BUDGET - check.left


def test_ordinary_large_values_pass() -> None:
    assert work({"type": "array", "items": {"type": "string"}}, TEXTS[:40_000]) < BUDGET / 2
    assert work({"items": {"enum": TEXTS[:10_000]}}, TEXTS[:10_000] * 4) < BUDGET
    assert work({"uniqueItems": True}, [{"a": i} for i in range(20_000)]) < BUDGET
    assert work({"pattern": "^[a-z]+$"}, "a" * 4_000_000) < BUDGET


def test_unique_items_cost_in_proportion_to_their_number() -> None:
    some, more = (work({"uniqueItems": True}, TEXTS[:count]) for count in (1_000, 10_000))
    assert more < 11 * some


def test_a_budget_that_is_spent_is_an_error() -> None:
    with pytest.raises(TooMuchWorkError):
        list(Check({}, budget=3).failures([1] * 4, {"items": {"type": "integer"}}))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (0.0, -0.0, True),
        ("1", 1, False),
        (None, "null", False),
        ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ([1, 2], [2, 1], False),
        ([[0]], [[False]], False),
        (1.5, 1.5, True),
    ],
)
def test_equality_is_that_of_json_schema(one: Any, other: Any, equal: bool) -> None:
    assert (validate({"const": one}, other) == []) is equal
    assert (validate({"enum": ["no", one]}, other) == []) is equal
    assert (validate({"uniqueItems": True}, [one, "no", other]) == []) is not equal


KEYWORDS: dict[str, list[Any]] = {
    "type": ["string", "integer", ["number", "null"], "object", "array", "boolean"],
    "enum": [[1, "a", None], [[1.0], {"a": True}]],
    "const": [1, "a", {"a": 1}],
    "minimum": [1, 1.5],
    "exclusiveMaximum": [2],
    "multipleOf": [2, 0.5],
    "minLength": [1],
    "maxLength": [1],
    "pattern": ["^a"],
    "minItems": [1],
    "maxItems": [2],
    "uniqueItems": [True, False],
    "minContains": [0, 2],
    "maxContains": [1],
    "maxProperties": [1],
    "required": [["a"], ["a", "b"]],
    "dependentRequired": [{"a": ["b"]}],
}
ONE = ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else")
LAST = ("unevaluatedItems", "unevaluatedProperties")
LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("properties", "dependentSchemas")


def some_schema(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.1:
        return chance.choice([True, False, {}, {"type": "integer"}, {"$ref": "#/$defs/d"}])
    schema: JsonDict = {}
    for keyword in chance.sample([*KEYWORDS, *ONE, *ONE, *LAST, *LIST, *NAMED, "$ref"], 3):
        if keyword in KEYWORDS:
            schema[keyword] = chance.choice(KEYWORDS[keyword])
        elif keyword == "$ref":
            schema[keyword] = "#/$defs/d"
        elif keyword in LIST:
            schema[keyword] = [some_schema(chance, depth - 1) for _ in range(2)]
        elif keyword in NAMED:
            schema[keyword] = {name: some_schema(chance, depth - 1) for name in "ab"}
        else:
            schema[keyword] = some_schema(chance, depth - 1)
    return schema


def some_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(4 if depth else 2)
    if kind < 2:
        return chance.choice([0, 1, 1.0, 2.5, True, False, None, "", "a", "ba"])
    items = [some_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return items if kind == 2 else dict(zip("abc", items, strict=False))


def test_the_verdict_is_that_of_the_reference_implementation() -> None:
    chance = random.Random(2020)
    for _ in range(by_depth(500, 10_000)):
        schema = some_schema(chance, 3)
        if isinstance(schema, bool):
            continue
        schema["$defs"] = {"d": {"type": ["integer", "object"], "properties": {"a": {"type": "integer"}}}}
        oracle = Draft202012Validator(schema)
        for _ in range(4):
            value = some_value(chance, 2)
            assert (validate(schema, value) == []) is oracle.is_valid(value), (schema, value)


def test_the_deepest_check_fits_into_a_small_stack() -> None:
    """A thread may have little stack, and a deep caller has used most of Python's recursion limit."""
    shallow, deep = all_of(99), all_of(2_000)
    outcomes: list[object] = []

    def below(frames: int) -> None:
        if frames:
            return below(frames - 1)
        outcomes.append(len(list(Check(shallow).failures(1, shallow))))
        try:
            list(Check(deep).failures(1, deep))
        except TooMuchWorkError:
            outcomes.append("too much work")

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=below, args=(650,))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert outcomes == [1, "too much work"]


def all_of(levels: int) -> JsonDict:
    schema: JsonDict = {"type": "string"}
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema
