"""What the planner of runs decides, and its laws over random walks (document 5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.conversation_kit import BUSINESS, NOW, at_once, pin, task, workflow
from wonder_server.actors.replay import replay
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.core.commands import Answer, Parent, RunTask, RunWorkflow, Scope, Stop
from wonder_server.core.coordinator import inputs
from wonder_server.core.coordinator.decisions import EndRun, RefuseRun
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import NodeOperation, RunStatus
from wonder_server.core.definitions.specs import Node, PinnedWorkflow, Transition, Workflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.records import Emit
from wonder_server.ports.journal import Commit, Entry, Event

RUN_ID = "run_01HF7YAT0000000000000000A0"
PARENT = Parent(actor_id="conv_01HF7YAT0000000000000000A0", operation_id="op_1")


def graph(*nodes: Node, ways: tuple[Transition, ...] = (), **spec: Any) -> PinnedWorkflow:
    """A pinned workflow; nodes name task ``t``, task ``once`` (not repeatable) or workflow ``w``."""
    return PinnedWorkflow(
        pin=pin("graph"),
        spec=Workflow(nodes=nodes, transitions=ways, initial_node_id=nodes[0].id, **spec),
        tasks={"t": task(), "once": task("once", "shell")},
        workflows={"w": workflow()},
    )


LOOP = graph(
    Node(
        id="a",
        task_id="t",
        input_mapping={"n": "size(state) == 0 ? 0 : state.n"},
        output_mapping={"state.n": "result.n", "output.last": "result.n"},
        timeout_ms=5000,
    ),
    Node(id="b", workflow_id="w", output_mapping={"state.seen": "true"}),
    Node(id="c", task_id="once"),
    ways=(
        Transition(from_node_id="a", to_node_id="c", condition="state.n > 2", priority=1),
        Transition(from_node_id="a", to_node_id="b", priority=2),
        Transition(from_node_id="b", to_node_id="a"),
    ),
)


class Driven:
    """A run driven by hand and recorded as the loop would; checks the laws at each step."""

    def __init__(self) -> None:
        self.state = RunState()
        self.now = NOW
        self.journal = MemoryJournal()
        self.entries = self.events = self.ends = 0
        self.seen: list[str] = []
        self.commands: list[Any] = []

    def step(self, event: inputs.Input) -> list[str]:
        self.now += 1
        decisions = RUN.plan(self.state, event, self.now)
        assert RUN.plan(self.state, event, self.now) == decisions
        if RUN.refusal(decisions) is not None or not decisions:
            return [type(decision).__name__ for decision in decisions]
        commit = Commit(RUN_ID, RUN)
        for decision in decisions:
            RUN.apply(self.state, decision)
            self.ends += isinstance(decision, EndRun)
            for change in RUN.record(self.state, decision):
                if isinstance(change, Emit):
                    assert isinstance(change.value, RUN.event_types[change.kind])
                    self.events += 1
                    commit.events.append(Event(self.events, self.now, RUN_ID, change))
                else:
                    commit.changes.append(change)
        self.commands = [c for decision in decisions for c in RUN.commands(self.state, decision)]
        self.entries += 1
        commit.entries.append(Entry(self.entries, self.now, event, decisions))
        at_once(self.journal.commit([commit]))
        self.seen.extend(each for each in self.state.operations if each not in self.seen)
        self.check()
        return [type(decision).__name__ for decision in decisions]

    def check(self) -> None:
        run = self.state.run
        assert run is not None
        running = run.status is RunStatus.RUNNING
        assert bool(self.state.operations) is running
        assert bool(self.state.tokens) is running
        assert bool(self.state.executions) is running
        assert self.ends == (0 if running else 1)
        assert self.restored() == self.state

    def restored(self) -> RunState:
        loaded = at_once(self.journal.load(RUN_ID, RUN))
        assert loaded is not None
        state = RUN.restore(loaded.rows)
        assert isinstance(state, RunState)
        return state

    def replayed(self) -> None:
        verdict = replay(RUN, at_once(self.journal.entries(RUN_ID, RUN, 0, 10_000)))
        assert verdict.difference is None, verdict.difference

    def start(self, flow: PinnedWorkflow, given: dict[str, Any] | None = None, **fields: Any) -> list[str]:
        return self.step(
            inputs.Start(run_id=RUN_ID, workflow=flow, input=given or {}, scope=Scope(), **fields)
        )

    @property
    def operation(self) -> NodeOperation:
        (found,) = self.state.operations.values()
        return found

    def succeed(self, output: dict[str, Any] | None = None) -> list[str]:
        return self.step(inputs.NodeSucceeded(operation_id=self.operation.id, output=output or {}))

    def status(self) -> RunStatus:
        assert self.state.run is not None
        return self.state.run.status

    def fault(self) -> Fault:
        assert self.state.run is not None and self.state.run.fault is not None
        return self.state.run.fault


ENTERED = ["MoveToken", "DispatchNode"]


def test_a_token_moves_over_the_graph_until_no_transition_holds() -> None:
    driven = Driven()
    assert driven.start(LOOP) == ["StartRun", *ENTERED]
    assert driven.operation.input == {"n": 0}
    assert driven.succeed({"n": 1}) == ["RecordExecution", "SetContext", "SetContext", *ENTERED]
    assert driven.operation.node_id == "b"
    (command,) = driven.commands
    assert isinstance(command, RunWorkflow)
    assert command.volatile
    assert driven.succeed() == ["RecordExecution", "SetContext", *ENTERED]
    assert driven.operation.input == {"n": 1}
    driven.succeed({"n": 3})
    (token,) = driven.state.tokens.values()
    assert (token.node_id, token.created_ms, token.updated_ms) == ("c", NOW + 1, driven.now)
    assert not driven.operation.repeatable
    assert driven.succeed({"z": 1})[-2:] == ["MoveToken", "EndRun"]
    assert driven.status() is RunStatus.COMPLETED
    assert driven.state.run is not None
    assert driven.state.run.output == {"last": 3}
    assert driven.state.run.executions == 4
    driven.replayed()


def test_transitions_are_tried_by_ascending_priority() -> None:
    ways = (
        Transition(from_node_id="a", to_node_id="b", priority=5),
        Transition(from_node_id="a", to_node_id="c", condition="input.far == true", priority=1),
    )
    nodes = tuple(Node(id=name, task_id="t") for name in "abc")
    for far, target in ((True, "c"), (False, "b")):
        driven = Driven()
        driven.start(graph(*nodes, ways=ways), {"far": far})
        driven.succeed()
        assert driven.operation.node_id == target


def test_a_node_without_an_output_mapping_writes_its_result_under_its_own_name() -> None:
    driven = Driven()
    driven.start(graph(Node(id="a", task_id="t")))
    driven.succeed({"x": 1})
    assert driven.state.state == {"a": {"x": 1}}


def test_each_execution_has_its_own_key_even_after_a_restart() -> None:
    driven = Driven()
    driven.start(LOOP)
    keys = []
    for _ in range(4):
        driven.state = driven.restored()
        (again,) = driven.step(inputs.NodeRestarted(operation_id=driven.operation.id))
        assert again == "RedispatchNode"
        keys.append(driven.commands[0].scope.key)
        driven.succeed({"n": 1})
    assert len(set(keys)) == 4
    driven.replayed()


def test_a_runs_output_is_what_its_mapping_makes_of_the_context() -> None:
    driven = Driven()
    driven.start(graph(Node(id="a", task_id="t"), output_mapping={"twice": "state.a.n * 2"}))
    driven.succeed({"n": 4})
    assert driven.state.run is not None
    assert driven.state.run.output == {"twice": 8}


@pytest.mark.parametrize(
    ("flow", "reason"),
    [
        (graph(Node(id="a", task_id="t", input_mapping={"x": "input.absent.y"})), Reason.EXPRESSION_FAILED),
        (
            graph(Node(id="a", task_id="t", output_mapping={"state.x": "result.absent.y"})),
            Reason.EXPRESSION_FAILED,
        ),
        (
            graph(
                Node(id="a", task_id="t"),
                ways=(Transition(from_node_id="a", to_node_id="a", condition="state.no.no"),),
            ),
            Reason.EXPRESSION_FAILED,
        ),
        (graph(Node(id="a", task_id="t"), output_mapping={"x": "state.no.no"}), Reason.EXPRESSION_FAILED),
        (
            graph(Node(id="a", task_id="t"), output_schema={"type": "object", "required": ["x"]}),
            Reason.RUN_FAILED,
        ),
        (
            graph(
                Node(id="a", task_id="t"),
                Node(id="b", task_id="t", input_mapping={"x": "state.no.no"}),
                ways=(Transition(from_node_id="a", to_node_id="b"),),
            ),
            Reason.EXPRESSION_FAILED,
        ),
    ],
)
def test_what_goes_wrong_in_the_graph_fails_the_run(flow: PinnedWorkflow, reason: Reason) -> None:
    driven = Driven()
    driven.start(flow, parent=PARENT)
    if driven.state.operations:
        driven.succeed({"n": 1})
    assert driven.status() is RunStatus.FAILED
    assert driven.fault().reason is reason
    (answer,) = driven.commands
    assert answer == Answer(parent=PARENT, run_id=RUN_ID, output={}, fault=driven.fault())


def test_a_failed_node_fails_the_run_and_names_itself() -> None:
    driven = Driven()
    driven.start(LOOP)
    driven.step(inputs.NodeFailed(operation_id=driven.operation.id, fault=BUSINESS))
    assert driven.status() is RunStatus.FAILED
    assert driven.fault().metadata == {"node": "a"}


def test_input_that_does_not_fit_is_refused_or_answered() -> None:
    flow = graph(Node(id="a", task_id="t"), input_schema={"type": "object", "required": ["q"]})
    (refusal,) = RUN.plan(
        RunState(), inputs.Start(run_id=RUN_ID, workflow=flow, input={}, scope=Scope()), NOW
    )
    assert isinstance(refusal, RefuseRun)
    assert refusal.fault.reason is Reason.INPUT_INVALID
    driven = Driven()
    assert driven.start(flow, parent=PARENT) == ["StartRun", "EndRun"]
    assert driven.commands[0].fault.reason is Reason.INPUT_INVALID


def test_a_second_start_only_repeats_the_answer_of_a_run_that_has_ended() -> None:
    driven = Driven()
    driven.start(LOOP, parent=PARENT)
    assert driven.start(LOOP, parent=PARENT) == []
    driven.step(inputs.NodeFailed(operation_id=driven.operation.id, fault=BUSINESS))
    first = driven.commands
    assert driven.start(LOOP, parent=PARENT) == ["AnswerAgain"]
    assert driven.commands == first


def test_a_cancelled_run_stops_its_node_and_ends_its_execution() -> None:
    driven = Driven()
    driven.start(LOOP)
    operation = driven.operation
    driven.step(inputs.CancelRun(reason="Enough."))
    assert driven.commands == [Stop(operation_id=operation.id)]
    assert driven.status() is RunStatus.CANCELLED
    assert driven.fault().message == "Enough."
    executions = driven.journal.written[RUN_ID].table("executions").values()
    assert [put.value.status for put in executions] == ["cancelled"]
    again = RUN.plan(driven.state, inputs.CancelRun(), NOW)
    assert RUN.refusal(again).reason is Reason.RUN_NOT_ACTIVE  # type: ignore[union-attr]
    nowhere = RUN.plan(RunState(), inputs.CancelRun(), NOW)
    assert RUN.refusal(nowhere).reason is Reason.RUN_NOT_FOUND  # type: ignore[union-attr]


def test_a_node_past_its_deadline_is_stopped_and_fails_the_run() -> None:
    driven = Driven()
    driven.start(LOOP)
    operation = driven.operation
    woken = inputs.NodeWoken(operation_id=operation.id)
    assert driven.step(woken) == []
    driven.now = operation.wake_ms
    driven.step(woken)
    assert driven.commands == [Stop(operation_id=operation.id)]
    assert driven.fault().reason is Reason.TIMEOUT


def test_after_a_restart_the_outcome_of_a_node_that_may_not_be_repeated_is_unknown() -> None:
    driven = Driven()
    driven.start(graph(Node(id="c", task_id="once")))
    driven.step(inputs.NodeRestarted(operation_id=driven.operation.id))
    assert driven.fault().reason is Reason.OUTCOME_UNKNOWN


def test_a_volatile_run_is_written_when_it_hands_out_what_may_not_be_done_twice() -> None:
    def must_commit(flow: PinnedWorkflow, *, volatile: bool) -> bool:
        state = RunState()
        start = inputs.Start(
            run_id=RUN_ID, workflow=flow, input={}, scope=Scope(), parent=PARENT, volatile=volatile
        )
        decisions = RUN.plan(state, start, NOW)
        for decision in decisions:
            state.apply(decision)
        return RUN.must_commit(state, decisions)

    repeatable, once = graph(Node(id="a", task_id="t")), graph(Node(id="a", task_id="once"))
    assert not must_commit(repeatable, volatile=True)
    assert must_commit(repeatable, volatile=False)
    assert must_commit(once, volatile=True)


def test_each_node_becomes_one_command_with_a_key_that_a_repetition_shares() -> None:
    keys = set()
    for after in (0, 1000):
        driven = Driven()
        driven.now += after
        driven.start(LOOP)
        (command,) = driven.commands
        assert isinstance(command, RunTask)
        keys.add(command.scope.key)
    assert keys == {f"{RUN_ID}/a/1"}


STEPS = st.lists(
    st.tuples(
        st.sampled_from("start succeed succeed succeed fail wake elapse restart reload cancel".split()),
        st.integers(0, 9),
    ),
    max_size=25,
)
OUTPUTS: tuple[dict[str, Any], ...] = ({"n": 1}, {"n": 3}, {}, {"n": "text"}, {"n": None})


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(steps=STEPS, parented=st.booleans())
def test_no_order_of_inputs_breaks_a_law(steps: list[tuple[str, int]], parented: bool) -> None:
    driven = Driven()
    driven.start(LOOP, parent=PARENT if parented else None)
    for name, number in steps:
        known = [*driven.state.operations, *driven.state.operations, *driven.seen[-2:], "op_0"]
        operation_id = known[number % len(known)]
        match name:
            case "start":
                driven.start(LOOP, parent=PARENT if parented else None)
            case "succeed":
                output = OUTPUTS[number % len(OUTPUTS)]
                driven.step(inputs.NodeSucceeded(operation_id=operation_id, output=output))
            case "fail" if number > 7:
                driven.step(inputs.NodeFailed(operation_id=operation_id, fault=BUSINESS))
            case "cancel" if number > 7:
                driven.step(inputs.CancelRun())
            case "wake":
                driven.step(inputs.NodeWoken(operation_id=operation_id))
            case "elapse" if number > 7:
                driven.now += 10_000
                driven.step(inputs.NodeWoken(operation_id=operation_id))
            case "restart":
                driven.step(inputs.NodeRestarted(operation_id=operation_id))
            case "reload":
                driven.state = driven.restored()
    driven.check()
    driven.replayed()
