"""How many tool calls one answer, and one turn, may have: the others are answered as refused."""

from __future__ import annotations

from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, call, kinds, text_answer
from wonder_server.core.conversation.model.decisions import LimitReached
from wonder_server.core.conversation.model.values import Invocation, OperationKind, ToolErrorCode
from wonder_server.core.errors import Reason
from wonder_server.core.model import ToolCall

ASSEMBLY, MODEL, TASK = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.TASK


def finds(number: int, *, since: int = 0) -> list[ToolCall]:
    return [call("find", f"call_{since + index}") for index in range(number)]


def begun(**constraints: int) -> Driven:
    driven = Driven(**constraints)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def come_back(driven: Driven) -> None:
    for operation in [op for op in driven.state.operations.values() if op.kind is TASK]:
        driven.back_by_id(operation.id)


def invocations(driven: Driven) -> list[Invocation]:
    return [entry for move in driven.state.moves[driven.turn.id] for entry in move.invocations]


def limits(driven: Driven) -> list[LimitReached]:
    return [each for each in driven.decided if isinstance(each, LimitReached)]


def test_of_two_thousand_calls_in_one_answer_the_first_sixty_four_are_carried_out() -> None:
    driven = begun()
    decided = driven.answer(text_answer("", *finds(2000)))
    assert kinds(decided).count("DispatchTask") == 64
    refused = [entry.result for entry in invocations(driven) if entry.result is not None]
    assert len(refused) == 1936 and {result.code for result in refused} == {ToolErrorCode.PERMISSION_DENIED}
    assert "one answer may have 64 tool calls" in refused[0].message
    (limit,) = limits(driven)
    assert limit.limit.enforced and limit.limit.fault.reason is Reason.LIMIT_EXCEEDED
    assert limit.limit.fault.metadata == {"limit": "64", "calls": "2000", "of": "answer"}
    assert driven.turn.tool_failures == 1936
    # What is refused is a part of the move, not a thousand changes of it.
    assert len(decided) < 200


def test_the_model_hears_of_every_call_that_was_not_carried_out() -> None:
    driven = begun(max_tool_calls_per_answer=2)
    driven.answer(text_answer("", *finds(5)))
    come_back(driven)
    answers = [each for each in driven.request()["messages"] if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in answers] == [f"call_{index}" for index in range(5)]
    assert ["PERMISSION_DENIED" in each["content"] for each in answers] == [False, False, True, True, True]


def test_a_turn_has_so_many_calls_and_no_more() -> None:
    driven = begun(max_tool_calls_per_turn=3)
    driven.answer(text_answer("", *finds(2)))
    come_back(driven)
    driven.answer(text_answer("", *finds(2, since=2)))
    come_back(driven)
    driven.answer(text_answer("", *finds(2, since=4)))
    carried_out = [bool(entry.operation_id) for entry in invocations(driven)]
    assert carried_out == [True, True, True, False, False, False]
    assert [each.limit.fault.metadata["of"] for each in limits(driven)] == ["turn", "turn"]
    # Nothing of the last answer was carried out: the model is asked again at once.
    assert driven.pending(MODEL)
    driven.answer(text_answer("Done."))
    assert driven.turn.status.value == "completed"


def test_zero_is_no_limit() -> None:
    driven = begun(max_tool_calls_per_answer=0, max_tool_calls_per_turn=0)
    assert kinds(driven.answer(text_answer("", *finds(400)))).count("DispatchTask") == 400
    assert limits(driven) == []
