"""Tests of the limits of tool calls in one answer and in one turn."""

from __future__ import annotations

from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, call, kinds, text_answer
from wonder_server.core.conversation.model.decisions import LimitReached
from wonder_server.core.conversation.model.values import Invocation, OperationKind, ToolErrorCode
from wonder_server.core.errors import Reason
from wonder_server.core.model import ToolCall

ASSEMBLY, MODEL, TASK = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.TASK


def finds(number: int, *, since: int = 0) -> list[ToolCall]:
    return [call("find", f"call_{since + index}") for index in range(number)]


def started(**constraints: int) -> Driven:
    driven = Driven(**constraints)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def return_results(driven: Driven) -> None:
    for operation in [op for op in driven.state.operations.values() if op.kind is TASK]:
        driven.complete_by_id(operation.id)


def invocations(driven: Driven) -> list[Invocation]:
    return [entry for move in driven.state.moves[driven.turn.id] for entry in move.invocations]


def limits(driven: Driven) -> list[LimitReached]:
    return [each for each in driven.decided if isinstance(each, LimitReached)]


def test_of_two_thousand_calls_in_one_answer_the_first_sixty_four_run() -> None:
    driven = started()
    decided = driven.answer(text_answer("", *finds(2000)))
    assert kinds(decided).count("DispatchTask") == 64
    refused = [entry.result for entry in invocations(driven) if entry.result is not None]
    assert len(refused) == 1936 and {result.code for result in refused} == {ToolErrorCode.PERMISSION_DENIED}
    assert "one answer may have 64 tool calls" in refused[0].message
    (limit,) = limits(driven)
    assert limit.limit.enforced and limit.limit.fault.reason is Reason.LIMIT_EXCEEDED
    assert limit.limit.fault.metadata == {"limit": "64", "calls": "2000", "of": "answer"}
    assert driven.turn.tool_failures == 1936
    # Refused calls are part of the move, not a thousand changes of it.
    assert len(decided) < 200


def test_the_model_gets_a_result_for_every_refused_call() -> None:
    driven = started(max_tool_calls_per_answer=2)
    driven.answer(text_answer("", *finds(5)))
    return_results(driven)
    answers = [each for each in driven.request()["messages"] if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in answers] == [f"call_{index}" for index in range(5)]
    assert ["PERMISSION_DENIED" in each["content"] for each in answers] == [False, False, True, True, True]


def test_a_turn_has_a_maximum_number_of_calls() -> None:
    driven = started(max_tool_calls_per_turn=3)
    driven.answer(text_answer("", *finds(2)))
    return_results(driven)
    driven.answer(text_answer("", *finds(2, since=2)))
    return_results(driven)
    driven.answer(text_answer("", *finds(2, since=4)))
    carried_out = [bool(entry.operation_id) for entry in invocations(driven)]
    assert carried_out == [True, True, True, False, False, False]
    assert [each.limit.fault.metadata["of"] for each in limits(driven)] == ["turn", "turn"]
    # No call of the last answer ran, so the model is called again at once.
    assert driven.pending(MODEL)
    driven.answer(text_answer("Done."))
    assert driven.turn.status.value == "completed"


def test_zero_means_unlimited() -> None:
    driven = started(max_tool_calls_per_answer=0, max_tool_calls_per_turn=0)
    assert kinds(driven.answer(text_answer("", *finds(400)))).count("DispatchTask") == 400
    assert limits(driven) == []
