"""Graphs of workflows: the order of transitions and the fan-ins of branches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import wonder_server
from tests.core.coordinator.flows import EACH, FAN_IN, FAN_OUT, LOOP, workflow
from wonder_server.core.definitions.document import parse_draft
from wonder_server.core.definitions.graph import graph_of, initial_node
from wonder_server.core.definitions.specs import Transition, Workflow
from wonder_server.core.json_types import JsonDict

STANDARD = Path(wonder_server.__file__).parent / "std"


def test_transitions_are_tried_by_priority_and_then_in_written_order() -> None:
    graph = graph_of(workflow("a>b a>c a>d", None, {"a>b": {"priority": 1}, "a>c": {"priority": 1}}))
    assert [(index, way.to_node_id) for index, way in graph.transitions["a"]] == [
        (2, "d"),
        (0, "b"),
        (1, "c"),
    ]
    assert graph.transitions["b"] == () and list(graph.nodes) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("spec", "joins"),
    [
        (workflow("a>b b>c"), {}),
        (workflow("a>b a>c b>d c>d", {"a": FAN_OUT}), {}),
        (workflow("a>b a>c b>d c>d", {"a": FAN_OUT, "d": FAN_IN}), {"a": "d"}),
        # Branches of different length; one may end before the fan-in.
        (workflow("a>b a>c b>x x>d b>e c>d", {"a": FAN_OUT, "d": FAN_IN}), {"a": "d"}),
        (workflow("a>b b>c", {"c": FAN_IN}, {"a>b": EACH}), {"a": "c"}),
        # Nested fan-outs, each with its own fan-in.
        (
            workflow("a>b b>c c>d d>e", {"d": FAN_IN, "e": FAN_IN}, {"a>b": EACH, "b>c": EACH}),
            {"a": "e", "b": "d"},
        ),
        # Nested fan-outs; only the inner one has a fan-in.
        (workflow("a>b b>c c>d", {"d": FAN_IN}, {"a>b": EACH, "b>c": EACH}), {"b": "d"}),
        # Two consecutive fan-outs that meet at one node, with a loop back to it.
        (
            workflow("a>b b>j j>c c>j", {"j": FAN_IN}, {"a>b": EACH, "j>c": {**EACH, **LOOP}}),
            {"a": "j", "j": "j"},
        ),
        # A loop around a fan-out, and one inside it.
        (
            workflow("a>b b>b b>j j>a", {"a": FAN_OUT, "j": FAN_IN}, {"b>b": LOOP, "j>a": LOOP}),
            {"a": "j"},
        ),
        # Only the transition with for_each opens branches; the other passes a fan-in, which ignores it.
        (workflow("a>b a>j b>j", {"j": FAN_IN}, {"a>b": EACH}), {"a": "j"}),
        (
            workflow("a>b b>c c>d", {"a": FAN_OUT, "b": FAN_OUT, "c": FAN_IN, "d": FAN_IN}),
            {"a": "d", "b": "c"},
        ),
    ],
)
def test_branches_meet_at_the_fan_in_of_the_innermost_fan_out(spec: Workflow, joins: dict[str, str]) -> None:
    assert graph_of(spec).joins == joins


def test_the_graph_is_kept_by_identity_and_keeps_its_workflow_alive() -> None:
    spec = workflow("a>b a>c b>d c>d", {"a": FAN_OUT, "d": FAN_IN})
    first = graph_of(spec)
    assert graph_of(spec) is first
    assert graph_of(replace(spec)) is not first
    assert first.nodes["a"] is spec.nodes[0]
    for _ in range(3_000):  # more than are kept: an id that is used again must not find another's graph
        other = workflow("a>b")
        assert list(graph_of(other).nodes) == ["a", "b"]
    assert graph_of(spec).joins == {"a": "d"}


def test_an_invalid_workflow_has_a_graph_too() -> None:
    lost = Transition(from_node_id="a", to_node_id="nowhere")
    spec = workflow("a>b b>a")
    assert graph_of(replace(spec, transitions=(*spec.transitions, lost))).transitions["a"] == (
        (0, spec.transitions[0]),
    )
    assert graph_of(replace(spec, initial_node_id="nowhere")).joins == {}
    assert graph_of(Workflow(nodes=())).nodes == {}
    # A fan-out that contains itself.
    assert graph_of(workflow("a>b b>a", {"a": FAN_OUT})).joins == {}


def standard() -> list[Any]:
    documents = [
        document
        for file in sorted(STANDARD.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    return [each for each in documents if each and "workflow" in each]


@pytest.mark.parametrize("document", standard(), ids=lambda each: each["name"])
def test_the_graphs_of_the_standard_library(document: JsonDict) -> None:
    spec = parse_draft(document).spec
    assert isinstance(spec, Workflow)
    graph = graph_of(spec)
    assert initial_node(spec) in graph.nodes and graph.joins.keys() <= graph.nodes.keys()
    written = [way for ways in graph.transitions.values() for way in ways]
    assert sorted(index for index, _ in written) == list(range(len(spec.transitions)))
    for node, ways in graph.transitions.items():
        assert {way.from_node_id for _, way in ways} <= {node}
        assert [way.priority for _, way in ways] == sorted(way.priority for _, way in ways)
