"""How a request goes on in each provider's format."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from wonder_server.core.conversation.dialects import DIALECTS, dialect_of, result_text
from wonder_server.core.conversation.values import ToolErrorCode, ToolResult

GOOD = ToolResult(tool_call_id="c1", success=True, result={"n": 1, "s": "é"})
LATE = ToolErrorCode.TIMEOUT
BAD = ToolResult(tool_call_id="c2", success=False, code=LATE, message="Late.", retriable=True)
BAD_TEXT = '{"error":{"code":"TIMEOUT","message":"Late.","retriable":true}}'
RAW = {"role": "assistant", "content": None}
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [{"name": "find"}],
}


def resumed(name: str, request: dict[str, Any]) -> dict[str, Any]:
    return DIALECTS[name].resume(request, RAW, [GOOD, BAD])


def test_openai_answers_each_call_with_a_message_of_its_own() -> None:
    assert resumed("openai_chat", ASKED)["messages"] == [
        *ASKED["messages"],
        RAW,
        {"role": "tool", "tool_call_id": "c1", "content": '{"n":1,"s":"é"}'},
        {"role": "tool", "tool_call_id": "c2", "content": BAD_TEXT},
    ]


def test_anthropic_answers_all_calls_in_one_message() -> None:
    assert resumed("anthropic_messages", ASKED)["messages"] == [
        *ASKED["messages"],
        RAW,
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": '{"n":1,"s":"é"}'},
                {"type": "tool_result", "tool_use_id": "c2", "content": BAD_TEXT, "is_error": True},
            ],
        },
    ]


def test_openai_is_told_to_wrap_up_by_a_system_message_and_may_not_choose_a_tool() -> None:
    wrapped = DIALECTS["openai_chat"].wrap_up(ASKED, "Stop.")
    assert wrapped["messages"] == [*ASKED["messages"], {"role": "system", "content": "Stop."}]
    assert wrapped["tool_choice"] == "none"
    assert wrapped["tools"] == ASKED["tools"]


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
def test_anthropic_is_told_to_wrap_up_in_the_users_last_message(
    content: Any, before: list[dict[str, Any]]
) -> None:
    request = {**ASKED, "messages": [{"role": "user", "content": content}]}
    wrapped = DIALECTS["anthropic_messages"].wrap_up(request, "Stop.")
    (message,) = wrapped["messages"]
    assert message == {"role": "user", "content": [*before, {"type": "text", "text": "Stop."}]}
    assert wrapped["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("messages", [[], [{"role": "assistant", "content": "hi"}]])
def test_anthropic_is_told_in_a_new_message_where_the_user_did_not_speak_last(
    messages: list[dict[str, Any]],
) -> None:
    wrapped = DIALECTS["anthropic_messages"].wrap_up({"messages": messages}, "Stop.")
    said = {"role": "user", "content": [{"type": "text", "text": "Stop."}]}
    assert wrapped == {"messages": [*messages, said]}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_request_is_never_changed_in_place(name: str) -> None:
    request = copy.deepcopy(ASKED)
    DIALECTS[name].wrap_up(resumed(name, request), "Stop.")
    DIALECTS[name].wrap_up(request, "Stop.")
    assert request == ASKED


@pytest.mark.parametrize("name", DIALECTS)
def test_without_tools_there_is_no_choice_of_tools(name: str) -> None:
    assert "tool_choice" not in DIALECTS[name].wrap_up({"messages": [], "tools": []}, "Stop.")


def test_an_unlisted_format_is_taken_for_openais() -> None:
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
def test_a_result_is_text_for_the_model(result: Any, text: str) -> None:
    assert result_text(ToolResult(tool_call_id="c", success=True, result=result)) == text


def test_openai_is_told_of_what_happened_meanwhile_as_by_the_user() -> None:
    told = DIALECTS["openai_chat"].notice(DIALECTS["openai_chat"].resume(ASKED, RAW, []), "It is done.")
    assert told["messages"] == [*ASKED["messages"], RAW, {"role": "user", "content": "It is done."}]


def test_anthropic_is_told_of_what_happened_meanwhile_beside_the_results_of_its_calls() -> None:
    told = DIALECTS["anthropic_messages"].notice(resumed("anthropic_messages", ASKED), "It is done.")
    last = told["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result", "tool_result", "text"]
    assert last["content"][-1]["text"] == "It is done."


def test_anthropic_takes_no_message_without_content() -> None:
    empty = {"role": "assistant", "content": []}
    assert DIALECTS["anthropic_messages"].resume(ASKED, empty, []) == ASKED
