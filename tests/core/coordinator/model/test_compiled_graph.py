"""Compiled nodes of a pinned workflow (``compiled_graph.py``)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.coordinator.coordinator_kit import each, gate, graph, node, transition, wait
from wonder_server.core.coordinator.model.compiled_graph import CACHE_SIZE, compile_graph
from wonder_server.core.coordinator.model.values import OperationKind
from wonder_server.core.definitions.specs import FanIn, Node, PinnedWorkflow, Retry, Transition

NOW = 1_000


@pytest.mark.parametrize(
    ("place", "kind", "target", "until"),
    [
        (node("n"), OperationKind.TASK, "team/t@1", 0),
        (node("n", retry=Retry(timeout_ms=70)), OperationKind.TASK, "team/t@1", 1_070),
        (node("n", workflow_id="w"), OperationKind.SUBWORKFLOW, "team/w@1", 0),
        (node("n", agent_id="a"), OperationKind.AGENT, "agt_1", 0),
        (node("n", agent_id="agt_9"), OperationKind.AGENT, "agt_9", 0),
        (gate("n", expire_after_ms=5), OperationKind.GATE, "gate", 1_005),
        (wait("n", duration_ms=9), OperationKind.WAIT, "wait", 1_009),
    ],
)
def test_a_compiled_node_follows_from_its_node(
    place: Node, kind: OperationKind, target: str, until: int
) -> None:
    station = compile_graph(graph(replace(place, timeout_ms=500)))["n"]
    assert (station.kind, station.target, station.until(NOW)) == (kind, target, until)
    assert station.deadline(NOW) == 1_500
    assert (station.task is not None) == (kind is OperationKind.TASK)


def test_a_compiled_node_knows_whether_its_task_is_repeatable() -> None:
    course = compile_graph(graph(node("t"), node("once", task_id="once"), gate("gate")))
    assert (course["t"].repeatable, course["t"].side_effect_free) == (True, True)
    assert (course["once"].repeatable, course["once"].side_effect_free) == (False, False)
    assert (course["gate"].repeatable, course["gate"].side_effect_free) == (True, False)


@pytest.mark.parametrize(
    ("ways", "onward"),
    [
        ([], ""),
        ([transition("a>b")], "b"),
        ([transition("a>b", priority=2), transition("a>c", priority=1)], "c"),
        ([transition("a>b"), transition("a>c", "state.n > 1")], "b"),
        ([transition("a>b", "state.n > 1")], ""),
        ([transition("a>b", "state.n > 1"), transition("a>c", priority=1)], ""),
        ([transition("a>b", loop_limit=2)], ""),
        ([each("a>b")], ""),
    ],
)
def test_a_single_successor_is_known_if_there_is_no_choice(ways: list[Transition], onward: str) -> None:
    assert (
        compile_graph(graph(node("a"), node("b"), node("c"), transitions=ways))["a"].single_successor
        == onward
    )


def test_a_node_that_fans_out_has_no_single_successor() -> None:
    course = compile_graph(
        graph(
            node("a", fan_out=True),
            node("b"),
            node("z", fan_in=FanIn()),
            transitions=(transition("a>b"), transition("a>z"), transition("b>z")),
        )
    )
    assert (course["a"].single_successor, course["a"].join_node_id) == ("", "z")
    assert (course["b"].single_successor, course["b"].join_node_id) == ("z", "")


def test_a_compiled_graph_is_cached_by_the_identity_of_its_workflow() -> None:
    flow = graph(node("a"), node("b"))
    course = compile_graph(flow)
    assert compile_graph(flow) is course
    assert course["a"] is course["a"]
    assert compile_graph(replace(flow)) is not course
    for number in range(3 * CACHE_SIZE):  # more than are kept: an id that is used again finds no other's
        other: PinnedWorkflow = graph(node(f"n{number}"))
        assert compile_graph(other)[f"n{number}"].node is other.spec.nodes[0]
    assert compile_graph(flow)["a"].node is flow.spec.nodes[0]


def test_an_unknown_node_has_no_compiled_node() -> None:
    with pytest.raises(KeyError):
        compile_graph(graph(node("a")))["b"]
