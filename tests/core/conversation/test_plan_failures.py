"""Tests of the conversation planner: failures, restarts and cancellation."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    TRANSIENT,
    Driven,
    assembled,
    call,
    commands,
    kinds,
    rejection,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import Stop
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import (
    AssemblyFailed,
    Redispatch,
    RetryOperation,
)
from wonder_server.core.conversation.model.values import (
    OperationKind,
    TurnStatus,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.model import from_provider

ASSEMBLY, MODEL, TASK = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.TASK
WORKFLOW, EXTRACTION, MEMORY = OperationKind.WORKFLOW, OperationKind.EXTRACTION, OperationKind.MEMORY


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "waits"), [(ASSEMBLY, [100, 200]), (MODEL, [500, 1000]), (EXTRACTION, [100, 200])]
)
def test_infrastructure_faults_are_retried_with_growing_backoff(
    kind: OperationKind, waits: list[int]
) -> None:
    driven = Driven()
    if kind is not ASSEMBLY:
        driven.succeed(ASSEMBLY, ASSEMBLED)
    if kind is EXTRACTION:
        driven.answer(text_answer("hi"))
    runs = {driven.pending(kind).run_id}
    for attempt, wait in enumerate(waits, start=2):
        (retry,) = driven.fail(kind, TRANSIENT)
        assert isinstance(retry, RetryOperation)
        assert (retry.operation.attempt, retry.operation.wake_ms) == (attempt, driven.now + wait)
        assert driven.step(inputs.TimerFired(operation_id=retry.operation.id), after_ms=wait - 1) == ()
        (again,) = driven.wait_for_timer(kind)
        assert isinstance(again, Redispatch)
        assert (again.operation.attempt, again.operation.dispatches) == (attempt, attempt)
        runs.add(again.operation.run_id)
    assert "RetryOperation" not in kinds(driven.fail(kind, TRANSIENT))
    assert len(runs) == (1 if kind is MODEL else 3)
    assert driven.turn.status is (TurnStatus.COMPLETED if kind is EXTRACTION else TurnStatus.FAILED)
    assert not driven.state.operations


def test_a_retry_waits_for_the_time_that_the_provider_gives() -> None:
    driven = assembled()
    (retry,) = driven.fail(MODEL, replace(TRANSIENT, retry_after_ms=9000))
    assert isinstance(retry, RetryOperation)
    assert retry.operation.wake_ms == driven.now + 9000


@pytest.mark.parametrize(("jitter", "share"), [(0, 0.0), (250, 0.25), (1_000, 1.0), (5_000, 1.0), (-1, 0.0)])
@pytest.mark.parametrize("asked", [None, 9_000])
def test_the_backoff_of_a_model_call_is_drawn_from_its_whole_range(
    jitter: int, share: float, asked: int | None
) -> None:
    driven = assembled()
    for limit in (500, 1_000):
        failed = inputs.Failed(
            operation_id=driven.pending(MODEL).id,
            fault=replace(TRANSIENT, retry_after_ms=asked),
            jitter=jitter,
        )
        (retry,) = driven.step(failed)
        assert isinstance(retry, RetryOperation)
        assert retry.operation.wake_ms == driven.now + (asked or 0) + limit * share
        driven.wait_for_timer(MODEL)


def test_the_error_of_a_turn_names_the_provider_and_the_model_profile() -> None:
    driven = assembled()
    driven.fail(MODEL, from_provider(replace(TRANSIENT, transient=False), "house", "m-1", "127.0.0.1:9"))
    fault = driven.turn.fault
    assert fault is not None and fault.metadata["model_profile"] in fault.message
    assert "(Provider house at 127.0.0.1:9, model m-1, model profile " in fault.message


def test_a_fault_with_a_retry_time_beyond_the_call_timeout_is_not_retried() -> None:
    driven = assembled()
    longest = driven.pending(MODEL).timeout_ms
    decided = driven.fail(MODEL, replace(TRANSIENT, retry_after_ms=longest + 1))
    assert "RetryOperation" not in kinds(decided)
    assert driven.turn.status is TurnStatus.FAILED
    assert driven.turn.fault is not None and driven.turn.fault.retry_after_ms == longest + 1


def test_a_business_fault_of_assembly_or_model_fails_the_turn_at_once() -> None:
    driven = Driven()
    decisions = driven.fail(ASSEMBLY, BUSINESS)
    assert kinds(decisions) == ["CancelOperation", "AssemblyFailed", "FailTurn", "ReleaseTurn"]
    (failed,) = (d for d in decisions if isinstance(d, AssemblyFailed))
    assert failed.outcome.fault == BUSINESS
    assert kinds(assembled().fail(MODEL, BUSINESS)) == ["CancelOperation", "FailTurn", "ReleaseTurn"]


def test_a_failed_extraction_marks_the_turn_which_stays_completed() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    assert kinds(driven.fail(EXTRACTION, BUSINESS)) == ["ExtractionEnded", "ReleaseTurn"]
    assert driven.turn.status is TurnStatus.COMPLETED
    assert driven.turn.memory_extraction_failed


def test_a_timeout_is_a_transient_fault() -> None:
    driven = assembled()
    (retry,) = driven.wait_for_timer(MODEL)
    assert isinstance(retry, RetryOperation)
    assert retry.fault.reason is Reason.TIMEOUT


@pytest.mark.parametrize("name", ["find", "flow"])
def test_work_beyond_its_last_deadline_is_stopped(name: str) -> None:
    driven = assembled()
    driven.answer(text_answer("", call(name)))
    kind = WORKFLOW if name == "flow" else TASK
    operation = driven.pending(kind)
    decisions = driven.wait_for_timer(kind)
    while isinstance(decisions[0], RetryOperation):
        driven.wait_for_timer(kind)
        operation = driven.pending(kind)
        decisions = driven.wait_for_timer(kind)
    assert Stop(operation_id=operation.id, child_id=operation.run_id) in list(commands(driven, decisions))
    assert kinds(decisions)[-2:] == ["ResumeFromTool", "DispatchModel"]
    assert "TIMEOUT" in driven.request()["messages"][-1]["content"]


def test_an_extraction_that_times_out_is_stopped_and_the_turn_released() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    for _ in range(2):
        driven.wait_for_timer(EXTRACTION)
        driven.wait_for_timer(EXTRACTION)
    operation = driven.pending(EXTRACTION)
    decisions = driven.wait_for_timer(EXTRACTION)
    assert Stop(operation_id=operation.id, child_id=operation.run_id) in list(commands(driven, decisions))
    assert kinds(decisions)[-2:] == ["ExtractionEnded", "ReleaseTurn"]


def test_a_result_of_an_abandoned_attempt_does_not_count_for_the_next_one() -> None:
    driven = Driven()
    first = driven.pending(ASSEMBLY)
    driven.wait_for_timer(ASSEMBLY)
    cancelled = Fault(reason=Reason.CANCELLED, message="The caller no longer waits.")
    late = inputs.Failed(operation_id=first.id, fault=cancelled, run_id=first.run_id)
    assert driven.step(late) == ()
    driven.wait_for_timer(ASSEMBLY)
    assert driven.step(late) == ()
    late_output = inputs.Succeeded(operation_id=first.id, output=ASSEMBLED, run_id=first.run_id)
    assert driven.step(late_output) == ()
    second = driven.pending(ASSEMBLY)
    assert second.run_id != first.run_id
    output = inputs.Succeeded(operation_id=second.id, output=ASSEMBLED, run_id=second.run_id)
    assert kinds(driven.step(output)) == ["ContextAssembled", "DispatchModel"]
    assert driven.turn.context_assembly_run_id == second.run_id


@pytest.mark.parametrize("limit", ["of the call", "of the turn"])
def test_the_text_of_a_model_call_that_times_out_becomes_a_partial_message(limit: str) -> None:
    driven = assembled(**({"max_turn_ms": 60_000} if limit == "of the turn" else {}))
    operation = replace(driven.pending(MODEL), max_attempts=1)
    driven.state.operations[operation.id] = operation
    driven.now = operation.wake_ms
    driven.step(inputs.TimerFired(operation_id=operation.id, partial_text="I was just"))
    *_, message = driven.state.messages[driven.turn.id]
    assert (message.id, message.content, message.partial) == (operation.message_id, "I was just", True)
    assert driven.turn.status is TurnStatus.FAILED and not driven.state.operations


def test_a_failure_after_its_deadline_is_not_counted_twice() -> None:
    driven = assembled()
    (retry,) = driven.wait_for_timer(MODEL)
    assert isinstance(retry, RetryOperation)
    assert driven.fail(MODEL, TRANSIENT) == ()
    assert driven.fail(MODEL, BUSINESS) == ()


# --- restarts ---------------------------------------------------------------------------------------


def test_after_a_restart_a_repeatable_operation_is_dispatched_again() -> None:
    driven = assembled()
    operation = driven.pending(MODEL)
    (again,) = driven.step(inputs.Restarted(operation_id=operation.id))
    assert isinstance(again, Redispatch)
    assert again.operation.dispatches == 2
    assert again.operation.attempt == 1


def test_after_a_restart_an_operation_in_backoff_keeps_waiting() -> None:
    driven = assembled()
    driven.fail(MODEL, TRANSIENT)
    assert driven.step(inputs.Restarted(operation_id=driven.pending(MODEL).id)) == ()


def test_after_a_restart_the_outcome_of_an_operation_that_is_not_repeatable_is_unknown() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("once")))
    decisions = driven.step(inputs.Restarted(operation_id=driven.pending(TASK).id))
    assert kinds(decisions) == ["ResumeFromTool", "DispatchModel"]
    assert "unknown" in driven.request()["messages"][-1]["content"]


# --- cancel -----------------------------------------------------------------------------------------


def test_a_cancel_during_an_answer_keeps_its_text() -> None:
    driven = assembled()
    message_id = driven.pending(MODEL).message_id
    event = inputs.CancelTurn(turn_id=driven.turn.id, partial_text="Once upon")
    assert kinds(driven.step(event)) == [
        "CancelOperation",
        "AppendMessage",
        "EndTurnByCancel",
        "ReleaseTurn",
    ]
    last = driven.state.messages[driven.turn.id][-1]
    assert (last.id, last.content, last.partial) == (message_id, "Once upon", True)
    assert rejection(driven, event) is Reason.TURN_NOT_ACTIVE


def test_a_cancel_stops_every_tool_and_later_results_change_nothing() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("find", "c1"), call("flow", "c2")))
    pending = list(driven.state.operations)
    decisions = driven.step(inputs.CancelTurn(turn_id=driven.turn.id, partial_text="ignored: no model call"))
    stopped = ["CancelOperation", "CancelOperation", "WorkflowEnded"]
    assert kinds(decisions) == [*stopped, "EndTurnByCancel", "ReleaseTurn"]
    assert sorted(stop.operation_id for stop in commands(driven, decisions)) == sorted(pending)
    for operation_id in pending:
        assert driven.step(inputs.Succeeded(operation_id=operation_id, output={})) == ()
