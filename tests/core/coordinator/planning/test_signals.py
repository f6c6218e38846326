"""Signals, and nodes that wait for a signal or a time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.coordinator.coordinator_kit import Driven, diamond, graph, node, transition, wait
from wonder_server.core.coordinator import plan
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.coordinator.plan import MAX_SIGNALS
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import FanIn, FanInMode, Node, PinnedWorkflow
from wonder_server.core.errors import Reason


def flow(waiting: Node) -> PinnedWorkflow:
    return graph(node("a"), waiting, node("z"), transitions=[transition("a>w"), transition("w>z")])


def at_the_wait(waiting: Node) -> Driven:
    driven = Driven()
    driven.start(flow(waiting))
    driven.succeed("a")
    return driven


@pytest.mark.parametrize("duration_ms", [0, 60_000])
def test_a_signal_ends_the_wait(duration_ms: int) -> None:
    driven = at_the_wait(wait("w", "go", duration_ms))
    assert (driven.tokens, driven.status) == ({"t": "waiting_for_signal"}, RunStatus.WAITING)
    operation = driven.operation()
    assert operation.wake_ms == (driven.now + duration_ms if duration_ms else 0)
    driven.restart()
    assert driven.signal("other", 1) == ["RecordSignal"]
    driven.signal("go", {"x": 1})
    assert driven.at == ["z"]
    assert driven.state.state["w"] == {"received": True, "payload": {"x": 1}}
    assert driven.step(inputs.NodeTimerFired(operation_id=operation.id)) == []
    driven.replayed()


@pytest.mark.parametrize("signal", ["", "go"])
def test_a_timer_ends_the_wait(signal: str) -> None:
    driven = at_the_wait(wait("w", signal, 60_000))
    assert driven.step(inputs.NodeTimerFired(operation_id=driven.operation().id)) == []
    driven.wait_for_timer()
    assert driven.state.state["w"] == {"received": False, "payload": None}
    assert driven.at == ["z"]


def test_earlier_signals_are_queued() -> None:
    """No signal is lost: each ends one wait, the oldest first. Expressions read the newest."""
    driven = Driven()
    ways = [transition("a>u"), transition("u>v"), transition("v>w"), transition("w>z")]
    nodes = [node("a"), wait("u", "go", 60_000), wait("v", "go"), wait("w", "go"), node("z")]
    driven.start(graph(*nodes, transitions=ways))
    for payload in ("first", "second"):
        driven.signal("go", payload)
        driven.reload()
    driven.succeed("a")
    assert driven.at == ["w"]
    driven.reload()
    assert driven.state.queued_signals == {}
    driven.signal("go", "third")
    assert driven.at == ["z"]
    took = [driven.state.state[each]["payload"] for each in ("u", "v", "w")]
    assert took == ["first", "second", "third"]
    driven.replayed()


def test_the_queue_of_signals_is_limited_and_only_awaited_names_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "MAX_QUEUED_SIGNALS", 50)
    driven = Driven()
    driven.start(flow(wait("w", "go")))
    for number in range(MAX_SIGNALS):
        driven.signal(f"other{number}")
        driven.signal(f"other{number}")
    assert not driven.state.queued_signals
    for number in range(plan.MAX_QUEUED_SIGNALS + 1):
        driven.signal("go", number)
    fault = RUN.rejection(RUN.plan(driven.state, inputs.ReceiveSignal(name="go"), driven.now))
    assert fault is not None and fault.reason is Reason.LIMIT_EXCEEDED
    driven.succeed("a")
    assert driven.state.state["w"]["payload"] == 0


def test_a_signal_is_consumed_once() -> None:
    """The next node that waits for the name waits for the next signal."""
    driven = Driven()
    driven.start(
        graph(
            wait("w", "go"),
            node("z"),
            transitions=[transition("w>w", loop_limit=2), transition("w>z", priority=1)],
        )
    )
    for number in range(3):
        assert driven.at == ["w"]
        driven.reload()
        driven.signal("go", number)
    assert driven.at == ["z"]
    assert driven.state.signals["go"].number == 3


def test_after_a_timeout_a_signal_is_queued_for_the_next_node() -> None:
    """The next node that waits for the name receives the signal."""
    flow = graph(
        wait("v", "go", 1_000), node("a"), wait("w", "go"), transitions=[transition("v>a"), transition("a>w")]
    )
    driven = Driven()
    driven.start(flow)
    driven.wait_for_timer("v")
    driven.signal("go", 1)
    driven.succeed("a")
    assert driven.status is RunStatus.COMPLETED
    assert driven.state.state["w"]["payload"] == 1


def two(join: FanIn, **fields: Any) -> Driven:
    driven = Driven()
    driven.start(
        graph(
            node("a", fan_out=True),
            wait("v", "go", **fields),
            wait("w", "go"),
            node("z", fan_in=join),
            transitions=[transition("a>v"), transition("a>w"), transition("v>z"), transition("w>z")],
        )
    )
    driven.succeed("a")
    return driven


def test_a_signal_completes_every_node_that_waits_for_it() -> None:
    driven = two(FanIn())
    driven.reload()
    driven.signal("go", 1)
    assert driven.at == ["z"]
    driven.replayed()


def test_the_first_node_that_receives_a_signal_can_end_the_second() -> None:
    driven = two(FanIn(), output_mapping={"state.x": "result.payload.none"})
    driven.signal("go", 1)
    assert driven.fault.reason is Reason.EXPRESSION_FAILED
    assert sorted(each.status.value for each in driven.recorded.values()) == [
        "cancelled",
        "completed",
        "completed",
    ]
    driven.replayed()


def test_the_first_of_two_receivers_can_satisfy_the_fan_in() -> None:
    driven = two(FanIn(mode=FanInMode.ANY))
    driven.signal("go", 1)
    assert driven.at == ["z"]


def test_expressions_see_the_newest_signal_of_each_name() -> None:
    flow = graph(
        node("a"),
        node("b", input_mapping={"all": "signals", "go": "signals.go.x"}),
        node("c"),
        transitions=[transition("a>b", "has(signals.go)"), transition("a>c", priority=1)],
    )
    driven = Driven()
    driven.start(flow)
    driven.signal("go", {"x": 1})
    driven.signal("go", {"x": 2})
    driven.signal("stop", None)
    driven.reload()
    driven.succeed("a")
    assert driven.input("b") == {"all": {"go": {"x": 2}, "stop": None}, "go": 2}
    driven = Driven()
    driven.start(flow)
    driven.succeed("a")
    assert driven.at == ["c"]


def test_the_number_of_signal_names_is_limited() -> None:
    driven = Driven()
    driven.start(diamond("b"))
    for number in range(MAX_SIGNALS):
        driven.signal(f"s{number}")
    fault = RUN.rejection(RUN.plan(driven.state, inputs.ReceiveSignal(name="one_more"), driven.now))
    assert fault is not None
    assert (fault.reason, fault.field) == (Reason.LIMIT_EXCEEDED, "signal.name")
    assert driven.signal("s0", "again") == ["RecordSignal"]
    assert driven.state.signals["s0"].number == 2


def test_the_timeout_of_a_waiting_node_fails_it() -> None:
    driven = at_the_wait(wait("w", "go", timeout_ms=5_000))
    driven.wait_for_timer()
    assert driven.fault.reason is Reason.TIMEOUT
    assert driven.fault.metadata == {"node": "w"}
