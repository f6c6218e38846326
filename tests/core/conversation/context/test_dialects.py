"""Tests of the request formats' dialects."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from wonder_server.core.conversation.context.dialects import (
    DIALECTS,
    dialect_of,
    kept_settings,
    result_text,
    wrap_up_by_system_message,
)
from wonder_server.core.conversation.model.values import ToolErrorCode, ToolResult
from wonder_server.core.json_types import JsonDict, JsonValue

GOOD = ToolResult(tool_call_id="c1", success=True, result={"n": 1, "s": "é"})
TIMEOUT = ToolErrorCode.TIMEOUT
BAD = ToolResult(tool_call_id="c2", success=False, code=TIMEOUT, message="Late.", retriable=True)
BAD_TEXT = '{"error":{"code":"TIMEOUT","message":"Late.","retriable":true}}'
RAW = {"role": "assistant", "content": None}
REQUEST: JsonDict = {
    "model": "m",
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [{"name": "find"}],
}


def resumed(name: str, request: JsonDict) -> JsonDict:
    return DIALECTS[name].resume(request, RAW, [GOOD, BAD])


def test_openai_gets_one_message_for_each_call() -> None:
    assert resumed("openai_chat", REQUEST)["messages"] == [
        *REQUEST["messages"],
        RAW,
        {"role": "tool", "tool_call_id": "c1", "content": '{"n":1,"s":"é"}'},
        {"role": "tool", "tool_call_id": "c2", "content": BAD_TEXT},
    ]


def test_anthropic_gets_one_message_for_all_calls() -> None:
    assert resumed("anthropic_messages", REQUEST)["messages"] == [
        *REQUEST["messages"],
        RAW,
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": '{"n":1,"s":"é"}'},
                {"type": "tool_result", "tool_use_id": "c2", "content": BAD_TEXT, "is_error": True},
            ],
        },
    ]


def test_openai_is_asked_to_finish_by_a_notice_and_may_not_call_tools() -> None:
    wrapped = DIALECTS["openai_chat"].wrap_up(REQUEST, "Stop.")
    assert wrapped["messages"] == [*REQUEST["messages"], {"role": "user", "content": "Stop."}]
    assert wrapped["tool_choice"] == "none"
    assert wrapped["tools"] == REQUEST["tools"]


@pytest.mark.parametrize(
    ("content", "before"),
    [
        ("hello", [{"type": "text", "text": "hello"}]),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        ([], []),
        (None, []),
        ({"type": "text"}, []),
    ],
)
def test_anthropic_is_asked_to_finish_in_the_last_user_message(content: Any, before: list[JsonDict]) -> None:
    request = {**REQUEST, "messages": [{"role": "user", "content": content}]}
    wrapped = DIALECTS["anthropic_messages"].wrap_up(request, "Stop.")
    (message,) = wrapped["messages"]
    assert message == {"role": "user", "content": [*before, {"type": "text", "text": "Stop."}]}
    assert wrapped["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("messages", [[], [{"role": "assistant", "content": "hi"}]])
def test_anthropic_is_asked_to_finish_in_a_new_message_after_an_assistant_message(
    messages: list[JsonDict],
) -> None:
    wrapped = DIALECTS["anthropic_messages"].wrap_up({"messages": messages}, "Stop.")
    said = {"role": "user", "content": [{"type": "text", "text": "Stop."}]}
    assert wrapped == {"messages": [*messages, said]}


# --- OpenAI responses ------------------------------------------------------------------------------

CALLS = [
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}"},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "find", "arguments": "{}"},
]
OUTPUTS = [
    {"type": "function_call_output", "call_id": "c1", "output": '{"n":1,"s":"é"}'},
    {"type": "function_call_output", "call_id": "c2", "output": BAD_TEXT},
]


def test_responses_repeat_the_items_and_answer_each_call_with_an_item() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    request = {"input": [{"role": "user", "content": "hello"}]}
    gone_on = DIALECTS["openai_responses"].resume(request, {"output": [thought, *CALLS]}, [GOOD, BAD])
    assert gone_on["input"] == [*request["input"], thought, *CALLS, *OUTPUTS]


def test_an_input_that_is_one_text_becomes_a_message() -> None:
    gone_on = DIALECTS["openai_responses"].notice({"input": "hello"}, "Done.")
    assert gone_on["input"] == [{"role": "user", "content": "hello"}, {"role": "user", "content": "Done."}]


def test_unstored_items_are_not_referred_to() -> None:
    """Without its reasoning a call goes back without the id that ties it to it."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    request = {"store": False, "input": []}
    bare = [{name: value for name, value in call.items() if name != "id"} for call in CALLS]
    resume = DIALECTS["openai_responses"].resume
    assert resume(request, {"output": [thought, *CALLS]}, [])["input"] == bare
    whole = [{**thought, "encrypted_content": "x"}, *CALLS]
    assert resume(request, {"output": whole}, [])["input"] == whole


def test_responses_are_asked_to_finish_by_a_notice_and_may_not_call_tools() -> None:
    wrapped = DIALECTS["openai_responses"].wrap_up({"input": [], "tools": [{"name": "find"}]}, "Stop.")
    assert wrapped["input"] == [{"role": "user", "content": "Stop."}]
    assert wrapped["tool_choice"] == "none" and wrapped["tools"]


# --- Gemini ----------------------------------------------------------------------------------------


def gemini_calls(*ids: str) -> JsonDict:
    calls = [
        {"name": name, "args": {}, **({"id": call_id} if call_id else {})}
        for name, call_id in zip(("find", "look"), ids, strict=True)
    ]
    return {"role": "model", "parts": [{"text": "Hm."}, *({"functionCall": call} for call in calls)]}


@pytest.mark.parametrize("ids", [("c1", "c2"), ("", "")])
def test_gemini_gets_each_function_response_with_its_name(ids: tuple[str, str]) -> None:
    raw = gemini_calls(*ids)
    error = {"code": "TIMEOUT", "message": "Late.", "retriable": True}
    responses = [
        {"name": "find", "response": {"output": {"n": 1, "s": "é"}}},
        {"name": "look", "response": {"error": error}},
    ]
    named = [{"id": i, **each} if i else each for i, each in zip(ids, responses, strict=True)]
    answer = {"role": "user", "parts": [{"functionResponse": each} for each in named]}
    assert DIALECTS["gemini"].resume({"contents": []}, raw, [GOOD, BAD])["contents"] == [raw, answer]


def test_gemini_is_asked_to_finish_in_a_separate_content_and_may_not_call_tools() -> None:
    wrapped = DIALECTS["gemini"].wrap_up({"contents": [gemini_calls("", "")], "tools": [{}]}, "Stop.")
    assert wrapped["contents"][-1] == {"role": "user", "parts": [{"text": "Stop."}]}
    assert wrapped["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}


def test_gemini_gets_no_content_without_parts() -> None:
    resume = DIALECTS["gemini"].resume
    assert resume({"contents": []}, {"role": "model", "parts": []}, [])["contents"] == []


# --- all of them -----------------------------------------------------------------------------------

LISTS = {"openai_chat": "messages", "openai_responses": "input", "gemini": "contents"}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_request_fits_if_it_lists_its_messages(name: str) -> None:
    fits = DIALECTS[name].fits
    field = LISTS.get(name, "messages")
    assert fits({field: [{"role": "user"}]}) and fits({field: []})
    odd: tuple[Any, ...] = (None, "text", {}, ["text"], [None])
    assert not any(fits({field: given}) for given in odd)
    assert not fits({})


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("odd", [None, 5, "text", [5], {"parts": 5}, {"functionCall": 5}])
def test_a_request_of_unexpected_shape_raises_no_error(name: str, odd: JsonValue) -> None:
    for request in ({}, {"messages": [], "input": odd, "contents": odd}, {"store": False, "input": []}):
        for raw in ({}, {"output": odd, "parts": odd}, {"parts": [odd], "output": [odd]}):
            gone_on = DIALECTS[name].resume(request, raw, [GOOD])
            DIALECTS[name].notice(DIALECTS[name].wrap_up(gone_on, "Stop."), "Done.")


@pytest.mark.parametrize("name", DIALECTS)
def test_a_request_is_never_changed_in_place(name: str) -> None:
    request = copy.deepcopy(REQUEST) | {"input": [], "contents": []}
    before = copy.deepcopy(request)
    DIALECTS[name].wrap_up(resumed(name, request), "Stop.")
    DIALECTS[name].wrap_up(request, "Stop.")
    assert request == before


@pytest.mark.parametrize("name", DIALECTS)
def test_a_request_without_tools_gets_no_tool_choice(name: str) -> None:
    assert "tool_choice" not in DIALECTS[name].wrap_up({"messages": [], "tools": []}, "Stop.")


@pytest.mark.parametrize("name", DIALECTS)
def test_a_tool_that_is_named_like_a_word_can_be_chosen(name: str) -> None:
    request: JsonDict = {"tools": [{"name": "auto"}]}
    chosen = DIALECTS[name].choose_tool(request, "tool:auto")
    assert chosen != DIALECTS[name].choose_tool(request, "auto")
    named = DIALECTS[name].choose_tool(request, "find")
    assert json.dumps(chosen) == json.dumps(named).replace("find", "auto")


@pytest.mark.parametrize(
    ("name", "before", "choice", "expected"),
    [
        (
            "anthropic_messages",
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "required",
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        ),
        (
            "anthropic_messages",
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "none",
            {"tool_choice": {"type": "none"}},
        ),
        ("anthropic_messages", {}, "find", {"tool_choice": {"type": "tool", "name": "find"}}),
        (
            "gemini",
            {"toolConfig": {"retrievalConfig": {"languageCode": "de"}}},
            "none",
            {
                "toolConfig": {
                    "retrievalConfig": {"languageCode": "de"},
                    "functionCallingConfig": {"mode": "NONE"},
                }
            },
        ),
        ("openai_chat", {"parallel_tool_calls": False}, "none", {"tool_choice": "none"}),
    ],
)
def test_a_choice_keeps_the_other_settings_of_tools(
    name: str, before: JsonDict, choice: str, expected: JsonDict
) -> None:
    request = {"tools": [{"name": "find"}], **before}
    kept = kept_settings(request, DIALECTS[name].choose_tool(request, choice))
    assert kept == {**request, **expected}


@pytest.mark.parametrize("name", DIALECTS)
def test_turns_of_earlier_builds_have_their_note_where_they_had_it(name: str) -> None:
    request: JsonDict = {LISTS.get(name, "messages"): [], "tools": [{"name": "find"}]}
    wrapped = wrap_up_by_system_message(request, name, "Stop.")
    if name in ("openai_chat", "openai_responses"):
        assert wrapped[LISTS[name]] == [{"role": "system", "content": "Stop."}]
        assert wrapped["tool_choice"] == "none"
    else:
        assert wrapped == DIALECTS[name].wrap_up(request, "Stop.")


def test_an_unknown_format_uses_the_dialect_of_openai_chat() -> None:
    assert dialect_of("something_new") is DIALECTS["openai_chat"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "null"),
        ([1, 2.5, True], "[1,2.5,true]"),
        ({"a": "ü"}, '{"a":"ü"}'),
    ],
)
def test_a_result_is_text_for_the_model(result: JsonValue, text: str) -> None:
    assert result_text(ToolResult(tool_call_id="c", success=True, result=result)) == text


def test_openai_gets_a_notice_as_a_user_message() -> None:
    noticed = DIALECTS["openai_chat"].notice(DIALECTS["openai_chat"].resume(REQUEST, RAW, []), "It is done.")
    assert noticed["messages"] == [*REQUEST["messages"], RAW, {"role": "user", "content": "It is done."}]


def test_anthropic_gets_a_notice_beside_the_results_of_its_calls() -> None:
    noticed = DIALECTS["anthropic_messages"].notice(resumed("anthropic_messages", REQUEST), "It is done.")
    last = noticed["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result", "tool_result", "text"]
    assert last["content"][-1]["text"] == "It is done."


def test_anthropic_gets_no_message_without_content() -> None:
    empty = {"role": "assistant", "content": []}
    assert DIALECTS["anthropic_messages"].resume(REQUEST, empty, []) == REQUEST
