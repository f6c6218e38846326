"""Tests of an agent's budget: checks of its account, charges, and notes for the model."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, agent, call, kinds, send, text_answer
from tests.replacing import replace
from wonder_server.core.actor.changes import Put
from wonder_server.core.actor.commands import CallModel
from wonder_server.core.budget import CHARGES, Account, Budget, add_accounts
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import Decision, DispatchModel, LimitReached
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.budget_rules import (
    Check,
    Estimate,
    check_affordable,
    estimate,
    used,
)
from wonder_server.core.conversation.planning.limits import budget_fault
from wonder_server.core.errors import Reason

MODEL = OperationKind.MODEL
TOKENS, MONEY = Budget(max_tokens=1_000), Budget(max_cost_micros=1_000)
NOTHING = Estimate()

NEAR = budget_fault("agent", "tokens", 1_000, 700, enforced=False)
GONE = budget_fault("agent", "tokens", 1_000, 1_000, enforced=True)


def started(budget: Budget | None = TOKENS) -> Driven:
    driven = Driven(begin=False)
    driven.step(send(agent=replace(agent(extraction=False), budget=budget)))
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    return driven


def charged(driven: Driven, event: inputs.Input) -> Account:
    """Return the charge of a step to the agent. Its project gets the same, without time."""
    driven.now += 1
    found = []
    for decision in CONVERSATION.plan(driven.state, event, driven.now):
        CONVERSATION.apply(driven.state, decision)
        changes = list(CONVERSATION.record(driven.state, decision))
        found += [each for each in changes if isinstance(each, Put) and each.table == CHARGES]
    assert {each.parent for each in found} <= {"agt_1", "proj_1"}
    assert len({each.id for each in found}) == len(found)
    spent, same = (
        add_accounts(each.value for each in found if each.parent == parent) for parent in ("agt_1", "proj_1")
    )
    assert same == replace(spent, busy_ms=0)
    return spent


def model_command(driven: Driven, decisions: tuple[Decision, ...]) -> CallModel:
    found = [c for d in decisions for c in CONVERSATION.commands(driven.state, d)]
    (command,) = (each for each in found if isinstance(each, CallModel))
    return command


@pytest.mark.parametrize(
    ("budget", "spent", "reserved", "wanted", "is_last", "verdict"),
    [
        (TOKENS, Account(input_tokens=400), NOTHING, Estimate(300), False, None),
        (TOKENS, Account(input_tokens=400), NOTHING, Estimate(301), False, "near"),
        (TOKENS, Account(input_tokens=400), NOTHING, Estimate(301), True, None),
        (TOKENS, Account(input_tokens=100), Estimate(300), Estimate(301), False, "near"),
        (TOKENS, Account(input_tokens=600, output_tokens=400), NOTHING, Estimate(1), True, "gone"),
        (TOKENS, Account(input_tokens=600), Estimate(400), Estimate(1), True, "gone"),
        (TOKENS, Account(cost_micros=9_999), NOTHING, Estimate(1, 9_999), False, None),
        (MONEY, Account(cost_micros=500), NOTHING, Estimate(9_999, 250), False, None),
        (MONEY, Account(cost_micros=500), NOTHING, Estimate(1, 251), False, "near"),
        (MONEY, Account(cost_micros=500), Estimate(0, 500), Estimate(1, 1), False, "gone"),
        (Budget(max_duration_ms=1), Account(busy_ms=9), NOTHING, Estimate(1), False, None),
    ],
)
def test_a_call_is_checked_against_usage_and_reserved_calls(
    budget: Budget, spent: Account, reserved: Estimate, wanted: Estimate, is_last: bool, verdict: str | None
) -> None:
    check = Check(whose="agent", budget=budget, used=used(spent), reserved=reserved)
    limit = check_affordable(check, wanted, is_last=is_last)
    assert (limit and ("gone" if limit.enforced else "near")) == verdict
    assert limit is None or limit.fault.metadata["of"] == "agent"


def test_a_call_is_estimated_by_the_average_of_earlier_ones() -> None:
    assert estimate(Account(), 10) == Estimate(10, 0)
    spent = Account(output_tokens=30, cost_micros=60, model_calls=3)
    assert estimate(spent, 10) == Estimate(20, 20)


def test_only_agents_with_a_budget_are_checked() -> None:
    assert CONVERSATION.commands is not None
    plain = Driven(begin=False)
    plain.step(send())
    command = model_command(plain, plain.succeed(OperationKind.ASSEMBLY, ASSEMBLED))
    assert command.levels == ()
    driven = Driven(begin=False)
    driven.step(send(agent=replace(agent(), budget=TOKENS)))
    command = model_command(driven, driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED))
    (level,) = command.levels
    assert (level.agent_id, level.agent, command.is_last) == ("agt_1", TOKENS, False)


def test_the_model_is_asked_to_finish_and_may_answer_once_more() -> None:
    driven = started()
    operation_id = driven.pending(MODEL).id
    decisions = driven.step(inputs.BudgetNearlyExhausted(operation_id=operation_id, fault=NEAR))
    assert kinds(decisions) == ["LimitReached", "DispatchModel"]
    assert "tokens that you may spend" in str(driven.request()["messages"][-1])
    assert model_command(driven, decisions).is_last
    assert driven.step(inputs.BudgetNearlyExhausted(operation_id=operation_id, fault=NEAR)) == ()
    driven.answer(text_answer("That is all."))
    assert driven.turn.status is TurnStatus.COMPLETED and driven.turn.model_calls == 1


def test_a_model_that_calls_tools_nevertheless_fails_the_turn() -> None:
    driven = started()
    driven.step(inputs.BudgetNearlyExhausted(operation_id=driven.pending(MODEL).id, fault=NEAR))
    decisions = driven.answer(text_answer("", call("find")))
    (limit,) = (d.limit for d in decisions if isinstance(d, LimitReached))
    assert limit.enforced and limit.fault == driven.turn.fault
    assert limit.fault.reason is Reason.BUDGET_EXHAUSTED
    assert limit.fault.metadata == {"budget": "tokens", "limit": "1000", "used": "705", "of": "agent"}


def test_a_call_beyond_the_budget_fails_the_turn() -> None:
    driven = started()
    decisions = driven.fail(MODEL, GONE)
    assert kinds(decisions) == ["CancelOperation", "LimitReached", "FailTurn", "ReleaseTurn"]
    assert driven.turn.fault == GONE and driven.turn.model_calls == 0


def test_an_agent_without_budget_starts_no_turn() -> None:
    driven = Driven(begin=False)
    (refusal,) = driven.step(replace(send(), unaffordable=GONE))
    assert CONVERSATION.rejection((refusal,)) == GONE


def test_a_turn_charges_its_usage_once() -> None:
    driven = started()
    event = inputs.ModelAnswered(operation_id=driven.pending(MODEL).id, result=text_answer("", call("find")))
    first = charged(driven, event)
    assert first == Account(input_tokens=3, output_tokens=2, model_calls=1, unpriced_calls=1)
    assert charged(driven, event) == Account()
    assert charged(driven, inputs.Succeeded(operation_id=driven.operation("find").id, output=1)) == Account()
    assert (
        charged(driven, inputs.ModelAnswered(operation_id=driven.pending(MODEL).id, result=text_answer(".")))
        == first
    )


def test_time_is_charged_if_the_budget_limits_it() -> None:
    driven = started(Budget(max_duration_ms=10_000))
    driven.now += 500
    took = charged(driven, inputs.CancelTurn(turn_id=driven.turn.id))
    assert took.busy_ms == driven.turn.completed_ms - driven.turn.created_ms > 500
    assert took.model_calls == driven.turn.model_calls == 1
    driven = started()
    assert charged(driven, inputs.CancelTurn(turn_id=driven.turn.id)) == Account(model_calls=1)


def test_a_last_call_stays_the_last_call_after_a_restart() -> None:
    driven = started()
    driven.step(inputs.BudgetNearlyExhausted(operation_id=driven.pending(MODEL).id, fault=NEAR))
    again = driven.step(inputs.Restarted(operation_id=driven.pending(MODEL).id))
    assert model_command(driven, again).is_last and not any(isinstance(each, DispatchModel) for each in again)


@pytest.mark.parametrize(
    ("spent", "reserved", "is_last", "verdict"),
    [
        (600, 400, True, None),
        (600, 400, False, "near"),
        (2_000, 0, True, None),
        (2_000, 0, False, "near"),
        (100, 0, False, None),
    ],
)
def test_a_turn_that_has_begun_may_finish(
    spent: int, reserved: int, is_last: bool, verdict: str | None
) -> None:
    check = Check(
        whose="turn", budget=TOKENS, used=Estimate(spent), reserved=Estimate(reserved), finishes=True
    )
    limit = check_affordable(check, Estimate(300), is_last=is_last)
    assert (limit and ("gone" if limit.enforced else "near")) == verdict


def test_a_refusal_names_the_calls_in_progress() -> None:
    check = Check(whose="conversation", budget=TOKENS, used=Estimate(600), reserved=Estimate(500))
    limit = check_affordable(check, Estimate(1), is_last=True)
    assert limit is not None and limit.enforced
    assert limit.fault.message == (
        "The conversation used 600 of 1,000 tokens, and calls in progress may need 500: "
        "raise the conversation's budget (UpdateConversation) to go on."
    )
