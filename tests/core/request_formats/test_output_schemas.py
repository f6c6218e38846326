"""Tests of the requests for structured output in each format."""

from __future__ import annotations

import pytest

from tests.fakes.provider_validation import rejection
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import FORMATS
from wonder_server.core.request_formats.output_schemas import closed, is_strict

TOTAL: JsonDict = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}


def with_property(**part: JsonValue) -> JsonDict:
    return {**TOTAL, "properties": {"total": part}}


def ask(name: str, request: JsonDict, parameters: JsonDict | None = None) -> JsonDict | None:
    return FORMATS[name].ask_output(request, parameters or {}, TOTAL)


ASKED: dict[str, JsonDict] = {
    "openai_chat": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": TOTAL, "strict": True},
        }
    },
    "openai_responses": {
        "text": {"format": {"type": "json_schema", "name": "output", "schema": TOTAL, "strict": True}}
    },
    "anthropic_messages": {"output_config": {"format": {"type": "json_schema", "schema": TOTAL}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": TOTAL}},
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_asks_by_its_own_means(name: str) -> None:
    assert ask(name, {"model": "m"}) == {"model": "m", **ASKED[name]}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("openai_chat", {"response_format": {"type": "json_object"}}),
        ("openai_responses", {"text": {"format": {"type": "json_object"}}}),
        ("anthropic_messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
        ("anthropic_messages", {"output_format": {"type": "json_schema", "schema": {}}}),
        ("gemini", {"generationConfig": {"responseMimeType": "text/plain"}}),
        ("gemini", {"generation_config": {"response_schema": {}}}),
    ],
)
def test_a_form_that_the_author_set_stays(name: str, own: JsonDict) -> None:
    assert ask(name, own) is None
    assert ask(name, {}, own) is None


@pytest.mark.parametrize(
    ("name", "parameters", "place"),
    [
        ("openai_responses", {"text": {"verbosity": "low"}}, "text"),
        ("anthropic_messages", {"output_config": {"effort": "low"}}, "output_config"),
        ("gemini", {"generationConfig": {"temperature": 0}}, "generationConfig"),
        ("gemini", {"generation_config": {"temperature": 0}}, "generation_config"),
    ],
)
def test_parameters_of_the_profile_beside_the_schema_stay(
    name: str, parameters: JsonDict, place: str
) -> None:
    for asked in (ask(name, {}, parameters), ask(name, parameters)):
        assert asked is not None
        assert asked[place].items() >= parameters[place].items()
        assert len(asked[place]) > len(parameters[place])


def test_gemini_takes_no_schema_beside_tools() -> None:
    tools = [{"functionDeclarations": [{"name": "find"}]}]
    assert ask("gemini", {"tools": tools}) is None
    body = {"contents": [{"role": "user", "parts": [{"text": "?"}]}], "tools": tools, **ASKED["gemini"]}
    assert "unsupported" in rejection("gemini", body)


OPEN_OBJECT: JsonDict = {"type": "object"}
RECURSIVE = {**with_property(**{"$ref": "#/$defs/t"}), "$defs": {"t": {"anyOf": [{"$ref": "#/$defs/t"}]}}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (TOTAL, True),
        (with_property(type=["number", "null"], minimum=0), True),
        (with_property(enum=["a", "b"]), True),
        (with_property(type="string", format="date"), True),
        (with_property(type="string", format="color"), False),
        (with_property(type="string", minLength=1), False),
        (with_property(description="anything"), False),
        ({**TOTAL, "required": []}, False),
        ({"type": "object", "properties": {}}, False),
        (with_property(**OPEN_OBJECT), False),
    ],
)
def test_only_a_schema_of_closed_objects_is_strict(schema: JsonDict, strict: bool) -> None:
    assert is_strict(schema) is strict


@pytest.mark.parametrize("part", [OPEN_OBJECT, {}, {"items": {}, "type": "array"}, {"not": {"type": "null"}}])
def test_a_schema_outside_of_anthropics_part_has_no_closed_form(part: JsonDict) -> None:
    assert closed(with_property(**part)) is None
    assert closed(RECURSIVE) is None


def test_anthropic_gets_closed_objects_and_other_constraints_as_text() -> None:
    schema: JsonDict = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 1, "description": "In litres."},
            "kind": {"oneOf": [{"const": "a"}, {"$ref": "#/$defs/other"}]},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        },
        "$defs": {"other": {"type": "string", "maxLength": 3}},
    }
    assert closed(schema) == {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "description": 'In litres. Constraints: {"minimum": 1}'},
            "kind": {"anyOf": [{"const": "a"}, {"$ref": "#/$defs/other"}]},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "description": 'Constraints: {"minItems": 2}',
            },
        },
        "required": [],
        "additionalProperties": False,
        "$defs": {"other": {"type": "string", "description": 'Constraints: {"maxLength": 3}'}},
    }
