"""Fan-outs inside fan-outs, in loops, and branches that do not meet."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import BUSINESS, TRANSIENT
from tests.core.coordinator.coordinator_kit import (
    ALL,
    ANY,
    TWO,
    Driven,
    each,
    fan,
    forked,
    graph,
    node,
    transition,
    wait,
)
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.definitions.specs import (
    FanIn,
    Merge,
    PinnedWorkflow,
    Retry,
)


def nested(inner: FanIn = ALL, outer: FanIn = ALL) -> PinnedWorkflow:
    """Return a workflow that runs each item of each list of a list."""
    return graph(
        node("a"),
        node("b", output_mapping={"branch.mine": "index"}),
        node("c", output_mapping={"branch.got": "result"}),
        node("y", fan_in=inner),
        node("z", fan_in=outer),
        transitions=[each("a>b"), each("b>c", "item"), transition("c>y"), transition("y>z")],
    )


def test_nested_fan_outs_have_separate_values() -> None:
    inner = FanIn(merges=(Merge(source="[item, branch.got]", target="branch.inner"),))
    outer = FanIn(merges=(Merge(source="[index, branch.mine, branch.inner]", target="output.all"),))
    driven = forked(nested(inner, outer), {"items": [["p"], [], ["q", "r"]]})
    driven.finish(lambda operation: operation.node_id)
    assert driven.run.output["all"] == [
        [0, 0, [["p", "c"]]],
        [1, 1, []],
        [2, 2, [["q", "c"], ["r", "c"]]],
    ]
    driven.replayed()


@pytest.mark.parametrize(
    ("inner", "outer", "result"),
    [
        (ALL, ALL, "failed"),
        (ANY, ALL, "continues"),
        (ALL, ANY, "continues"),
        (TWO, ANY, "continues"),
        (TWO, ALL, "failed"),
    ],
)
def test_a_failure_propagates_until_a_fan_in_can_do_without_the_branch(
    inner: FanIn, outer: FanIn, result: str
) -> None:
    driven = forked(nested(inner, outer), {"items": [[1, 2], [3, 4]]})
    for _ in range(2):
        driven.step(inputs.NodeSucceeded(operation_id=driven.operations("b")[0].id, output={}))
    first = driven.operations("c")[0]
    driven.step(inputs.NodeFailed(operation_id=first.id, fault=BUSINESS))
    assert ("failed" if driven.run.completed_ms else "continues") == result
    if result == "continues":
        driven.finish()
        assert driven.status is RunStatus.COMPLETED
    driven.replayed()


def test_a_branch_that_fails_at_its_start_stops_its_siblings_before_they_begin() -> None:
    """The first of several branches fails at its first expression. The others must not begin."""
    flow = graph(
        node("a"),
        node("b"),
        node("c", input_mapping={"x": "item > 1 ? 1 : state.none"}),
        node("y", fan_in=ALL),
        node("z", fan_in=ANY),
        transitions=[each("a>b"), each("b>c", "item"), transition("c>y"), transition("y>z")],
    )
    driven = forked(flow, {"items": [[1, 2, 3], [4]]})
    driven.succeed("b[0]")
    assert driven.at == ["b"]
    driven.finish()
    assert driven.status is RunStatus.COMPLETED


def test_each_branch_has_its_own_loop_counters() -> None:
    flow = graph(
        node("a"),
        node("b"),
        node("z", fan_in=ALL),
        transitions=[each("a>b"), transition("b>b", loop_limit=2), transition("b>z", priority=1)],
    )
    driven = forked(flow, {"items": [1, 2]})
    driven.finish()
    assert [each.node_id for each in driven.recorded.values()].count("b") == 6


def test_a_fan_out_can_run_again_in_a_loop() -> None:
    """The fan-out runs again with the same token. Its new branches are independent of the old ones."""
    flow = graph(
        node("a"),
        node("b"),
        node("z", fan_in=ALL),
        transitions=[each("a>b"), transition("b>z"), transition("z>a", loop_limit=2)],
    )
    driven = forked(flow, {"items": [1, 2]})
    driven.finish()
    assert [each.node_id for each in driven.recorded.values()].count("b") == 6
    assert len({key for key in driven.keys if key.count(".") == 2}) == 6


def test_a_fan_out_directly_after_a_fan_in_starts_without_arrivals() -> None:
    """A join continues to the next fan-out in the same step: its node's signal has arrived before."""
    flow = graph(
        node("a", fan_out=True),
        node("b"),
        node("c"),
        wait("z", "go", fan_in=ALL),
        node("d"),
        node("y", fan_in=ALL),
        transitions=[
            *(transition(f"a>{name}") for name in "bc"),
            *(transition(f"{name}>z") for name in "bc"),
            each("z>d", "[1, 2]", max_concurrency=1),
            transition("d>y"),
        ],
    )
    driven = forked(flow)
    driven.signal("go")
    driven.succeed("b")
    driven.succeed("c")
    for _ in range(2):
        assert driven.at == ["d"], "one at a time"
        driven.succeed("d")
    assert driven.at == ["y"]


def test_a_branch_in_backoff_is_still_running() -> None:
    driven = forked(fan(ALL, retry=Retry(max_attempts=2, backoff_ms=100)), {"items": [1, 2]})
    driven.fail("b[0]", TRANSIENT)
    driven.succeed("b[1]")
    assert driven.tokens["t.1.0"] == "pending"
    driven.finish()
    assert driven.status is RunStatus.COMPLETED


def test_branches_without_a_fan_in_end_the_run_with_the_last_one() -> None:
    driven = forked(
        graph(
            node("a", fan_out=True), node("b"), node("c"), transitions=[transition("a>b"), transition("a>c")]
        )
    )
    driven.succeed("c")
    assert driven.tokens == {"t": "forked", "t.1.0": "waiting_for_task"}
    driven.succeed("b")
    assert driven.status is RunStatus.COMPLETED


def test_a_fan_out_without_a_true_transition_ends_the_token() -> None:
    driven = forked(graph(node("a", fan_out=True), node("b"), transitions=[transition("a>b", "false")]))
    assert driven.status is RunStatus.COMPLETED


def test_a_token_outside_of_fan_outs_passes_a_fan_in() -> None:
    flow = graph(
        node("s"),
        node("a"),
        node("b"),
        node("z", fan_in=ALL),
        transitions=[
            transition("s>z", "input.direct"),
            transition("s>a", priority=1),
            each("a>b", "[1]"),
            transition("b>z"),
        ],
    )
    driven = Driven()
    driven.start(flow, {"direct": True})
    driven.succeed("s")
    assert driven.at == ["z"]
