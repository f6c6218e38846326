"""Forks: runs that start from a point in another run's journal (feature G9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.conversation.conversation_kit import TRANSIENT
from tests.core.coordinator.coordinator_kit import (
    RUN_ID,
    Driven,
    each,
    fan,
    gate,
    graph,
    node,
    transition,
    wait,
)
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.inputs import ForkSource
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import ContextValue, FanOut, RunStatus, Token, TokenStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import FanIn, FanInMode, Merge, PinnedWorkflow, Retry
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace

OTHER = "run_01HF7YAT0000000000000000B0"


def start_fork(driven: Driven, flow: PinnedWorkflow, **fields: Any) -> inputs.StartFork:
    given = {"input": driven.run.input, "source": driven.fork_source(), **fields}
    return inputs.StartFork(run_id=OTHER, workflow=flow, scope=Scope(), **given)


def forked(driven: Driven, flow: PinnedWorkflow, **fields: Any) -> Driven:
    """Return a fork of ``driven`` from its present state."""
    fork = Driven(OTHER, driven.now)
    fork.step(start_fork(driven, flow, **fields))
    return fork


def refused(driven: Driven, flow: PinnedWorkflow, **fields: Any) -> Fault:
    fault = RUN.rejection(RUN.plan(RunState(), start_fork(driven, flow, **fields), driven.now))
    assert fault is not None
    return fault


SEQUENCE = graph(
    node("a", output_mapping={"state.x": "result", "output.a": "result"}),
    node("b", input_mapping={"x": "state.x", "q": "input.q"}),
    node("c"),
    transitions=[transition("a>b"), transition("b>c")],
)


def test_unfinished_nodes_run_again_with_the_keys_of_the_fork() -> None:
    driven = Driven()
    driven.start(SEQUENCE, {"q": 1})
    driven.succeed("a", 5)
    fork = forked(driven, SEQUENCE)
    assert fork.run.forked_from == RUN_ID
    assert fork.at == ["b"]
    assert fork.input() == {"x": 5, "q": 1}
    assert fork.operation().key == f"{OTHER}/t/2"
    assert fork.operation().id != driven.operation().id
    assert (fork.ordinal, len(fork.taken_over)) == (2, 1)
    (command,) = fork.commands
    assert command.scope.run_id == OTHER
    fork.finish()
    assert fork.run.output == {"a": 5}
    assert fork.run.executions == 3
    assert {
        put.value.run_id
        for table in fork.journal.actors[OTHER].rows.values()
        for put in table.values()
        if hasattr(put.value, "run_id")
    } == {OTHER}
    fork.replayed()
    driven.succeed("b")
    assert driven.at == ["c"], "the source run continues independently"


def test_a_fork_can_have_another_input_and_state() -> None:
    driven = Driven()
    driven.start(SEQUENCE, {"q": 1})
    driven.succeed("a", 5)
    past = driven.fork_source()
    context = tuple(replace(entry, value=6) if entry.section == "state" else entry for entry in past.context)
    odd = ContextValue(run_id=RUN_ID, section="state", key="a.b c", value=1)
    fork = forked(driven, SEQUENCE, input={"q": 2}, source=replace(past, context=(*context, odd)))
    assert fork.input() == {"x": 6, "q": 2}
    assert fork.state.state == {"a.b c": 1, "x": 6}
    assert fork.state.output == {"a": 5}


def test_a_fork_can_run_another_revision() -> None:
    driven = Driven()
    driven.start(SEQUENCE, {"q": 1})
    driven.succeed("a", 5)
    newer = graph(node("a"), node("b"), node("d"), transitions=[transition("a>b"), transition("b>d")])
    fork = forked(driven, newer)
    fork.succeed("b")
    assert fork.at == ["d"]


MERGED = FanIn(merges=(Merge(source="[item, branch.b]", target="output.all"),))
LIST = fan(MERGED, limit=2)


@pytest.mark.parametrize("ended", range(4))
def test_inside_a_fan_out_arrived_branches_stay_and_the_others_run(ended: int) -> None:
    driven = Driven()
    driven.start(LIST, {"items": ["x", "y", "z", "w"]})
    driven.succeed("a")
    for number in range(ended):
        driven.step(
            inputs.NodeSucceeded(operation_id=driven.operations("b")[-1].id, output=f"before {number}")
        )
    standing = sorted(driven.tokens.items())
    fork = forked(driven, LIST)
    assert sorted(fork.tokens.items()) == standing
    assert len(fork.operations("b")) == min(2, 4 - ended)
    fork.restart()
    fork.finish(lambda operation: "after")
    found = fork.run.output["all"]
    assert [item for item, _ in found] == ["x", "y", "z", "w"]
    assert sum(value == "after" for _, value in found) == 4 - ended
    fork.replayed()


def test_nested_branches_are_copied() -> None:
    flow = graph(
        node("a"),
        node("b", output_mapping={"branch.name": "item"}),
        node("c"),
        node("y", fan_in=FanIn(merges=(Merge(source="item", target="branch.inner"),))),
        node("z", fan_in=FanIn(merges=(Merge(source="branch.inner", target="output.all"),))),
        transitions=[each("a>b"), each("b>c", "item"), transition("c>y"), transition("y>z")],
    )
    driven = Driven()
    driven.start(flow, {"items": [[1, 2], [3], []]})
    driven.succeed("a")
    driven.succeed("b[0]")
    driven.succeed("b[2]")
    driven.succeed("y")
    driven.succeed("c[1]")
    fork = forked(driven, flow)
    assert fork.at == driven.at == ["b", "c"]
    fork.finish()
    assert fork.run.output == {"all": [[1, 2], [3], []]}
    fork.replayed()


def waiting_everywhere() -> tuple[Driven, PinnedWorkflow]:
    flow = graph(
        node("a", fan_out=True),
        node("b", workflow_id="w"),
        node("c", agent_id="a"),
        gate("d"),
        wait("e", "go", 60_000),
        node("f", retry=Retry(max_attempts=2)),
        node("g", task_id="once"),
        transitions=[transition(f"a>{to}") for to in "bcdefg"],
        timeout_ms=90_000,
    )
    driven = Driven()
    driven.start(flow)
    driven.succeed("a")
    driven.fail("f", TRANSIENT)
    return driven, flow


def test_every_kind_of_pending_operation_starts_again() -> None:
    driven, flow = waiting_everywhere()
    fork = forked(driven, flow)
    assert fork.at == list("bcdefg")
    assert not any(each.backing_off for each in fork.operations())
    assert fork.tokens["t.1.4"] == "waiting_for_task"
    children = {each.child_id for each in fork.operations() if each.child_id}
    assert not children & {each.child_id for each in driven.operations()}
    assert fork.gate.id != driven.gate.id
    assert fork.run.deadline_ms == fork.now + 90_000
    assert fork.status.value == "running"
    fork.finish()
    assert fork.status is RunStatus.COMPLETED


def test_signals_are_copied_with_their_consumption() -> None:
    flow = graph(
        node("a"), wait("v", "go"), wait("w", "go"), transitions=[transition("a>v"), transition("v>w")]
    )
    driven = Driven()
    driven.start(flow)
    driven.signal("go", 1)
    fork = forked(driven, flow)
    fork.succeed("a")
    assert fork.at == ["w"], "the first took it"
    later = forked(fork, flow)
    assert later.at == ["w"]
    assert later.state.signals["go"].consumed
    later.signal("go", 2)
    assert later.status is RunStatus.COMPLETED


def test_the_timeout_of_a_fan_in_starts_again() -> None:
    flow = fan(FanIn(timeout_ms=5_000))
    driven = Driven()
    driven.start(flow, {"items": [1, 2]})
    driven.succeed("a")
    driven.succeed("b[0]")
    driven.now += 4_000
    fork = forked(driven, flow)
    assert fork.timer.wake_ms == fork.now + 5_000


def test_a_fork_starts_once() -> None:
    driven = Driven()
    driven.start(SEQUENCE, {"q": 1})
    fork = forked(driven, SEQUENCE)
    assert fork.step(start_fork(driven, SEQUENCE)) == []


def in_the_list() -> Driven:
    driven = Driven()
    driven.start(LIST, {"items": [1, 2, 3]})
    driven.succeed("a")
    return driven


def without(flow: PinnedWorkflow, name: str) -> PinnedWorkflow:
    nodes = [each for each in flow.spec.nodes if each.id != name]
    ways = [each for each in flow.spec.transitions if name not in (each.from_node_id, each.to_node_id)]
    return graph(*nodes, transitions=ways)


@pytest.mark.parametrize(
    ("flow", "field", "message"),
    [
        (
            without(LIST, "b"),
            "workflow_revision",
            "The run is at node `b`, which team/graph@1 does not have.",
        ),
        (
            without(LIST, "a"),
            "workflow_revision",
            "The run is at node `a`, which team/graph@1 does not have.",
        ),
        (
            without(LIST, "z"),
            "workflow_revision",
            "The open branches of `a` meet at another node in team/graph@1.",
        ),
        (
            graph(*LIST.spec.nodes, transitions=LIST.spec.transitions, input_schema={"required": ["q"]}),
            "input",
            "The input does not match the workflow's schema: ",
        ),
        (
            graph(*LIST.spec.nodes, transitions=LIST.spec.transitions, state_schema={"required": ["q"]}),
            "state",
            "The state does not match the workflow's state_schema: ",
        ),
    ],
)
def test_a_workflow_that_cannot_continue_from_the_point_is_refused(
    flow: PinnedWorkflow, field: str, message: str
) -> None:
    fault = refused(in_the_list(), flow)
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, field)
    assert fault.message.startswith(message)


def test_a_point_after_the_end_of_a_run_is_refused() -> None:
    driven = Driven()
    driven.start(SEQUENCE, {"q": 1})
    driven.finish()
    fault = refused(driven, SEQUENCE)
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "point")


def _branch(past: ForkSource, index: int = 1) -> Token:
    return next(token for token in past.tokens if token.branch_index == index)


BROKEN: dict[str, Callable[[ForkSource], ForkSource]] = {
    "nothing": lambda past: replace(past, tokens=(), fan_outs=()),
    "no root": lambda past: replace(past, tokens=past.tokens[1:]),
    "no fan-out": lambda past: replace(past, fan_outs=()),
    "a fan-out too many": lambda past: replace(
        past, fan_outs=(*past.fan_outs, FanOut(token_id="t.9.9", run_id=RUN_ID, node_id="a", branches=()))
    ),
    "a branch too many": lambda past: replace(
        past, tokens=(*past.tokens, replace(_branch(past), id="t.1.7", branch_index=7))
    ),
    "an orphan": lambda past: replace(
        past, tokens=(*past.tokens, replace(_branch(past), id="t.7.1", parent_id="t.7"))
    ),
    "work without a token": lambda past: replace(
        past, context=(ContextValue(run_id=RUN_ID, section="branch", key="x", value=1, token_id="t.9"),)
    ),
    "a token without work": lambda past: replace(
        past, executions=tuple(each for each in past.executions if each.token_id != _branch(past).id)
    ),
    "standing and working": lambda past: replace(
        past,
        tokens=tuple(
            replace(each, status=TokenStatus.WAITING_FOR_SIBLINGS) if each is _branch(past) else each
            for each in past.tokens
        ),
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_an_incomplete_record_is_refused(broken: str) -> None:
    driven = in_the_list()
    fault = refused(driven, LIST, source=BROKEN[broken](driven.fork_source()))
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "point")


def test_ended_tokens_are_not_copied() -> None:
    driven = in_the_list()
    past = driven.fork_source()
    ended = replace(_branch(past), id="t.0.0", status=TokenStatus.CANCELLED, node_id="gone", parent_id="t.0")
    fork = forked(driven, LIST, source=replace(past, tokens=(ended, *past.tokens)))
    assert fork.at == driven.at


def test_in_mode_any_a_fork_can_end_at_its_start() -> None:
    """A permanent failure happens again in the fork if the expression fails again."""
    join = FanIn(mode=FanInMode.ANY)
    driven = Driven()
    flow = fan(join, input_mapping={"x": "input.x"})
    driven.start(flow, {"items": [1, 2], "x": 1})
    driven.succeed("a")
    fork = forked(driven, flow, input={"items": [1, 2]})
    assert fork.fault.reason is Reason.EXPRESSION_FAILED
    fork.replayed()
