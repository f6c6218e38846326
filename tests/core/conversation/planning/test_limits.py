"""Tests of the limits of turns and conversations: a note first, then enforcement (features B10, C6)."""

from __future__ import annotations

import re

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    TRANSIENT,
    Driven,
    agent,
    call,
    kinds,
    new_conversation,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import CallModel, RunTask
from wonder_server.core.budget import Budget, tightest
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model import lifecycle_inputs as lifecycle_inputs
from wonder_server.core.conversation.model.decisions import Decision, DispatchModel, LimitReached
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.specs import Constraints, PinnedAgent
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.request_formats.neutral import ASIDE

ASSEMBLY, MODEL, TASK = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.TASK
EXTRACTION = OperationKind.EXTRACTION


def limited(**limits: int) -> PinnedAgent:
    made = agent()
    return replace(made, persona=replace(made.persona, constraints=Constraints(**limits)))


def started(budget: Budget | None = None, conversation_budget: Budget | None = None, **limits: int) -> Driven:
    """Return a turn with a pending model call."""
    driven = Driven(begin=False)
    if conversation_budget is not None:
        assert driven.state.conversation is not None
        driven.state.conversation = replace(driven.state.conversation, budget=conversation_budget)
    driven.step(replace(send(agent=limited(**limits)), budget=budget))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def spending(text: str, *calls: ToolCall, tokens: int = 0, cost: int | None = None) -> ModelResult:
    usage = Usage(input_tokens=tokens, output_tokens=0, cost_micros=cost)
    return replace(text_answer(text, *calls), usage=usage)


def limits(decided: tuple[Decision, ...]) -> list[tuple[str, bool]]:
    """Return the reached limits with their enforcement."""
    found = [each.limit for each in decided if isinstance(each, LimitReached)]
    return [(limit.fault.metadata.get("budget", ""), limit.enforced) for limit in found]


def is_asked_to_finish(driven: Driven) -> bool:
    last = driven.request().get("messages", [{}])[-1]
    return last.get("role") == "user" and str(last["content"]).startswith(f"{ASIDE}\n\nYou have ")


SPENT: list[tuple[JsonDict, str, dict[str, int]]] = [
    ({"max_tokens_per_turn": 1000}, "tokens", {"tokens": 600}),
    ({"max_cost_micros_per_turn": 1000}, "cost", {"tokens": 1, "cost": 500}),
    ({"budget": Budget(max_tokens=1000)}, "tokens", {"tokens": 600}),
    ({"budget": Budget(max_cost_micros=1000)}, "cost", {"tokens": 1, "cost": 500}),
    ({"conversation_budget": Budget(max_tokens=1000)}, "tokens", {"tokens": 600}),
    ({"conversation_budget": Budget(max_cost_micros=1000)}, "cost", {"tokens": 1, "cost": 500}),
]


@pytest.mark.parametrize(("given", "kind", "usage"), SPENT)
def test_the_model_is_asked_to_finish_on_the_last_call_that_fits(
    given: JsonDict, kind: str, usage: dict[str, int]
) -> None:
    driven = started(**given)
    assert not is_asked_to_finish(driven)
    assert limits(driven.answer(spending("", call("find"), **usage))) == []
    decided = driven.succeed(TASK, {})
    assert limits(decided) == [(kind, False)] and is_asked_to_finish(driven)
    driven.answer(spending("Enough.", **usage))
    assert driven.turn.status is TurnStatus.COMPLETED


@pytest.mark.parametrize(("given", "kind", "usage"), SPENT)
def test_a_model_that_calls_tools_nevertheless_ends_the_turn(
    given: JsonDict, kind: str, usage: dict[str, int]
) -> None:
    driven = started(**given)
    driven.answer(spending("", call("find"), **usage))
    driven.succeed(TASK, {})
    decided = driven.answer(spending("More!", call("find"), **usage))
    assert limits(decided) == [(kind, True)]
    assert kinds(decided) == ["RecordMove", "AppendMessage", "LimitReached", "FailTurn", "ReleaseTurn"]
    fault = driven.turn.fault
    assert fault is not None and fault.reason is Reason.BUDGET_EXHAUSTED
    assert fault.metadata["limit"] == "1000" and int(fault.metadata["used"]) >= 1000
    assert not driven.state.operations


def test_a_turn_within_its_budget_gets_no_note() -> None:
    driven = started(max_tokens_per_turn=1000, max_cost_micros_per_turn=1000, max_turn_ms=60_000)
    driven.answer(spending("", call("find"), tokens=100, cost=100))
    driven.succeed(TASK, {})
    driven.answer(spending("Done.", tokens=100, cost=100))
    assert limits(tuple(driven.decided)) == [] and driven.turn.status is TurnStatus.COMPLETED


def test_a_first_request_beyond_the_budget_forbids_tools() -> None:
    driven = Driven(begin=False)
    driven.step(send(agent=limited(max_tokens_per_turn=100)))
    long = {"request": {"messages": [{"role": "user", "content": "x" * 4000}]}}
    decided = driven.succeed(ASSEMBLY, long)
    assert limits(decided) == [("tokens", False)]
    (fault,) = (each.limit.fault for each in decided if isinstance(each, LimitReached))
    expected = (
        r"The turn used 0 of 100 tokens, and the next call may need about 1,\d{3}\. "
        r"The model is asked to answer without tools\."
    )
    assert re.fullmatch(expected, fault.message)


def test_an_unknown_price_counts_as_free() -> None:
    driven = started(max_cost_micros_per_turn=10)
    driven.answer(spending("", call("find"), tokens=10**9))
    assert limits(driven.succeed(TASK, {})) == []


def test_no_turn_starts_after_the_conversation_has_used_its_budget() -> None:
    driven = started(conversation_budget=Budget(max_tokens=1000))
    driven.answer(spending("Done.", tokens=1000))
    (refused,) = driven.step(send("two", "more?"))
    assert type(refused).__name__ == "Refuse"
    fault = CONVERSATION.rejection((refused,))
    assert fault is not None and fault.reason is Reason.BUDGET_EXHAUSTED
    assert fault.metadata == {"budget": "tokens", "limit": "1000", "used": "1000", "of": "conversation"}
    assert "(UpdateConversation)" in fault.message


# --- time -------------------------------------------------------------------------------------------


def test_a_tool_is_awaited_until_the_wrap_up_share_of_the_time() -> None:
    driven = started(max_turn_ms=5_000)
    driven.answer(text_answer("", call("find")))
    began = driven.turn.created_ms
    assert driven.pending(TASK).wake_ms == began + 4_000  # Its own timeout is 10 s.
    decided = driven.wait_for_timer(TASK)
    assert limits(decided) == [("time", False)] and is_asked_to_finish(driven)
    (move,) = driven.state.moves[driven.turn.id]
    result = move.invocations[0].result
    assert result is not None and result.code is not None and result.code.value == "TIMEOUT"
    assert driven.pending(MODEL).wake_ms == began + 5_000
    driven.answer(text_answer("That is all I have."))
    assert driven.turn.status is TurnStatus.COMPLETED
    # Extraction has its own time.
    assert driven.pending(EXTRACTION).wake_ms > began + 5_000


@pytest.mark.parametrize("kind", [ASSEMBLY, MODEL])
def test_at_the_end_of_its_time_the_turn_ends(kind: OperationKind) -> None:
    driven = Driven(begin=False)
    driven.step(send(agent=limited(max_turn_ms=2_000)))
    if kind is MODEL:
        driven.succeed(ASSEMBLY, ASSEMBLED)
    decided = driven.wait_for_timer(kind)
    assert driven.now == driven.turn.created_ms + 2_000
    assert kinds(decided) == ["CancelOperation", "LimitReached", "FailTurn", "ReleaseTurn"]
    assert limits(decided) == [("time", True)]
    fault = driven.turn.fault
    assert fault is not None and fault.reason is Reason.BUDGET_EXHAUSTED
    assert fault.metadata["used"] == "2000"


def test_a_conversations_time_is_counted_while_its_budget_limits_it() -> None:
    driven = started()
    conversation = driven.state.conversation
    assert conversation is not None and (conversation.busy_ms, conversation.busy_since_ms) == (0, 0)
    timed = Budget(max_duration_ms=5_000)
    driven.step(lifecycle_inputs.Update(budget=timed), after_ms=100)
    assert driven.state.conversation is not None
    assert driven.state.conversation.busy_since_ms == driven.now
    driven.step(lifecycle_inputs.Update(budget=Budget(max_duration_ms=5_000, max_tokens=9)), after_ms=200)
    driven.step(lifecycle_inputs.Update(budget=Budget()), after_ms=300)
    conversation = driven.state.conversation
    assert (conversation.busy_ms, conversation.busy_since_ms) == (500, 0)
    assert driven.step(lifecycle_inputs.Update(budget=Budget())) == ()
    driven.step(lifecycle_inputs.Update(budget=timed))
    since = driven.now
    driven.step(inputs.CancelTurn(turn_id=driven.turn.id), after_ms=50)
    conversation = driven.state.conversation
    assert (conversation.busy_ms, conversation.busy_since_ms) == (500 + driven.now - since, 0)


def test_no_backoff_outlasts_the_turn() -> None:
    driven = Driven(begin=False)
    driven.step(send(agent=limited(max_turn_ms=150)))
    driven.fail(ASSEMBLY, replace(TRANSIENT, retry_after_ms=20_000))
    assert driven.pending(ASSEMBLY).wake_ms == driven.turn.created_ms + 150
    assert limits(driven.wait_for_timer(ASSEMBLY)) == [("time", True)]


def test_a_restart_gives_a_turn_no_more_time() -> None:
    driven = started(max_turn_ms=5_000)
    driven.now += 3_000
    operation = driven.pending(MODEL)
    driven.step(inputs.Restarted(operation_id=operation.id))
    assert driven.pending(MODEL).wake_ms == driven.turn.created_ms + 5_000


def test_a_conversations_time_runs_while_turns_are_active() -> None:
    driven = started(conversation_budget=Budget(max_duration_ms=10_000))
    assert driven.pending(MODEL).wake_ms == driven.turn.created_ms + 10_000
    driven.now = driven.turn.created_ms + 5_999
    driven.answer(text_answer("Done."))
    driven.now += 3_600_000  # No turn is active.
    driven.step(send("two", "more?", agent=limited()))
    assert driven.pending(ASSEMBLY).wake_ms == driven.turn.created_ms + 4_000
    driven.wait_for_timer(ASSEMBLY)
    assert driven.turn.fault is not None and driven.turn.fault.reason is Reason.BUDGET_EXHAUSTED
    fault = CONVERSATION.rejection(driven.step(send("three", "and now?", agent=limited())))
    assert fault is not None and fault.metadata["budget"] == "time"


def test_concurrent_turns_count_a_conversations_time_once() -> None:
    driven = started(conversation_budget=Budget(max_duration_ms=10_000))
    first = driven.turn
    driven.step(send("two", "and this?", agent=limited()))
    driven.now = first.created_ms + 1_000
    for turn in list(driven.state.turns.values()):
        driven.step(inputs.CancelTurn(turn_id=turn.id), after_ms=0)
    assert driven.state.conversation is not None
    assert (driven.state.conversation.busy_ms, driven.state.conversation.busy_since_ms) == (1_000, 0)


# --- delegates --------------------------------------------------------------------------------------


def test_the_rest_of_the_budget_limits_a_called_agent() -> None:
    driven = started(
        max_tokens_per_turn=1000,
        budget=Budget(max_cost_micros=70),
        conversation_budget=Budget(max_tokens=500, max_duration_ms=10_000),
    )
    driven.now = driven.turn.created_ms + 999
    decided = driven.answer(spending("", call("find"), tokens=200, cost=30))
    (command,) = [c for d in decided for c in CONVERSATION.commands(driven.state, d)]
    assert isinstance(command, RunTask)
    assert command.scope.budget == Budget(max_tokens=300, max_cost_micros=40, max_duration_ms=9_000)


def test_without_limits_a_called_agent_has_no_budget() -> None:
    driven = started(max_moves_per_turn=20)
    decided = driven.answer(text_answer("", call("find")))
    (command,) = [c for d in decided for c in CONVERSATION.commands(driven.state, d)]
    assert isinstance(command, RunTask) and command.scope.budget is None


def test_a_used_up_budget_does_not_become_unlimited() -> None:
    driven = started(max_tokens_per_turn=100)
    driven.answer(spending("", call("find"), call("flow", "call_2", {}), tokens=500))
    command = next(iter(CONVERSATION.commands(driven.state, driven.decided[-3])))
    assert not isinstance(command, CallModel)
    assert command.scope.budget == Budget(max_tokens=1)  # type: ignore[union-attr]


def test_of_several_budgets_the_smallest_counts() -> None:
    wide, narrow = Budget(max_tokens=5, max_duration_ms=9), Budget(max_tokens=3, max_cost_micros=7)
    assert tightest(wide, narrow) == Budget(max_tokens=3, max_cost_micros=7, max_duration_ms=9)
    assert tightest() == Budget()


def test_the_stored_request_contains_its_limit() -> None:
    """After a restart the planner knows that the model was asked to finish."""
    driven = started(max_tokens_per_turn=1000)
    driven.answer(spending("", call("find"), tokens=600))
    (asked,) = [each for each in driven.succeed(TASK, {}) if isinstance(each, DispatchModel)]
    assert asked.request.wrap_up is not None
    assert asked.request.wrap_up.metadata["budget"] == "tokens"
    assert new_conversation().conversation.budget == Budget()
