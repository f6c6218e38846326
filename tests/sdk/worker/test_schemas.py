"""JSON Schemas of Python types, and conversion of their values from and to JSON."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from wonder_sdk.worker.schemas import read, schema_of, write


@dataclass
class Box:
    left: int
    label: str | None = None


@dataclass
class Page:
    number: Annotated[int, "from 1"]
    boxes: list[Box]
    by_name: dict[str, Box] = field(default_factory=dict)
    corner: tuple[int, ...] = ()
    kept: int = field(default=0, init=False)


class Text(TypedDict):
    text: str
    language: NotRequired[Literal["de", "en"]]


class Endless(TypedDict):
    inner: Endless


BOX = {
    "type": "object",
    "properties": {
        "left": {"type": "integer"},
        "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["left"],
}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Any, {}),
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (dict, {"type": "object"}),
        (Mapping, {"type": "object"}),
        (list, {"type": "array"}),
        (dict[str, Any], {"type": "object", "additionalProperties": {}}),
        (Sequence[float], {"type": "array", "items": {"type": "number"}}),
        (Annotated[str, "a name", 7], {"type": "string", "description": "a name"}),
        (Box, BOX),
        (
            Page,
            {
                "type": "object",
                "properties": {
                    "number": {"type": "integer", "description": "from 1"},
                    "boxes": {"type": "array", "items": BOX},
                    "by_name": {"type": "object", "additionalProperties": BOX},
                    "corner": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["number", "boxes"],
            },
        ),
        (
            Text,
            {
                "type": "object",
                "properties": {"text": {"type": "string"}, "language": {"enum": ["de", "en"]}},
                "required": ["text"],
            },
        ),
    ],
)
def test_a_type_has_a_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


@pytest.mark.parametrize("kind", [datetime.datetime, dict[int, str], tuple[int, str], set[int], Endless, "x"])
def test_a_type_without_a_schema_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="input_schema or output_schema"):
        schema_of(kind)


def test_values_are_read_from_json_and_written_to_it() -> None:
    json = {
        "number": 3,
        "boxes": [{"left": 1}, {"left": 2, "label": "b"}],
        "by_name": {"c": {"left": 3, "label": None}},
        "corner": [4, 5],
        "unknown": True,
    }
    page = read(Page, json)
    assert page == Page(3, [Box(1), Box(2, "b")], {"c": Box(3)}, (4, 5))
    assert write({"page": page})["page"] == {
        "number": 3,
        "boxes": [{"left": 1, "label": None}, {"left": 2, "label": "b"}],
        "by_name": {"c": {"left": 3, "label": None}},
        "corner": [4, 5],
        "kept": 0,
    }


def test_a_value_without_a_declared_type_is_unchanged() -> None:
    assert read(Any, {"a": [1]}) == {"a": [1]}
    assert read(dict, {"a": [1]}) == {"a": [1]}
    assert read(Text, {"text": "a", "more": 1}) == {"text": "a", "more": 1}
    assert read(Box | None, None) is None
    assert read(Box | None, {"left": 1}) == Box(1)
    assert read(int | str, "a") == "a"
