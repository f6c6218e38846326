"""Tests of the sources of a request's parts."""

from __future__ import annotations

import pytest

from wonder_server.core.conversation.context.provenance import EXCERPT, MAX_BLOCKS, blocks
from wonder_server.core.json_types import JsonDict, JsonValue

REQUEST: JsonDict = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You help.\n\nMemories:\n- Tea."},
        {"role": "user", "content": "Hello."},
        {"role": "user", "content": "Hello."},
    ],
    "tools": [{"function": {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}}],
    "a/b": {"~": {"text": "odd keys"}},
}


def places(*sources: JsonValue) -> list[tuple[str, str, str]]:
    found = blocks(REQUEST, list(sources))
    return [(block.path, block.source, block.source_id) for block in found if block.source]


def test_each_text_is_found_at_its_path() -> None:
    assert places(
        {"source": "persona", "text": "You help."},
        {"source": "memory", "source_id": "mem_1", "text": "- Tea."},
        {"source": "tool", "source_id": "def_1", "text": "Finds."},
    ) == [
        ("/messages/0/content", "persona", ""),
        ("/messages/0/content", "memory", "mem_1"),
        ("/tools/0/function/description", "tool", "def_1"),
    ]


def test_a_repeated_text_has_two_paths() -> None:
    assert places(
        {"source": "turn", "source_id": "turn_1", "text": "Hello."}, {"source": "message", "text": "Hello."}
    ) == [("/messages/1/content", "turn", "turn_1"), ("/messages/2/content", "message", "")]


def test_the_texts_of_a_tool_belong_to_it() -> None:
    parameters = {"properties": {"city": {"description": "Where."}}}
    tools = [{"description": "Other."}, {"description": "Weather.", "input_schema": parameters}]
    found = blocks({"tools": tools}, [{"source": "tool", "source_id": "tool_1", "text": "Weather."}])
    assert [(block.path, block.source, block.source_id) for block in found] == [
        ("/tools/1/description", "tool", "tool_1"),
        ("/tools/0/description", "", ""),
        ("/tools/1/input_schema/properties/city/description", "tool", "tool_1"),
    ]


CITY = {"name": "weather", "arguments": {"unit": "C", "city": "Łódź"}}
SHAPES: dict[str, tuple[JsonDict, str]] = {
    "openai_chat": (
        {"tool_calls": [{"function": {"name": "weather", "arguments": '{"city":"Łódź", "unit":"C"}'}}]},
        "/tool_calls/0/function/arguments",
    ),
    "openai_responses": (
        {"type": "function_call", "name": "weather", "arguments": '{"city": "Łódź", "unit": "C"}'},
        "/arguments",
    ),
    "anthropic_messages": (
        {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Łódź", "unit": "C"}}]},
        "/content/0/input",
    ),
    "gemini": (
        {"parts": [{"functionCall": {"name": "weather", "args": {"city": "Łódź", "unit": "C"}}}]},
        "/parts/0/functionCall/args",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_arguments_of_each_call_have_a_block_in_each_format(shape: str) -> None:
    message, path = SHAPES[shape]
    sources: JsonValue = [
        {"source": "turn", "source_id": "turn_1", "calls": [CITY]},
        {"source": "turn", "source_id": "turn_2", "calls": [CITY]},
    ]
    found = blocks({"messages": [message, message, message]}, sources)
    assert [(block.path, block.source, block.source_id) for block in found] == [
        (f"/messages/0{path}", "turn", "turn_1"),
        (f"/messages/1{path}", "turn", "turn_2"),
        (f"/messages/2{path}", "", ""),
    ]
    assert {block.excerpt for block in found} == {'weather({"city": "Łódź", "unit": "C"})'}


@pytest.mark.parametrize(
    "call", [None, 3, {}, {"name": 3, "arguments": {}}, {"name": "x"}, {"name": "x", "arguments": "{"},
             {"name": "x", "arguments": "[]"}, {"name": "x", "args": [3]}]
)  # fmt: skip
def test_values_that_are_no_calls_have_no_block(call: JsonValue) -> None:
    assert all(
        not block.source
        for block in blocks(REQUEST, [{"source": "turn", "calls": [call]}, {"source": "turn", "calls": call}])
    )


def test_an_omitted_text_has_no_block() -> None:
    assert places({"source": "turn", "text": "Long ago."}) == []


def test_a_workflow_may_give_the_path() -> None:
    assert places({"source": "artifact", "path": "/messages/1", "text": "whatever"}) == [
        ("/messages/1", "artifact", "")
    ]


def test_a_text_without_a_source_has_a_block_without_one() -> None:
    unknown = [block for block in blocks(REQUEST, None) if not block.source]
    assert [block.path for block in unknown] == [
        "/messages/0/content", "/messages/1/content", "/messages/2/content",
        "/tools/0/function/description", "/a~1b/~0/text",
    ]  # fmt: skip
    guessed = blocks(REQUEST, [{"source": "guess", "text": "You help."}])
    assert (guessed[0].path, guessed[0].source) == ("/messages/0/content", "")


@pytest.mark.parametrize("sources", [None, "text", {}, [3, None, {}, {"text": 3}, {"text": ""}]])
def test_invalid_sources_are_ignored(sources: JsonValue) -> None:
    assert all(not block.source for block in blocks(REQUEST, sources))


def test_excerpts_and_their_number_are_bounded() -> None:
    request = {"messages": [{"content": f"{n} " + "x" * 400} for n in range(MAX_BLOCKS + 9)]}
    found = blocks(request, [])
    assert len(found) == MAX_BLOCKS and len(found[0].excerpt) == EXCERPT
    assert found[0].tokens == 101
