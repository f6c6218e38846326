"""Faults of definitions that are saved, and their paths (feature A6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from wonder_server.core.definitions.check import check_spec
from wonder_server.core.definitions.graph import find_cycle
from wonder_server.core.definitions.parse import kind_of, parse_spec
from wonder_server.core.definitions.reference_check import ResolvedReference
from wonder_server.core.definitions.specs import (
    Action,
    Kind,
    ModelProfile,
    Persona,
    Spec,
    Task,
    Tool,
    Workflow,
)
from wonder_server.core.json_types import JsonDict, JsonObject

ACTIONS: dict[str, JsonDict] = {
    "context": {"type": "object"},
    "memory.search": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": False,
    },
    "memory.write": {"type": "object"},
}

TASK = parse_spec(Kind.TASK, {"steps": [{"id": "s", "action": {"kind": "context"}}]})


@dataclass
class Shelf:
    """A resolver with a dict from reference to spec."""

    specs: dict[str, Spec] = field(default_factory=dict)
    actions: Mapping[str, JsonObject] = field(default_factory=lambda: ACTIONS)
    providers: frozenset[str] = frozenset()

    def find(self, reference: str, library: str) -> ResolvedReference | None:
        spec = self.specs.get(reference)
        return spec and ResolvedReference(key=reference, library=library, kind=kind_of(spec), spec=spec)

    def names(self, kind: Kind, library: str) -> list[str]:
        return [name for name, spec in self.specs.items() if kind_of(spec) is kind]


SHELF = Shelf({"t": TASK, "search": Action(kind="memory.search")})


def faults(kind: Kind, document: JsonDict, shelf: Shelf = SHELF) -> dict[str, str]:
    found = check_spec(parse_spec(kind, document), "lib", shelf)
    return {fault.field: fault.message for fault in found}


def step(**fields: Any) -> JsonDict:
    return {"steps": [{"id": "s", "action": {"kind": "context"}, **fields}]}


def graph(nodes: str, *edges: str, **fields: Any) -> JsonDict:
    return {
        "nodes": [{"id": node, "task_id": "t"} for node in nodes],
        "transitions": [{"from_node_id": a, "to_node_id": b} for a, b in edges],
        **fields,
    }


# --- workflows --------------------------------------------------------------------------------------


def test_a_valid_workflow_has_no_faults() -> None:
    assert faults(Kind.WORKFLOW, graph("abcd", "ab", "ac", "bd", "cd")) == {}


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"nodes": []}, {"nodes"}),
        (graph("ab"), {"nodes[1].id"}),
        (graph("abc", "ab", initial_node_id="b"), {"nodes[0].id", "nodes[2].id"}),
        (graph("ab", "ab", initial_node_id="z"), {"initial_node_id"}),
        (graph("ab", "ab", "az", "yb"), {"transitions[1].to_node_id", "transitions[2].from_node_id"}),
        (graph("aa"), {"nodes[1].id"}),
        (graph("abc", "ab", "bc", "cb"), {"transitions[2]"}),
        (graph("a", "aa"), {"transitions[0]"}),
        ({"nodes": [{"id": "a"}]}, {"nodes[0]"}),
        ({"nodes": [{"id": "a", "task_id": "t", "workflow_id": "w"}]}, {"nodes[0]", "nodes[0].workflow_id"}),
        ({"nodes": [{"id": "a b", "task_id": "t"}]}, {"nodes[0].id"}),
        ({"nodes": [{"id": "a", "task_id": "nowhere"}]}, {"nodes[0].task_id"}),
        ({"nodes": [{"id": "a", "task_id": "search"}]}, {"nodes[0].task_id"}),
        ({"nodes": [{"id": "a", "task_id": "not a reference"}]}, {"nodes[0].task_id"}),
        (graph("a", timeout_ms=-1), {"timeout_ms"}),
        (graph("a", output_mapping={"x": "result"}), {"output_mapping.x"}),
    ],
)
def test_an_invalid_graph_is_refused_with_its_path(document: JsonDict, places: set[str]) -> None:
    assert set(faults(Kind.WORKFLOW, document)) == places


def test_the_message_names_the_cycle() -> None:
    message = faults(Kind.WORKFLOW, graph("abc", "ab", "bc", "cb"))["transitions[2]"]
    assert message.startswith("The nodes form a cycle without a limit: b -> c -> b. ")


def test_a_condition_that_does_not_parse_is_refused_with_line_and_column() -> None:
    document = graph("ab", "ab")
    document["transitions"][0]["condition"] = "state.x >\n  )"
    ((place, message),) = faults(Kind.WORKFLOW, document).items()
    assert place == "transitions[0].condition"
    assert message.startswith("In the expression of the transition from 'a' to 'b', line 2, column 3: ")
    document["transitions"][0]["condition"] = "siz(state.x) > 0"
    assert faults(Kind.WORKFLOW, document)[place] == (
        "In the expression of the transition from 'a' to 'b', column 1: "
        "unknown function 'siz' (did you mean 'size'?)"
    )


@pytest.mark.parametrize(
    ("mapping", "config", "fault"),
    [
        ({"duration_ms": "60000"}, {}, "steps[0].input_mapping.duration_ms"),
        ({}, {"duration_ms": 30_000}, "steps[0].action"),
        ({"duration_ms": "input.ms"}, {"duration_ms": 30_000}, ""),
        ({"duration_ms": "29999"}, {}, ""),
    ],
)
def test_a_sleep_longer_than_its_timeout_is_refused(
    mapping: dict[str, str], config: JsonDict, fault: str
) -> None:
    shelf = Shelf(actions={"sleep": {"type": "object", "properties": {"duration_ms": {"type": "number"}}}})
    document = step(action={"kind": "sleep", "config": config}, input_mapping=mapping)
    found = faults(Kind.TASK, document, shelf)
    assert list(found) == ([fault] if fault else [])
    assert not fault or "times out after 30000 ms" in found[fault]


def test_a_misspelt_name_has_a_suggestion() -> None:
    action = {"kind": "memory.serch", "config": {}}
    (message,) = faults(Kind.TASK, step(action=action)).values()
    assert message.startswith("There is no action kind 'memory.serch' (did you mean 'memory.search'?); ")
    document = {"steps": [{"id": "s", "action_id": "serch", "input_mapping": {"query": "'x'"}}]}
    assert faults(Kind.TASK, document) == {
        "steps[0].action_id": "There is no action 'serch' in lib (did you mean 'search'?)."
    }


def test_a_broken_transition_is_reported_as_one_fault() -> None:
    document = graph("ab", "ab")
    document["transitions"][0]["to_node_id"] = "bb"
    assert list(faults(Kind.WORKFLOW, document)) == ["transitions[0].to_node_id"]


def test_a_workflow_that_contains_itself_indirectly_is_refused() -> None:
    outer = parse_spec(Kind.WORKFLOW, {"nodes": [{"id": "a", "workflow_id": "inner"}]})
    inner = parse_spec(Kind.WORKFLOW, {"nodes": [{"id": "a", "workflow_id": "outer"}]})
    shelf = Shelf({"outer": outer, "inner": inner})
    (fault,) = check_spec(outer, "lib", shelf)
    assert fault.field == "nodes[0].workflow_id" and "contains itself" in fault.message


@pytest.mark.parametrize(("links", "refused"), [(31, False), (33, True), (3000, True)])
def test_nesting_of_workflows_is_limited(links: int, refused: bool) -> None:
    chain = {
        f"w{each}": parse_spec(Kind.WORKFLOW, {"nodes": [{"id": "a", "workflow_id": f"w{each + 1}"}]})
        for each in range(links)
    }
    leaf = parse_spec(Kind.WORKFLOW, graph("a"))
    found = check_spec(chain["w0"], "lib", Shelf({**chain, f"w{links}": leaf, "t": TASK}))
    assert [fault.field for fault in found] == (["nodes[0].workflow_id"] if refused else [])


def test_two_references_to_one_workflow_are_no_cycle() -> None:
    leaf = parse_spec(Kind.WORKFLOW, graph("a"))
    outer = {"nodes": [{"id": "a", "workflow_id": "leaf"}, {"id": "b", "workflow_id": "leaf"}],
             "transitions": [{"from_node_id": "a", "to_node_id": "b"}]}  # fmt: skip
    assert faults(Kind.WORKFLOW, outer, Shelf({"leaf": leaf, "t": TASK})) == {}


def test_a_long_chain_is_searched_without_recursion() -> None:
    edges = {str(n): [str(n + 1)] for n in range(5_000)}
    assert find_cycle(edges) == []


# --- tasks ------------------------------------------------------------------------------------------


def test_a_valid_task_has_no_faults() -> None:
    document = {
        "steps": [
            {
                "id": "find",
                "action_id": "search",
                "condition": "input.q != ''",
                "input_mapping": {"query": "input.q"},
                "output_mapping": {
                    "state.hits": "result.memories",
                    "output.deep.count": "size(result.memories)",
                },
            }
        ],
        "input_schema": {"type": "object", "required": ["q"]},
    }
    assert faults(Kind.TASK, document) == {}


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"steps": []}, {"steps"}),
        ({"steps": [{"id": "s"}]}, {"steps[0].action"}),
        ({"steps": [{"id": "s", "action": {"kind": "context"}, "action_id": "search"}]},
         {"steps[0].action", "steps[0].input_mapping"}),
        (step(action={"kind": "explode"}), {"steps[0].action.kind"}),
        (step(action={"kind": "context", "timeout_ms": 0}), {"steps[0].action.timeout_ms"}),
        (step(condition="result.x"), {"steps[0].condition"}),
        (step(condition="1 +"), {"steps[0].condition"}),
        (step(input_mapping={"a.b": "input"}), {"steps[0].input_mapping.a.b"}),
        (step(input_mapping={"a": ""}), {"steps[0].input_mapping.a"}),
        (step(output_mapping={"x": "result"}), {"steps[0].output_mapping.x"}),
        (step(output_mapping={"state": "result"}), {"steps[0].output_mapping.state"}),
        (step(output_mapping={"input.x": "result"}), {"steps[0].output_mapping.input.x"}),
        (step(output_mapping={"state.x": "nowhere.y"}), {"steps[0].output_mapping.state.x"}),
        (step(action={"kind": "memory.search", "config": {"colour": 1}}, input_mapping={"query": "'a'"}),
         {"steps[0].action.config.colour"}),
        (step(action={"kind": "memory.search", "config": {"limit": "5"}}, input_mapping={"query": "'a'"}),
         {"steps[0].action.config.limit"}),
        (step(condition="item"), {"steps[0].condition"}),
        (step(output_mapping={"branch.x": "result"}), {"steps[0].output_mapping.branch.x"}),
        (step(action={"kind": "memory.search"}), {"steps[0].input_mapping"}),
        (step(action={"kind": "memory.search"}, input_mapping={"query": "'a'", "depth": "1"}),
         {"steps[0].input_mapping.depth"}),
        ({**step(), "retry": {"max_attempts": 0, "timeout_ms": 0}},
         {"retry.max_attempts", "retry.timeout_ms"}),
        ({"steps": step()["steps"] * 101}, {"steps"} | {f"steps[{n}].id" for n in range(1, 100)}),
    ],
)  # fmt: skip
def test_an_invalid_task_is_refused_with_its_path(document: JsonDict, places: set[str]) -> None:
    assert set(faults(Kind.TASK, document)) == places


def test_a_bad_schema_is_refused_with_the_place_in_the_schema() -> None:
    document = {**step(), "input_schema": {"properties": {"q": {"type": "sting"}}}}
    (place,) = faults(Kind.TASK, document)
    assert place.startswith("input_schema.properties.q")


def test_a_schema_may_not_point_to_the_network() -> None:
    assert faults(Kind.TASK, {**step(), "input_schema": {"$ref": "http://example.test/schema.json"}})


# --- personas, tools, model profiles ------------------------------------------------------------------

TOOL: JsonDict = {"name": "recall", "description": "Look.", "target_type": "task", "target_id": "t"}


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({}, set()),
        ({"name": "look up"}, {"name"}),
        ({"name": "x" * 65}, {"name"}),
        ({"description": " "}, {"description"}),
        ({"target_type": "planet"}, {"target_type"}),
        ({"target_type": "workflow"}, {"target_id"}),
        ({"target_type": "agent", "target_id": "architect", "invocation_mode": "loop_in"}, set()),
        ({"target_type": "agent", "target_id": "architect", "async": True}, set()),
        ({"target_type": "agent", "target_id": ""}, {"target_id"}),
        (
            {"target_type": "agent", "target_id": "a", "invocation_mode": "loop_in", "async": True},
            {"async"},
        ),
        ({"invocation_mode": "loop_in"}, {"invocation_mode"}),
        ({"input_schema": {"type": "array"}}, {"input_schema.type"}),
        ({"input_mapping": {"query": "state.q"}}, {"input_mapping.query"}),
        ({"max_result_bytes": 0}, set()),
        ({"max_result_bytes": 1024}, set()),
        ({"max_result_bytes": 1023}, {"max_result_bytes"}),
        ({"max_result_bytes": -1}, {"max_result_bytes"}),
        ({"max_result_bytes": 4 * 1024 * 1024 + 1}, {"max_result_bytes"}),
    ],
)
def test_tools(change: JsonDict, places: set[str]) -> None:
    assert set(faults(Kind.TOOL, {**TOOL, **change})) == places


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"provider": "auto"}, set()),
        ({"provider": "openai"}, {"model"}),
        ({"provider": "Open AI", "model": "m"}, {"provider"}),
        ({"provider": "auto", "format": "morse"}, {"format"}),
        ({"provider": "gemini", "model": "m", "format": "gemini"}, set()),
        ({"provider": "openai", "model": "m", "format": "openai_responses"}, set()),
        ({"provider": "auto", "parameters": {"api_base": "http://169.254.169.254"}}, {"parameters.api_base"}),
        ({"provider": "auto", "timeout_ms": 0, "max_attempts": 11}, {"timeout_ms", "max_attempts"}),
    ],
)
def test_model_profiles(document: JsonDict, places: set[str]) -> None:
    assert set(faults(Kind.MODEL_PROFILE, document)) == places


SHELF_OF_TOOLS = Shelf(
    {
        "recall": Tool(name="recall", description="d", target_type="task", target_id="t"),
        "other/recall": Tool(name="recall", description="d", target_type="task", target_id="t"),
        "w": Workflow(nodes=()),
        "p": ModelProfile(provider="auto"),
        "t": TASK,
    }
)


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({}, set()),
        ({"system_prompt": ""}, {"system_prompt"}),
        ({"model_profile_id": "p", "context_assembly_workflow_id": "w", "tool_ids": ["recall"]}, set()),
        ({"memory_extraction_workflow_id": "none"}, set()),
        ({"extraction_model_profile_id": "p", "summary_model_profile_id": "p"}, set()),
        ({"extraction_model_profile_id": "w", "summary_model_profile_id": "no reference"},
         {"extraction_model_profile_id", "summary_model_profile_id"}),
        ({"memory_extraction_workflow_id": "p"}, {"memory_extraction_workflow_id"}),
        ({"tool_ids": ["recall", "t", "nope"]}, {"tool_ids[1]", "tool_ids[2]"}),
        ({"tool_ids": ["recall", "other/recall"]}, {"tool_ids[1]"}),
        ({"recent_turns_limit": -1}, {"recent_turns_limit"}),
        ({"constraints": {"allowed_actions": ["memory.*", "context", "http", "x.*"]}},
         {"constraints.allowed_actions[2]", "constraints.allowed_actions[3]"}),
    ],
)  # fmt: skip
def test_personas(change: JsonDict, places: set[str]) -> None:
    assert set(faults(Kind.PERSONA, {"system_prompt": "You help.", **change}, SHELF_OF_TOOLS)) == places


def test_a_definition_beyond_the_size_limit_is_refused_whole() -> None:
    spec = Persona(system_prompt="x", instructions=("y" * 60_000,) * 20)
    (fault,) = check_spec(spec, "lib", SHELF)
    assert "larger than" in fault.message


def test_a_spec_that_is_its_own_action_definition_is_checked_like_an_inline_one() -> None:
    assert set(faults(Kind.ACTION, {"kind": "memory.search", "config": {"x": 1}})) == {"config.x"}
    assert isinstance(TASK, Task)


# --- limits of providers on tools -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        ({"properties": {"a": {"type": "string"}}}, set()),
        ({"type": "object", "properties": {"a": {"anyOf": [{}, {}]}}, "$defs": {"x": {}}}, set()),
        ({"anyOf": [{"type": "object"}]}, {"input_schema.anyOf"}),
        ({"type": "object", "oneOf": [{}], "allOf": [{}]}, {"input_schema.oneOf", "input_schema.allOf"}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}}, {"input_schema.$ref"}),
        ({"enum": [{}]}, {"input_schema.enum"}),
        ({"type": "array"}, {"input_schema.type"}),
        ({"properties": {"no such name": {}}}, {"input_schema.properties.no such name"}),
        ({"properties": {"a" * 65: {}}}, {f"input_schema.properties.{'a' * 65}"}),
    ],
)
def test_the_root_of_a_tools_schema_is_limited_to_what_providers_accept(
    schema: JsonDict, places: set[str]
) -> None:
    tool = {"name": "find", "description": "d", "target_type": "task", "target_id": "t"}
    assert set(faults(Kind.TOOL, {**tool, "input_schema": schema})) == places


@pytest.mark.parametrize(
    ("profile", "tool", "refused"),
    [
        ({"provider": "gemini", "model": "m"}, {"name": "2nd"}, True),
        ({"provider": "gemini", "model": "m"}, {"name": "second"}, False),
        ({"provider": "anthropic", "model": "m"}, {"name": "2nd", "description": "d" * 2000}, False),
        ({"provider": "openai", "model": "m"}, {"name": "2nd"}, False),
        ({"provider": "openai", "model": "m"}, {"name": "a", "description": "d" * 1025}, True),
        (
            {"provider": "openai", "model": "m", "format": "openai_responses"},
            {"description": "d" * 1025},
            True,
        ),
        ({"provider": "mistral", "model": "m"}, {"name": "2nd", "description": "d" * 2000}, False),
        ({"provider": "auto"}, {"name": "2nd", "description": "d" * 2000}, False),
    ],
)
def test_a_personas_tools_must_be_valid_in_the_format_of_its_model(
    profile: JsonDict, tool: JsonDict, refused: bool
) -> None:
    base = {"name": "find", "description": "d", "target_type": "task", "target_id": "t"}
    tool_spec = parse_spec(Kind.TOOL, {**base, **tool})
    shelf = Shelf({"t": TASK, "tool": tool_spec, "profile": parse_spec(Kind.MODEL_PROFILE, profile)})
    persona = {"system_prompt": "x", "model_profile_id": "profile", "tool_ids": ["tool"]}
    assert ("tool_ids[0]" in faults(Kind.PERSONA, persona, shelf)) is refused


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    shelf = Shelf(providers=frozenset({"openai", "groq", "offline"}))
    for provider in ("groq", "auto", "offline"):
        assert faults(Kind.MODEL_PROFILE, {"provider": provider, "model": "m"}, shelf) == {}
    said = faults(Kind.MODEL_PROFILE, {"provider": "grog", "model": "m"}, shelf)
    assert said == {
        "provider": "This server has no model provider 'grog' (did you mean 'groq'?). It has groq, offline,"
        " openai; its operator can add more."
    }


@pytest.mark.parametrize(
    "name",
    "api_base base_url api_key extra_headers extra_body custom_llm_provider mock_response model_list"
    " fallbacks aws_bedrock_runtime_endpoint vertex_credentials azure_ad_token stream".split(),
)
def test_a_profile_cannot_set_the_endpoint_or_the_key(name: str) -> None:
    document = {"provider": "openai", "model": "m", "parameters": {name: "x", "temperature": 0.5}}
    assert list(faults(Kind.MODEL_PROFILE, document)) == [f"parameters.{name}"]
