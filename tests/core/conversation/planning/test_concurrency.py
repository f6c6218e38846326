"""Messages to an agent whose turn is not over: parallel, queue, interrupt, steer (feature M11)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    Driven,
    agent,
    call,
    called,
    kinds,
    new_conversation,
    rejection,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.budget import Budget
from wonder_server.core.content.parts import ContentPart
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import Decision, DispatchModel
from wonder_server.core.conversation.model.lifecycle_inputs import Complete, Leave, Reset, Update
from wonder_server.core.conversation.model.values import Caller, Operation, OperationKind, Turn, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.errors import Reason

QUEUED, ACTIVE = TurnStatus.QUEUED, TurnStatus.ACTIVE


class Talk(Driven):
    """A conversation with a policy, whose messages are numbered."""

    def __init__(self, policy: str, **fields: Any) -> None:
        super().__init__(begin=False)
        self.numbers = itertools.count(1)
        self.step(Update(concurrent_turns=policy))
        self.agent = agent(extraction=False, **fields)

    def say(self, text: str = "hello", **fields: Any) -> tuple[Decision, ...]:
        event = send(f"seed {next(self.numbers)}", text, agent=self.agent)
        return self.step(replace(event, max_waiting=3, **fields))

    def operations_of(self, turn: Turn) -> list[Operation]:
        return self.state.pending(turn.id)

    def assemble(self, turn: Turn) -> tuple[Decision, ...]:
        (operation,) = [o for o in self.operations_of(turn) if o.kind is OperationKind.ASSEMBLY]
        return self.complete_by_id(operation.id, ASSEMBLED)

    def reply(self, turn: Turn, text: str = "Done.", *calls: Any) -> tuple[Decision, ...]:
        (operation,) = [o for o in self.operations_of(turn) if o.kind is OperationKind.MODEL]
        return self.step(inputs.ModelAnswered(operation_id=operation.id, result=text_answer(text, *calls)))

    @property
    def turns(self) -> list[Turn]:
        return list(self.state.turns.values())

    @property
    def statuses(self) -> list[TurnStatus]:
        return [turn.status for turn in self.turns]


def history(talk: Talk, decisions: tuple[Decision, ...]) -> list[str]:
    """Return the texts of the history in the assembly that the decisions start."""
    found = [
        command.input
        for decision in decisions
        for command in CONVERSATION.commands(talk.state, decision)
        if isinstance(command, RunWorkflow)
    ]
    (given_input,) = found
    assert given_input["left_out"] == 0
    return [message["content"] for message in given_input["history"]]


def requested(decisions: tuple[Decision, ...]) -> list[Any]:
    """Return the contents of the messages in the request that the decisions dispatch."""
    (body,) = [each.request.body for each in decisions if isinstance(each, DispatchModel)]
    return [message.get("content") for message in body["messages"]]


@pytest.mark.parametrize("policy", ["", "parallel"])
def test_turns_are_parallel_by_default(policy: str) -> None:
    talk = Talk(policy)
    talk.say()
    talk.say()
    assert talk.statuses == [ACTIVE, ACTIVE]


def test_the_policy_of_the_conversation_precedes_that_of_the_persona() -> None:
    queueing = replace(agent(extraction=False).persona, concurrent_turns="queue")
    for policy, second in (("", QUEUED), ("parallel", ACTIVE)):
        talk = Talk(policy)
        talk.agent = replace(talk.agent, persona=queueing)
        talk.say()
        talk.say()
        assert talk.statuses == [ACTIVE, second]


# --- queue ------------------------------------------------------------------------------------------


def test_queued_turns_begin_one_after_another_and_see_the_answers_before() -> None:
    talk = Talk("queue")
    for text in ("one", "two", "three"):
        talk.say(text)
    first, second, third = talk.turns
    assert talk.statuses == [ACTIVE, QUEUED, QUEUED] and not talk.operations_of(second)
    talk.assemble(first)
    ended = talk.reply(first, "First.")
    assert kinds(ended)[-3:] == ["BeginTurn", "DispatchWorkflow", "MarkWaiting"]
    assert talk.statuses == [TurnStatus.COMPLETED, ACTIVE, QUEUED]
    assert history(talk, ended) == ["one", "First."]
    talk.assemble(second)
    ended = talk.reply(second, "Second.")
    assert history(talk, ended) == ["one", "First.", "two", "Second."]
    begun = talk.turns[2]
    assert begun.started_ms > begun.created_ms and begun.history_end == 5
    talk.assemble(third)
    assert requested(talk.reply(third, "", call("find")) + talk.complete("find", {"ok": True}))[-1]


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_a_queued_turn_begins_however_the_one_before_ends(end: str) -> None:
    talk = Talk("queue")
    talk.say("one")
    talk.say("two")
    first, _ = talk.turns
    if end == "cancel":
        talk.step(inputs.CancelTurn(turn_id=first.id))
    else:
        (operation,) = talk.operations_of(first)
        talk.step(inputs.Failed(operation_id=operation.id, fault=BUSINESS))
    assert talk.statuses[1] is ACTIVE


def test_a_queued_turn_can_be_cancelled() -> None:
    talk = Talk("queue")
    for text in ("one", "two", "three"):
        talk.say(text)
    first, second, _ = talk.turns
    talk.step(inputs.CancelTurn(turn_id=second.id))
    assert talk.statuses == [ACTIVE, TurnStatus.CANCELLED, QUEUED]
    talk.assemble(first)
    assert history(talk, talk.reply(first, "First.")) == ["one", "First.", "two"]
    assert talk.statuses[2] is ACTIVE and rejection(talk, inputs.CancelTurn(turn_id=second.id))


def test_a_queue_is_bounded() -> None:
    talk = Talk("queue")
    for _ in range(4):
        talk.say()
    before = len(talk.state.turns)
    (refused,) = talk.say()
    assert refused.fault.reason is Reason.LIMIT_EXCEEDED  # type: ignore[union-attr]
    assert len(talk.state.turns) == before == 4


def test_a_turn_that_a_caller_waits_for_neither_waits_nor_makes_others_wait() -> None:
    talk = Talk("queue")
    talk.say()
    talk.step(called("op_1", agent=talk.agent))
    assert talk.statuses == [ACTIVE, ACTIVE]
    talk.step(inputs.CancelTurn(turn_id=talk.turns[0].id))
    talk.say()
    assert talk.statuses[2] is ACTIVE


def test_agents_wait_only_for_themselves() -> None:
    talk = Talk("queue")
    talk.say()
    other = replace(talk.agent, agent_id="agt_2", name="other")
    talk.step(replace(send("x", "hi", agent=other), loop_in=True, max_waiting=3))
    assert talk.statuses == [ACTIVE, ACTIVE]


def test_a_queued_turn_that_the_budget_no_longer_allows_fails_with_the_reason() -> None:
    talk = Talk("queue")
    talk.step(Update(budget=Budget(max_tokens=4)))
    talk.say("one")
    talk.say("two")
    talk.assemble(talk.turns[0])
    talk.reply(talk.turns[0])
    assert talk.statuses == [TurnStatus.COMPLETED, TurnStatus.FAILED]
    assert talk.turns[1].fault is not None and talk.turns[1].fault.reason is Reason.BUDGET_EXHAUSTED
    assert not talk.state.turn_work


def test_time_in_the_queue_is_not_time_of_the_turn() -> None:
    talk = Talk("queue", max_turn_ms=1000)
    talk.say("one")
    talk.say("two")
    first, second = talk.turns
    talk.now += 900
    talk.assemble(first)
    talk.reply(first)
    (operation,) = talk.operations_of(second)
    assert operation.wake_ms == talk.turns[1].started_ms + 1000


def test_the_end_of_the_conversation_and_the_removal_of_the_agent_end_the_queue() -> None:
    for event in (Complete(cancel_turns=True), Leave(type="agent", id="agt_1")):
        talk = Talk("queue")
        talk.say()
        talk.say()
        talk.step(event)
        assert set(talk.statuses) == {TurnStatus.CANCELLED} and not talk.state.turn_work
    talk = Talk("queue")
    talk.say()
    talk.say()
    assert rejection(talk, Reset()) is Reason.RESOURCE_IN_USE


# --- interrupt --------------------------------------------------------------------------------------


def test_a_message_interrupts_the_turn_and_its_text_stays() -> None:
    talk = Talk("interrupt")
    talk.say("one")
    first = talk.turns[0]
    talk.assemble(first)
    decided = talk.say("two", partial_texts={first.id: "Well, fi"}, principal="token:ann")
    cut = talk.turns[0]
    assert cut.status is TurnStatus.CANCELLED and cut.cancelled_by == "token:ann"
    assert cut.fault is not None and cut.fault.metadata == {"interrupted": "true"}
    assert history(talk, decided) == ["one", "Well, fi"]
    answer = CONVERSATION.answer(talk.state, decided)
    second = talk.turns[1]
    assert answer == {"turn_id": second.id, "message_id": talk.state.messages[second.id][0].id}


def test_a_refused_message_interrupts_nothing() -> None:
    talk = Talk("interrupt")
    talk.say("one")
    talk.step(Update(budget=Budget(max_tokens=1)))
    talk.assemble(talk.turns[0])
    spent = replace(talk.state.conversation, input_tokens=9)
    talk.state.conversation = spent
    (refused,) = talk.say("two")
    assert refused.fault.reason is Reason.BUDGET_EXHAUSTED and talk.statuses == [ACTIVE]  # type: ignore[union-attr]


# --- steer ------------------------------------------------------------------------------------------


def test_a_running_turn_takes_a_message_with_its_next_request() -> None:
    talk = Talk("steer")
    talk.say("one")
    first = talk.turns[0]
    talk.assemble(first)
    talk.reply(first, "", call("find"))
    decided = talk.say("rather two")
    assert kinds(decided) == ["SteerTurn"]
    assert CONVERSATION.answer(talk.state, decided)["turn_id"] == first.id
    texts = requested(talk.complete("find", {"ok": True}))
    assert texts[-1] == "rather two"
    talk.reply(first, "Two then.")
    assert talk.statuses == [TurnStatus.COMPLETED]


@pytest.mark.parametrize("fails", [False, True])
def test_messages_that_a_turn_did_not_take_start_one_turn(fails: bool) -> None:
    talk = Talk("steer")
    talk.say("one")
    first = talk.turns[0]
    talk.assemble(first)
    for text in ("two", "three"):
        talk.say(text, metadata={"of": text})
    if fails:
        (operation,) = talk.operations_of(first)
        ended = talk.step(inputs.Failed(operation_id=operation.id, fault=BUSINESS))
    else:
        ended = talk.reply(first, "First.")
    second = talk.turns[1]
    assert second.input == "two" and second.metadata == {"of": "two"} and second.status is ACTIVE
    assert history(talk, ended) == (["one"] if fails else ["one", "First."])
    assert [each.content for each in talk.state.messages[second.id]] == ["two", "three"]
    assert requested(talk.assemble(second))[-1] == "three"
    talk.reply(second, "Both.")
    assert len(talk.turns) == 2
    last = talk.say("four")
    assert history(talk, last)[-3:] == ["two", "three", "Both."]


def test_a_message_during_the_assembly_is_in_the_first_request() -> None:
    talk = Talk("steer")
    talk.say("one")
    talk.say("and two")
    assert requested(talk.assemble(talk.turns[0]))[-1] == "and two"


def test_a_turn_that_waits_for_background_tools_takes_a_message_at_once() -> None:
    talk = Talk("steer")
    talk.say("one")
    first = talk.turns[0]
    talk.assemble(first)
    talk.reply(first, "", call("slow"))
    talk.reply(first, "It runs.")
    assert [each.is_async for each in talk.operations_of(first)] == [True]
    decided = talk.say("how long?")
    assert kinds(decided)[:2] == ["SteerTurn", "DispatchWorkflow"]
    assert requested(talk.assemble(first))[-1] == "how long?"


def test_a_cancelled_turn_starts_no_turn_for_what_it_was_given() -> None:
    talk = Talk("steer")
    talk.say("one")
    talk.say("two")
    talk.step(inputs.CancelTurn(turn_id=talk.turns[0].id))
    assert talk.statuses == [TurnStatus.CANCELLED]
    assert history(talk, talk.say("three")) == ["one", "two"]


def test_a_message_with_a_file_waits_and_so_do_those_behind_it() -> None:
    talk = Talk("steer")
    talk.say("one")
    talk.say("look", parts=(ContentPart(type="text", length=4),))
    talk.say("well?")
    assert talk.statuses == [ACTIVE, QUEUED, QUEUED]


def test_a_message_with_settings_of_its_own_steers_no_turn() -> None:
    talk = Talk("steer")
    talk.say("one")
    talk.say("look", overrides=TurnOverrides(tool_choice="none"))
    talk.say("well?")
    assert talk.statuses == [ACTIVE, QUEUED, QUEUED]


def test_messages_of_others_to_a_turn_have_their_label() -> None:
    talk = Talk("steer")
    talk.say("one")
    talk.say("no, two", caller=Caller(user_id="bob"))
    assert requested(talk.assemble(talk.turns[0]))[-1] == "[user bob] no, two"


# --- laws -------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["say", "answer", "cancel", "queue", "steer", "interrupt", "parallel"])))
def test_no_message_is_lost_and_no_turn_is_stuck(actions: list[str]) -> None:
    talk = Talk("queue")
    said = 0
    for action in actions:
        active = talk.state.active_turns()
        match action:
            case "say":
                said += any(type(each).__name__ != "Refuse" for each in talk.say(f"text {said}"))
            case "answer" if active:
                kind = talk.operations_of(active[0])[0].kind
                talk.assemble(active[0]) if kind is OperationKind.ASSEMBLY else talk.reply(active[0])
            case "cancel" if active:
                talk.step(inputs.CancelTurn(turn_id=active[0].id))
            case "queue" | "steer" | "interrupt" | "parallel":
                talk.step(Update(concurrent_turns=action))
        assert talk.state.active_turns() or not talk.state.queued_turns()
        assert all(talk.operations_of(turn) for turn in talk.state.active_turns())
    users = [m for messages in talk.state.messages.values() for m in messages if m.role.value == "user"]
    assert len(users) == said and len({m.ordinal for m in users}) == said
    assert len({m.id for m in users}) == said


def test_an_unknown_conversation_refuses() -> None:
    driven = Driven(begin=False)
    assert driven.state.conversation is not None
    assert rejection(driven, new_conversation()) is Reason.ALREADY_EXISTS
