"""JSON Schema, limited to what untrusted users may write."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema.schemas import check_schema, validate


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "http://example.com/is-data-here"}},
        {"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
        {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
        {"$id": "https://example.com/s", "$defs": {"a/b": {}}, "$ref": "#/$defs/a~1b"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"pattern": "^[a-z]+$", "patternProperties": {"^x-": {}}},
    ],
)
def test_a_valid_schema_is_accepted(schema: JsonDict) -> None:
    assert check_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "path", "part_of_the_message"),
    [
        ({"type": "objekt"}, "type", "must be one of object, array, string"),
        ({"properties": {"a": {"minLength": -1}}}, "properties.a.minLength", "at least 0"),
        ({"required": "a"}, "required", "must be a list"),
        ({"properties": {"a": {"$ref": "https://example.com/s"}}}, "properties.a.$ref", "nothing is fetched"),
        ({"anyOf": [{}, {"$ref": "other.json"}]}, "anyOf[1].$ref", "nothing is fetched"),
        ({"$ref": "#/$defs/missing"}, "$ref", "there is no schema at '#/$defs/missing'"),
        ({"$ref": "#/const", "const": {"pattern": "("}}, "$ref", "there is no schema at"),
        ({"$ref": "#name"}, "$ref", "not the name of an anchor"),
        ({"$dynamicRef": "#a"}, "$dynamicRef", "not supported"),
        ({"items": {"$id": "http://example.com/"}}, "items.$id", "only the whole schema"),
        (
            {"properties": {"a": {"pattern": "(?=a)"}}},
            "properties.a.pattern",
            "not a valid regular",
        ),
        ({"patternProperties": {"(": {}}}, "patternProperties.(", "not a valid regular"),
        ({"pattern": "a" * 2_000}, "pattern", "at most 1000 characters"),
        (
            {"patternProperties": {"a": {}}, "unevaluatedProperties": False},
            "unevaluatedProperties",
            "combined",
        ),
        ({"description": "x" * 200_000}, "description", "at most 131072 bytes"),
    ],
)
def test_a_bad_schema_is_refused_with_its_place(
    schema: JsonDict, path: str, part_of_the_message: str
) -> None:
    problem = check_schema(schema)
    assert problem is not None
    assert problem.path == path
    assert part_of_the_message in problem.message


def test_regular_expressions_that_are_large_together_are_refused() -> None:
    def schema(count: int, most: int, keyword: str) -> JsonDict:
        fields = {
            f"^{number}.{{1,{most}}}$": {"pattern": f"^{number}.{{1,{most}}}$"} for number in range(count)
        }
        return {"type": "object", keyword: fields}

    for keyword in ("properties", "patternProperties"):
        assert check_schema(schema(300, 20, keyword)) is None
        problem = check_schema(schema(20, 900, keyword))
        assert problem is not None and "too large together" in problem.message
        assert problem.path.startswith(f"{keyword}.^12.{{1,900}}$") or problem.path.startswith(
            f"{keyword}.^1"
        )
    one = {"pattern": "^.{1,1000}$"}
    assert check_schema({"type": "object", "properties": {f"a{number}": one for number in range(50)}}) is None


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: JsonDict = {}
    for _ in range(40):
        schema = {"not": schema}
    problem = check_schema(schema)
    assert problem is not None
    assert "nested at most 30" in problem.message


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": ["integer", "null"], "minimum": 0},
        "kind": {"enum": ["human", "agent"]},
        "friends": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
    },
    "patternProperties": {"^x-": {"type": "string"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_a_valid_value_has_no_faults() -> None:
    value = {"name": "Ada", "age": None, "x-note": "first", "friends": [{"name": "Charles", "age": 49.0}]}
    assert validate(PERSON, value) == []


def test_every_fault_is_a_plain_sentence_with_its_path() -> None:
    value = {"name": "", "kind": "robot", "extra": 1, "x-a": 1, "friends": [{"name": 1, "age": -1}]}
    assert sorted(validate(PERSON, value, name="input")) == [
        "input.age: is missing",
        "input.extra: is not a known field",
        "input.friends[0].age: must be at least 0",
        "input.friends[0].name: must be a text",
        'input.kind: must be one of ["human", "agent"]',
        "input.name: must have at least 1 characters",
        "input.x-a: must be a text",
    ]
    assert validate(PERSON, 1) == ["the value: must be an object"]
    assert validate({"items": {"type": "string"}}, ["a", 2], name="tags") == ["tags[1]: must be a text"]


def test_at_most_twenty_faults_are_reported() -> None:
    assert len(validate({"items": {"type": "string"}}, list(range(1_000)))) == 20


def test_a_regular_expression_takes_linear_time() -> None:
    schema = {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    assert check_schema(schema) is None
    assert len(validate(schema, {"a" * 50_000 + "b": 1})) == 1
    assert validate({"pattern": "^(a|aa)+$"}, "a" * 50_000 + "b") != []


def test_work_of_multiplying_references_is_limited() -> None:
    doubled: JsonDict = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(28)}
    schema = {"$defs": {**doubled, "d28": {"type": "string"}}, "$ref": "#/$defs/d0"}
    assert check_schema(schema) is None
    assert validate(schema, "x") == [
        "the value: checking this takes too long: the schema or the value is too large"
    ]


def test_work_of_cyclic_references_is_limited() -> None:
    assert "takes too long" in validate({"$ref": "#"}, 1)[0]


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "http://127.0.0.1:1/s"}, {"pattern": "("}])
def test_an_unchecked_schema_is_reported_as_a_sentence_and_fetches_nothing(schema: JsonDict) -> None:
    assert validate(schema, "x") == ["the value: cannot be checked: the schema is not valid"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"type": []},
        {"type": ["string", "string"]},
        {"properties": {"a": {"minLength": -1}}},
        {"required": ["a", "a"]},
        {"pattern": 5},
        {"enum": 5},
        {"allOf": []},
        {"$ref": 5},
        {"items": [{}]},
        {"$defs": {"a": 5}},
        {"minLength": 1.0, "maxLength": 1.5},
        {"multipleOf": 0},
        {"dependentRequired": {"a": [1]}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]},
    ],
)
def test_the_fault_of_a_schema_is_where_another_library_finds_it(schema: JsonDict) -> None:
    with pytest.raises(SchemaError) as found:
        Draft202012Validator.check_schema(schema)
    problem = check_schema(schema)
    assert problem is not None
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found.value.path)
    assert problem.path == path.removeprefix(".")
