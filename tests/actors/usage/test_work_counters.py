"""Counts of finished work, from committed events."""

from __future__ import annotations

from typing import Any

from wonder_server.actors.usage.work_counters import WorkCounters
from wonder_server.core.actor.changes import Emit
from wonder_server.core.conversation.model.values import Caller, Turn, TurnStatus
from wonder_server.ports.journal import Event
from wonder_server.ports.metrics import Histogram


def ended(**fields: Any) -> Turn:
    return Turn(
        id="turn_1", conversation_id="conv_1", ordinal=1, caller=Caller(user_id="ann"),
        agent_id="agent_1", agent_name="one", persona="", input="?", status=TurnStatus.COMPLETED, **fields,
    )  # fmt: skip


def event(name: str, value: object) -> Event:
    return Event(sequence=1, at_ms=0, actor_id="", emit=Emit(name, value))


def test_ended_turns_are_counted_and_all_events_are_passed_on() -> None:
    counters, seen = WorkCounters(), list[Event]()
    publish = counters.before(lambda _, events: seen.extend(events))
    turn = ended(created_ms=1_000, started_ms=2_000, completed_ms=2_200, input_tokens=7, cost_micros=3)
    events = [event("turn.started", turn), event("turn.completed", turn), event("turn.failed", turn)]
    publish("conv_1", events)
    assert seen == events
    assert counters.turns == {"completed": 1, "failed": 1}
    assert counters.tokens["input"] == 14 and counters.cost_micros == 6
    assert counters.turn_seconds.counts[1] == 2, "the time in the queue does not count"


def test_a_turn_of_a_clock_that_went_back_has_no_negative_time() -> None:
    counters = WorkCounters()
    counters.before(lambda *_: None)("conv_1", [event("turn.completed", ended(created_ms=9, completed_ms=1))])
    assert counters.turn_seconds.total_s == 0


def test_the_end_of_a_run_is_counted_once_and_not_again_in_its_conversation() -> None:
    counters = WorkCounters()
    publish = counters.before(lambda *_: None)
    for actor_id in ("run_1", "conv_1"):
        publish(actor_id, [event("workflow_completed", None), event("workflow.cancelled", None)])
    assert counters.runs == {"completed": 1, "cancelled": 1}


def test_names_of_providers_that_a_caller_invents_share_one_label() -> None:
    counters = WorkCounters(["openai"])
    for name in ("openai", "x" * 1_000, "\n"):
        counters.call_ended(name, "failed", 0.3)
    counters.call_ended("openai", "failed", None)
    assert counters.model_calls == {("openai", "failed"): 2, ("other", "failed"): 2}
    assert sum(counters.first_chunk_seconds["openai"].counts) == 1


def test_a_histogram_counts_up_to_each_bound() -> None:
    one, other = Histogram((1, 2)), Histogram((1, 2))
    for seconds in (0.5, 1, 1.5):
        one.observe(seconds)
    other.observe(100)
    assert Histogram.sum([one, other]).cumulative() == [(1, 2), (2, 3), (float("inf"), 4)]
    assert Histogram.sum([one, other]).total_s == 103
    assert Histogram.sum([]).cumulative() == [(float("inf"), 0)]
