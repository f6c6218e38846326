"""Tests of the usage of turns and conversations, and of known costs."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, call, send, text_answer
from tests.replacing import replace
from wonder_server.core.actor.changes import Put
from wonder_server.core.actor.commands import Parent
from wonder_server.core.budget import Account, add_accounts
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import ChargeTurn, StartTurn
from wonder_server.core.conversation.model.lifecycle_inputs import Complete
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.usage import (
    Spender,
    UsageDelta,
    add_usage,
    as_usage,
    charge,
    from_usage,
    known_cost,
    other_accounts,
    reported_usage,
)
from wonder_server.core.conversation.model.values import Conversation, OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.model import NO_USAGE, ModelResult, Usage
from wonder_server.core.token_estimates import json_tokens

ASSEMBLY, TASK = OperationKind.ASSEMBLY, OperationKind.TASK


def priced(result: ModelResult, cost: int | None) -> ModelResult:
    return replace(result, usage=Usage(input_tokens=3, output_tokens=2, cost_micros=cost))


def conversation_of(driven: Driven) -> Conversation:
    assert driven.state.conversation is not None
    return driven.state.conversation


def two_moves(first: int | None, second: int | None) -> Driven:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(priced(text_answer("", call("find")), first))
    driven.succeed(TASK, {})
    driven.answer(priced(text_answer("Done."), second))
    return driven


def test_a_turn_and_its_conversation_sum_the_cost_of_moves() -> None:
    driven = two_moves(40, 2)
    assert as_usage(driven.turn) == {
        "input_tokens": 6, "output_tokens": 4, "model_calls": 2, "cost_micros": 42,
        "cached_input_tokens": 0, "cache_write_input_tokens": 0, "reasoning_tokens": 0,
    }  # fmt: skip
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)


def test_one_unpriced_call_makes_the_cost_unknown() -> None:
    driven = two_moves(40, None)
    assert known_cost(driven.turn) is None and driven.turn.cost_micros == 40
    assert known_cost(conversation_of(driven)) is None


ITEMIZED = Usage(
    input_tokens=30,
    output_tokens=20,
    cached_input_tokens=11,
    cache_write_input_tokens=7,
    reasoning_tokens=13,
    cost_micros=5,
)


def items(spender: Spender) -> tuple[int, int, int]:
    return spender.cached_input_tokens, spender.cache_write_input_tokens, spender.reasoning_tokens


def with_items(driven: Driven) -> Driven:
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(replace(text_answer("", call("find")), usage=ITEMIZED))
    driven.succeed(TASK, {})
    driven.answer(replace(text_answer("Done."), usage=ITEMIZED))
    return driven


def test_cached_written_and_reasoning_tokens_are_summed_as_the_others() -> None:
    driven = with_items(Driven())
    assert items(driven.turn) == items(conversation_of(driven)) == (22, 14, 26)
    spent = from_usage(as_usage(driven.turn))
    assert items(spent) == items(charge(driven.turn, spent).amount) == (22, 14, 26)
    late = inputs.ModelUsageReported(turn_id=driven.turn.id, run_id="", usage=ITEMIZED, calls=1)
    driven.step(late)
    assert items(driven.turn) == items(conversation_of(driven)) == (33, 21, 39)


def test_a_turn_of_earlier_rules_counts_as_it_did() -> None:
    driven = Driven()
    driven.state.turns[driven.turn.id] = replace(driven.turn, itemized=False)
    with_items(driven)
    assert items(driven.turn) == items(conversation_of(driven)) == (0, 0, 0)
    assert driven.turn.input_tokens == 60 and driven.turn.cost_micros == 10


@pytest.mark.parametrize(("rules", "itemized"), [(0, False), (1, False), (2, True)])
def test_the_rules_of_a_turn_say_what_it_counts(rules: int, itemized: bool) -> None:
    driven = Driven()
    decided = driven.step(replace(send("seed 2"), rules=rules))
    (started,) = [each for each in decided if isinstance(each, StartTurn)]
    assert started.turn.itemized is itemized


def test_no_usage_has_a_known_cost_and_uncounted_usage_has_none() -> None:
    driven = Driven()
    assert known_cost(driven.turn) == 0
    assert known_cost(replace(driven.turn, input_tokens=5)) is None


def test_a_delegates_usage_counts_for_the_calling_turn_and_conversation() -> None:
    driven = Driven()
    spent = from_usage(
        as_usage(add_usage(driven.turn, UsageDelta(input_tokens=7, model_calls=2, cost_micros=9)))
    )
    decision = ChargeTurn(turn=add_usage(progress_of(driven.turn), spent))
    CONVERSATION.apply(driven.state, decision)
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)
    assert conversation_of(driven).cost_micros == 9 and conversation_of(driven).model_calls == 2
    tables = [put.table for put in CONVERSATION.record(driven.state, decision) if isinstance(put, Put)]
    assert tables == ["charges", "charges", "conversations", "turns"]


def test_invalid_usage_from_outside_is_ignored() -> None:
    assert from_usage({"input_tokens": -4, "output_tokens": "x"}) == UsageDelta(
        model_calls=1, unpriced_calls=1
    )
    assert from_usage({"cost_micros": True, "model_calls": 2.0}).unpriced_calls == 2
    assert from_usage({"cost_micros": 5, "model_calls": 3}) == UsageDelta(cost_micros=5, model_calls=3)


def test_attempts_that_failed_count_as_calls() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    operation = driven.pending(OperationKind.MODEL)
    driven.state.operations[operation.id] = replace(operation, attempt=3)
    driven.answer(priced(text_answer("Done."), 1))
    assert driven.turn.model_calls == 3 and known_cost(driven.turn) == 1


@pytest.mark.parametrize("end", ["refused", "cancelled", "overdue", "completed", "between two attempts"])
def test_abandoned_calls_count_too(end: str) -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    operation = driven.pending(OperationKind.MODEL)
    driven.fail(OperationKind.MODEL, Fault(reason=Reason.TIMEOUT, message="Late.", transient=True))
    calls = 1 if end == "between two attempts" else 2
    if calls == 2:
        driven.wait_for_timer(OperationKind.MODEL)
    match end:
        case "refused":
            driven.fail(OperationKind.MODEL, Fault(reason=Reason.MODEL_FAILED, message="No."))
        case "overdue":
            last = replace(driven.pending(OperationKind.MODEL), max_attempts=2)
            driven.state.operations[operation.id] = last
            driven.wait_for_timer(OperationKind.MODEL)
        case "completed":
            driven.step(Complete(cancel_turns=True))
        case _:
            driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    assert driven.turn.model_calls == conversation_of(driven).model_calls == calls
    assert not driven.state.operations


def test_the_usage_of_a_failed_delegate_counts_too() -> None:
    fault = Fault(reason=Reason.MODEL_FAILED, message="No.", metadata={"usage": '{"cost_micros": 5}'})
    assert reported_usage(None, fault) == UsageDelta(cost_micros=5, model_calls=1)
    assert reported_usage({"usage": {"output_tokens": 2}}, None) == UsageDelta(
        output_tokens=2, model_calls=1, unpriced_calls=1
    )
    for nonsense in ("", "[", "3", "[" * 100_000):
        assert reported_usage(None, replace(fault, metadata={"usage": nonsense})) is None
    assert reported_usage("text", None) is None


def test_the_model_usage_of_a_hook_is_charged_to_its_turn() -> None:
    usage = {"input_tokens": 4, "output_tokens": 1, "cost_micros": 9}
    driven = Driven()
    driven.succeed(ASSEMBLY, {**ASSEMBLED, "usage": usage})
    driven.answer(priced(text_answer("Done."), 1))
    assert driven.turn.cost_micros == 10 and driven.turn.model_calls == 2
    driven.succeed(OperationKind.EXTRACTION, {"memory_operations": [{"content": "a"}], "usage": usage})
    driven.succeed(OperationKind.MEMORY, {})
    assert driven.turn.cost_micros == 19 and driven.turn.model_calls == 3
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)


# --- models that tools ask --------------------------------------------------------------------------


def reported(driven: Driven, run_id: str = "", turn_id: str = "") -> inputs.ModelUsageReported:
    usage = Usage(input_tokens=7, output_tokens=1, cost_micros=5)
    return inputs.ModelUsageReported(turn_id=turn_id or driven.turn.id, run_id=run_id, usage=usage)


def test_the_model_usage_of_a_tool_is_charged_to_its_turn() -> None:
    driven = Driven()
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("", call("find"), call("flow", "c2", {})))
    before = driven.turn
    for event in (reported(driven), reported(driven, driven.operation("flow").run_id)):
        assert [type(each) for each in driven.step(event)] == [ChargeTurn]
    spent = UsageDelta(input_tokens=14, output_tokens=2, cost_micros=10, model_calls=2)
    assert driven.turn == add_usage(before, spent)
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)


def test_a_hook_reports_its_own_usage() -> None:
    driven = Driven()
    assert driven.step(reported(driven, driven.pending(OperationKind.ASSEMBLY).run_id)) == ()
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Done."))
    extraction = driven.pending(OperationKind.EXTRACTION)
    assert driven.step(reported(driven, extraction.run_id)) == ()


def test_usage_after_the_end_of_the_turn_is_charged_but_not_to_unknown_turns() -> None:
    driven = Driven(extraction=False)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Done."))
    assert [type(each) for each in driven.step(reported(driven))] == [ChargeTurn]
    assert driven.turn.status is TurnStatus.COMPLETED and driven.turn.cost_micros == 5
    assert driven.step(reported(driven, turn_id="turn_of_a_preview")) == ()
    assert CONVERSATION.plan(CONVERSATION.new_state(), reported(driven), 1) == ()


# --- calls that came to no end, and those of hooks --------------------------------------------------


EXTRACTION, MODEL = OperationKind.EXTRACTION, OperationKind.MODEL
USED = Usage(input_tokens=10, output_tokens=4, cost_micros=7)


def reported_by(driven: Driven, run_id: str, **fields: object) -> inputs.ModelUsageReported:
    return inputs.ModelUsageReported(
        turn_id=driven.turn.id, run_id=run_id, usage=USED, metered=True, **fields
    )


def extracting() -> Driven:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(priced(text_answer("Done."), 1))
    return driven


def test_a_metered_hook_is_not_charged_again_by_its_output() -> None:
    driven = extracting()
    before = driven.turn
    driven.step(reported_by(driven, driven.pending(EXTRACTION).run_id))
    assert driven.turn.model_calls == before.model_calls + 1
    assert driven.pending(EXTRACTION).metered
    driven.succeed(EXTRACTION, {"memory_operations": [], "usage": {"input_tokens": 10, "model_calls": 1}})
    assert driven.turn.input_tokens == before.input_tokens + 10
    assert driven.turn.cost_micros == before.cost_micros + 7
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)


def test_a_hook_that_fails_has_been_charged() -> None:
    driven = extracting()
    before = driven.turn
    driven.step(reported_by(driven, driven.pending(EXTRACTION).run_id))
    driven.fail(EXTRACTION, Fault(reason=Reason.TASK_FAILED, message="No JSON."))
    assert driven.turn.model_calls == before.model_calls + 1
    assert driven.turn.memory_extraction_failed


def test_a_hook_that_is_not_metered_is_charged_by_its_output() -> None:
    driven = extracting()
    before = driven.turn
    driven.succeed(EXTRACTION, {"memory_operations": [], "usage": {"input_tokens": 10, "model_calls": 1}})
    assert driven.turn.input_tokens == before.input_tokens + 10


def test_the_usage_of_an_earlier_server_version_replays_unchanged() -> None:
    driven = extracting()
    reported = replace(reported_by(driven, driven.pending(EXTRACTION).run_id), metered=False)
    assert driven.step(reported) == ()
    operation = next(iter(driven.state.operations.values()))
    decided = driven.step(inputs.Restarted(operation_id=operation.id))
    assert not any(isinstance(each, ChargeTurn) for each in decided)


def test_an_estimate_counts_and_makes_the_cost_unknown() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    usage = replace(USED, estimated=True)
    driven.step(inputs.ModelUsageReported(turn_id=driven.turn.id, run_id="", usage=usage, calls=0))
    driven.answer(priced(text_answer("Done."), 1))
    assert (driven.turn.input_tokens, driven.turn.model_calls) == (13, 1)
    assert driven.turn.cost_micros == 8 and known_cost(driven.turn) is None


def test_a_call_in_flight_at_a_crash_counts() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.step(inputs.Restarted(operation_id=driven.pending(MODEL).id, metered=True))
    lost = driven.turn.input_tokens
    assert lost == json_tokens(driven.request()) > 0
    driven.answer(priced(text_answer("Done."), 1))
    assert driven.turn.input_tokens > lost
    assert driven.turn.model_calls == 2 and known_cost(driven.turn) is None
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)


# --- calls that count before they are made ------------------------------------------------------------


def start_call(driven: Driven) -> None:
    driven.step(replace(reported_by(driven, driven.pending(EXTRACTION).run_id), usage=Usage()))


def settle_call(driven: Driven, usage: Usage) -> None:
    driven.step(
        replace(reported_by(driven, driven.pending(EXTRACTION).run_id), usage=usage, calls=0, settles=True)
    )


def test_a_started_call_counts_as_unpriced() -> None:
    driven = extracting()
    before = driven.turn
    start_call(driven)
    assert driven.turn == add_usage(before, UsageDelta(model_calls=1, unpriced_calls=1))
    assert known_cost(driven.turn) is None and known_cost(conversation_of(driven)) is None


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        (USED, UsageDelta(model_calls=1, input_tokens=10, output_tokens=4, cost_micros=7)),
        (NO_USAGE, UsageDelta(model_calls=1)),
        (
            replace(USED, estimated=True),
            UsageDelta(model_calls=1, input_tokens=10, output_tokens=4, cost_micros=7, unpriced_calls=1),
        ),
    ],
)
def test_an_ended_call_is_charged_with_its_usage_once(usage: Usage, spent: UsageDelta) -> None:
    driven = extracting()
    before = driven.turn
    start_call(driven)
    settle_call(driven, usage)
    assert driven.turn == add_usage(before, spent)
    assert as_usage(conversation_of(driven)) == as_usage(driven.turn)


def test_charges_of_concurrent_calls_have_different_ids() -> None:
    driven = extracting()
    ids = []
    for change in (start_call, start_call, start_call):
        change(driven)
        ids.append(driven.state.charge)
    for _ in range(3):
        settle_call(driven, NO_USAGE)
        ids.append(driven.state.charge)
    charges = [each for each in ids if each is not None]
    assert len({each.id for each in charges}) == 6
    assert add_accounts(each.amount for each in charges) == Account(model_calls=3)


def test_usage_that_was_never_counted_settles_nothing() -> None:
    driven = extracting()
    before = driven.turn
    settle_call(driven, NO_USAGE)
    assert driven.turn == before


def test_a_partly_known_cost_of_a_delegate_keeps_its_known_part() -> None:
    spent = UsageDelta(input_tokens=7, model_calls=3, cost_micros=9, unpriced_calls=1)
    turn = replace(Driven().turn, input_tokens=0, output_tokens=0, model_calls=0, unpriced_calls=0)
    assert from_usage(as_usage(add_usage(turn, spent))) == spent
    # Reports of earlier versions say only that the cost is unknown.
    assert from_usage({"model_calls": 3, "cost_micros": None}).unpriced_calls == 3
    assert from_usage({"model_calls": 3, "unpriced_calls": 9}).unpriced_calls == 3


@pytest.mark.parametrize(
    ("parent", "root", "run", "accounts"),
    [
        ("", "", "", ("proj_1",)),
        ("", "", "run_tool", ("proj_1", "run_tool")),
        # A node of a run called the agent.
        ("run_2", "run_1", "", ("proj_1", "run_1")),
        ("run_2", "run_1", "run_1", ("proj_1", "run_1")),
        ("run_2", "run_1", "run_3", ("proj_1", "run_1", "run_3")),
        # A turn of another conversation called the agent, and charges project and run itself.
        ("conv_2", "", "", ()),
        ("conv_2", "run_1", "run_1", ()),
        ("conv_2", "run_1", "run_3", ("run_3",)),
    ],
)
def test_each_call_is_charged_to_one_project_and_to_the_runs_around_it(
    parent: str, root: str, run: str, accounts: tuple[str, ...]
) -> None:
    waiting = Parent(actor_id=parent, operation_id="op_1") if parent else None
    turn = replace(Driven().turn, parent=waiting, root_id=root)
    assert other_accounts(turn, "proj_1", run) == accounts
    # A looped-in agent charges the conversation that both share.
    here = replace(turn, parent=Parent(actor_id=turn.conversation_id, operation_id="op_1"), root_id="")
    assert other_accounts(here, "proj_1", "") == ("proj_1",)
