"""Tests of the conversation planner, input by input."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    TRANSIENT,
    Driven,
    assembled,
    call,
    commands,
    kinds,
    new_conversation,
    rejection,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core import frozen
from wonder_server.core.actor.commands import RunTask, RunWorkflow
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import (
    DispatchModel,
    ExtractionEnded,
    LimitReached,
    RefuseMemoryOperations,
    ResumeFromTool,
)
from wonder_server.core.conversation.model.values import (
    ConversationStatus,
    OperationKind,
    ToolErrorCode,
    TurnStatus,
)
from wonder_server.core.conversation.planning.model_requests import WRAP_UP
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonValue
from wonder_server.core.model import ToolCall
from wonder_server.core.request_formats.neutral import ASIDE

ASSEMBLY, MODEL, TASK = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.TASK
WORKFLOW, EXTRACTION, MEMORY = OperationKind.WORKFLOW, OperationKind.EXTRACTION, OperationKind.MEMORY


# --- inputs -----------------------------------------------------------------------------------------


def test_a_send_starts_a_turn_with_its_message_and_dispatches_assembly() -> None:
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


def test_an_invalid_input_is_rejected_with_a_reason() -> None:
    driven = Driven(begin=False)
    assert rejection(driven, new_conversation()) is Reason.ALREADY_EXISTS
    assert rejection(driven, inputs.CancelTurn(turn_id="turn_0")) is Reason.TURN_NOT_FOUND
    for number in range(MAX_ACTIVE_TURNS):
        driven.step(send(f"seed {number}"))
    assert rejection(driven, send("one too many")) is Reason.LIMIT_EXCEEDED
    conversation = driven.state.conversation
    assert conversation is not None
    driven.state.conversation = replace(conversation, status=ConversationStatus.COMPLETED)
    assert rejection(driven, send("late")) is Reason.CONVERSATION_NOT_ACTIVE
    driven.state.conversation = None
    assert rejection(driven, send("nowhere")) is Reason.CONVERSATION_NOT_FOUND


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
def test_an_assembly_without_a_request_in_its_output_fails_the_turn(output: JsonValue, dialect: str) -> None:
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


def test_calls_of_one_move_run_together_and_the_model_is_called_after_the_last_result() -> None:
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
def test_an_invalid_call_is_reported_to_the_model_and_never_runs(made: ToolCall, code: ToolErrorCode) -> None:
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


def test_at_the_last_move_the_model_is_asked_to_finish() -> None:
    driven = assembled(max_moves=2)
    driven.answer(text_answer("", call("find")))
    decisions = driven.succeed(TASK, {})
    assert kinds(decisions) == ["ResumeFromTool", "LimitReached", "DispatchModel"]
    note = driven.request()["messages"][-1]
    assert note == {"role": "user", "content": f"{ASIDE}\n\n{WRAP_UP}"}
    assert kinds(driven.answer(text_answer("that is all")))[-2:] == ["CompleteTurn", "DispatchWorkflow"]


@pytest.mark.parametrize("moves", [1, 2])
def test_a_model_that_calls_tools_nevertheless_ends_the_turn(moves: int) -> None:
    driven = assembled(max_moves=moves)
    for _ in range(moves - 1):
        driven.answer(text_answer("", call("nothing")))
    decisions = driven.answer(text_answer("", call("find")))
    assert kinds(decisions) == ["RecordMove", "LimitReached", "FailTurn", "ReleaseTurn"]
    (limit,) = (d.limit for d in decisions if isinstance(d, LimitReached))
    assert limit.enforced
    assert driven.turn.fault is not None
    assert driven.turn.fault.reason is Reason.MAX_MOVES_REACHED


def test_without_a_limit_the_number_of_moves_is_unlimited() -> None:
    driven = assembled(max_moves=0)
    for _ in range(30):
        driven.answer(text_answer("", call("nothing")))
    assert driven.turn.status is TurnStatus.ACTIVE
    assert driven.turn.moves == 30


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


def test_a_memory_operation_that_names_something_unknown_is_refused_and_the_others_are_applied() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    (message, *_) = driven.state.messages[driven.turn.id]
    (move,) = driven.state.moves[driven.turn.id]
    valid = {
        "content": "a",
        "subject": "ann",
        "message_id": message.id,
        "move_id": move.id,
        "speaker_id": "ann",
    }
    unknown = {"subject": "eve", "message_id": "msg_9", "move_id": "move_9", "speaker_id": "eve"}
    wrong = [{**valid, name: value} for name, value in unknown.items()]
    refused = {"content": "b", "refused": "It is small talk."}
    asked = {"memory_operations": [valid, *wrong, refused, {"content": "c", "subject": ""}]}
    decisions = driven.succeed(EXTRACTION, asked)
    assert kinds(decisions) == ["RefuseMemoryOperations", "WriteMemory", "WriteMemory", "CancelOperation"]
    (refusal,) = (each.refusal for each in decisions if isinstance(each, RefuseMemoryOperations))
    assert refusal.reasons == (
        "memory_operations[1]: `subject` is 'eve', which is no user who takes part in the conversation.",
        "memory_operations[2]: `message_id` is 'msg_9', which is no message of the turn.",
        "memory_operations[3]: `move_id` is 'move_9', which is no move of the turn.",
        "memory_operations[4]: `speaker_id` is 'eve', which is no participant of the conversation.",
        "memory_operations[5]: It is small talk.",
    )
    assert [operation.input for operation in driven.state.operations.values()] == [
        valid,
        {"content": "c", "subject": ""},
    ]


def test_an_extraction_whose_operations_are_all_refused_ends_at_once() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    decisions = driven.succeed(EXTRACTION, {"memory_operations": [{"refused": "x" * 1000}]})
    assert kinds(decisions) == ["RefuseMemoryOperations", "ExtractionEnded", "ReleaseTurn"]
    (refusal,) = (each.refusal for each in decisions if isinstance(each, RefuseMemoryOperations))
    assert len(refusal.reasons[0]) == 500
    assert not driven.turn.memory_extraction_failed


def test_a_turn_of_an_earlier_build_applies_every_memory_operation() -> None:
    driven = Driven(begin=False)
    driven.step(replace(send(), rules=0))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("hi"))
    asked = {"memory_operations": [{"content": "a", "subject": "eve"}]}
    assert kinds(driven.succeed(EXTRACTION, asked)) == ["WriteMemory", "CancelOperation"]


def test_a_failed_memory_operation_marks_the_turn_even_if_the_last_one_succeeds() -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    driven.succeed(EXTRACTION, {"memory_operations": [{"content": "a"}, {"content": "b"}]})
    first, second = driven.state.operations.values()
    driven.step(inputs.Failed(operation_id=first.id, fault=BUSINESS))
    driven.step(inputs.Succeeded(operation_id=second.id, output={}))
    assert driven.turn.memory_extraction_failed
    assert not driven.state.operations


@pytest.mark.parametrize("asked", ["text", [1], [{}, "x"], {"a": 1}])
def test_invalid_memory_operations_fail_the_extraction(asked: JsonValue) -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    decisions = driven.succeed(EXTRACTION, {"memory_operations": asked})
    (ended,) = (d for d in decisions if isinstance(d, ExtractionEnded))
    assert ended.outcome.fault is not None
    assert ended.outcome.fault.reason is Reason.MEMORY_EXTRACTION_FAILED


@pytest.mark.parametrize("output", [None, [], "text", {"memory_operations": []}, {"else": 1}])
def test_an_extraction_without_memory_operations_ends_at_once(output: JsonValue) -> None:
    driven = assembled()
    driven.answer(text_answer("hi"))
    assert kinds(driven.succeed(EXTRACTION, output)) == ["ExtractionEnded", "ReleaseTurn"]
    assert not driven.turn.memory_extraction_failed


# --- commands ---------------------------------------------------------------------------------------


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


def test_a_redispatch_makes_the_same_command_as_the_first_dispatch() -> None:
    driven = Driven(begin=False)
    (first,) = commands(driven, driven.step(send()))
    (again,) = commands(driven, driven.step(inputs.Restarted(operation_id=driven.pending(ASSEMBLY).id)))
    assert isinstance(first, RunWorkflow)
    assert first.fresh
    assert again == frozen.replace(first, fresh=False), "only that it may be on disk already"


def test_a_retried_model_call_counts_its_dispatches() -> None:
    driven = Driven()
    (dispatch,) = (d for d in driven.succeed(ASSEMBLY, ASSEMBLED) if isinstance(d, DispatchModel))
    driven.fail(MODEL, TRANSIENT)
    (again,) = commands(driven, driven.wait_for_timer(MODEL))
    assert again.message_id == dispatch.operation.message_id
    assert again.dispatches == 2
