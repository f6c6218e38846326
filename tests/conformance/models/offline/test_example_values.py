"""Values that the offline model makes for an output schema."""

from __future__ import annotations

import json

import pytest

from tests.conformance.models.subjects import ask, collect
from wonder_server.adapters.models.offline.example_values import example_value
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.core.conversation.context.dialects import DIALECTS
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.schemas import validate

TOTAL: JsonDict = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "why": {"type": "string"}},
    "required": ["total", "why"],
    "additionalProperties": False,
}
TREE: JsonDict = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}
WIDE: JsonDict = {
    "type": "object",
    "$defs": {
        f"d{level}": {
            "type": "object",
            "properties": {f"p{n}": {"$ref": f"#/$defs/d{level + 1}"} for n in range(10)},
            "required": [f"p{n}" for n in range(10)],
        }
        for level in range(9)
    },
    "properties": {"top": {"$ref": "#/$defs/d0"}},
    "required": ["top"],
}


def of(**field: JsonValue) -> JsonDict:
    return {"type": "object", "properties": {"it": field}, "required": ["it"]}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (TOTAL, "It cost 5.5 in all.", {"total": 5.5, "why": "It cost 5.5 in all."}),
        (of(type="integer"), "Seven.", {"it": 0}),
        (of(type="integer", minimum=3, maximum=9), "12 cats", {"it": 9}),
        (of(type="number", exclusiveMinimum=0), "none", {"it": 1}),
        (of(type="integer", multipleOf=5), "12", {"it": 10}),
        (of(type="boolean"), "Of course", {"it": True}),
        (of(type="boolean"), "No, never", {"it": False}),
        (of(type=["null", "string"]), "Hm", {"it": "Hm"}),
        (of(enum=["red", "blue"]), "The Blue one", {"it": "blue"}),
        (of(enum=["red", "blue"]), "None", {"it": "red"}),
        (of(const=3), "x", {"it": 3}),
        (of(type="string", maxLength=2), "long", {"it": "lo"}),
        (of(type="string", minLength=4), "x", {"it": "x..."}),
        (of(type="string", format="date"), "x", {"it": "2026-01-31"}),
        (of(type="array", items={"type": "string"}, minItems=2), "x", {"it": ["x", "x"]}),
        (of(anyOf=[{"type": "null"}, {"type": "integer"}]), "4", {"it": 4}),
        (of(allOf=[of(type="string"), {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]), "4",
         {"it": {"it": "4", "b": 4}}),
        (TREE, "x", None),
    ],
)  # fmt: skip
def test_values_satisfy_their_schema(schema: JsonDict, text: str, expected: JsonValue) -> None:
    value = example_value(schema, text)
    assert validate(schema, value, name="output") == []
    assert expected is None or value == expected


@pytest.mark.parametrize(
    "schema",
    [
        WIDE,
        {"type": "object", "properties": 3},
        of(type="integer", minimum="x"),
        of(type="array", minItems=10**9),
        of(type="string", minLength=10**9),
        of(type="number", multipleOf=0),
        of(allOf=[{"required": 3}]),
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
    ],
)
def test_odd_schemas_get_a_value_of_bounded_size(schema: JsonDict) -> None:
    assert len(json.dumps(example_value(schema, "text 9" * 10))) < 300_000


@pytest.mark.parametrize("text", ["9" * 400, "-", ""])
def test_every_text_makes_a_value(text: str) -> None:
    json.dumps(example_value(of(type="integer"), text))


async def test_answers_satisfy_the_schema_of_the_request(request_format: str) -> None:
    profile = ModelProfile(provider="offline", format=request_format)
    for text, expected in (
        ("It cost 12 euros", 12),
        ('answer with {"total": "much"}', "much"),
    ):
        request = DIALECTS[request_format].format.ask_output(ask(request_format, text), {}, TOTAL)
        assert request is not None
        _, result = await collect(OfflineModel(), profile, request)
        assert json.loads(result.text)["total"] == expected
        assert result.stop_reason == "end"
