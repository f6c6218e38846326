"""Tests of output schemas: which are refused, with the place and the reason."""

from __future__ import annotations

import pytest

from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.output_schemas import MAX_OUTPUT_SCHEMA_BYTES, check_output_schema


def an_object(**fields: JsonValue) -> JsonDict:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def nested(levels: int) -> JsonDict:
    schema: JsonDict = {"type": "string"}
    for _ in range(levels):
        schema = an_object(a=schema)
    return schema


def doubling(levels: int, keyword: str = "allOf", end: JsonValue = None) -> JsonDict:
    """Return a schema whose references double at each level. ``end`` is the last one."""
    definitions: JsonDict = {
        f"l{level}": {keyword: [{"$ref": f"#/$defs/l{level + 1}"}] * 2} for level in range(levels)
    }
    definitions[f"l{levels}"] = end or {"type": "object"}
    return {"type": "object", "allOf": [{"$ref": "#/$defs/l0"}], "$defs": definitions}


def chain(levels: int) -> JsonDict:
    definitions: JsonDict = {f"l{level}": {"$ref": f"#/$defs/l{level + 1}"} for level in range(levels)}
    return {"type": "object", "$ref": "#/$defs/l0", "$defs": {**definitions, f"l{levels}": {"not": {}}}}


LINKED = an_object(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        an_object(total={"type": "number", "minimum": 0, "maximum": 0}),
        an_object(tags={"type": "array", "items": {"type": "string"}, "minItems": 1}),
        an_object(kind={"enum": ["a", None, 3]}),
        an_object(note={"type": ["string", "null"], "x-order": 1, "examples": [{"kyeword": 1}]}),
        an_object(many={"type": "array", "items": False}),
        {"type": "object", "properties": {"never": False}},
        {
            "type": "object",
            "required": ["a"],
            "patternProperties": {"^a$": {}},
            "additionalProperties": False,
        },
        {"type": "object", "minLength": 5, "maxLength": 2},
        LINKED,
        doubling(40),
        doubling(40, end={"type": "object", "enum": [*range(2_000), {}]}),
        {"type": "object", "anyOf": [{"type": "string"}, {"required": ["a"]}]},
        an_object(a={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        {"type": "object", "required": ["a"], "maxProperties": 1},
    ],
)
def test_a_schema_that_some_object_satisfies_is_accepted(schema: JsonDict) -> None:
    assert check_output_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"properties": {}}, "type", "describes an object"),
        ({"type": "array"}, "type", "describes an object"),
        ({"type": ["object", "null"]}, "type", "describes an object"),
        ({"type": "object", "requried": ["a"]}, "requried", "did you mean 'required'"),
        (an_object(a={"type": "string", "maxLen": 3}), "properties.a.maxLen", "not a keyword"),
        ({"type": "object", "properties": {"a": {"type": "strnig"}}}, "properties.a.type", "one of"),
        (an_object(a=False), "properties.a", "no value satisfies 'false'"),
        (an_object(a=an_object(b=False)), "properties.a.properties.b", "no value satisfies 'false'"),
        (an_object(a={"not": {}}), "properties.a.not", "excludes every value"),
        (an_object(a={"enum": []}), "properties.a.enum", "no listed value"),
        (an_object(a={"type": "string", "enum": [1, 2]}), "properties.a.enum", "no listed value"),
        (an_object(a={"type": "integer", "const": 1.5}), "properties.a.const", "no listed value"),
        (an_object(a={"type": "integer", "minimum": 3, "maximum": 2}), "properties.a.minimum", "greater"),
        (
            an_object(a={"type": "string", "minLength": 3, "maxLength": 2}),
            "properties.a.minLength",
            "greater",
        ),
        (an_object(a={"type": "array", "minItems": 1, "items": False}), "properties.a.items", "'false'"),
        ({"type": "object", "allOf": [{"type": "string"}]}, "allOf[0].type", "all these types"),
        (an_object(a={"anyOf": [False, {"not": True}]}), "properties.a.anyOf[0]", "'false'"),
        (an_object(a={"$ref": "#"}), "properties.a.$ref", "no finite value"),
        (
            {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
            "required",
            "'a' is required, but",
        ),
        (an_object(a={"type": "number", "exclusiveMinimum": 3, "maximum": 3}), None, "not less than"),
        ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, "required", "2 fields are required"),
        (
            {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
            "$ref.type",
            "all these types",
        ),
        (
            {"type": "object", "allOf": [{"properties": {"a": False}, "required": ["a"]}]},
            "allOf[0].properties.a",
            "no value satisfies 'false'",
        ),
        (doubling(40, "anyOf", {"not": {}}), "", "takes too long"),
        (chain(150), "", "takes too long"),
        (
            an_object(a={"type": "string", "pattern": "^(a?){0,900}y$", "enum": [*["x" * 20] * 1_000, "y"]}),
            "",
            "takes",
        ),
        (an_object(a={"$ref": "https://example.com/a"}), "properties.a.$ref", "nothing is fetched"),
        (nested(40), None, "levels deep"),
        (an_object(a={"description": "x" * MAX_OUTPUT_SCHEMA_BYTES}), "properties.a.description", "at most"),
    ],
)
def test_a_schema_without_a_checkable_answer_is_refused_with_its_place(
    schema: JsonDict, path: str | None, words: str
) -> None:
    problem = check_output_schema(schema)
    assert problem is not None and words in problem.message
    assert path is None or problem.path == path
