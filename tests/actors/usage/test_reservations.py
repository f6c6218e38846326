"""Calls in flight, and turns that other turns called, count for the budgets above them."""

from __future__ import annotations

import random

from wonder_server.actors.usage.reservations import Reservations
from wonder_server.core.actor.queries import Spending
from wonder_server.core.budget import Account, BudgetLevel
from wonder_server.core.conversation.planning.budget_rules import NOTHING, Estimate


def level(turn: str, operation: str = "", *, conversation: str = "", agent: str = "") -> BudgetLevel:
    return BudgetLevel(
        conversation_id=conversation or f"conv_{turn}",
        turn_id=turn,
        operation_id=operation or f"op_{turn}",
        agent_id=agent or f"agt_{turn}",
    )


def spent(tokens: int, *waiting: str) -> Spending:
    used = Account(input_tokens=tokens, model_calls=1)
    return Spending(turn=used, conversation=used, operation_ids=waiting)


def test_a_call_counts_for_every_turn_above_it() -> None:
    held = Reservations()
    held.add([level("a", "op_1"), level("b", "op_2"), level("c")], "call", Estimate(10))
    assert held.of_turn("a", ["op_1"]) == held.of_turn("b", ["op_2"]) == held.of_turn("c", ["op_c"])
    assert held.of_turn("a", ["op_1"]) == held.of_conversation("conv_a", ["op_1"]) == Estimate(10)
    assert sum(held.of_agent("agt_a", "", ()).values(), NOTHING) == Estimate(10)
    held.remove("c", "call")
    assert held.of_turn("a", ["op_1"]) == NOTHING


def test_what_a_called_turn_used_counts_until_its_caller_has_its_answer() -> None:
    held = Reservations()
    levels = [level("a", "op_1"), level("b")]
    held.add(levels, "call", Estimate(10))
    held.record(levels[1], spent(25, "op_b"))
    held.remove("b", "call")
    assert held.of_turn("a", ["op_1", "op_2"]) == Estimate(25)
    # The caller has recorded the answer, with its usage, though nothing read its record since.
    assert held.of_turn("a", ["op_2"]) == NOTHING
    held.record(levels[0], spent(25, "op_2"))
    assert len(held) == 0


def test_the_usage_of_a_turn_below_two_others_counts_once() -> None:
    held = Reservations()
    levels = [level("a", "op_1"), level("b", "op_2"), level("c")]
    held.add(levels, "call", Estimate(10))
    held.record(levels[2], spent(40, "op_c"))
    held.record(levels[1], spent(5, "op_2"))
    held.remove("c", "call")
    assert held.of_turn("a", ["op_1"]) == Estimate(45)
    held.add(levels[:2], "next", Estimate(7))
    held.record(levels[1], spent(45))  # It has taken over the usage of the turn below.
    assert held.of_turn("a", ["op_1"]) == Estimate(52)


def test_a_conversation_counts_the_turns_of_others_only() -> None:
    held = Reservations()
    joined = level("b", conversation="conv_a")
    held.add([level("a", "op_1"), joined], "call", Estimate(10))
    held.record(joined, spent(30, "op_b"))
    assert held.of_turn("a", ["op_1"]) == Estimate(40)
    assert held.of_conversation("conv_a", ["op_1", "op_b"]) == Estimate(10)


def test_calls_of_an_agent_count_except_those_of_the_same_turn_that_are_on_disk() -> None:
    held = Reservations()
    held.add([level("a", "op_1", agent="agt")], "call", Estimate(1))
    held.add([level("b", "op_2", agent="agt")], "other", Estimate(10))
    assert held.of_agent("agt", "a", []) == {"other": Estimate(10)}
    assert held.of_agent("agt", "a", ["op_1"]) == {"call": Estimate(1), "other": Estimate(10)}


def test_turns_that_nothing_reads_again_are_found() -> None:
    held = Reservations()
    for number in range(1_000):
        above, below = level(f"a{number}", "op"), level(f"b{number}")
        held.add([above, below], number, Estimate(1))
        held.remove(below.turn_id, number)
    due = held.due()
    assert len(held) == 2_000 and len(due) == 1_000 and held.due() == []
    for each in due:
        held.record(each, None)
    assert len(held) == 0


def test_nothing_is_left_when_all_work_has_ended() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        held, calls = Reservations(), dict[int, str]()
        chains = [[level(f"{top}", f"op_{top}_{n}"), level(f"{top}.{n}")] for top in "ab" for n in range(3)]
        for number in range(30):
            chain = draw.choice(chains)[: draw.choice([1, 2])]
            held.add(chain, number, Estimate(1))
            calls[number] = chain[-1].turn_id
            if draw.random() < 0.5:
                ended = draw.choice(list(calls))
                held.remove(calls.pop(ended), ended)
            held.record(chain[0], spent(number, *draw.sample([f"op_a_{n}" for n in range(3)], 2)))
        for number, turn_id in calls.items():
            held.remove(turn_id, number)
        for chain in chains:
            held.record(chain[0], None)
        assert len(held) == 0, seed
