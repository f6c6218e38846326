"""What the conversation planner decides, input by input (document 1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    TRANSIENT,
    Driven,
    call,
    kinds,
    new_conversation,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core import frozen
from wonder_server.core.actor.commands import RunTask, RunWorkflow, Stop
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import (
    AssemblyFailed,
    DispatchModel,
    ExtractionEnded,
    LimitReached,
    Redispatch,
    Refuse,
    ResumeFromTool,
    RetryOperation,
)
from wonder_server.core.conversation.model.values import (
    ConversationStatus,
    OperationKind,
    ToolErrorCode,
    TurnStatus,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.model import ToolCall

ASSEMBLY, MODEL, TASK = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.TASK
WORKFLOW, EXTRACTION, MEMORY = OperationKind.WORKFLOW, OperationKind.EXTRACTION, OperationKind.MEMORY


def assembled(**fields: Any) -> Driven:
    driven = Driven(**fields)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def refused(driven: Driven, event: inputs.Input) -> Reason:
    (decision,) = driven.step(event)
    assert isinstance(decision, Refuse)
    return decision.fault.reason


# --- the room ---------------------------------------------------------------------------------------


def test_a_send_starts_a_turn_with_its_message_and_asks_for_context() -> None:
    driven = Driven(begin=False)
    assert kinds(driven.step(send())) == [
        "AddParticipant",
        "StartTurn",
        "AppendMessage",
        "DispatchWorkflow",
        "MarkWaiting",
    ]
    assert kinds(driven.step(send("again"))) == [
        "StartTurn",
        "AppendMessage",
        "DispatchWorkflow",
        "MarkWaiting",
    ]
    conversation = driven.state.conversation
    assert conversation is not None
    assert (conversation.turn_count, conversation.message_count) == (2, 2)
    assert [turn.ordinal for turn in driven.state.turns.values()] == [1, 2]


def test_what_is_not_acceptable_is_refused_with_a_reason() -> None:
    driven = Driven(begin=False)
    assert refused(driven, new_conversation()) is Reason.ALREADY_EXISTS
    assert refused(driven, inputs.CancelTurn(turn_id="turn_0")) is Reason.TURN_NOT_FOUND
    for number in range(MAX_ACTIVE_TURNS):
        driven.step(send(f"seed {number}"))
    assert refused(driven, send("one too many")) is Reason.LIMIT_EXCEEDED
    conversation = driven.state.conversation
    assert conversation is not None
    driven.state.conversation = replace(conversation, status=ConversationStatus.COMPLETED)
    assert refused(driven, send("late")) is Reason.CONVERSATION_NOT_ACTIVE
    driven.state.conversation = None
    assert refused(driven, send("nowhere")) is Reason.CONVERSATION_NOT_FOUND


# --- a turn without tools ---------------------------------------------------------------------------


def test_a_plain_turn_assembles_answers_and_extracts() -> None:
    driven = Driven()
    assert kinds(driven.succeed(ASSEMBLY, ASSEMBLED)) == ["ContextAssembled", "DispatchModel"]
    assert driven.request() == ASSEMBLED["request"]
    assert kinds(driven.answer(text_answer("hi"))) == [
        "RecordMove",
        "AppendMessage",
        "CompleteTurn",
        "DispatchWorkflow",
    ]
    assert driven.turn.status is TurnStatus.COMPLETED
    assert (driven.turn.input_tokens, driven.turn.output_tokens) == (3, 2)
    assert kinds(driven.succeed(EXTRACTION, {})) == ["ExtractionEnded", "ReleaseTurn"]
    assert not driven.state.operations
    assert not driven.state.turn_work


def test_without_an_extraction_workflow_the_turn_is_released_with_its_answer() -> None:
    driven = assembled(extraction=False)
    assert kinds(driven.answer(text_answer("hi"))) == [
        "RecordMove",
        "AppendMessage",
        "CompleteTurn",
        "ReleaseTurn",
    ]


def test_an_empty_answer_completes_the_turn_without_a_message() -> None:
    driven = assembled(extraction=False)
    assert kinds(driven.answer(text_answer(""))) == ["RecordMove", "CompleteTurn", "ReleaseTurn"]


@pytest.mark.parametrize(
    "output",
    [
        None,
        "text",
        {},
        {"request": None},
        {"request": []},
        {"request": {}},
        {"request": {"messages": None}},
        {"request": {"messages": "all of them"}},
        {"request": {"messages": {"role": "user"}}},
        {"request": {"messages": ["hello"]}},
    ],
)
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages"])
def test_an_assembly_that_puts_out_no_request_fails_the_turn(output: Any, dialect: str) -> None:
    driven = Driven(max_moves=1, dialect=dialect)
    assert kinds(driven.succeed(ASSEMBLY, output)) == [
        "CancelOperation",
        "AssemblyFailed",
        "FailTurn",
        "ReleaseTurn",
    ]
    assert driven.turn.fault is not None
    assert driven.turn.fault.reason is Reason.CONTEXT_ASSEMBLY_FAILED


# --- tools ------------------------------------------------------------------------------------------


def test_calls_of_one_move_run_together_and_the_model_goes_on_when_all_are_back() -> None:
    driven = assembled()
    assert kinds(driven.answer(text_answer("let me see", call("find", "c1"), call("flow", "c2")))) == [
        "RecordMove",
        "AppendMessage",
        "DispatchTask",
        "MarkWaiting",
        "DispatchWorkflow",
        "WorkflowStarted",
        "MarkWaiting",
    ]
    assert kinds(driven.succeed(WORKFLOW, {"n": 2})) == ["WorkflowEnded", "ResumeFromTool"]
    assert kinds(driven.succeed(TASK, {"n": 1})) == ["ResumeFromTool", "DispatchModel"]
    answers = [message for message in driven.request()["messages"] if message["role"] == "tool"]
    assert answers == [
        {"role": "tool", "tool_call_id": "c1", "content": '{"n":1}'},
        {"role": "tool", "tool_call_id": "c2", "content": '{"n":2}'},
    ]


def test_calls_with_one_id_each_get_their_own_result() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("find", "same"), call("flow", "same")))
    driven.succeed(TASK, "task")
    driven.succeed(WORKFLOW, "flow")
    answers = [m["content"] for m in driven.request()["messages"] if m["role"] == "tool"]
    assert answers == ["task", "flow"]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (call("nothing"), ToolErrorCode.NOT_FOUND),
        (call("gone"), ToolErrorCode.NOT_FOUND),
        (call("mirror"), ToolErrorCode.PERMISSION_DENIED),
        (call("peer", arguments={"q": "x", "invocation_mode": "both"}), ToolErrorCode.INVALID_INPUT),
        (call("find", arguments={}), ToolErrorCode.INVALID_INPUT),
        (call("find", arguments={"q": 1}), ToolErrorCode.INVALID_INPUT),
        (call("broken"), ToolErrorCode.INVALID_INPUT),
        (ToolCall(id="c", name="find", arguments=None, malformed="{"), ToolErrorCode.INVALID_INPUT),
    ],
)
def test_a_call_that_cannot_run_is_told_to_the_model_and_never_runs(
    made: ToolCall, code: ToolErrorCode
) -> None:
    driven = assembled()
    decisions = driven.answer(text_answer("", made))
    assert kinds(decisions) == ["RecordMove", "ResumeFromTool", "DispatchModel"]
    (resumed,) = (decision for decision in decisions if isinstance(decision, ResumeFromTool))
    assert resumed.invocation.result is not None
    assert resumed.invocation.result.code is code
    assert driven.turn.tool_failures == 1


def test_a_tools_input_is_mapped_before_it_runs() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("mapped")))
    assert driven.pending(TASK).input == {"query": "x"}


def test_a_tools_fault_goes_to_the_model() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("find")))
    assert kinds(driven.fail(TASK, BUSINESS)) == ["ResumeFromTool", "DispatchModel"]
    assert "EXECUTION_FAILED" in driven.request()["messages"][-1]["content"]
    assert driven.turn.status is TurnStatus.ACTIVE


# --- moves run out ----------------------------------------------------------------------------------


def test_at_the_last_move_the_model_is_asked_to_wrap_up() -> None:
    driven = assembled(max_moves=2)
    driven.answer(text_answer("", call("find")))
    decisions = driven.succeed(TASK, {})
    assert kinds(decisions) == ["ResumeFromTool", "LimitReached", "DispatchModel"]
    assert driven.request()["messages"][-1]["role"] == "system"
    assert kinds(driven.answer(text_answer("that is all")))[-2:] == ["CompleteTurn", "DispatchWorkflow"]


@pytest.mark.parametrize("moves", [1, 2])
def test_a_model_that_calls_tools_all_the_same_ends_the_turn(moves: int) -> None:
    driven = assembled(max_moves=moves)
    for _ in range(moves - 1):
        driven.answer(text_answer("", call("nothing")))
    decisions = driven.answer(text_answer("", call("find")))
    assert kinds(decisions) == ["RecordMove", "LimitReached", "FailTurn", "ReleaseTurn"]
    (limit,) = (d.limit for d in decisions if isinstance(d, LimitReached))
    assert limit.enforced
    assert driven.turn.fault is not None
    assert driven.turn.fault.reason is Reason.MAX_MOVES_REACHED


def test_without_a_limit_moves_do_not_run_out() -> None:
    driven = assembled(max_moves=0)
    for _ in range(30):
        driven.answer(text_answer("", call("nothing")))
    assert driven.turn.status is TurnStatus.ACTIVE
    assert driven.turn.moves == 30


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "waits"), [(ASSEMBLY, [100, 200]), (MODEL, [500, 1000]), (EXTRACTION, [100, 200])]
)
def test_infrastructure_faults_are_tried_again_with_growing_waits(
    kind: OperationKind, waits: list[int]
) -> None:
    driven = Driven()
    if kind is not ASSEMBLY:
        driven.succeed(ASSEMBLY, ASSEMBLED)
    if kind is EXTRACTION:
        driven.answer(text_answer("hi"))
    runs = {driven.pending(kind).run_id}
    for attempt, wait in enumerate(waits, start=2):
        (retry,) = driven.fail(kind, TRANSIENT)
        assert isinstance(retry, RetryOperation)
        assert (retry.operation.attempt, retry.operation.wake_ms) == (attempt, driven.now + wait)
        assert driven.step(inputs.TimerFired(operation_id=retry.operation.id), after_ms=wait - 1) == ()
        (again,) = driven.wait_for_timer(kind)
        assert isinstance(again, Redispatch)
        assert (again.operation.attempt, again.operation.dispatches) == (attempt, attempt)
        runs.add(again.operation.run_id)
    assert "RetryOperation" not in kinds(driven.fail(kind, TRANSIENT))
    assert len(runs) == (1 if kind is MODEL else 3)
    assert driven.turn.status is (TurnStatus.COMPLETED if kind is EXTRACTION else TurnStatus.FAILED)
    assert not driven.state.operations


def test_a_provider_that_says_when_is_waited_for() -> None:
    driven = assembled()
    (retry,) = driven.fail(MODEL, replace(TRANSIENT, retry_after_ms=9000))
    assert isinstance(retry, RetryOperation)
    assert retry.operation.wake_ms == driven.now + 9000


def test_a_provider_that_asks_for_more_time_than_a_call_may_take_is_not_waited_for() -> None:
    driven = assembled()
    longest = driven.pending(MODEL).timeout_ms
    decided = driven.fail(MODEL, replace(TRANSIENT, retry_after_ms=longest + 1))
    assert "RetryOperation" not in kinds(decided)
    assert driven.turn.status is TurnStatus.FAILED
    assert driven.turn.fault is not None and driven.turn.fault.retry_after_ms == longest + 1


def test_a_business_fault_of_assembly_or_model_fails_the_turn_at_once() -> None:
    driven = Driven()
    decisions = driven.fail(ASSEMBLY, BUSINESS)
    assert kinds(decisions) == ["CancelOperation", "AssemblyFailed", "FailTurn", "ReleaseTurn"]
    (failed,) = (d for d in decisions if isinstance(d, AssemblyFailed))
    assert failed.outcome.fault == BUSINESS
    assert kinds(assembled().fail(MODEL, BUSINESS)) == ["CancelOperation", "FailTurn", "ReleaseTurn"]


def test_a_failed_extraction_marks_the_turn_that_stays_completed() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    assert kinds(driven.fail(EXTRACTION, BUSINESS)) == ["ExtractionEnded", "ReleaseTurn"]
    assert driven.turn.status is TurnStatus.COMPLETED
    assert driven.turn.memory_extraction_failed


def test_a_deadline_is_a_fault_that_may_be_tried_again() -> None:
    driven = assembled()
    (retry,) = driven.wait_for_timer(MODEL)
    assert isinstance(retry, RetryOperation)
    assert retry.fault.reason is Reason.TIMEOUT


@pytest.mark.parametrize("name", ["find", "flow"])
def test_what_runs_past_its_last_deadline_is_stopped(name: str) -> None:
    driven = assembled()
    driven.answer(text_answer("", call(name)))
    kind = WORKFLOW if name == "flow" else TASK
    operation = driven.pending(kind)
    decisions = driven.wait_for_timer(kind)
    while isinstance(decisions[0], RetryOperation):
        driven.wait_for_timer(kind)
        operation = driven.pending(kind)
        decisions = driven.wait_for_timer(kind)
    assert Stop(operation_id=operation.id, child_id=operation.run_id) in list(commands(driven, decisions))
    assert kinds(decisions)[-2:] == ["ResumeFromTool", "DispatchModel"]
    assert "TIMEOUT" in driven.request()["messages"][-1]["content"]


def test_a_stopped_extraction_is_marked_and_the_turn_released() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    for _ in range(2):
        driven.wait_for_timer(EXTRACTION)
        driven.wait_for_timer(EXTRACTION)
    operation = driven.pending(EXTRACTION)
    decisions = driven.wait_for_timer(EXTRACTION)
    assert Stop(operation_id=operation.id, child_id=operation.run_id) in list(commands(driven, decisions))
    assert kinds(decisions)[-2:] == ["ExtractionEnded", "ReleaseTurn"]


def test_what_an_abandoned_attempt_says_is_not_taken_for_the_next_ones_answer() -> None:
    driven = Driven()
    first = driven.pending(ASSEMBLY)
    driven.wait_for_timer(ASSEMBLY)
    cancelled = Fault(reason=Reason.CANCELLED, message="Nobody waits for it any more.")
    late = inputs.Failed(operation_id=first.id, fault=cancelled, run_id=first.run_id)
    assert driven.step(late) == ()
    driven.wait_for_timer(ASSEMBLY)
    assert driven.step(late) == ()
    late_output = inputs.Succeeded(operation_id=first.id, output=ASSEMBLED, run_id=first.run_id)
    assert driven.step(late_output) == ()
    second = driven.pending(ASSEMBLY)
    assert second.run_id != first.run_id
    output = inputs.Succeeded(operation_id=second.id, output=ASSEMBLED, run_id=second.run_id)
    assert kinds(driven.step(output)) == ["ContextAssembled", "DispatchModel"]
    assert driven.turn.context_assembly_run_id == second.run_id


@pytest.mark.parametrize("limit", ["of the call", "of the turn"])
def test_what_a_model_had_said_when_its_time_was_up_stands_as_a_partial_message(limit: str) -> None:
    driven = assembled(**({"max_turn_ms": 60_000} if limit == "of the turn" else {}))
    operation = replace(driven.pending(MODEL), max_attempts=1)
    driven.state.operations[operation.id] = operation
    driven.now = operation.wake_ms
    driven.step(inputs.TimerFired(operation_id=operation.id, partial_text="I was just"))
    *_, message = driven.state.messages[driven.turn.id]
    assert (message.id, message.content, message.partial) == (operation.message_id, "I was just", True)
    assert driven.turn.status is TurnStatus.FAILED and not driven.state.operations


def test_a_failure_that_comes_after_its_deadline_is_not_counted_twice() -> None:
    driven = assembled()
    (retry,) = driven.wait_for_timer(MODEL)
    assert isinstance(retry, RetryOperation)
    assert driven.fail(MODEL, TRANSIENT) == ()
    assert driven.fail(MODEL, BUSINESS) == ()


# --- restarts ---------------------------------------------------------------------------------------


def test_after_a_restart_what_is_repeatable_is_handed_out_again() -> None:
    driven = assembled()
    operation = driven.pending(MODEL)
    (again,) = driven.step(inputs.Restarted(operation_id=operation.id))
    assert isinstance(again, Redispatch)
    assert again.operation.dispatches == 2
    assert again.operation.attempt == 1


def test_after_a_restart_what_waits_goes_on_waiting() -> None:
    driven = assembled()
    driven.fail(MODEL, TRANSIENT)
    assert driven.step(inputs.Restarted(operation_id=driven.pending(MODEL).id)) == ()


def test_after_a_restart_the_outcome_of_what_may_not_be_repeated_is_unknown() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("once")))
    decisions = driven.step(inputs.Restarted(operation_id=driven.pending(TASK).id))
    assert kinds(decisions) == ["ResumeFromTool", "DispatchModel"]
    assert "unknown" in driven.request()["messages"][-1]["content"]


# --- cancel -----------------------------------------------------------------------------------------


def test_a_cancel_in_the_middle_of_an_answer_keeps_what_was_said() -> None:
    driven = assembled()
    message_id = driven.pending(MODEL).message_id
    event = inputs.CancelTurn(turn_id=driven.turn.id, partial_text="Once upon")
    assert kinds(driven.step(event)) == [
        "CancelOperation",
        "AppendMessage",
        "EndTurnByCancel",
        "ReleaseTurn",
    ]
    last = driven.state.messages[driven.turn.id][-1]
    assert (last.id, last.content, last.partial) == (message_id, "Once upon", True)
    assert refused(driven, event) is Reason.TURN_NOT_ACTIVE


def test_a_cancel_stops_every_tool_and_later_results_change_nothing() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("find", "c1"), call("flow", "c2")))
    pending = list(driven.state.operations)
    decisions = driven.step(inputs.CancelTurn(turn_id=driven.turn.id, partial_text="ignored: nobody speaks"))
    stopped = ["CancelOperation", "CancelOperation", "WorkflowEnded"]
    assert kinds(decisions) == [*stopped, "EndTurnByCancel", "ReleaseTurn"]
    assert sorted(stop.operation_id for stop in commands(driven, decisions)) == sorted(pending)
    for operation_id in pending:
        assert driven.step(inputs.Succeeded(operation_id=operation_id, output={})) == ()


# --- extraction -------------------------------------------------------------------------------------


def test_memory_operations_are_each_an_operation_and_the_last_ends_the_extraction() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    asked = {"memory_operations": [{"content": "a"}, {"content": "b"}]}
    assert kinds(driven.succeed(EXTRACTION, asked)) == ["WriteMemory", "WriteMemory", "CancelOperation"]
    first, second = driven.state.operations.values()
    assert kinds(driven.step(inputs.Succeeded(operation_id=first.id, output={}))) == ["MemoryWritten"]
    assert kinds(driven.step(inputs.Succeeded(operation_id=second.id, output={}))) == [
        "MemoryWritten",
        "ExtractionEnded",
        "ReleaseTurn",
    ]


def test_a_memory_that_could_not_be_written_marks_the_turn_even_if_the_last_could() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    driven.succeed(EXTRACTION, {"memory_operations": [{"content": "a"}, {"content": "b"}]})
    first, second = driven.state.operations.values()
    driven.step(inputs.Failed(operation_id=first.id, fault=BUSINESS))
    driven.step(inputs.Succeeded(operation_id=second.id, output={}))
    assert driven.turn.memory_extraction_failed
    assert not driven.state.operations


@pytest.mark.parametrize("asked", ["text", [1], [{}, "x"], {"a": 1}])
def test_memory_operations_that_are_no_list_of_objects_are_a_failed_extraction(asked: Any) -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    decisions = driven.succeed(EXTRACTION, {"memory_operations": asked})
    (ended,) = (d for d in decisions if isinstance(d, ExtractionEnded))
    assert ended.outcome.fault is not None
    assert ended.outcome.fault.reason is Reason.MEMORY_EXTRACTION_FAILED


@pytest.mark.parametrize("output", [None, [], "text", {"memory_operations": []}, {"else": 1}])
def test_an_extraction_that_asks_for_nothing_is_over(output: Any) -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    assert kinds(driven.succeed(EXTRACTION, output)) == ["ExtractionEnded", "ReleaseTurn"]
    assert not driven.turn.memory_extraction_failed


# --- commands ---------------------------------------------------------------------------------------


def commands(driven: Driven, decisions: Any) -> list[Any]:
    return [command for decision in decisions for command in CONVERSATION.commands(driven.state, decision)]


def test_each_dispatch_becomes_one_command_under_its_operations_id() -> None:
    driven = Driven(begin=False)
    (assembly,) = commands(driven, driven.step(send()))
    assert isinstance(assembly, RunWorkflow)
    assert assembly.volatile
    assert assembly.input["user_message"] == "hello"
    assert assembly.run_id == driven.turn.context_assembly_run_id
    (model,) = commands(driven, driven.succeed(ASSEMBLY, ASSEMBLED))
    assert model.request == ASSEMBLED["request"]
    ran, flown = commands(driven, driven.answer(text_answer("", call("find"), call("flow", "c2"))))
    assert isinstance(ran, RunTask)
    assert ran.scope.key == ran.operation_id == driven.pending(TASK).id
    assert isinstance(flown, RunWorkflow)
    assert not flown.volatile


def test_a_redispatch_hands_out_what_the_first_dispatch_did() -> None:
    driven = Driven(begin=False)
    (first,) = commands(driven, driven.step(send()))
    (again,) = commands(driven, driven.step(inputs.Restarted(operation_id=driven.pending(ASSEMBLY).id)))
    assert isinstance(first, RunWorkflow)
    assert first.fresh
    assert again == frozen.replace(first, fresh=False), "only that it may be on disk already"


def test_a_retried_model_says_that_it_begins_again() -> None:
    driven = Driven()
    (dispatch,) = (d for d in driven.succeed(ASSEMBLY, ASSEMBLED) if isinstance(d, DispatchModel))
    driven.fail(MODEL, TRANSIENT)
    (again,) = commands(driven, driven.wait_for_timer(MODEL))
    assert again.message_id == dispatch.operation.message_id
    assert again.dispatches == 2
