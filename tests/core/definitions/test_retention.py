"""Retention rules of a persona: reading, writing and validation (features A2, E7)."""

from __future__ import annotations

import pytest

from tests.core.definitions.test_check import faults
from wonder_server.core.definitions.parse import parse_spec, to_json
from wonder_server.core.definitions.specs import Kind, Persona, RetentionAction
from wonder_server.core.json_types import JsonDict

WEEK = 7 * 24 * 3600 * 1000


def persona(*rules: JsonDict) -> JsonDict:
    return {"system_prompt": "Be kind.", "retention": list(rules)}


def test_retention_rules_are_read_and_written() -> None:
    document = persona(
        {"types": ["fact"]},
        {"types": ["episode"], "action": "consolidate", "older_than_ms": WEEK},
        {"action": "delete", "older_than_ms": 52 * WEEK},
    )
    spec = parse_spec(Kind.PERSONA, document)
    assert isinstance(spec, Persona)
    assert [rule.action for rule in spec.retention] == [
        RetentionAction.KEEP,
        RetentionAction.CONSOLIDATE,
        RetentionAction.DELETE,
    ]
    assert to_json(spec) == document
    assert faults(Kind.PERSONA, document) == {}


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ({"action": "delete"}, "older_than_ms"),
        ({"action": "consolidate"}, "older_than_ms"),
        ({"action": "delete", "older_than_ms": -1}, "older_than_ms"),
        ({"action": "delete", "older_than_ms": 2**52}, "older_than_ms"),
        ({"types": [""]}, "types[0]"),
        ({"types": ["x" * 129]}, "types[0]"),
        ({"types": ["x"] * 101}, "types"),
        (
            {"action": "delete", "older_than_ms": 1, "consolidation_workflow_id": "t"},
            "consolidation_workflow_id",
        ),
        (
            {"action": "consolidate", "older_than_ms": 1, "consolidation_workflow_id": "nowhere"},
            "consolidation_workflow_id",
        ),
    ],
    ids=str,
)
def test_an_invalid_rule_is_refused_with_its_path(rule: JsonDict, place: str) -> None:
    assert f"retention[0].{place}" in faults(Kind.PERSONA, persona(rule))


def test_the_number_of_rules_is_limited() -> None:
    assert "retention" in faults(Kind.PERSONA, persona(*[{"types": ["x"]}] * 21))
