"""Tests of the cache breakpoints of Anthropic."""

from __future__ import annotations

import json

import pytest

from wonder_server.core.conversation.context.cache_breakpoints import with_breakpoints
from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import FORMATS, valid_request

LONG, MARK = "x" * 4200, {"type": "ephemeral"}
TOOL = {"name": "find", "input_schema": {"type": "object", "properties": {}}}
RESULT = [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]
CALL = [{"type": "tool_use", "id": "a", "name": "find", "input": {}}]


def talk(*texts: str) -> list[JsonDict]:
    return [
        {"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)
    ]


def marked(body: JsonDict) -> JsonDict:
    return with_breakpoints(body, "anthropic_messages")


def test_instructions_and_history_have_a_breakpoint() -> None:
    body = {"system": LONG, "messages": talk("a", "b", "now")}
    assert marked(body) == {
        "system": [{"type": "text", "text": LONG, "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "text", "text": "b", "cache_control": MARK}]},
            {"role": "user", "content": "now"},
        ],
    }
    assert body == {"system": LONG, "messages": talk("a", "b", "now")}


def test_a_turn_with_tools_has_one_at_its_end_too_and_never_more_than_four() -> None:
    messages = [
        *talk("a", "b", "now"),
        {"role": "assistant", "content": CALL},
        {"role": "user", "content": RESULT},
    ]
    found = marked({"system": LONG, "tools": [TOOL], "messages": messages})
    assert found["messages"][-1]["content"] == [{**RESULT[0], "cache_control": MARK}]
    assert found["messages"][1]["content"][0]["cache_control"] == MARK
    assert json.dumps(found).count("cache_control") == 3
    forbidden = marked(
        {"system": LONG, "tools": [TOOL], "tool_choice": {"type": "none"}, "messages": messages}
    )
    assert json.dumps(forbidden).count("cache_control") == 2
    valid, _ = valid_request("anthropic_messages", found)
    assert json.dumps(valid).count("cache_control") == 3


def test_without_instructions_the_last_tool_has_the_breakpoint() -> None:
    long = {**TOOL, "description": LONG}
    found = marked({"tools": [TOOL, long], "messages": talk("now")})
    assert found["tools"] == [TOOL, {**long, "cache_control": MARK}]


def test_below_the_minimum_there_is_none() -> None:
    short = {"system": "Be brief.", "messages": talk("a", "b", "now")}
    assert marked(short) is short
    late = marked({"system": "Be brief.", "messages": talk("a", "b", LONG)})
    assert "cache_control" not in json.dumps(late)
    early = marked({"system": "Be brief.", "messages": talk(LONG, "b", "now")})
    assert json.dumps(early).count("cache_control") == 1 and early["system"] == "Be brief."


def test_breakpoints_of_an_author_stay_and_thoughts_get_none() -> None:
    block = {"type": "text", "text": LONG, "cache_control": MARK}
    own = {"system": [block], "messages": talk("a", "b", "now")}
    assert marked(own) is own
    thought = [{"type": "thinking", "thinking": LONG, "signature": "s"}]
    messages = [*talk("a"), {"role": "assistant", "content": thought}, *talk("now")]
    assert marked({"messages": messages})["messages"] == messages


@pytest.mark.parametrize("name", [each for each in FORMATS if FORMATS[each].provider != "anthropic"])
def test_other_formats_need_none(name: str) -> None:
    body = {"system": LONG, "messages": talk(LONG, "b", "now")}
    assert with_breakpoints(body, name) is body


@pytest.mark.parametrize("messages", [None, [], [3], [{"role": "user"}], [{"role": "user", "content": ""}]])
def test_unusual_messages_stay(messages: object) -> None:
    found = marked({"system": LONG, "messages": messages})
    assert found.get("messages") == messages
