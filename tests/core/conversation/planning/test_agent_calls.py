"""A turn that a run waits for: begun once, answered when it ends, stopped when nobody waits any more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    ROOM,
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


def begun(**fields: Any) -> Driven:
    """A called turn whose model is being asked."""
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
    driven = begun()
    decisions = driven.answer(text_answer("Use two."))
    told = answer(driven, decisions)
    assert told.fault is None
    assert told.output == {
        "text": "Use two.",
        "agent_id": "agt_1",
        "conversation_id": ROOM,
        "turn_id": driven.turn.id,
        "usage": {"input_tokens": 3, "output_tokens": 2, "model_calls": 1, "cost_micros": None},
    }
    assert driven.pending(OperationKind.EXTRACTION).turn_id == driven.turn.id
    assert driven.turn.output == "Use two."
    after = driven.succeed(OperationKind.EXTRACTION, {})
    assert answers(driven, after) == []


def test_the_text_is_the_last_that_was_said_even_if_the_last_move_said_nothing() -> None:
    driven = begun(extraction=False)
    driven.answer(text_answer("Let me see.", call("nothing")))
    driven.answer(text_answer("It is three.", call("nothing")))
    assert answer(driven, driven.answer(text_answer(""))).output["text"] == "It is three."


def test_a_turn_that_nobody_waits_for_answers_nobody_and_keeps_no_output() -> None:
    driven = Driven(extraction=False)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    assert answers(driven, driven.answer(text_answer("hi"))) == []
    assert driven.turn.output is None


def test_a_failed_turn_is_the_parents_fault_with_where_it_happened() -> None:
    driven = Driven(begin=False)
    driven.step(called())
    told = answer(driven, driven.fail(ASSEMBLY, BUSINESS))
    assert told.fault is not None
    assert told.fault.reason is Reason.CONTEXT_ASSEMBLY_FAILED
    assert told.fault.metadata["turn_id"] == driven.turn.id
    assert told.fault.metadata["conversation_id"] == ROOM


def test_the_limit_of_moves_reaches_the_parent() -> None:
    driven = begun(max_moves=1)
    told = answer(driven, driven.answer(text_answer("", call("find"))))
    assert told.fault is not None and told.fault.reason is Reason.MAX_MOVES_REACHED


def test_a_model_that_refuses_fails_the_call_but_not_a_turn_of_a_person() -> None:
    refusal = replace(text_answer("I would rather not."), stop_reason="refusal")
    driven = begun()
    told = answer(driven, driven.answer(refusal))
    assert told.fault is not None
    assert told.fault.reason is Reason.MODEL_FAILED
    assert told.fault.message == "The agent `helper` declined: I would rather not."
    assert driven.turn.status is TurnStatus.FAILED
    plain = Driven(extraction=False)
    plain.succeed(ASSEMBLY, ASSEMBLED)
    plain.answer(refusal)
    assert plain.turn.status is TurnStatus.COMPLETED


def test_a_turn_that_a_person_cancels_is_told_to_its_parent() -> None:
    driven = begun()
    told = answer(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id)))
    assert told.fault is not None and told.fault.reason is Reason.CANCELLED


# --- asked again ------------------------------------------------------------------------------------


def test_a_call_that_is_made_again_while_it_is_worked_on_changes_nothing() -> None:
    driven = begun()
    assert driven.step(called()) == ()


@pytest.mark.parametrize("end", ["answered", "failed", "cancelled"])
def test_a_call_that_is_made_again_after_its_end_is_told_the_same(end: str) -> None:
    driven = begun()
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


def test_a_call_that_failed_for_want_of_infrastructure_is_made_anew() -> None:
    driven = begun()
    while driven.turn.status is TurnStatus.ACTIVE:
        if not driven.fail(MODEL, TRANSIENT):
            driven.wait_for_timer(MODEL)
    assert driven.turn.fault is not None and driven.turn.fault.transient
    assert "StartTurn" in kinds(driven.step(called()))
    assert len(driven.state.turns) == 2
    # Of the two, the new one counts.
    assert driven.step(called()) == ()


def test_calls_of_different_operations_are_different_turns() -> None:
    driven = begun()
    driven.step(called("op_other"))
    assert len(driven.state.active_turns()) == 2


# --- nobody waits any more --------------------------------------------------------------------------


def test_a_parent_that_gives_up_stops_the_turn_and_hears_nothing() -> None:
    driven = begun()
    model = driven.pending(MODEL)
    decisions = driven.step(inputs.CancelCall(operation_id="op_parent", partial_text="Use t"))
    assert kinds(decisions) == ["CancelOperation", "AppendMessage", "EndTurnByCancel", "ReleaseTurn"]
    commands = [c for d in decisions for c in CONVERSATION.commands(driven.state, d)]
    assert commands == [Stop(operation_id=model.id)]
    assert driven.turn.status is TurnStatus.CANCELLED
    (_, half) = driven.state.messages[driven.turn.id]
    assert (half.content, half.partial) == ("Use t", True)
    # An attempt that comes after is another turn.
    assert "StartTurn" in kinds(driven.step(called()))


def test_giving_up_what_is_not_there_or_has_ended_changes_nothing() -> None:
    driven = begun()
    assert driven.step(inputs.CancelCall(operation_id="op_other")) == ()
    driven.answer(text_answer("Use two."))
    assert driven.step(inputs.CancelCall(operation_id="op_parent")) == ()
    assert CONVERSATION.plan(ConversationState(), inputs.CancelCall(operation_id="op_parent"), 1) == ()


# --- calls that cannot be ---------------------------------------------------------------------------


def refused_reason(driven: Driven) -> Reason:
    decisions = driven.step(called("op_refused"))
    (decision,) = decisions
    assert isinstance(decision, RefuseCall)
    assert CONVERSATION.rejection(decisions) is None, "the loop would tell nobody"
    (told,) = answers(driven, decisions)
    assert told.parent.operation_id == "op_refused" and told.fault == decision.fault
    return decision.fault.reason


def test_a_call_that_cannot_be_is_told_to_its_parent() -> None:
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


def test_a_looped_in_agent_takes_part_sees_what_was_said_and_stays() -> None:
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
    # Looped in again, it joins no second time.
    assert kinds(driven.step(called("op_2", loop_in=True, agent=poet)))[0] == "StartTurn"


def test_a_full_room_takes_nobody_in() -> None:
    driven = Driven(begin=False)
    assert driven.state.conversation is not None
    crowd = tuple(Participant(type="user", id=f"user {n}") for n in range(MAX_PARTICIPANTS))
    driven.state.conversation = replace(driven.state.conversation, participants=crowd)
    (decision,) = driven.step(called(loop_in=True))
    assert isinstance(decision, RefuseCall) and decision.fault.reason is Reason.LIMIT_EXCEEDED


# --- in whose name ----------------------------------------------------------------------------------


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
