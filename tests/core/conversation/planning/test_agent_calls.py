"""Tests of a turn that a run waits for: one start, one answer, cancellation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    CONVERSATION_ID,
    RUN_ID,
    TRANSIENT,
    Driven,
    agent,
    call,
    called,
    kinds,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import Answer, Parent, RunWorkflow, Stop
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import Decision, RefuseCall
from wonder_server.core.conversation.model.lifecycle_decisions import AddParticipant
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    Caller,
    ConversationStatus,
    OperationKind,
    Participant,
    TurnStatus,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS, MAX_PARTICIPANTS
from wonder_server.core.errors import Reason

ASSEMBLY, MODEL = OperationKind.ASSEMBLY, OperationKind.MODEL
PARENT = Parent(actor_id=RUN_ID, operation_id="op_parent")


def started(**fields: Any) -> Driven:
    """Return a called turn with a pending model call."""
    driven = Driven(begin=False)
    driven.step(called(**fields))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def answers(driven: Driven, decisions: tuple[Decision, ...]) -> list[Answer]:
    commands = [c for d in decisions for c in CONVERSATION.commands(driven.state, d)]
    return [command for command in commands if isinstance(command, Answer)]


def answer(driven: Driven, decisions: tuple[Decision, ...]) -> Answer:
    (only,) = answers(driven, decisions)
    assert only.parent == PARENT
    return only


def test_the_answer_goes_to_the_parent_without_waiting_for_memory_extraction() -> None:
    driven = started()
    decisions = driven.answer(text_answer("Use two."))
    answered = answer(driven, decisions)
    assert answered.fault is None
    assert answered.output == {
        "text": "Use two.",
        "agent_id": "agt_1",
        "conversation_id": CONVERSATION_ID,
        "turn_id": driven.turn.id,
        "usage": {
            "input_tokens": 3,
            "output_tokens": 2,
            "model_calls": 1,
            "cost_micros": None,
            "cached_input_tokens": 0,
            "cache_write_input_tokens": 0,
            "reasoning_tokens": 0,
            "known_cost_micros": 0,
            "unpriced_calls": 1,
        },
    }
    assert driven.pending(OperationKind.EXTRACTION).turn_id == driven.turn.id
    assert driven.turn.output == "Use two."
    after = driven.succeed(OperationKind.EXTRACTION, {})
    assert answers(driven, after) == []


def test_the_output_is_the_last_text_even_if_the_last_move_has_none() -> None:
    driven = started(extraction=False)
    driven.answer(text_answer("Let me see.", call("nothing")))
    driven.answer(text_answer("It is three.", call("nothing")))
    assert answer(driven, driven.answer(text_answer(""))).output["text"] == "It is three."


def test_a_turn_without_a_parent_sends_no_answer_and_keeps_no_output() -> None:
    driven = Driven(extraction=False)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    assert answers(driven, driven.answer(text_answer("hi"))) == []
    assert driven.turn.output is None


def test_the_fault_of_a_failed_turn_names_its_ids_for_the_parent() -> None:
    driven = Driven(begin=False)
    driven.step(called())
    answered = answer(driven, driven.fail(ASSEMBLY, BUSINESS))
    assert answered.fault is not None
    assert answered.fault.reason is Reason.CONTEXT_ASSEMBLY_FAILED
    assert answered.fault.metadata["turn_id"] == driven.turn.id
    assert answered.fault.metadata["conversation_id"] == CONVERSATION_ID


def test_the_limit_of_moves_reaches_the_parent() -> None:
    driven = started(max_moves=1)
    answered = answer(driven, driven.answer(text_answer("", call("find"))))
    assert answered.fault is not None and answered.fault.reason is Reason.MAX_MOVES_REACHED


def test_a_refusal_of_the_model_fails_a_call_but_not_a_turn_of_a_person() -> None:
    refusal = replace(text_answer("I would rather not."), stop_reason="refusal")
    driven = started()
    answered = answer(driven, driven.answer(refusal))
    assert answered.fault is not None
    assert answered.fault.reason is Reason.MODEL_FAILED
    assert answered.fault.message == "The agent `helper` declined: I would rather not."
    assert driven.turn.status is TurnStatus.FAILED
    plain = Driven(extraction=False)
    plain.succeed(ASSEMBLY, ASSEMBLED)
    plain.answer(refusal)
    assert plain.turn.status is TurnStatus.COMPLETED


def test_the_parent_gets_an_answer_if_a_person_cancels_the_turn() -> None:
    driven = started()
    answered = answer(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id)))
    assert answered.fault is not None and answered.fault.reason is Reason.CANCELLED


# --- repeated calls ---------------------------------------------------------------------------------


def test_a_repeated_call_of_an_active_turn_changes_nothing() -> None:
    driven = started()
    assert driven.step(called()) == ()


@pytest.mark.parametrize("end", ["answered", "failed", "cancelled"])
def test_a_repeated_call_of_an_ended_turn_gets_the_same_answer(end: str) -> None:
    driven = started()
    if end == "answered":
        first = answer(driven, driven.answer(text_answer("Use two.")))
    elif end == "failed":
        first = answer(driven, driven.fail(MODEL, BUSINESS))
    else:
        first = answer(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id)))
    decisions = driven.step(called())
    assert kinds(decisions) == ["RepeatAnswer"]
    assert answer(driven, decisions) == first
    assert len(driven.state.turns) == 1


def test_a_repeated_call_after_a_transient_fault_starts_a_new_turn() -> None:
    driven = started()
    while driven.turn.status is TurnStatus.ACTIVE:
        if not driven.fail(MODEL, TRANSIENT):
            driven.wait_for_timer(MODEL)
    assert driven.turn.fault is not None and driven.turn.fault.transient
    assert "StartTurn" in kinds(driven.step(called()))
    assert len(driven.state.turns) == 2
    # The new turn counts.
    assert driven.step(called()) == ()


def test_calls_of_different_operations_are_different_turns() -> None:
    driven = started()
    driven.step(called("op_other"))
    assert len(driven.state.active_turns()) == 2


# --- cancelled calls --------------------------------------------------------------------------------


def test_a_cancelled_call_stops_the_turn_without_an_answer() -> None:
    driven = started()
    model = driven.pending(MODEL)
    decisions = driven.step(inputs.CancelCall(operation_id="op_parent", partial_text="Use t"))
    assert kinds(decisions) == ["CancelOperation", "AppendMessage", "EndTurnByCancel", "ReleaseTurn"]
    commands = [c for d in decisions for c in CONVERSATION.commands(driven.state, d)]
    assert commands == [Stop(operation_id=model.id)]
    assert driven.turn.status is TurnStatus.CANCELLED
    (_, half) = driven.state.messages[driven.turn.id]
    assert (half.content, half.partial) == ("Use t", True)
    # A later attempt starts another turn.
    assert "StartTurn" in kinds(driven.step(called()))


def test_cancelling_an_unknown_or_ended_call_changes_nothing() -> None:
    driven = started()
    assert driven.step(inputs.CancelCall(operation_id="op_other")) == ()
    driven.answer(text_answer("Use two."))
    assert driven.step(inputs.CancelCall(operation_id="op_parent")) == ()
    assert CONVERSATION.plan(ConversationState(), inputs.CancelCall(operation_id="op_parent"), 1) == ()


# --- invalid calls ----------------------------------------------------------------------------------


def refused_reason(driven: Driven) -> Reason:
    decisions = driven.step(called("op_refused"))
    (decision,) = decisions
    assert isinstance(decision, RefuseCall)
    assert CONVERSATION.rejection(decisions) is None, "the loop would send no answer"
    (answered,) = answers(driven, decisions)
    assert answered.parent.operation_id == "op_refused" and answered.fault == decision.fault
    return decision.fault.reason


def test_the_parent_of_an_invalid_call_gets_its_fault() -> None:
    nowhere = Driven(begin=False)
    nowhere.state = ConversationState()
    assert refused_reason(nowhere) is Reason.CONVERSATION_NOT_FOUND
    closed = Driven(begin=False)
    assert closed.state.conversation is not None
    closed.state.conversation = replace(closed.state.conversation, status=ConversationStatus.COMPLETED)
    assert refused_reason(closed) is Reason.CONVERSATION_NOT_ACTIVE
    busy = Driven(begin=False)
    for number in range(MAX_ACTIVE_TURNS):
        busy.step(send(f"seed {number}"))
    assert refused_reason(busy) is Reason.LIMIT_EXCEEDED


# --- loop in ----------------------------------------------------------------------------------------


def test_a_looped_in_agent_joins_sees_the_history_and_stays() -> None:
    driven = Driven(extraction=False)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("One."))
    poet = replace(agent(extraction=False), agent_id="agt_2", name="poet")
    decisions = driven.step(called(loop_in=True, agent=poet, content="In verse?"))
    assert isinstance(decisions[0], AddParticipant)
    assert decisions[0].participant == Participant(
        type="agent",
        id="agt_2",
        name="poet",
        joined_ms=driven.now,
        origin="looped_in",
        added_by=Caller(type="workflow", run_id=RUN_ID),
    )
    (assembly,) = [c for d in decisions for c in CONVERSATION.commands(driven.state, d)]
    assert isinstance(assembly, RunWorkflow)
    assert [message["content"] for message in assembly.input["history"]] == ["hello", "One."]
    assert assembly.scope.agent_id == "agt_2"
    driven.succeed(ASSEMBLY, ASSEMBLED)
    assert answer(driven, driven.answer(text_answer("Eins."))).output["text"] == "Eins."
    assert driven.state.conversation is not None
    assert [p.id for p in driven.state.conversation.participants] == ["agt_1", "ann", "agt_2"]
    # A second call adds no second participant.
    assert kinds(driven.step(called("op_2", loop_in=True, agent=poet)))[0] == "StartTurn"


def test_a_full_conversation_rejects_a_looped_in_agent() -> None:
    driven = Driven(begin=False)
    assert driven.state.conversation is not None
    users = tuple(Participant(type="user", id=f"user {n}") for n in range(MAX_PARTICIPANTS))
    driven.state.conversation = replace(driven.state.conversation, participants=users)
    (decision,) = driven.step(called(loop_in=True))
    assert isinstance(decision, RefuseCall) and decision.fault.reason is Reason.LIMIT_EXCEEDED


# --- project and scope ------------------------------------------------------------------------------


def test_a_delegated_turn_works_in_its_callers_project_one_call_deeper() -> None:
    driven = Driven(begin=False)
    assert driven.state.conversation is not None
    driven.state.conversation = replace(driven.state.conversation, project_id="proj_9", called_by=RUN_ID)
    decisions = driven.step(replace(called(), depth=3))
    (assembly,) = [c for d in decisions for c in CONVERSATION.commands(driven.state, d)]
    assert isinstance(assembly, RunWorkflow)
    assert (assembly.scope.project_id, assembly.scope.agent_id, assembly.scope.depth) == (
        "proj_9",
        "agt_1",
        3,
    )
    plain = Driven(begin=False).step(send())
    assert plain


def test_a_delegated_turn_that_a_service_waits_for_keeps_its_output() -> None:
    driven = Driven(begin=False)
    assert driven.state.conversation is not None
    driven.state.conversation = replace(driven.state.conversation, called_by="ann")
    driven.step(send(extraction=False))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Done."))
    assert driven.turn.output == "Done."
