"""Start, movement and end of runs. Other tables are in the files beside this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.conversation.conversation_kit import BUSINESS, NOW
from tests.core.coordinator.coordinator_kit import (
    PARENT,
    RUN_ID,
    Driven,
    each,
    gate,
    graph,
    node,
    transition,
    wait,
)
from wonder_server.core.actor.commands import Answer, CallAgent, RunTask, RunWorkflow, Scope, Stop
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.decisions import RefuseRun
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict

LOOP = graph(
    node(
        "a",
        input_mapping={"n": "size(state) == 0 ? 0 : state.n"},
        output_mapping={"state.n": "result.n", "output.last": "result.n"},
        timeout_ms=5000,
    ),
    node("b", workflow_id="w", output_mapping={"state.seen": "true"}),
    node("c", task_id="once"),
    transitions=(
        transition("a>c", "state.n > 2", priority=1),
        transition("a>b", priority=2),
        transition("b>a", loop_limit=10),
    ),
)

ENTERED = ["DispatchNode"]


def test_a_token_moves_until_no_transition_is_true() -> None:
    driven = Driven()
    assert driven.start(LOOP) == ["StartRun", *ENTERED]
    assert driven.input() == {"n": 0}
    assert driven.succeed("a", {"n": 1}) == ["RecordExecution", "SetContext", "SetContext", *ENTERED]
    (command,) = driven.commands
    assert isinstance(command, RunWorkflow)
    assert command.volatile
    assert driven.succeed("b") == ["RecordExecution", "SetContext", *ENTERED]
    assert driven.input("a") == {"n": 1}
    driven.succeed("a", {"n": 3})
    (token,) = driven.state.tokens.values()
    assert (token.node_id, token.created_ms, token.updated_ms) == ("c", NOW + 1, driven.now)
    assert not driven.operation("c").repeatable
    assert driven.succeed("c", {"z": 1})[-2:] == ["MoveToken", "EndRun"]
    assert driven.status is RunStatus.COMPLETED
    assert driven.run.output == {"last": 3}
    assert driven.run.executions == 4
    driven.replayed()


@pytest.mark.parametrize(
    ("given", "goes_to"),
    [
        ({"x": 1}, "c"),  # by ascending priority
        ({"x": 2}, "b"),  # of two with the same priority the first as written
        ({"x": 3}, "d"),  # what has no condition holds
    ],
)
def test_the_first_true_transition_is_taken(given: JsonDict, goes_to: str) -> None:
    flow = graph(
        *(node(name) for name in "abcde"),
        transitions=(
            transition("a>d", priority=9),
            transition("a>e", priority=10),
            transition("a>b", "input.x < 3", priority=5),
            transition("a>c", "input.x < 3", priority=5),
            transition("a>c", "input.x == 1", priority=-1),
        ),
    )
    driven = Driven()
    driven.start(flow, given)
    driven.succeed()
    assert driven.at == [goes_to]


def test_a_node_without_an_output_mapping_writes_its_result_under_its_own_name() -> None:
    driven = Driven()
    driven.start(graph(node("a"), node("b"), transitions=[transition("a>b")]))
    driven.succeed("a", {"x": 1})
    assert driven.state.state == {"a": {"x": 1}}


def test_all_entries_of_an_output_mapping_see_the_context_as_it_was() -> None:
    mapping = {"state.x": "has(state.x) ? state.x + 1 : 0", "state.was": "has(state.x)", "output.r": "result"}
    driven = Driven()
    driven.start(
        graph(
            node("a", output_mapping=mapping),
            node("b"),
            transitions=[transition("a>a", loop_limit=1), transition("a>b")],
        )
    )
    driven.succeed("a", [1])
    assert driven.state.state == {"was": False, "x": 0}
    driven.succeed("a", "two")
    assert driven.state.state == {"was": True, "x": 1}
    assert driven.state.output == {"r": "two"}


def test_a_change_of_the_context_does_not_change_a_nodes_input() -> None:
    """Expressions return parts of the context itself, not copies."""
    whole = {"everything": "state", "signals": "signals"}
    driven = Driven()
    driven.start(
        graph(
            node("a", fan_out=True, input_mapping=whole),
            node("b", input_mapping=whole, output_mapping={"state.b": "state", "branch.me": "branch"}),
            node("c", input_mapping=whole, output_mapping={"state.c": "state", "branch.me": "branch"}),
            transitions=[transition("a>b"), transition("a>c")],
        )
    )
    driven.succeed("a", {"n": 1})
    driven.signal("news")
    driven.succeed("b")
    assert driven.input("c") == {"everything": {"a": {"n": 1}}, "signals": {}}
    driven.succeed("c")
    assert driven.state.state["c"] == {"a": {"n": 1}, "b": {"a": {"n": 1}}}
    driven.replayed()


def test_the_order_of_keys_does_not_depend_on_whether_the_run_was_loaded() -> None:
    """Expressions can iterate over a map, and rows are loaded by name."""
    keys = {"state.keys": "keys(state)", "state.signals": "keys(signals)"}
    flow = graph(
        node("z"),
        node("m"),
        node("a", output_mapping=keys),
        transitions=[transition("z>m"), transition("m>a")],
    )
    seen = []
    for reloaded in (False, True):
        driven = Driven()
        driven.start(flow)
        driven.succeed("z")
        driven.signal("y")
        driven.signal("x")
        driven.signal("y")
        driven.succeed("m")
        if reloaded:
            driven.reload()
        driven.succeed("a")
        driven.replayed()
        seen.append(driven.state.state)
    assert seen[0] == seen[1]
    assert seen[0]["keys"] == ["m", "z"]


def test_a_loop_runs_as_often_as_its_limit() -> None:
    driven = Driven()
    driven.start(
        graph(
            node("a"), node("b"), transitions=[transition("a>a", loop_limit=3), transition("a>b", priority=1)]
        )
    )
    for _ in range(4):
        assert driven.at == ["a"]
        driven.reload()
        driven.succeed()
    assert driven.at == ["b"]


def test_a_run_ends_at_a_loops_limit_without_another_transition() -> None:
    driven = Driven()
    driven.start(graph(node("a"), transitions=[transition("a>a", loop_limit=1)]))
    driven.succeed()
    driven.succeed()
    assert driven.status is RunStatus.COMPLETED


# --- keys -------------------------------------------------------------------------------------------


def test_each_execution_has_its_own_key_even_after_a_restart() -> None:
    driven = Driven()
    driven.start(LOOP)
    keys = []
    for _ in range(4):
        (first,) = driven.commands
        assert driven.restart() == [["RedispatchNode"]]
        (again,) = driven.commands
        assert again.scope.key == first.scope.key
        keys.append(first.scope.key)
        driven.succeed("", {"n": 1})
    assert keys == [f"{RUN_ID}/t/{hop}" for hop in (1, 2, 3, 4)]
    driven.replayed()


def test_children_are_the_same_whenever_their_run_is_planned_again() -> None:
    """A lost volatile run starts again later and must find its children that were not lost."""
    flow = graph(
        node("a", fan_out=True),
        node("b", workflow_id="w"),
        node("c", agent_id="a"),
        gate("d"),
        transitions=[transition(f"a>{to}") for to in "bcd"],
    )
    found = []
    for after_ms in (0, 1, 86_400_000):
        driven = Driven(now=NOW + after_ms)
        driven.start(flow)
        driven.now += after_ms
        driven.succeed("a")
        found.append([(each.key, each.child_id) for each in driven.operations()])
    assert found[0] == found[1] == found[2]
    assert {child.partition("_")[0] for _, child in found[0]} == {"run", "conv", "gate"}
    assert all(child[-1] == RUN_ID[-1] for _, child in found[0]), "they live in their parent's shard"


def test_commands_carry_the_scope_and_the_parent() -> None:
    scope = Scope(project_id="proj_1", agent_id="agt_9", conversation_id="conv_01HF7YAT0000000000000000A0")
    flow = graph(
        node("a", fan_out=True),
        node("b", workflow_id="w"),
        node("c", agent_id="a"),
        node("d", agent_id="a", invocation_mode="loop_in"),
        node("e"),
        gate("f"),
        transitions=[transition(f"a>{to}") for to in "bcdef"],
    )
    driven = Driven()
    driven.start(flow, {"x": 1}, scope=scope)
    driven.succeed("a")
    workflow, agent, looped, task = driven.commands
    assert isinstance(workflow, RunWorkflow)
    assert workflow.fresh
    assert isinstance(agent, CallAgent)
    assert (agent.mode, agent.agent_id, agent.dispatches) == ("delegate", "agt_1", 1)
    assert (looped.mode, looped.conversation_id) == ("loop_in", scope.conversation_id)
    assert isinstance(task, RunTask)
    for command in driven.commands:
        assert command.input == {"x": 1}, "without a mapping a node gets the run's input"
        assert (command.scope.project_id, command.scope.agent_id) == ("proj_1", "agt_9")
        assert command.scope.run_id == RUN_ID
    for command in (workflow, agent, looped):
        assert (command.parent.actor_id, command.parent.operation_id) == (RUN_ID, command.operation_id)


# --- start of a run ---------------------------------------------------------------------------------


def test_invalid_input_is_refused_or_fails_the_child() -> None:
    flow = graph(node("a"), input_schema={"type": "object", "required": ["q"]}, timeout_ms=1000)
    start = inputs.Start(run_id=RUN_ID, workflow=flow, input={}, scope=Scope())
    (refusal,) = RUN.plan(RunState(), start, NOW)
    assert isinstance(refusal, RefuseRun)
    assert refusal.fault.reason is Reason.INPUT_INVALID
    assert refusal.fault.field == "input"
    driven = Driven()
    driven.start(flow, parent=PARENT)
    assert driven.status is RunStatus.FAILED
    assert driven.commands[0].fault.reason is Reason.INPUT_INVALID


def test_a_second_start_only_repeats_the_answer_of_a_run_that_has_ended() -> None:
    driven = Driven()
    driven.start(LOOP, parent=PARENT)
    assert driven.start(LOOP, parent=PARENT) == []
    driven.fail("a", BUSINESS)
    first = driven.commands
    assert driven.start(LOOP, parent=PARENT) == ["AnswerAgain"]
    assert driven.commands == first
    assert driven.start(LOOP) == []


def test_a_run_starts_at_the_initial_node() -> None:
    flow = graph(node("a"), node("b"), transitions=[transition("b>a")])
    driven = Driven()
    driven.start(replace(flow, spec=replace(flow.spec, initial_node_id="b")))
    assert driven.at == ["b"]


@pytest.mark.parametrize(
    "nothing",
    [
        inputs.NodeSucceeded(operation_id="op_0", output=1),
        inputs.NodeFailed(operation_id="op_0", fault=BUSINESS),
        inputs.NodeTimerFired(operation_id="op_0"),
        inputs.NodeRestarted(operation_id="op_0"),
        inputs.EventEmitted(operation_id="op_0", key="k", name="n", payload={}),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_input_about_an_unknown_operation_changes_nothing(nothing: inputs.Input) -> None:
    assert RUN.plan(RunState(), nothing, NOW) == ()
    driven = Driven()
    driven.start(graph(node("a")))
    assert driven.step(nothing) == []
    driven.succeed()
    assert driven.step(nothing) == []


# --- end of a run -----------------------------------------------------------------------------------


def test_the_output_of_a_run_is_the_result_of_its_mapping() -> None:
    driven = Driven()
    driven.start(graph(node("a"), output_mapping={"twice": "state.a.n * 2", "q": "input.q"}), {"q": "?"})
    driven.succeed("a", {"n": 4})
    assert driven.run.output == {"twice": 8, "q": "?"}


def test_a_parent_receives_the_result_of_its_child() -> None:
    driven = Driven()
    driven.start(graph(node("a", output_mapping={"output.x": "result"})), parent=PARENT)
    driven.succeed("a", 5)
    assert driven.commands == [Answer(parent=PARENT, run_id=RUN_ID, output={"x": 5})]
    driven = Driven()
    driven.start(graph(node("a")), parent=PARENT)
    driven.cancel()
    stop, answer = driven.commands
    assert isinstance(stop, Stop)
    assert answer == Answer(parent=PARENT, run_id=RUN_ID, output={}, fault=driven.fault)


EVERYWHERE = graph(
    node("a", fan_out=True),
    node("b"),
    node("c", workflow_id="w"),
    node("d", agent_id="a"),
    gate("e"),
    wait("f", "go", 60_000),
    node("g"),
    node("h"),
    transitions=[*(transition(f"a>{to}") for to in "bcdefg"), each("g>h", "[1, 2, 3]", max_concurrency=2)],
    timeout_ms=90_000,
)
"""A workflow whose run waits for every kind of operation."""


def everywhere() -> Driven:
    driven = Driven()
    driven.start(EVERYWHERE)
    driven.succeed("a")
    driven.succeed("g")
    assert driven.at == ["b", "c", "d", "e", "f", "h", "h"]
    return driven


def test_a_cancelled_run_cancels_its_operations() -> None:
    driven = everywhere()
    waiting = {each.id: each for each in driven.operations()}
    driven.cancel()
    assert driven.status is RunStatus.CANCELLED
    assert (driven.fault.reason, driven.fault.message) == (Reason.CANCELLED, "Enough.")
    stops = {each.operation_id: each.child_id for each in driven.commands if isinstance(each, Stop)}
    assert stops == {each.id: each.child_id for each in waiting.values() if each.kind != "gate"}
    assert {driven.recorded[each].status.value for each in waiting} == {"cancelled"}
    assert set(driven.ended_tokens().values()) == {"cancelled"}
    (gate_row,) = driven.journal.actors[RUN_ID].table("gates").values()
    assert gate_row.status == "cancelled"
    for late in waiting:
        assert driven.step(inputs.NodeSucceeded(operation_id=late, output={})) == []
    driven.replayed()


@pytest.mark.parametrize("end", ["cancelled", "failed", "timed out"])
def test_a_run_that_has_ended_refuses_further_inputs(end: str) -> None:
    driven = everywhere()
    gate_id = driven.gate.id
    if end == "cancelled":
        driven.cancel()
    elif end == "failed":
        driven.fail("b", BUSINESS)
    else:
        driven.fire_timer(driven.timer)
        assert driven.fault.reason is Reason.TIMEOUT
        assert driven.fault.message == "The run did not end within 90 s."
    asked: tuple[tuple[inputs.Input, Reason], ...] = (
        (inputs.CancelRun(), Reason.RUN_NOT_ACTIVE),
        (inputs.ReceiveSignal(name="go"), Reason.RUN_NOT_ACTIVE),
        (inputs.ResolveGate(gate_id=gate_id, approve=True, shown_hash=""), Reason.GATE_RESOLVED),
    )
    for event, reason in asked:
        fault = RUN.rejection(RUN.plan(driven.state, event, NOW))
        assert fault is not None
        assert fault.reason is reason
        fault = RUN.rejection(RUN.plan(RunState(), event, NOW))
        assert fault is not None
        assert fault.reason in (Reason.RUN_NOT_FOUND, Reason.GATE_RESOLVED)


@pytest.mark.parametrize(
    ("own", "asked", "ends_after_ms"),
    [(0, 0, 0), (9_000, 0, 9_000), (0, 5_000, 5_000), (9_000, 5_000, 5_000)],
)
def test_the_shorter_of_two_timeouts_applies_to_a_run(own: int, asked: int, ends_after_ms: int) -> None:
    driven = Driven()
    driven.start(graph(node("a"), timeout_ms=own), timeout_ms=asked)
    if not ends_after_ms:
        assert len(driven.state.operations) == 1
        return
    assert driven.run.deadline_ms == driven.timer.wake_ms == driven.now + ends_after_ms
    assert driven.step(inputs.NodeTimerFired(operation_id=driven.timer.id)) == []
    driven.reload()
    driven.fire_timer(driven.timer)
    assert driven.status is RunStatus.FAILED


def test_a_timer_that_cannot_be_written_fails_its_subject() -> None:
    """The loop reports a timer that could not be written as a fault."""
    driven = Driven()
    driven.start(graph(node("a"), timeout_ms=5_000))
    broken = Fault(reason=Reason.INTERNAL, message="No.")
    driven.step(inputs.NodeFailed(operation_id=driven.timer.id, fault=broken))
    assert driven.fault == broken


# --- queries of the loop ----------------------------------------------------------------------------


def test_a_run_waits_while_no_task_or_child_is_running() -> None:
    flow = graph(
        node("a"),
        gate("b"),
        node("c", workflow_id="w"),
        node("d", agent_id="a"),
        transitions=[transition("a>b"), transition("b>c"), transition("c>d")],
    )
    driven = Driven()
    statuses = []
    driven.start(flow)
    statuses.append(driven.status)
    assert driven.succeed("a")[-1] == "SetRunStatus"
    statuses.append(driven.status)
    assert driven.answer()[-1] == "SetRunStatus"
    statuses.append(driven.status)
    driven.succeed("c")
    statuses.append(driven.status)
    assert [each.value for each in statuses] == ["running", "waiting", "running", "waiting"]


@pytest.mark.parametrize(
    ("flow", "writes"),
    [
        (graph(node("a")), False),
        (graph(node("a", workflow_id="w")), False),
        (graph(node("a", task_id="once")), True),
        (graph(node("a", agent_id="a")), True),
        (graph(gate("a")), True),
        (graph(wait("a", duration_ms=5)), True),
    ],
)
def test_a_volatile_run_is_committed_before_work_that_is_not_repeatable(
    flow: PinnedWorkflow, writes: bool
) -> None:
    driven = Driven()
    driven.start(flow, parent=PARENT, volatile=True)
    assert driven.must_commit is writes
    driven = Driven()
    driven.start(flow)
    assert driven.must_commit


def test_a_repeated_request_is_answered_with_the_run_and_the_gate() -> None:
    driven = everywhere()
    cancelled = RUN.answer(driven.state, RUN.plan(driven.state, inputs.CancelRun(), NOW))
    assert cancelled["run_id"] == RUN_ID
    gate = driven.gate
    resolve = inputs.ResolveGate(gate_id=gate.id, approve=True, shown_hash=gate.shown_hash)
    assert RUN.answer(driven.state, RUN.plan(driven.state, resolve, NOW)) == {"gate_id": gate.id}


def test_an_event_that_a_task_repeats_is_recorded_once() -> None:
    driven = Driven()
    driven.start(graph(node("a"), timeout_ms=60_000))
    operation = driven.operation()
    event = inputs.EventEmitted(operation_id=operation.id, key="1", name="halfway", payload={"x": 1})
    assert driven.step(event) == ["RecordEvent"]
    assert driven.step(event) == []
    driven.restart()
    assert driven.step(event) == []
    for key in range(1_002):
        driven.step(inputs.EventEmitted(operation_id=operation.id, key=f"k{key}", name="n", payload={}))
    assert len(driven.operation().emitted) == 1_000
    of_timer = inputs.EventEmitted(operation_id=driven.timer.id, key="2", name="n", payload={})
    assert driven.step(of_timer) == []
    driven.succeed()
    assert driven.step(event) == []
