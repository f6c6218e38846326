"""Faults of the graph itself, and the places that they name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.coordinator.coordinator_kit import PARENT, RUN_ID, Driven, each, graph, node, transition
from wonder_server.core.actor.commands import Answer
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.definitions.specs import FanIn, Merge, PinnedWorkflow
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict

DEEP: Any = "core"
for _ in range(28):
    DEEP = {"x": DEEP}


def after_a(flow: PinnedWorkflow, result: Any, given: JsonDict | None = None) -> Driven:
    """Return a run after the result of its node ``a``, if the node began."""
    driven = Driven()
    driven.start(flow, given, parent=PARENT)
    if driven.state.operations:
        driven.succeed("a", result)
    return driven


@pytest.mark.parametrize(
    ("flow", "field", "found"),
    [
        (graph(node("a", input_mapping={"x": "input.absent"})), "input_mapping.x", "node `a`"),
        (graph(node("a", output_mapping={"state.x": "result.absent"})), "output_mapping.state.x", "node `a`"),
        (
            graph(
                node("a"),
                node("b"),
                transitions=[transition("a>b"), transition("a>b", "state.no", priority=-1)],
            ),
            "transitions[1].condition",
            "node `a`",
        ),
        (
            graph(node("a"), node("b"), transitions=[each("a>b", "input.none")]),
            "for_each.items to `b`",
            "node `a`",
        ),
        (
            graph(node("a"), node("b", input_mapping={"x": "state.no"}), transitions=[transition("a>b")]),
            "input_mapping.x",
            "node `b`",
        ),
        (
            graph(
                node("a"),
                node("z", fan_in=FanIn(merges=(Merge(source="item.none", target="state.x"),))),
                transitions=[each("a>z", "[{}]")],
            ),
            "fan_in.merges[0].source",
            "node `z`",
        ),
        (graph(node("a"), output_mapping={"x": "state.no"}), "output_mapping.x", ""),
    ],
)
def test_a_fault_names_the_failing_expression(flow: PinnedWorkflow, field: str, found: str) -> None:
    driven = after_a(flow, {"n": 1})
    fault = driven.fault
    assert (driven.status, fault.reason, fault.field) == (RunStatus.FAILED, Reason.EXPRESSION_FAILED, field)
    assert fault.message.startswith(
        f"team/graph@1, {found}, {field}: " if found else f"team/graph@1, {field}: "
    )
    assert "there is no '" in fault.message
    node_id = {"node": found[6:-1]} if found else {}
    assert fault.metadata.items() >= {"workflow": "team/graph@1", "line": "1", **node_id}.items()
    assert int(fault.metadata["column"]) > 0
    assert driven.commands == [Answer(parent=PARENT, run_id=RUN_ID, output={}, fault=fault)]
    driven.replayed()


def test_a_fault_has_line_and_column() -> None:
    driven = after_a(graph(node("a", output_mapping={"state.x": "[1,\n  result.absent]"})), {})
    assert (driven.fault.metadata["line"], driven.fault.metadata["column"]) == ("2", "10")


@pytest.mark.parametrize(
    ("condition", "shape"),
    [
        ("1", "a number"),
        ("2.5", "a number"),
        ('"yes"', "text"),
        ("null", "null"),
        ("[]", "a list"),
        ("state", "an object"),
    ],
)
def test_a_condition_must_be_a_boolean(condition: str, shape: str) -> None:
    driven = after_a(graph(node("a"), node("b"), transitions=[transition("a>b", condition)]), {})
    message = (
        f"team/graph@1, node `a`, transitions[0].condition: a condition must be true or false, not {shape}"
    )
    assert (driven.fault.reason, driven.fault.message) == (Reason.EXPRESSION_FAILED, message)


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def test_state_is_validated_after_a_node() -> None:
    flow = graph(
        node("a", output_mapping={"state.n": "result"}),
        node("b"),
        transitions=[transition("a>b")],
        state_schema=NUMBER,
    )
    assert after_a(flow, 5).at == ["b"]
    driven = after_a(flow, "text")
    assert (driven.fault.reason, driven.fault.field) == (Reason.RUN_FAILED, "state_schema")
    assert driven.fault.message.startswith("After node `a` the state does not match its schema: ")
    assert driven.fault.metadata == {"node": "a"}
    assert [each.status.value for each in driven.recorded.values()] == ["completed"]


def test_state_is_validated_after_a_fan_in() -> None:
    merge = Merge(source="item", target="state.n")
    flow = graph(
        node("a", output_mapping={"output.x": "1"}),
        node("z", fan_in=FanIn(merges=(merge,))),
        transitions=[each("a>z", "[1]")],
        state_schema=NUMBER,
    )
    driven = after_a(flow, {})
    assert driven.fault.field == "state_schema"
    assert driven.fault.metadata == {"node": "z"}


def test_output_is_validated() -> None:
    schema = {"type": "object", "required": ["x"]}
    driven = after_a(graph(node("a"), output_schema=schema), {})
    assert (driven.fault.reason, driven.fault.field) == (Reason.RUN_FAILED, "output")
    assert driven.fault.message.startswith("The run's output does not match its schema: ")
    assert after_a(graph(node("a"), output_schema=schema, output_mapping={"x": "1"}), {}).run.output == {
        "x": 1
    }


LARGE = "x" * 3_000_000


@pytest.mark.parametrize(
    ("flow", "result", "reason", "field"),
    [
        (
            graph(node("a", output_mapping={"state.x": "[result, result]"})),
            LARGE,
            Reason.PAYLOAD_TOO_LARGE,
            "output_mapping.state.x",
        ),
        (
            graph(
                node("a"),
                node("b", input_mapping={"x": "state.a", "y": "state.a"}),
                transitions=[transition("a>b")],
            ),
            LARGE,
            Reason.PAYLOAD_TOO_LARGE,
            "input_mapping",
        ),
        (
            graph(node("a", output_mapping={"state.x.y": "result", "state.x.z": "result"})),
            LARGE,
            Reason.PAYLOAD_TOO_LARGE,
            "output_mapping.state.x.z",
        ),
        (
            graph(node("a", output_mapping={"output.x": "result", "output.y": "result"})),
            LARGE,
            Reason.PAYLOAD_TOO_LARGE,
            "output",
        ),
        (
            graph(
                node("a", output_mapping={"output.x": "result"}), output_mapping={"x": "[output.x, output.x]"}
            ),
            LARGE,
            Reason.PAYLOAD_TOO_LARGE,
            "output_mapping",
        ),
        (
            graph(node("a", output_mapping={"state.v.w.x.y.z": "result"})),
            DEEP,
            Reason.PAYLOAD_TOO_DEEP,
            "output_mapping.state.v.w.x.y.z",
        ),
        (
            graph(node("a", output_mapping={"state.x": "{'x': {'x': {'x': result}}}"})),
            DEEP,
            Reason.PAYLOAD_TOO_DEEP,
            "output_mapping.state.x",
        ),
        (
            graph(node("a", output_mapping={"state.x": "result * 2"})),
            2**53,
            Reason.NUMBER_OUT_OF_RANGE,
            "output_mapping.state.x",
        ),
        (
            graph(node("a"), node("b"), transitions=[each("a>b", "[state.a, state.a]")]),
            LARGE,
            Reason.PAYLOAD_TOO_LARGE,
            "for_each.items to `b`",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) and len(value) < 100 else "",
)
def test_a_value_that_mappings_make_too_large_fails_the_run(
    flow: PinnedWorkflow, result: Any, reason: Reason, field: str
) -> None:
    driven = after_a(flow, result)
    assert driven.fault.reason is reason
    assert driven.fault.field.startswith(field)
    assert len(driven.fault.message) < 1_000
    assert driven.fault.metadata.get("node", "") in ("a", "b", "")


def test_node_executions_of_a_run_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wonder_server.core.coordinator.planning.nodes.MAX_EXECUTIONS", 3)
    driven = Driven()
    driven.start(graph(node("a"), transitions=[transition("a>a", loop_limit=1_000)]))
    driven.finish()
    assert driven.fault.reason is Reason.LIMIT_EXCEEDED
    assert driven.run.executions == 3
