"""Conversion of definitions from and to documents."""

from __future__ import annotations

from typing import Any

import pytest

from wonder_server.core.definitions.document import DefinitionDraft, draft_to_json, parse_draft
from wonder_server.core.definitions.parse import parse_spec, parse_spec_lenient, to_json
from wonder_server.core.definitions.specs import (
    Action,
    FanIn,
    Kind,
    ModelProfile,
    Node,
    OnFailure,
    Persona,
    Retry,
    Step,
    Task,
    Tool,
    Transition,
    Workflow,
)
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict

SPECS = {
    Kind.PERSONA: Persona(system_prompt="You help.", instructions=("Be brief.",), tool_ids=("recall",)),
    Kind.TOOL: Tool(
        name="recall",
        description="Look it up.",
        target_type="task",
        target_id="search",
        is_async=True,
        input_mapping={"query": "input.q"},
        retry=Retry(max_attempts=3),
    ),
    Kind.WORKFLOW: Workflow(
        nodes=(Node(id="a", task_id="t"), Node(id="b", workflow_id="w")),
        transitions=(Transition(from_node_id="a", to_node_id="b", condition="true", priority=-1),),
    ),
    Kind.TASK: Task(
        steps=(Step(id="s", action=Action(kind="llm", config={"n": [1, None]}), on_failure=OnFailure.RETRY),),
    ),
    Kind.ACTION: Action(kind="memory.search", config={"limit": 5}),
    Kind.MODEL_PROFILE: ModelProfile(provider="auto", parameters={"temperature": 0.5}),
}


def faults(kind: Kind, document: JsonDict) -> dict[str, str]:
    with pytest.raises(WonderError) as refusal:
        parse_spec(kind, document)
    assert {fault.reason for fault in refusal.value.faults} == {Reason.DEFINITION_INVALID}
    return {fault.field: fault.message for fault in refusal.value.faults}


@pytest.mark.parametrize("kind", Kind)
def test_a_spec_is_equal_after_conversion_to_json_and_back(kind: Kind) -> None:
    assert parse_spec(kind, to_json(SPECS[kind])) == SPECS[kind]


def test_default_values_are_left_out() -> None:
    assert to_json(Persona(system_prompt="You help.")) == {"system_prompt": "You help."}


def test_async_keeps_its_name_in_documents() -> None:
    assert to_json(SPECS[Kind.TOOL])["async"] is True


def test_all_faults_of_a_document_are_reported_with_their_paths() -> None:
    found = faults(
        Kind.WORKFLOW,
        {
            "nodes": [{"id": "a", "task_id": 5}, {"task_id": "t", "input_mapping": {"query": ["x"]}}, "c"],
            "transitions": {},
            "colour": "red",
        },
    )
    assert set(found) == {
        "nodes[0].task_id",
        "nodes[1].id",
        "nodes[1].input_mapping.query",
        "nodes[2]",
        "transitions",
        "colour",
    }
    assert found["nodes[0].task_id"] == "nodes[0].task_id must be text, not a number."


def test_a_word_that_is_not_in_its_list_is_refused_with_the_list() -> None:
    found = faults(Kind.TASK, {"steps": [{"id": "s", "on_failure": "explode"}]})
    assert found == {"steps[0].on_failure": "steps[0].on_failure must be one of: abort, retry, continue."}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (2**53 + 1, "parameters.x"),
        (float("nan"), "parameters.x"),
        ({1: 2}, "parameters.x"),
        ([object()], "parameters.x[0]"),
    ],
)
def test_a_payload_must_be_json_that_a_client_can_read(value: Any, place: str) -> None:
    assert set(faults(Kind.MODEL_PROFILE, {"provider": "auto", "parameters": {"x": value}})) == {place}


def test_a_payload_nested_too_deep_is_refused() -> None:
    value: JsonDict = {}
    for _ in range(40):
        value = {"x": value}
    (message,) = faults(Kind.MODEL_PROFILE, {"provider": "auto", "parameters": value}).values()
    assert message.endswith("is nested deeper than 30 levels.")


def test_true_is_no_number_and_one_is_no_boolean() -> None:
    found = faults(Kind.TOOL, {"name": "t", "description": "d", "target_type": "task", "target_id": "x",
                               "async": 1, "retry": {"max_attempts": True}})  # fmt: skip
    assert set(found) == {"async", "retry.max_attempts"}


# --- whole definitions ----------------------------------------------------------------------------

TOOL = {
    "name": "recall",
    "description": "Look it up.",
    "tool": {"target_type": "task", "target_id": "search"},
}


def test_a_tool_takes_its_name_and_description_from_its_definition() -> None:
    draft = parse_draft(TOOL)
    assert isinstance(draft.spec, Tool)
    assert (draft.spec.name, draft.spec.description) == ("recall", "Look it up.")
    assert draft_to_json(draft) == TOOL


def test_fields_that_the_server_sets_are_ignored() -> None:
    assert parse_draft({**TOOL, "id": "def_x", "revision": 9, "etag": "e", "kind": "tool"}) == parse_draft(
        TOOL
    )


def test_an_unknown_name_has_a_suggestion() -> None:
    edge = {"from": "a", "to_node": "b", "conditoin": "true"}
    found = faults(Kind.WORKFLOW, {"nodes": [{"id": "a", "task_id": "t"}], "transitions": [edge]})
    for name, meant in (("from", "from_node_id"), ("to_node", "to_node_id"), ("conditoin", "condition")):
        assert f"(did you mean '{meant}'?)" in found[f"transitions[0].{name}"]
    with pytest.raises(WonderError) as refusal:
        parse_draft({"name": "x", "worklfow": {}})
    assert "(did you mean 'workflow'?)" in refusal.value.faults[-1].message


def test_the_lenient_parser_returns_the_readable_part_and_the_faults() -> None:
    node = {"task_id": "t", "workflow_id": 5, "fan_in": {"mode": "most"}, "colour": "red"}
    spec, found = parse_spec_lenient(Kind.WORKFLOW, {"nodes": [node, "b"]})
    assert {fault.field.partition("].")[2] or fault.field for fault in found} == {
        "id", "workflow_id", "fan_in.mode", "colour", "nodes[1]",
    }  # fmt: skip
    assert spec == Workflow(nodes=(Node(id="", task_id="t", fan_in=FanIn()), Node(id="")))


def test_equal_content_has_an_equal_hash_however_it_is_spelled() -> None:
    spelled_out = {
        **TOOL,
        "tool": {**TOOL["tool"], "name": "recall", "async": False, "retry": {"max_attempts": 1}},
    }  # type: ignore[dict-item]
    assert parse_draft(spelled_out).content_hash() == parse_draft(TOOL).content_hash()


def test_a_change_of_the_description_changes_the_hash() -> None:
    assert parse_draft({**TOOL, "description": "Other."}).content_hash() != parse_draft(TOOL).content_hash()


def test_a_float_that_is_whole_is_the_same_content() -> None:
    def hashed(value: float) -> str:
        spec = parse_spec(Kind.MODEL_PROFILE, {"provider": "auto", "parameters": {"n": value}})
        return DefinitionDraft(name="p", spec=spec).content_hash()

    assert hashed(1) == hashed(1.0)


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"name": "x"}, {"spec"}),
        ({**TOOL, "action": {"kind": "llm"}}, {"spec"}),
        ({**TOOL, "kind": "task"}, {"kind"}),
        ({**TOOL, "name": "Über"}, {"name"}),
        ({**TOOL, "library": "a/b/c", "colour": 1}, {"library", "colour"}),
        ({**TOOL, "labels": {"a": 1}}, {"labels.a"}),
        ({**TOOL, "description": "é" * 3000}, {"description"}),
        ({**TOOL, "tool": {"target_type": "task"}, "name": ""}, {"name", "tool.target_id"}),
        ({**TOOL, "tool": None}, {"tool"}),
        ({"name": "x", "worklfow": {}}, {"spec", "worklfow"}),
    ],
)
def test_an_invalid_definition_is_refused_with_its_path(document: JsonDict, places: set[str]) -> None:
    with pytest.raises(WonderError) as refusal:
        parse_draft(document)
    assert {fault.field for fault in refusal.value.faults} == places
