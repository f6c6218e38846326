"""Tests of tool calls that wait for people (feature M9): which wait, answers, edits, rejections, limits of
time.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    TOOLS,
    Driven,
    agent_tool,
    assembled,
    call,
    commands,
    flow_tool,
    kinds,
    rejection,
    text_answer,
    tool,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import MeasureWaits, RunTask, Stop
from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import CloseApproval, RequestApproval
from wonder_server.core.conversation.model.values import (
    ConversationStatus,
    OperationKind,
    OperationStatus,
    ToolResult,
    TurnStatus,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.approval.answers import REJECTED
from wonder_server.core.conversation.planning.approval.requests import needs_approval
from wonder_server.core.conversation.planning.approval.waits import ASK_MS, MAX_HOLD_MS
from wonder_server.core.errors import Reason

HOUR_MS = 3_600_000
TASK, WORKFLOW = OperationKind.TASK, OperationKind.WORKFLOW


def guarded(rule: str = "always", **agent_fields: Any) -> Driven:
    """Return a conversation with a pending model call, whose agent has tools that need approval."""
    tools = (
        *TOOLS,
        tool("mail", approval=rule),
        tool("mail_later", approval=rule, is_async=True),
        agent_tool("colleague", approval=rule),
    )
    return assembled(tools=tools, **agent_fields)


def waiting(*calls: str, **agent_fields: Any) -> Driven:
    """Return a conversation whose model has called these tools."""
    driven = guarded(**agent_fields)
    driven.answer(text_answer("", *(call(name, f"c{n}") for n, name in enumerate(calls or ("mail",)))))
    return driven


def gate_of(driven: Driven) -> Gate:
    (gate,) = driven.state.gates.values()
    return gate


def resolve(driven: Driven, *, approve: bool = True, **fields: Any) -> Any:
    gate = gate_of(driven)
    fields.setdefault("shown_hash", gate.shown_hash)
    return driven.step(ResolveGate(gate_id=gate.id, approve=approve, **fields))


def result_of(driven: Driven, place: int = 0) -> ToolResult:
    result = driven.state.moves[driven.turn.id][-1].invocations[place].result
    assert result is not None
    return result


# --- which calls wait -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "waits", "has_problem"),
    [
        ("", False, False),
        ("never", False, False),
        ("always", True, False),
        ("input.q == 'x'", True, False),
        ("input.q == 'y'", False, False),
        ("input.missing > 3", True, True),
        ("input.q", True, True),
        ("1 / 0 == 1", True, True),
    ],
)
def test_the_rule_says_which_calls_wait(rule: str, waits: bool, has_problem: bool) -> None:
    needed, problem = needs_approval(tool("mail", approval=rule), {"q": "x"})
    assert (needed, bool(problem)) == (waits, has_problem)


def test_a_call_waits_without_a_timer_and_without_a_command() -> None:
    driven = guarded()
    decided = driven.answer(text_answer("", call("mail")))
    assert "DispatchTask" not in kinds(decided) and not commands(driven, decided)
    (operation,) = driven.state.operations.values()
    assert (operation.status, operation.wake_ms) == (OperationStatus.APPROVAL, 0)
    assert CONVERSATION.waits(operation, False, driven.now)
    gate = gate_of(driven)
    assert (gate.tool_name, gate.shown, gate.turn_id) == ("mail", {"q": "x"}, driven.turn.id)
    assert gate.tool_id == "team/mail@1" and gate.id[-1] == gate.conversation_id[-1]
    assert driven.state.conversation is not None
    assert driven.state.conversation.status is ConversationStatus.WAITING


def test_a_failing_expression_is_shown_at_the_gate() -> None:
    driven = guarded("input.missing > 3")
    driven.answer(text_answer("", call("mail")))
    assert "missing" in gate_of(driven).problem


def test_calls_without_approval_run_at_once_and_the_turn_waits_for_all() -> None:
    driven = guarded()
    decided = driven.answer(text_answer("", call("find", "c1"), call("mail", "c2")))
    (started,) = [each for each in commands(driven, decided) if isinstance(each, RunTask)]
    assert started.operation_id == driven.operation("find").id
    assert "DispatchModel" not in kinds(driven.complete("find", {"found": 1}))
    resolve(driven)
    assert "DispatchModel" in kinds(driven.complete("mail", {"sent": True}))


def test_an_invalid_call_is_refused_before_a_person_is_asked() -> None:
    driven = guarded()
    driven.answer(text_answer("", call("mail", arguments={"q": 7})))
    assert not driven.state.gates and not result_of(driven).success


# --- answers ----------------------------------------------------------------------------------------


def test_an_approved_call_runs_with_the_arguments_that_were_shown() -> None:
    driven = waiting()
    decided = resolve(driven, user_id="ann", principal="token:ann")
    (started,) = [each for each in commands(driven, decided) if isinstance(each, RunTask)]
    assert started.input == {"q": "x"}
    (closed,) = [each.gate for each in decided if isinstance(each, CloseApproval)]
    assert (closed.status, closed.user_id, closed.principal) == (GateStatus.APPROVED, "ann", "token:ann")
    operation = driven.operation("mail")
    assert operation.status is OperationStatus.DISPATCHED
    assert operation.wake_ms == driven.now + operation.timeout_ms
    driven.complete("mail", {"sent": True})
    assert result_of(driven).note == ""


def test_an_edited_call_runs_exactly_the_edited_arguments_and_the_model_learns_of_it() -> None:
    driven = waiting()
    decided = resolve(driven, answer={"q": "safer"})
    (started,) = [each for each in commands(driven, decided) if isinstance(each, RunTask)]
    assert started.input == {"q": "safer"}
    driven.complete("mail", {"sent": True})
    entry = driven.state.moves[driven.turn.id][-1].invocations[0]
    assert (entry.call.arguments, entry.edited) == ({"q": "x"}, {"q": "safer"})
    seen = driven.request()["messages"][-1]["content"]
    assert "A person approved this call with other arguments" in seen and "safer" in seen


def test_the_model_sees_the_reason_of_a_rejection() -> None:
    driven = waiting()
    decided = resolve(driven, approve=False, comment="Not on a Friday.")
    assert not [each for each in commands(driven, decided) if isinstance(each, RunTask)]
    assert "DispatchModel" in kinds(decided)
    seen = driven.request()["messages"][-1]["content"]
    assert REJECTED in seen and "Not on a Friday." in seen and "PERMISSION_DENIED" in seen
    assert driven.turn.tool_failures == 1 and not driven.state.gates


def test_an_asynchronous_call_waits_while_the_turn_goes_on() -> None:
    driven = waiting("mail_later")
    driven.answer(text_answer("I will send it once it is approved."))
    assert driven.turn.status is TurnStatus.ACTIVE
    resolve(driven, approve=False, comment="No.")
    driven.succeed(OperationKind.ASSEMBLY, {"request": {"messages": [{"role": "user", "content": "hello"}]}})
    assert "No." in str(driven.request()["messages"])
    driven.answer(text_answer("It was rejected."))
    assert driven.turn.status is TurnStatus.COMPLETED


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"shown_hash": "0" * 64}, Reason.GATE_RESOLVED),
        ({"answer": {"q": 7}}, Reason.INPUT_INVALID),
        ({"answer": {}}, Reason.INPUT_INVALID),
    ],
)
def test_a_wrong_answer_changes_nothing(fields: dict[str, Any], reason: Reason) -> None:
    driven = waiting()
    gate = gate_of(driven)
    event = ResolveGate(gate_id=gate.id, approve=True, **{"shown_hash": gate.shown_hash, **fields})
    assert rejection(driven, event) is reason
    assert driven.state.gates


def test_the_mode_of_an_agent_call_cannot_be_edited() -> None:
    driven = guarded()
    driven.answer(text_answer("", call("colleague", arguments={"q": "hi"})))
    gate = gate_of(driven)
    edited = {"q": "hi", "invocation_mode": "loop_in"}
    event = ResolveGate(gate_id=gate.id, approve=True, shown_hash=gate.shown_hash, answer=edited)
    assert rejection(driven, event) is Reason.INPUT_INVALID


def test_a_second_answer_and_one_after_a_cancel_are_refused() -> None:
    driven = waiting()
    gate = gate_of(driven)
    again = ResolveGate(gate_id=gate.id, approve=False, shown_hash=gate.shown_hash)
    resolve(driven)
    assert rejection(driven, again) is Reason.GATE_RESOLVED
    driven = waiting()
    gate = gate_of(driven)
    decided = driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    assert not [each for each in commands(driven, decided) if isinstance(each, Stop)]
    (closed,) = [each.gate for each in decided if isinstance(each, CloseApproval)]
    assert closed.status is GateStatus.CANCELLED
    assert rejection(driven, replace(again, gate_id=gate.id)) is Reason.GATE_RESOLVED


@pytest.mark.parametrize("late", ["timer", "restart", "success", "failure"])
def test_only_a_person_ends_the_wait(late: str) -> None:
    driven = waiting()
    (operation,) = driven.state.operations.values()
    events: dict[str, inputs.Input] = {
        "timer": inputs.TimerFired(operation_id=operation.id),
        "restart": inputs.Restarted(operation_id=operation.id),
        "success": inputs.Succeeded(operation_id=operation.id, output={"sent": True}),
        "failure": inputs.WaitsMeasured(operation_id=operation.id, waited_ms=1),
    }
    assert driven.step(events[late], after_ms=10 * HOUR_MS) == ()


def test_a_rejection_of_a_waiting_agent_call_ends_no_agent_call() -> None:
    driven = guarded()
    driven.answer(text_answer("", call("colleague", arguments={"q": "hi"})))
    decided = driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    assert "AgentCallEnded" not in kinds(decided)


# --- limits of time ---------------------------------------------------------------------------------


def test_the_time_of_a_turn_stands_still_while_a_person_thinks() -> None:
    driven = waiting(max_turn_ms=60_000)
    decided = driven.step(
        ResolveGate(gate_id=gate_of(driven).id, approve=True, shown_hash=gate_of(driven).shown_hash),
        after_ms=HOUR_MS,
    )
    assert "DispatchTask" in kinds(decided)
    assert driven.turn.waited_ms == HOUR_MS
    operation = driven.operation("mail")
    assert operation.wake_ms == driven.now + operation.timeout_ms
    driven.complete("mail", {"sent": True})
    model = driven.pending(OperationKind.MODEL)
    assert model.wake_ms == driven.turn.created_ms + HOUR_MS + 60_000
    assert driven.state.requests[driven.turn.id].wrap_up is None


def test_overlapping_waits_count_once() -> None:
    driven = waiting("mail", "mail", max_turn_ms=60_000)
    first, second = driven.state.gates.values()
    for gate in (second, first):
        driven.step(ResolveGate(gate_id=gate.id, approve=False, shown_hash=gate.shown_hash), after_ms=HOUR_MS)
    assert driven.turn.waited_ms == 2 * HOUR_MS


def test_another_call_keeps_its_own_timeout_while_a_call_waits() -> None:
    driven = waiting("find", "mail", max_turn_ms=1_000)
    assert driven.operation("find").wake_ms == driven.now + driven.operation("find").timeout_ms


def test_waiting_is_no_busy_time_of_the_conversation() -> None:
    driven = waiting()
    driven.step(inputs.CancelTurn(turn_id=driven.turn.id), after_ms=HOUR_MS)
    assert driven.turn.waited_ms == HOUR_MS


# --- work that waits --------------------------------------------------------------------------------


def in_a_flow() -> Driven:
    driven = assembled(tools=(flow_tool("flow"),))
    driven.answer(text_answer("", call("flow")))
    return driven


def fire(driven: Driven) -> Any:
    """Let the timer of the run fire."""
    operation = driven.pending(WORKFLOW)
    driven.now = operation.wake_ms
    return driven.step(inputs.TimerFired(operation_id=operation.id), after_ms=0)


def measured(driven: Driven, waited_ms: int, *, waits: bool = False) -> Any:
    operation = driven.pending(WORKFLOW)
    return driven.step(
        inputs.WaitsMeasured(operation_id=operation.id, waited_ms=waited_ms, waits=waits), after_ms=0
    )


def test_the_deadline_of_a_run_asks_before_the_run_fails() -> None:
    driven = in_a_flow()
    operation = driven.pending(WORKFLOW)
    (asked,) = commands(driven, fire(driven))
    assert asked == MeasureWaits(
        operation_id=operation.id, child_id=operation.run_id, since_ms=operation.created_ms
    )
    assert driven.pending(WORKFLOW).wake_ms == driven.now + ASK_MS
    assert "ResumeFromTool" in kinds(measured(driven, 0))
    assert result_of(driven).message == "No result within 20 s."


def test_waiting_at_a_gate_does_not_count_against_the_timeout_of_a_run() -> None:
    driven = in_a_flow()
    created = driven.pending(WORKFLOW).created_ms
    fire(driven)
    measured(driven, 15_000, waits=True)
    for _ in range(200):
        fire(driven)
        waited = driven.now - created - 5_000
        if waited > 48 * HOUR_MS:
            break
        measured(driven, waited, waits=True)
        assert driven.pending(WORKFLOW).wake_ms - driven.now <= MAX_HOLD_MS
    # The person has answered in between: the run has worked for 5 s before and 1 s since.
    measured(driven, driven.now - created - 6_000)
    assert driven.pending(WORKFLOW).wake_ms == driven.now + 14_000
    fire(driven)
    assert "ResumeFromTool" in kinds(measured(driven, driven.now - created - 20_000))


def test_an_answer_about_waits_without_a_question_changes_nothing() -> None:
    driven = in_a_flow()
    assert measured(driven, HOUR_MS, waits=True) == ()
    fire(driven)
    measured(driven, 10_000)
    assert measured(driven, 10_000) == ()


def test_a_turn_of_earlier_rules_fails_at_its_deadline() -> None:
    driven = in_a_flow()
    work = driven.state.turn_work[driven.turn.id]
    driven.state.turn_work[driven.turn.id] = replace(work, rules=3)
    assert "ResumeFromTool" in kinds(fire(driven))


def test_a_gate_is_written_and_read_again() -> None:
    driven = guarded()
    decided = driven.answer(text_answer("", call("mail")))
    (requested,) = [each for each in decided if isinstance(each, RequestApproval)]
    names = [getattr(change, "name", "") for change in CONVERSATION.record(driven.state, requested)]
    assert "gate.opened" in names
