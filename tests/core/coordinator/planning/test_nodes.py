"""Executions of nodes: results, attempts, timeouts, children, restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import BUSINESS, TRANSIENT
from tests.core.coordinator.coordinator_kit import (
    CONVERSATION_ID,
    Driven,
    gate,
    graph,
    node,
    transition,
    wait,
)
from wonder_server.core.actor.commands import CallAgent, RunTask, RunWorkflow, Scope, Stop
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.definitions.specs import Node, PinnedWorkflow, Retry
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.expressions.times import utc_text
from wonder_server.core.json_types import JsonDict

PATIENT = Retry(max_attempts=3, backoff_ms=1_000, timeout_ms=10_000)
TARGETS: tuple[JsonDict, ...] = ({}, {"workflow_id": "w"}, {"agent_id": "a"})
LOOP_IN = {"agent_id": "a", "invocation_mode": "loop_in"}


def alone(**fields: Any) -> PinnedWorkflow:
    return graph(node("a", **fields))


def started(flow: PinnedWorkflow) -> Driven:
    driven = Driven()
    driven.start(flow, scope=Scope(conversation_id=CONVERSATION_ID))
    return driven


def handed_out(driven: Driven) -> list[Any]:
    return [each for each in driven.commands if isinstance(each, RunTask | RunWorkflow | CallAgent)]


# --- attempts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_transient_faults_are_retried_with_growing_backoff(target: JsonDict) -> None:
    driven = started(alone(retry=PATIENT, **target))
    key, child = driven.operation().key, driven.operation().child_id
    for attempt, backoff_ms in ((2, 1_000), (3, 2_000)):
        assert driven.fail("", TRANSIENT)[:2] == ["MoveToken", "RetryNode"]
        assert handed_out(driven) == []
        assert driven.operation().wake_ms == driven.now + backoff_ms
        assert driven.tokens == {"t": "pending"}
        execution = driven.state.executions[driven.operation().id]
        assert (execution.attempts, execution.fault) == (attempt, TRANSIENT)
        assert driven.step(inputs.NodeTimerFired(operation_id=execution.id)) == [], "too early"
        assert driven.restart() == [[]], "nothing is dispatched"
        driven.wait_for_timer()
        (command,) = handed_out(driven)
        assert command.scope.key == key
        assert driven.operation().wake_ms == driven.now + 10_000
        if target:
            assert driven.operation().child_id != child, "each attempt is a child of its own"
            child = driven.operation().child_id
            assert execution.carried_out_by == driven.state.tokens["t"].waits_for_id == child
    driven.fail("", TRANSIENT)
    assert driven.fault.reason is TRANSIENT.reason
    assert driven.fault.metadata == {"node": "a"}
    driven.replayed()


def test_the_backoff_respects_retry_after() -> None:
    driven = started(alone(retry=PATIENT))
    driven.fail(
        "", Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True, retry_after_ms=7_000)
    )
    assert driven.operation().wake_ms == driven.now + 7_000


@pytest.mark.parametrize("fields", [{}, {"retry": PATIENT}, {"retry": Retry(max_attempts=1)}])
def test_a_permanent_fault_fails_the_run(fields: JsonDict) -> None:
    driven = started(alone(**fields))
    driven.fail("", BUSINESS if "retry" in fields and fields["retry"] is PATIENT else TRANSIENT)
    assert driven.status is RunStatus.FAILED


def test_a_result_of_an_earlier_attempt_is_ignored() -> None:
    driven = started(alone(retry=PATIENT, workflow_id="w"))
    operation = driven.operation()
    late = inputs.NodeSucceeded(operation_id=operation.id, output={"late": True}, run_id=operation.child_id)
    driven.fail("", TRANSIENT)
    assert driven.step(late) == [], "it waits for its backoff"
    driven.wait_for_timer()
    assert driven.step(late) == [], "that was another child"
    assert (
        driven.step(inputs.NodeFailed(operation_id=operation.id, fault=BUSINESS, run_id=operation.child_id))
        == []
    )
    now = driven.operation().child_id
    driven.step(inputs.NodeSucceeded(operation_id=operation.id, output={"now": True}, run_id=now))
    assert driven.status is RunStatus.COMPLETED
    assert driven.recorded[operation.id].output == {"now": True}
    assert driven.step(late) == []


def test_a_late_answer_of_a_looped_in_agent_is_ignored_by_the_next_attempt() -> None:
    driven = started(alone(retry=PATIENT, **LOOP_IN))
    (first,) = handed_out(driven)
    driven.fail("", TRANSIENT)
    driven.wait_for_timer()
    (second,) = handed_out(driven)
    assert first.parent.child_id != second.parent.child_id

    def answered(command: Any) -> inputs.NodeSucceeded:
        output = {"by": command.parent.child_id}
        return inputs.NodeSucceeded(
            operation_id=command.operation_id, output=output, run_id=command.parent.child_id
        )

    assert driven.step(answered(first)) == []
    driven.step(answered(second))
    assert driven.status is RunStatus.COMPLETED


def test_a_task_has_no_result_while_it_waits_for_its_next_attempt() -> None:
    driven = started(alone(retry=PATIENT))
    operation = driven.operation()
    driven.fail("", TRANSIENT)
    assert driven.step(inputs.NodeSucceeded(operation_id=operation.id, output=1)) == []
    assert driven.step(inputs.NodeFailed(operation_id=operation.id, fault=TRANSIENT)) == []
    assert driven.operation().attempt == 2


def test_a_result_counts_once() -> None:
    driven = started(graph(node("a"), node("b"), transitions=[transition("a>b")]))
    twice = inputs.NodeSucceeded(operation_id=driven.operation().id, output=1)
    driven.step(twice)
    assert driven.step(twice) == []
    assert driven.at == ["b"]


@pytest.mark.parametrize("kind", ["wait", "gate"])
def test_a_gate_and_a_wait_accept_no_result(kind: str) -> None:
    driven = started(graph(wait("a", "go") if kind == "wait" else gate("a")))
    assert driven.step(inputs.NodeSucceeded(operation_id=driven.operation().id, output={"received": 1})) == []
    driven.fail("", BUSINESS)  # as the loop does with what can never be taken
    assert driven.status is RunStatus.FAILED


# --- time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_an_attempt_that_times_out_is_cancelled_and_retried(target: JsonDict) -> None:
    driven = started(alone(retry=PATIENT, **target))
    operation = driven.operation()
    assert operation.wake_ms == driven.now + 10_000
    driven.wait_for_timer()
    assert driven.commands == [Stop(operation_id=operation.id, child_id=operation.child_id)]
    assert driven.operation().backing_off
    for _ in range(2):
        driven.wait_for_timer()
        driven.reload()
        driven.wait_for_timer()
    assert (driven.fault.reason, driven.fault.message) == (Reason.TIMEOUT, "No result within 10 s.")
    driven.replayed()


def test_the_timeout_of_a_node_covers_all_attempts() -> None:
    driven = started(alone(retry=PATIENT, timeout_ms=10_500))
    deadline = driven.now + 10_500
    driven.wait_for_timer()
    assert driven.operation().backing_off
    assert driven.operation().wake_ms == deadline, "before the backoff is over"
    driven.wait_for_timer()
    assert (driven.fault.reason, driven.fault.message) == (Reason.TIMEOUT, "No result within 10.5 s.")
    assert driven.now == deadline


def test_a_node_that_is_not_repeatable_is_not_retried_after_a_timeout() -> None:
    driven = started(alone(task_id="once", retry=PATIENT))
    driven.wait_for_timer()
    assert driven.fault.reason is Reason.OUTCOME_UNKNOWN
    assert driven.fault.message == "No result within 10 s. Whether it took effect is unknown."
    driven = started(alone(task_id="once", retry=PATIENT, timeout_ms=500))
    driven.fail("", TRANSIENT)  # the executor says so only if it surely had no effect
    driven.wait_for_timer()
    assert driven.fault.reason is Reason.TIMEOUT, "it was not under way"


def test_a_clock_that_jumps_forward_fires_each_timer_once() -> None:
    driven = started(
        graph(node("a", timeout_ms=5_000), node("b", timeout_ms=5_000), transitions=[transition("a>b")])
    )
    first = driven.operation()
    driven.now += 86_400_000
    driven.succeed("a")
    assert driven.step(inputs.NodeTimerFired(operation_id=first.id)) == []
    assert driven.operation("b").deadline_ms == driven.now - 1 + 5_000
    driven.now -= 86_400_000
    assert driven.step(inputs.NodeTimerFired(operation_id=driven.operation("b").id)) == []


# --- restarts ---------------------------------------------------------------------------------------


def test_repeatable_work_is_dispatched_again_after_a_restart() -> None:
    for target in (*TARGETS, LOOP_IN):
        driven = started(alone(**target))
        (first,) = handed_out(driven)
        for times in (2, 3):
            driven.restart()
            (again,) = handed_out(driven)
            assert again.operation_id == first.operation_id
            assert again.scope.key == first.scope.key
            assert driven.operation().dispatches == times
            if isinstance(again, RunWorkflow):
                assert again.run_id == first.run_id
                assert not again.fresh
            if isinstance(again, CallAgent):
                assert again.conversation_id == first.conversation_id
                assert again.dispatches == times


def test_a_restart_resets_the_timeout_of_a_task_but_not_of_a_child() -> None:
    for target, anew in (({}, True), ({"workflow_id": "w"}, False), ({"agent_id": "a"}, False)):
        driven = started(alone(timeout_ms=5_000, retry=PATIENT, **target))
        before = driven.operation().deadline_ms
        driven.now += 4_000
        driven.restart()
        assert driven.operation().deadline_ms == (driven.now + 5_000 if anew else before)


def test_after_a_restart_the_outcome_of_a_node_that_is_not_repeatable_is_unknown() -> None:
    driven = started(alone(task_id="once", retry=PATIENT))
    driven.restart()
    assert driven.fault.reason is Reason.OUTCOME_UNKNOWN
    assert driven.commands == []
    driven.replayed()


def test_a_restart_does_not_affect_a_gate_a_wait_or_a_backoff() -> None:
    driven = started(graph(wait("a", "go", 60_000)))
    wake_ms = driven.operation().wake_ms
    assert driven.restart() == [[]]
    assert driven.operation().wake_ms == wake_ms


# --- children and agents ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_the_fault_of_a_node_names_the_node_and_keeps_the_reason(target: JsonDict) -> None:
    driven = started(alone(**target))
    fault = Fault(reason=Reason.TASK_FAILED, message="No.", field="x", metadata={"node": "inner", "k": "v"})
    child = driven.operation().child_id
    driven.step(inputs.NodeFailed(operation_id=driven.operation().id, fault=fault, run_id=child))
    assert (driven.fault.reason, driven.fault.message) == (Reason.TASK_FAILED, "No.")
    assert driven.fault.metadata == {"node": "a", "k": "v"}
    (execution,) = driven.recorded.values()
    assert (execution.status.value, execution.fault) == ("failed", fault)


@pytest.mark.parametrize(
    ("entry", "target"),
    [
        (node("a"), "team/t@1"),
        (node("a", workflow_id="w"), "team/w@1"),
        (node("a", agent_id="a"), "agt_1"),
        (wait("a", "go"), "wait"),
    ],
)
def test_an_execution_names_its_target_and_its_child(entry: Node, target: str) -> None:
    driven = started(graph(entry))
    execution = driven.state.executions[driven.operation().id]
    assert execution.target == target
    assert execution.carried_out_by == driven.operation().child_id
    assert driven.state.tokens["t"].waits_for_id == execution.carried_out_by


def test_an_agent_cannot_be_looped_in_without_a_conversation() -> None:
    driven = Driven()
    driven.start(alone(**LOOP_IN))
    assert driven.fault.reason is Reason.RUN_FAILED
    assert driven.fault.message == "Node `a` loops an agent in, but the run belongs to no conversation."
    assert driven.recorded == {}


# --- the time -----------------------------------------------------------------------------------------


def test_the_time_of_a_step_is_the_same_in_all_its_expressions_and_in_a_replay() -> None:
    """`Driven` replays the journal after every step and compares the decisions."""
    flow = graph(
        node("a", input_mapping={"at": "now()", "again": "now()"}, output_mapping={"state.at": "now()"}),
        node("b", input_mapping={"at": "now()", "before": "state.at"}),
        transitions=(transition("a>b", "now() > '2023-11-14'"),),
        output_mapping={"at": "now()"},
    )
    driven = Driven(now=1_700_000_000_000)
    driven.start(flow)
    started = utc_text(driven.now)
    assert driven.input("a") == {"at": started, "again": started}
    driven.now += 5_000
    driven.succeed("a")
    later = utc_text(driven.now)
    assert later > started
    assert driven.input("b") == {"at": later, "before": later}
    driven.succeed("b")
    assert driven.run.output == {"at": utc_text(driven.now)}
    driven.replayed()
