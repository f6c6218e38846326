"""Tests of the gates of tool calls: who may answer, and gates that expire (feature M9)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    TOOLS,
    Driven,
    assembled,
    call,
    kinds,
    rejection,
    text_answer,
    tool,
)
from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import CloseApproval
from wonder_server.core.conversation.model.values import ToolErrorCode, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.approval.answers import EXPIRED
from wonder_server.core.definitions.tool_specs import ApprovalGate
from wonder_server.core.errors import Reason

HOUR_MS = 3_600_000


def waiting(gate: ApprovalGate, **tool_fields: Any) -> Driven:
    """Return a conversation whose model has called a tool with this gate."""
    mail = tool("mail", approval="always", approval_gate=gate, **tool_fields)
    driven = assembled(tools=(*TOOLS, mail))
    driven.answer(text_answer("", call("mail")))
    return driven


def gate_of(driven: Driven) -> Gate:
    (gate,) = driven.state.gates.values()
    return gate


def answer_of(gate: Gate, **fields: Any) -> ResolveGate:
    return ResolveGate(**{"gate_id": gate.id, "approve": True, "shown_hash": gate.shown_hash, **fields})


def fire(driven: Driven, after_ms: int) -> Any:
    (operation,) = driven.state.operations.values()
    return driven.step(inputs.TimerFired(operation_id=operation.id), after_ms=after_ms)


@pytest.mark.parametrize("user", ["", "bob", "ANN", "ann "])
def test_only_the_named_users_may_answer(user: str) -> None:
    driven = waiting(ApprovalGate(user_ids=("ann", "cleo")))
    gate = gate_of(driven)
    assert gate.user_ids == ("ann", "cleo")
    for approve in (True, False):
        refused = rejection(driven, answer_of(gate, user_id=user, approve=approve))
        assert refused is Reason.PERMISSION_DENIED
    assert "DispatchTask" in kinds(driven.step(answer_of(gate, user_id="cleo")))


def test_an_expired_gate_answers_the_call_with_the_reason() -> None:
    driven = waiting(ApprovalGate(expire_after_ms=HOUR_MS))
    gate = gate_of(driven)
    (operation,) = driven.state.operations.values()
    assert operation.wake_ms == gate.expires_ms == gate.created_ms + HOUR_MS
    assert CONVERSATION.waits(operation, False, driven.now), "a start leaves the call on disk"
    assert fire(driven, HOUR_MS // 2) == ()
    driven.now = gate.expires_ms
    decided = fire(driven, 0)
    (closed,) = [each.gate for each in decided if isinstance(each, CloseApproval)]
    assert (closed.status, closed.user_id, closed.resolved_ms) == (GateStatus.EXPIRED, "", gate.expires_ms)
    result = driven.state.moves[driven.turn.id][-1].invocations[0].result
    assert result is not None and (result.code, result.retriable) == (ToolErrorCode.TIMEOUT, False)
    assert EXPIRED in driven.request()["messages"][-1]["content"]
    assert "3600 s" in driven.request()["messages"][-1]["content"]
    assert driven.turn.waited_ms == HOUR_MS and not driven.state.gates
    assert rejection(driven, answer_of(gate)) is Reason.GATE_RESOLVED


def test_an_answer_before_the_expiry_gives_the_call_its_whole_timeout() -> None:
    driven = waiting(ApprovalGate(expire_after_ms=HOUR_MS))
    driven.step(answer_of(gate_of(driven)), after_ms=HOUR_MS - 1)
    operation = driven.operation("mail")
    assert operation.wake_ms == driven.now + operation.timeout_ms
    decided = fire(driven, 1)
    assert decided == (), "the gate's timer is late"


def test_an_asynchronous_call_expires_while_the_turn_goes_on() -> None:
    driven = waiting(ApprovalGate(expire_after_ms=1), is_async=True)
    driven.answer(text_answer("I will send it once it is approved."))
    gate = gate_of(driven)
    driven.now = gate.expires_ms
    fire(driven, 0)
    assert not driven.state.gates and driven.turn.status is TurnStatus.ACTIVE


def test_a_cancel_before_the_expiry_closes_the_gate_once() -> None:
    driven = waiting(ApprovalGate(expire_after_ms=HOUR_MS))
    (operation,) = driven.state.operations.values()
    driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    late = driven.step(inputs.TimerFired(operation_id=operation.id), after_ms=2 * HOUR_MS)
    assert late == ()
