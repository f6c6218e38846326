"""Fan-out and fan-in: every row of the table in ``token_flow.py``, and merges of branches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import BUSINESS
from tests.core.coordinator.coordinator_kit import (
    ALL,
    ANY,
    TWO,
    Driven,
    diamond,
    each,
    fan,
    forked,
    gate,
    graph,
    node,
    transition,
)
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.decisions import DispatchNode, EndRun
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.coordinator.planning.fan_out import MAX_LIVE_TOKENS
from wonder_server.core.definitions.specs import (
    FanIn,
    FanInMode,
    FanInTimeout,
    Merge,
    MergeStrategy,
    PinnedWorkflow,
)
from wonder_server.core.errors import Reason


def end(driven: Driven, name: str, how: str) -> None:
    """Let a branch arrive, end before its fan-in, or fail."""
    if how == "fails":
        driven.fail(name, BUSINESS)
    else:
        driven.succeed(name, {"arrives": how == "arrives"})


THREE = "bcd"


def three(join: FanIn) -> PinnedWorkflow:
    """Return a workflow with three branches, which arrive only if their node's result says so."""
    nodes = [node(name, output_mapping={"branch.x": "result"}) for name in THREE]
    return graph(
        node("a", fan_out=True),
        *nodes,
        node("z", fan_in=join),
        transitions=[
            each
            for name in THREE
            for each in (transition(f"a>{name}"), transition(f"{name}>z", "branch.x.arrives"))
        ],
    )


JOINED, QUIET = "joined", "completed"


@pytest.mark.parametrize(
    ("join", "ends", "result"),
    [
        (ALL, "arrives arrives arrives", JOINED),
        (ALL, "arrives arrives", "waits"),
        (ALL, "arrives ends ends", JOINED),
        (ALL, "ends arrives ends", JOINED),
        (ALL, "ends ends ends", QUIET),
        (ALL, "ends ends", "waits"),
        (ALL, "fails", "failed: It cannot be done."),
        (ALL, "arrives ends fails", "failed: It cannot be done."),
        (ANY, "arrives", JOINED),
        (ANY, "fails arrives", JOINED),
        (ANY, "fails ends", "waits"),
        (ANY, "fails ends arrives", JOINED),
        (ANY, "fails fails fails", "failed: It cannot be done."),
        (
            ANY,
            "fails fails ends",
            "failed: The fan-in at node `z` needs 1 of 3 branches, and 0 arrived before "
            "the others ended or failed.",
        ),
        (
            ANY,
            "ends ends ends",
            "failed: The fan-in at node `z` needs 1 of 3 branches, and 0 arrived before "
            "the others ended or failed.",
        ),
        (TWO, "arrives", "waits"),
        (TWO, "arrives arrives", JOINED),
        (TWO, "arrives fails", "waits"),
        (TWO, "fails arrives arrives", JOINED),
        (
            TWO,
            "arrives ends ends",
            "failed: The fan-in at node `z` needs 2 of 3 branches, and 1 arrived before "
            "the others ended or failed.",
        ),
        (TWO, "fails fails", "failed: It cannot be done."),
        (TWO, "ends fails", "failed: It cannot be done."),
    ],
)
def test_every_row_of_the_fan_in_table(join: FanIn, ends: str, result: str) -> None:
    driven = forked(three(join))
    for name, how in zip(THREE, ends.split(), strict=False):
        driven.reload()
        end(driven, name, how)
    driven.replayed()
    if result == JOINED:
        assert driven.at == ["z"]
        assert driven.tokens == {"t": "waiting_for_task"}
        states = driven.ended_tokens()
        expected = {"arrives": "completed", "ends": "completed", "fails": "failed"}
        hows = [*ends.split(), *["late"] * 3][:3]
        assert [states[f"t.1.{index}"] for index in range(3)] == [
            expected.get(how, "cancelled") for how in hows
        ]
        driven.succeed("z")
        assert driven.status is RunStatus.COMPLETED
    elif result == "waits":
        assert driven.tokens["t"] == "forked"
        assert driven.at == list(THREE[len(ends.split()) :])
    elif result == QUIET:
        assert driven.status is RunStatus.COMPLETED
        assert "z" not in {each.node_id for each in driven.recorded.values()}
    else:
        assert f"{driven.status.value}: {driven.fault.message}" == result
        assert driven.fault.metadata["node"] in "bcdz"


def test_late_branches_are_cancelled() -> None:
    driven = forked(
        graph(
            node("a", fan_out=True),
            node("b"),
            node("c", workflow_id="w"),
            gate("d"),
            node("z", fan_in=ANY),
            transitions=[
                each for name in "bcd" for each in (transition(f"a>{name}"), transition(f"{name}>z"))
            ],
        )
    )
    late, gate_id = driven.operation("c"), driven.gate.id
    driven.succeed("b")
    assert [each.operation_id for each in driven.commands] == [late.id, driven.operation("z").id]
    assert driven.row("gates", gate_id).status.value == "cancelled"
    assert driven.step(inputs.NodeSucceeded(operation_id=late.id, output={})) == []


# --- lists ------------------------------------------------------------------------------------------

OF_ITEMS = FanIn(
    merges=(
        Merge(source="[index, item, branch]", target="output.all"),
        Merge(source="item", target="state.named", strategy=MergeStrategy.KEYED_BY_BRANCH),
    )
)


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
@pytest.mark.parametrize("items", [[], ["x"], ["x", None, {"y": 1}, "w"]])
def test_each_item_has_a_branch_of_its_own(items: list[Any], limit: int) -> None:
    driven = forked(fan(OF_ITEMS, limit=limit, input_mapping={"n": "item"}), {"items": items})
    begun: list[Any] = []
    while driven.at != ["z"]:
        assert len(driven.operations("b")) == min(limit or 9, len(items) - len(begun))
        newest = driven.operations("b")[-1]
        begun.append(driven.state.executions[newest.id].input["n"])
        driven.reload()
        driven.step(inputs.NodeSucceeded(operation_id=newest.id, output=len(begun)))
    assert sorted(map(str, begun)) == sorted(map(str, items))
    all_of = driven.state.output["all"]
    assert [(index, item) for index, item, _ in all_of] == list(enumerate(items))
    assert driven.state.state["named"] == {str(index): item for index, item in enumerate(items)}
    driven.succeed("z")
    assert driven.status is RunStatus.COMPLETED
    driven.replayed()


@pytest.mark.parametrize(
    ("join", "result"), [(ANY, "failed"), (TWO, "failed"), (None, "completed"), (ALL, "joined")]
)
def test_an_empty_list_has_no_branches(join: FanIn | None, result: str) -> None:
    flow = fan(join) if join else graph(node("a"), node("b"), transitions=[each("a>b")])
    driven = forked(flow, {"items": []})
    assert result == ("joined" if driven.at == ["z"] else driven.status.value)


@pytest.mark.parametrize(
    ("items", "reason", "message"),
    [
        (
            {"x": 1},
            Reason.EXPRESSION_FAILED,
            'team/graph@1, node `a`, for_each.items to `b`: must be a list, not {"x": 1}',
        ),
        (
            None,
            Reason.EXPRESSION_FAILED,
            "team/graph@1, node `a`, for_each.items to `b`: must be a list, not null",
        ),
        (
            "text" * 30,
            Reason.EXPRESSION_FAILED,
            f'team/graph@1, node `a`, for_each.items to `b`: must be a list, not "{"text" * 24}tex…',
        ),
        (
            [1, 2, 3, 4],
            Reason.LIMIT_EXCEEDED,
            "Node `a`, for_each.items to `b`: 4 items, and at most 3 are allowed.",
        ),
    ],
)
def test_items_that_are_no_list_or_too_many_fail_the_run(items: Any, reason: Reason, message: str) -> None:
    driven = forked(fan(most=3), {"items": items})
    assert (driven.fault.reason, driven.fault.message) == (reason, message)
    assert driven.fault.metadata["node"] == "a"


def test_live_tokens_of_a_run_are_limited() -> None:
    flow = graph(
        node("a", fan_out=True), node("b"), transitions=[each("a>b", max_items=10_000), transition("a>b")]
    )
    for items, fits in ((MAX_LIVE_TOKENS - 1, True), (MAX_LIVE_TOKENS, False)):
        driven = Driven()
        driven.start(flow, {"items": [0] * items})
        done = inputs.NodeSucceeded(operation_id=driven.operation("a").id, output={})
        decided = RUN.plan(driven.state, done, driven.now)
        assert sum(isinstance(each, DispatchNode) for each in decided) == (MAX_LIVE_TOKENS if fits else 0)
        ends = [each.run.fault for each in decided if isinstance(each, EndRun)]
        assert [fault.reason for fault in ends if fault] == ([] if fits else [Reason.LIMIT_EXCEEDED])


def test_a_node_can_take_a_list_and_other_transitions_together() -> None:
    """The index is the item's, also if other transitions fan out; names distinguish the branches."""
    merge = Merge(source="[index, item]", target="state.all")
    driven = forked(
        graph(
            node("a", fan_out=True),
            node("b"),
            node("c"),
            node("z", fan_in=FanIn(merges=(merge,))),
            transitions=[transition("a>b"), each("a>c"), transition("b>z"), transition("c>z")],
        ),
        {"items": ["x", "y"]},
    )
    driven.finish()
    assert driven.state.state["all"] == [[0, None], [0, "x"], [1, "y"]]


def test_branches_can_go_directly_to_their_fan_in() -> None:
    merge = Merge(source="item", target="state.all")
    flow = graph(
        node("a"), node("z", fan_in=FanIn(merges=(merge,))), transitions=[each("a>z", max_concurrency=2)]
    )
    driven = forked(flow, {"items": list(range(700))})
    assert driven.at == ["z"]
    assert driven.state.state["all"] == list(range(700))


def test_in_mode_any_the_first_of_many_that_meet_at_once_is_enough() -> None:
    merge = Merge(source="item", target="state.first", strategy=MergeStrategy.LAST_WINS)
    join = FanIn(mode=FanInMode.ANY, merges=(merge,))
    driven = forked(graph(node("a"), node("z", fan_in=join), transitions=[each("a>z")]), {"items": [1, 2, 3]})
    assert driven.at == ["z"]
    assert driven.state.state["first"] == 1
    assert list(driven.ended_tokens().values()) == ["completed", "cancelled", "cancelled"]


# --- merges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "values", "merged"),
    [
        (MergeStrategy.COLLECT, [1, [2], None], [1, [2], None]),
        (MergeStrategy.APPEND, [[1], [], [2, [3]]], [1, 2, [3]]),
        (MergeStrategy.MERGE_OBJECT, [{"x": 1, "y": 1}, {}, {"x": 3}], {"x": 3, "y": 1}),
        (MergeStrategy.KEYED_BY_BRANCH, [1, 2, 3], {"b": 1, "c": 2, "d": 3}),
        (MergeStrategy.LAST_WINS, [1, 2, 3], 1),  # they arrive in the order d, c, b
        (
            MergeStrategy.APPEND,
            [[1], "x", [2]],
            "Node `z`, fan_in.merges[0].source: in branch `c` this is not a list.",
        ),
        (
            MergeStrategy.MERGE_OBJECT,
            [{}, {}, None],
            "Node `z`, fan_in.merges[0].source: in branch `d` this is not an object.",
        ),
    ],
)
def test_each_merge_strategy_combines_the_values_of_branches(
    strategy: MergeStrategy, values: list[Any], merged: Any
) -> None:
    join = FanIn(merges=(Merge(source="branch.x", target="state.x.y", strategy=strategy),))
    flow = graph(
        node("a", fan_out=True),
        *(node(name, output_mapping={"branch.x": "result"}) for name in "bcd"),
        node("z", fan_in=join),
        transitions=[each for name in "bcd" for each in (transition(f"a>{name}"), transition(f"{name}>z"))],
    )
    driven = forked(flow)
    for name, value in reversed(list(zip("bcd", values, strict=True))):
        driven.reload()
        driven.step(inputs.NodeSucceeded(operation_id=driven.operation(name).id, output=value))
    if isinstance(merged, str):
        assert driven.fault.message == merged
        assert driven.fault.reason is Reason.EXPRESSION_FAILED
    else:
        assert driven.state.state["x"] == {"y": merged}
    driven.replayed()


def test_a_merge_of_a_missing_value_fails_the_run() -> None:
    driven = forked(diamond("b", "c", join=FanIn(merges=(Merge(source="branch.b", target="state.x"),))))
    driven.succeed("b")
    driven.succeed("c")
    assert driven.fault.reason is Reason.EXPRESSION_FAILED
    assert driven.fault.metadata["node"] == "z"


# --- time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", list(FanInTimeout))
def test_the_timeout_of_a_fan_in_starts_with_the_first_arrival(policy: FanInTimeout) -> None:
    merge = Merge(source="index", target="output.came")
    join = FanIn(timeout_ms=5_000, on_timeout=policy, merges=(merge,))
    driven = forked(diamond("b", "c", "d", join=join))
    assert all(each.node_id for each in driven.state.operations.values()), "no branch has arrived"
    driven.succeed("c")
    ends = driven.now + 5_000
    assert driven.timer.wake_ms == ends
    driven.now += 1_000
    driven.succeed("b")
    assert driven.timer.wake_ms == ends, "counted from the first"
    early = inputs.NodeTimerFired(operation_id=driven.timer.id)
    assert driven.step(early) == []
    driven.reload()
    driven.fire_timer(driven.timer)
    if policy is FanInTimeout.PROCEED:
        assert driven.at == ["z"]
        assert driven.state.output["came"] == [0, 1]
    else:
        assert driven.fault.reason is Reason.TIMEOUT
        message = "The fan-in at node `z` waited 5 s; 2 of 3 branches had arrived."
        assert driven.fault.message == message
    assert driven.step(early) == []
    driven.replayed()


def test_a_fan_in_that_is_satisfied_has_no_timer_left() -> None:
    driven = forked(diamond("b", "c", join=FanIn(timeout_ms=5_000)))
    driven.succeed("b")
    timer = driven.timer
    driven.succeed("c")
    assert timer.id not in driven.state.operations
    assert driven.step(inputs.NodeTimerFired(operation_id=timer.id)) == []
