"""Tests of turns with an output schema: the request, the check, one repair, and the failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    Driven,
    agent,
    call,
    called,
    commands,
    kinds,
    send,
    text_answer,
    tool,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import Answer, CallAgent
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import Decision, DispatchModel, RejectOutput
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planning import output_checks
from wonder_server.core.conversation.planning.output_checks import MAX_OUTPUT_BYTES, read_output
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, Usage
from wonder_server.core.request_formats import FORMATS, valid_request

ASSEMBLY, MODEL = OperationKind.ASSEMBLY, OperationKind.MODEL
SCHEMA: JsonDict = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}
BODIES: dict[str, JsonDict] = {
    "openai_chat": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]
    },
    "openai_responses": {"instructions": "Be brief.", "input": [{"role": "user", "content": "?"}]},
    "anthropic_messages": {"system": "Be brief.", "messages": [{"role": "user", "content": "?"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "?"}]}]},
}
RAWS: dict[str, JsonDict] = {
    "openai_chat": {"role": "assistant", "content": "5"},
    "openai_responses": {
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]}
        ]
    },
    "anthropic_messages": {"role": "assistant", "content": [{"type": "text", "text": "5"}]},
    "gemini": {"role": "model", "parts": [{"text": "5"}]},
}


def typed_agent(**fields: Any) -> PinnedAgent:
    chosen = agent(extraction=False, **fields)
    return replace(chosen, persona=replace(chosen.persona, output_schema=SCHEMA))


def begun(chosen: PinnedAgent | None = None, *, dialect: str = "openai_chat", **fields: Any) -> Driven:
    """Return a turn with an output schema and a pending model call."""
    driven = Driven(begin=False)
    driven.step(send(agent=chosen or typed_agent(tools=(), dialect=dialect, **fields)))
    driven.succeed(ASSEMBLY, {"request": BODIES[dialect]})
    return driven


def dispatched(decisions: tuple[Decision, ...]) -> DispatchModel:
    (found,) = (each for each in decisions if isinstance(each, DispatchModel))
    return found


def rejected(decisions: tuple[Decision, ...]) -> RejectOutput:
    (found,) = (each for each in decisions if isinstance(each, RejectOutput))
    return found


# --- the answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ['{"total": 5}', ' \n{"total": 5}\n', '```json\n{"total": 5}\n```', '```\n{"total": 5}```']
)
def test_a_valid_answer_is_the_output_of_the_turn_as_a_value(text: str) -> None:
    driven = begun()
    assert kinds(driven.answer(text_answer(text)))[-2:] == ["CompleteTurn", "ReleaseTurn"]
    assert driven.turn.output == {"total": 5}
    assert driven.state.messages[driven.turn.id][-1].content == text


ANSWERS: list[tuple[ModelResult, str]] = [
    (text_answer(""), "empty"),
    (text_answer("It is five."), 'It begins with "It is five."'),
    (text_answer('Here: {"total": 5}'), "not one valid JSON object"),
    (text_answer('{"total": 5} {"total": 5}'), "not one valid JSON object"),
    (text_answer("[5]"), "output: must be an object"),
    (text_answer("null"), "output: must be an object"),
    (text_answer('{"total": "5"}'), "output.total: must be a number"),
    (text_answer("{}"), "output.total: is missing"),
    (text_answer('{"total": 5, "more": 1}'), "output.more: is not a known field"),
    (text_answer('{"total": NaN}'), "not one valid JSON object"),
    (text_answer('{"total": 1e999}'), "no infinite numbers"),
    (text_answer('{"total": 9007199254740993}'), "within"),
    (text_answer('{"total": ' + "9" * 5000 + "}"), "not one valid JSON object"),
    (text_answer('{"total": ' + "[" * 5000 + "]" * 5000 + "}"), ""),
    (text_answer('{"a":' * 31 + "1" + "}" * 31), "levels deep"),
    (text_answer('{"total": "' + "x" * MAX_OUTPUT_BYTES + '"}'), "the maximum is 262144"),
    (replace(text_answer('{"total": 5'), stop_reason="length"), "was cut off"),
    (replace(text_answer('{"total": 5}'), stop_reason="length"), "was cut off"),
]


@pytest.mark.parametrize(("result", "problem"), ANSWERS)
def test_an_invalid_answer_is_repaired_once_and_then_fails_the_turn(
    result: ModelResult, problem: str
) -> None:
    driven = begun()
    first = driven.answer(result)
    rejection = rejected(first).rejection
    assert rejection.repairing and problem in rejection.problems[0]
    repair = dispatched(first).request
    assert repair.repair and driven.state.requests[driven.turn.id] == repair
    last = repair.body["messages"][-1]
    assert last["role"] == "user" and rejection.problems[0] in last["content"]
    second = driven.answer(result)
    assert not rejected(second).rejection.repairing
    fault = driven.turn.fault
    assert driven.turn.status is TurnStatus.FAILED and fault is not None
    assert fault.reason is Reason.OUTPUT_INVALID and problem in fault.message
    assert fault.metadata["attempts"] == "2" and not fault.transient
    assert driven.turn.output is None and not driven.state.operations


def test_a_repaired_answer_completes_the_turn() -> None:
    driven = begun()
    driven.answer(text_answer("Five."))
    driven.answer(text_answer('{"total": 5}'))
    assert (driven.turn.status, driven.turn.output) == (TurnStatus.COMPLETED, {"total": 5})
    assert driven.turn.moves == driven.turn.model_calls == 2


def test_an_answer_that_was_cut_for_storage_is_judged_as_the_model_gave_it() -> None:
    cut, whole = text_answer('{"total": 5\n[Cut: …]'), text_answer('{"total": 5}')
    event = inputs.ModelAnswered(operation_id="op_1", result=cut, full_result=whole)
    assert read_output(SCHEMA, event).value == {"total": 5}


@given(st.text(max_size=200))
def test_no_answer_is_both_valid_and_invalid_and_none_raises(text: str) -> None:
    output = read_output(SCHEMA, inputs.ModelAnswered(operation_id="op_1", result=text_answer(text)))
    assert (output.value is None) == bool(output.problems)


def test_a_huge_answer_is_not_repeated_to_the_model() -> None:
    driven = begun()
    decisions = driven.answer(text_answer("x" * 100_000))
    assert "x" * 100 not in str(dispatched(decisions).request.body["messages"][:-1])


def test_a_refusal_is_not_repaired() -> None:
    driven = begun()
    driven.answer(replace(text_answer("I will not."), stop_reason="refusal"))
    assert driven.turn.fault is not None and driven.turn.fault.metadata["declined"] == "true"


# --- the request ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", FORMATS)
def test_the_repair_is_the_request_the_answer_and_a_notice_of_the_user_role(dialect: str) -> None:
    driven = begun(dialect=dialect)
    before = driven.request()
    assert before != BODIES[dialect], "the first request asks for the schema"
    result = replace(text_answer("5"), raw=RAWS[dialect])
    after = dispatched(driven.answer(result)).request.body
    name = FORMATS[dialect].messages
    assert after[name][: len(before[name])] == before[name]
    answer, notice = after[name][len(before[name]) :]
    assert answer == RAWS[dialect].get("output", [RAWS[dialect]])[0]
    assert notice["role"] == "user" and "output: must be an object" in str(notice)
    assert {key: value for key, value in after.items() if key != name} == {
        key: value for key, value in before.items() if key != name
    }
    assert valid_request(dialect, after)[0][name] == after[name]


def test_a_schema_that_the_format_cannot_say_is_in_the_instructions() -> None:
    chosen = typed_agent(tools=(), dialect="anthropic_messages")
    open_schema = {"type": "object", "additionalProperties": {"type": "number"}}
    chosen = replace(chosen, persona=replace(chosen.persona, output_schema=open_schema))
    system = begun(chosen, dialect="anthropic_messages").request()["system"]
    assert system.startswith("Be brief.") and '{"type":"object","additionalProperties"' in system


def test_the_callers_schema_replaces_that_of_the_persona() -> None:
    driven = Driven(begin=False)
    own = {"type": "object", "properties": {"own": {"type": "string"}}}
    driven.step(replace(called(agent=typed_agent(tools=())), output_schema=own))
    driven.succeed(ASSEMBLY, {"request": BODIES["openai_chat"]})
    assert driven.request()["response_format"]["json_schema"]["schema"] == own
    decisions = driven.answer(text_answer('{"own": "yes"}'))
    (answered,) = (each for each in commands(driven, decisions) if isinstance(each, Answer))
    assert answered.output["output"] == {"own": "yes"}
    assert answered.output["text"] == '{"own": "yes"}'


def test_a_turn_without_a_schema_is_as_before() -> None:
    driven = Driven(extraction=False)
    driven.succeed(ASSEMBLY, {"request": BODIES["openai_chat"]})
    assert driven.request() == BODIES["openai_chat"]
    driven.answer(text_answer("Five."))
    assert (driven.turn.status, driven.turn.output) == (TurnStatus.COMPLETED, None)


# --- tools ------------------------------------------------------------------------------------------


def with_tools(**fields: Any) -> Driven:
    driven = begun(typed_agent(tools=(tool("find"), tool("slow", is_async=True)), **fields))
    driven.state.requests[driven.turn.id] = replace(
        driven.state.requests[driven.turn.id], body={**driven.request(), "tools": [{"type": "function"}]}
    )
    return driven


def test_the_schema_binds_only_the_final_answer() -> None:
    driven = with_tools()
    driven.answer(text_answer("Let me look.", call("find")))
    driven.complete("find", 5)
    assert "response_format" in driven.request()
    driven.answer(text_answer('{"total": 5}'))
    assert driven.turn.output == {"total": 5}


def test_an_answer_while_asynchronous_tools_run_is_not_final() -> None:
    driven = with_tools()
    driven.answer(text_answer("", call("slow")))
    decisions = driven.answer(text_answer("I am looking."))
    assert "RejectOutput" not in kinds(decisions) and driven.turn.status is TurnStatus.ACTIVE
    driven.complete("slow", 5)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer('{"total": 5}'))
    assert driven.turn.output == {"total": 5}


def test_the_repair_forbids_tools_and_a_call_in_it_fails_the_turn() -> None:
    driven = with_tools()
    repair = dispatched(driven.answer(text_answer("Five."))).request.body
    assert repair["tools"] and repair["tool_choice"] == "none"
    decisions = driven.answer(text_answer("", call("find")))
    assert "DispatchTask" not in kinds(decisions)
    assert driven.turn.fault is not None and driven.turn.fault.reason is Reason.OUTPUT_INVALID
    assert "calls a tool" in driven.turn.fault.message


# --- limits, cancellation, restart ------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [{"max_moves": 1}, {"max_tokens_per_turn": 200}, {"max_tokens_per_turn": 6}],
)
def test_a_turn_whose_limits_allow_no_second_call_fails_without_one(limits: dict[str, int]) -> None:
    driven = begun(**limits)
    heavy = replace(text_answer("Five."), usage=Usage(input_tokens=100, output_tokens=50))
    decisions = driven.answer(heavy)
    assert not rejected(decisions).rejection.repairing
    assert "DispatchModel" not in kinds(decisions)
    fault = driven.turn.fault
    assert fault is not None and fault.reason is Reason.OUTPUT_INVALID
    assert fault.metadata["attempts"] == "1" and "allow no repair" in fault.message


def test_limits_that_allow_a_second_call_allow_the_repair() -> None:
    driven = begun(max_moves=2, max_tokens_per_turn=100_000)
    assert rejected(driven.answer(text_answer("Five."))).rejection.repairing


def test_a_cancel_in_the_repair_keeps_what_it_streamed_and_a_late_answer_changes_nothing() -> None:
    driven = begun()
    driven.answer(text_answer("Five."))
    operation = driven.pending(MODEL)
    driven.step(inputs.CancelTurn(turn_id=driven.turn.id, partial_text='{"to'))
    assert driven.turn.status is TurnStatus.CANCELLED and driven.turn.output is None
    assert driven.state.messages[driven.turn.id][-1].content == '{"to'
    late = inputs.ModelAnswered(operation_id=operation.id, result=text_answer('{"total": 5}'))
    assert driven.step(late) == ()


def test_a_restart_in_the_repair_repeats_only_the_repair() -> None:
    driven = begun()
    driven.answer(text_answer("Five."))
    before = driven.state.requests[driven.turn.id]
    decisions = driven.step(inputs.Restarted(operation_id=driven.pending(MODEL).id))
    assert kinds(decisions) == ["Redispatch"]
    assert driven.state.requests[driven.turn.id] == before
    driven.answer(text_answer("Still five."))
    assert driven.turn.fault is not None and driven.turn.fault.reason is Reason.OUTPUT_INVALID


# --- callers ----------------------------------------------------------------------------------------


def test_a_delegate_gets_the_schema_of_its_tool_and_the_model_its_output() -> None:
    chosen = agent(extraction=False)
    peer = next(each for each in chosen.tools if each.spec.name == "peer")
    typed = replace(peer, spec=replace(peer.spec, output_schema=SCHEMA))
    driven = Driven(begin=False)
    driven.step(send(agent=replace(chosen, tools=(typed,))))
    driven.succeed(ASSEMBLY, {"request": BODIES["openai_chat"]})
    asked: Decisions = driven.answer(text_answer("", call("peer")))
    (command,) = (each for each in commands(driven, asked) if isinstance(each, CallAgent))
    assert command.output_schema == SCHEMA
    answered = {"text": '{"total": 5}', "output": {"total": 5}, "agent_id": "agt_2", "turn_id": "turn_2"}
    driven.complete("peer", answered)
    (move,) = driven.state.moves[driven.turn.id]
    assert move.invocations[0].result is not None
    assert move.invocations[0].result.result == {
        "output": {"total": 5},
        "agent_id": "agt_2",
        "turn_id": "turn_2",
    }


def test_the_fault_names_the_problems_within_its_bounds() -> None:
    fault = output_checks.output_fault(("é" * 5000,), repaired=True)
    assert len(fault.metadata["problems"].encode()) <= 2_000
