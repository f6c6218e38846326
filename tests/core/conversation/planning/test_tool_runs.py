"""What is told of the runs that tools start, and whose answer counts when a call is tried again."""

from __future__ import annotations

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    ROOM,
    TRANSIENT,
    Driven,
    agent,
    agent_tool,
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
from wonder_server.core.conversation.model.values import Caller, OperationKind, TurnStatus, WorkflowRun
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason

ASSEMBLY, WORKFLOW = OperationKind.ASSEMBLY, OperationKind.WORKFLOW


def assembled(**fields: object) -> Driven:
    driven = Driven(**fields)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def events(driven: Driven, decisions: tuple[Decision, ...]) -> list[tuple[str, WorkflowRun]]:
    """What was told of runs."""
    changes = [change for decision in decisions for change in CONVERSATION.record(driven.state, decision)]
    emitted = [change for change in changes if isinstance(change, Emit)]
    return [(each.name, each.value) for each in emitted if each.name.startswith("workflow_")]


# --- runs -------------------------------------------------------------------------------------------


def test_a_run_of_a_tool_is_told_at_its_start_and_at_its_end() -> None:
    driven = assembled()
    ((began, first),) = events(driven, driven.answer(text_answer("", call("flow"))))
    run_id = driven.pending(WORKFLOW).run_id
    assert (began, first.run_id, first.workflow) == ("workflow_started", run_id, "team/w@1")
    ((ended, last),) = events(driven, driven.back("flow", {"ok": True}))
    assert (ended, last.run_id, last.operation_id) == ("workflow_completed", run_id, first.operation_id)
    assert last.fault is None and last.duration_ms > 0


def test_each_attempt_is_a_run_of_its_own() -> None:
    driven = assembled()
    ((_, first),) = events(driven, driven.answer(text_answer("", call("flow"))))
    ((failed, told),) = events(driven, driven.back("flow", fault=TRANSIENT))
    assert (failed, told.run_id, told.fault) == ("workflow_failed", first.run_id, TRANSIENT)
    ((began, second),) = events(driven, driven.wait_for_timer(WORKFLOW))
    assert began == "workflow_started" and second.run_id != first.run_id
    ((failed, told),) = events(driven, driven.back("flow", fault=BUSINESS))
    assert (failed, told.run_id, told.fault) == ("workflow_failed", second.run_id, BUSINESS)


def test_a_restart_begins_no_other_run() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("flow")))
    again = driven.step(inputs.Restarted(operation_id=driven.pending(WORKFLOW).id))
    assert kinds(again) == ["Redispatch"]


def test_a_run_that_nobody_waits_for_any_more_is_told_to_have_failed() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("flow")))
    ((failed, told),) = events(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id)))
    assert failed == "workflow_failed"
    assert told.fault is not None and told.fault.reason is Reason.CANCELLED


def test_between_two_attempts_there_is_no_run_to_end() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("flow")))
    driven.back("flow", fault=TRANSIENT)
    assert events(driven, driven.step(inputs.CancelTurn(turn_id=driven.turn.id))) == []


# --- an agent that is looped in, asked twice --------------------------------------------------------


class Meeting:
    """A host that loops a guest in, who may be asked twice."""

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
        """The guest's turn begins, or is known already."""
        guest = replace(agent(tools=(), extraction=False), agent_id="agt_2", name="guest")
        event = replace(
            send(f"seed of {command.parent.child_id}", agent=guest),
            caller=Caller(type="agent", agent_id="agt_1", turn_id=self.host),
            parent=command.parent,
            loop_in=True,
        )
        return self.driven.step(event)

    def speak(self, text: str) -> Answer:
        """The guest's turn comes to its end; what its parent is told."""
        turn_id = self.driven.turn.id
        for kind, result in ((ASSEMBLY, ASSEMBLED), (OperationKind.MODEL, None)):
            (operation,) = (op for op in self.driven.state.pending(turn_id) if op.kind is kind)
            if result is not None:
                self.driven.step(inputs.Succeeded(operation_id=operation.id, output=result))
            else:
                event = inputs.ModelAnswered(operation_id=operation.id, result=text_answer(text))
                return self.answered(self.driven.step(event))
        raise AssertionError("it has spoken")

    def answered(self, decisions: tuple[Decision, ...]) -> Answer:
        found = [c for d in decisions for c in CONVERSATION.commands(self.driven.state, d)]
        (told,) = (each for each in found if isinstance(each, Answer))
        return told

    def tell(self, told: Answer) -> tuple[Decision, ...]:
        event = inputs.Succeeded(
            operation_id=told.parent.operation_id, output=told.output, run_id=told.run_id
        )
        return self.driven.step(event)

    def second(self) -> CallAgent:
        """The first attempt takes too long; the second begins."""
        self.driven.wait_for_timer(OperationKind.AGENT)
        return self.called(self.driven.wait_for_timer(OperationKind.AGENT))


def test_an_answer_of_the_first_attempt_does_not_count_for_the_second() -> None:
    meeting = Meeting()
    meeting.begin(meeting.first)
    first = meeting.driven.turn.id
    late = meeting.answered(meeting.driven.step(inputs.CancelTurn(turn_id=first)))
    assert late.fault is not None and late.parent == meeting.first.parent
    second = meeting.second()
    assert (second.parent.operation_id, second.conversation_id) == (late.parent.operation_id, ROOM)
    assert second.parent != late.parent
    failed = inputs.Failed(operation_id=late.parent.operation_id, fault=late.fault, run_id=late.run_id)
    assert meeting.driven.step(failed) == ()


def test_what_the_first_attempt_said_in_time_is_what_the_second_is_told() -> None:
    meeting = Meeting()
    meeting.begin(meeting.first)
    late = meeting.speak("I say yes.")
    second = meeting.second()
    assert meeting.tell(late) == ()
    told = meeting.answered(meeting.begin(second))
    assert told.run_id == second.parent.child_id != late.run_id and told.output == late.output
    assert "ResumeFromTool" in kinds(meeting.tell(told))
    assert len([m for each in meeting.driven.state.messages.values() for m in each]) == 3


def test_a_turn_whose_attempt_was_given_up_in_a_crash_answers_the_next() -> None:
    meeting = Meeting()
    meeting.begin(meeting.first)
    turn_id = meeting.driven.turn.id
    second = meeting.second()
    assert kinds(meeting.begin(second)) == ["AdoptTurn"]
    assert meeting.begin(second) == ()
    told = meeting.speak("I say yes.")
    assert told.parent == second.parent and told.output["turn_id"] == turn_id
    assert "ResumeFromTool" in kinds(meeting.tell(told))
    assert meeting.driven.state.turns[turn_id].status is TurnStatus.COMPLETED
