"""Tests of the events of tools' runs, and of answers of earlier attempts."""

from __future__ import annotations

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    CONVERSATION_ID,
    TRANSIENT,
    Driven,
    agent,
    agent_tool,
    assembled,
    call,
    kinds,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.changes import Emit
from wonder_server.core.actor.commands import Answer, CallAgent
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import Decision
from wonder_server.core.conversation.model.event_payloads import WorkflowRun
from wonder_server.core.conversation.model.values import Caller, OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason

ASSEMBLY, WORKFLOW = OperationKind.ASSEMBLY, OperationKind.WORKFLOW


def events(driven: Driven, decisions: tuple[Decision, ...]) -> list[tuple[str, WorkflowRun]]:
    """Return the events of runs."""
    changes = [change for decision in decisions for change in CONVERSATION.record(driven.state, decision)]
    emitted = [change for change in changes if isinstance(change, Emit)]
    return [(each.name, each.value) for each in emitted if each.name.startswith("workflow_")]


# --- runs -------------------------------------------------------------------------------------------


def test_a_run_of_a_tool_has_an_event_at_its_start_and_its_end() -> None:
    driven = assembled()
    ((began, first),) = events(driven, driven.answer(text_answer("", call("flow"))))
    run_id = driven.pending(WORKFLOW).run_id
    assert (began, first.run_id, first.workflow) == ("workflow_started", run_id, "team/w@1")
    ((ended, last),) = events(driven, driven.complete("flow", {"ok": True}))
    assert (ended, last.run_id, last.operation_id) == ("workflow_completed", run_id, first.operation_id)
    assert last.fault is None and last.duration_ms > 0


def test_each_attempt_is_a_run_of_its_own() -> None:
    driven = assembled()
    ((_, first),) = events(driven, driven.answer(text_answer("", call("flow"))))
    ((failed, answer),) = events(driven, driven.complete("flow", fault=TRANSIENT))
    assert (failed, answer.run_id, answer.fault) == ("workflow_failed", first.run_id, TRANSIENT)
    ((began, second),) = events(driven, driven.wait_for_timer(WORKFLOW))
    assert began == "workflow_started" and second.run_id != first.run_id
    ((failed, answer),) = events(driven, driven.complete("flow", fault=BUSINESS))
    assert (failed, answer.run_id, answer.fault) == ("workflow_failed", second.run_id, BUSINESS)


def test_a_restart_starts_no_other_run() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("flow")))
    again = driven.step(inputs.Restarted(operation_id=driven.pending(WORKFLOW).id))
    assert kinds(again) == ["Redispatch"]


def test_an_abandoned_run_has_a_failure_event() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("flow")))
    ((failed, answer),) = events(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id)))
    assert failed == "workflow_failed"
    assert answer.fault is not None and answer.fault.reason is Reason.CANCELLED


def test_between_two_attempts_there_is_no_run_to_end() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("flow")))
    driven.complete("flow", fault=TRANSIENT)
    assert events(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id))) == []


# --- two attempts to call a looped-in agent ---------------------------------------------------------


class LoopedInCall:
    """A turn that calls a looped-in agent, up to twice."""

    def __init__(self) -> None:
        tools = (agent_tool("guest", attempts=2, invocation_mode="loop_in"),)
        self.driven = assembled(tools=tools)
        self.host = self.driven.turn.id
        self.first = self.called(self.driven.answer(text_answer("", call("guest"))))

    def called(self, decisions: tuple[Decision, ...]) -> CallAgent:
        found = [c for d in decisions for c in CONVERSATION.commands(self.driven.state, d)]
        (command,) = (each for each in found if isinstance(each, CallAgent))
        return command

    def begin(self, command: CallAgent) -> tuple[Decision, ...]:
        """Start the called turn, or repeat the call."""
        guest = replace(agent(tools=(), extraction=False), agent_id="agt_2", name="guest")
        event = replace(
            send(f"seed of {command.parent.child_id}", agent=guest),
            caller=Caller(type="agent", agent_id="agt_1", turn_id=self.host),
            parent=command.parent,
            loop_in=True,
        )
        return self.driven.step(event)

    def speak(self, text: str) -> Answer:
        """End the called turn and return the answer to its parent."""
        turn_id = self.driven.turn.id
        for kind, result in ((ASSEMBLY, ASSEMBLED), (OperationKind.MODEL, None)):
            (operation,) = (op for op in self.driven.state.pending(turn_id) if op.kind is kind)
            if result is not None:
                self.driven.step(inputs.Succeeded(operation_id=operation.id, output=result))
            else:
                event = inputs.ModelAnswered(operation_id=operation.id, result=text_answer(text))
                return self.answered(self.driven.step(event))
        raise AssertionError("the turn has no model call")

    def answered(self, decisions: tuple[Decision, ...]) -> Answer:
        found = [c for d in decisions for c in CONVERSATION.commands(self.driven.state, d)]
        (answer,) = (each for each in found if isinstance(each, Answer))
        return answer

    def deliver(self, answer: Answer) -> tuple[Decision, ...]:
        event = inputs.Succeeded(
            operation_id=answer.parent.operation_id, output=answer.output, run_id=answer.run_id
        )
        return self.driven.step(event)

    def second(self) -> CallAgent:
        """Let the first attempt time out and return the second call."""
        self.driven.wait_for_timer(OperationKind.AGENT)
        return self.called(self.driven.wait_for_timer(OperationKind.AGENT))


def test_an_answer_of_the_first_attempt_does_not_count_for_the_second() -> None:
    looped_in = LoopedInCall()
    looped_in.begin(looped_in.first)
    first = looped_in.driven.turn.id
    late = looped_in.answered(looped_in.driven.step(inputs.CancelTurn(turn_id=first)))
    assert late.fault is not None and late.parent == looped_in.first.parent
    second = looped_in.second()
    assert (second.parent.operation_id, second.conversation_id) == (late.parent.operation_id, CONVERSATION_ID)
    assert second.parent != late.parent
    failed = inputs.Failed(operation_id=late.parent.operation_id, fault=late.fault, run_id=late.run_id)
    assert looped_in.driven.step(failed) == ()


def test_the_second_attempt_gets_the_answer_of_the_first() -> None:
    looped_in = LoopedInCall()
    looped_in.begin(looped_in.first)
    late = looped_in.speak("I say yes.")
    second = looped_in.second()
    assert looped_in.deliver(late) == ()
    answer = looped_in.answered(looped_in.begin(second))
    assert answer.run_id == second.parent.child_id != late.run_id and answer.output == late.output
    assert "ResumeFromTool" in kinds(looped_in.deliver(answer))
    assert len([m for each in looped_in.driven.state.messages.values() for m in each]) == 3


def test_a_turn_whose_attempt_a_crash_abandoned_answers_the_next_attempt() -> None:
    looped_in = LoopedInCall()
    looped_in.begin(looped_in.first)
    turn_id = looped_in.driven.turn.id
    second = looped_in.second()
    assert kinds(looped_in.begin(second)) == ["AdoptTurn"]
    assert looped_in.begin(second) == ()
    answer = looped_in.speak("I say yes.")
    assert answer.parent == second.parent and answer.output["turn_id"] == turn_id
    assert "ResumeFromTool" in kinds(looped_in.deliver(answer))
    assert looped_in.driven.state.turns[turn_id].status is TurnStatus.COMPLETED
