"""Lists of tools in the form of each request format, and the bounded memory of them (feature M10)."""

from __future__ import annotations

from typing import Any

import pytest

from wonder_server.core.expressions import ExpressionError, evaluate
from wonder_server.core.request_formats import FORMATS, tool_lists
from wonder_server.core.request_formats.tool_lists import MAX_KEPT, MIN_KEPT, ToolLists
from wonder_server.core.schema import payloads
from wonder_server.core.token_estimates import json_tokens

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
PLAIN = {"name": "find", "description": "Find it.", "input_schema": SCHEMA}
DEFINED = {**PLAIN, "id": "def_1", "target_type": "task", "async": False}
FUNCTION = {"name": "find", "description": "Find it.", "parameters": SCHEMA}
WRITTEN = {
    "openai_chat": {"type": "function", "function": FUNCTION},
    "openai_responses": {"type": "function", **FUNCTION, "strict": False},
    "anthropic_messages": PLAIN,
    "gemini": {"name": "find", "description": "Find it.", "parametersJsonSchema": SCHEMA},
}


def many(count: int = MIN_KEPT) -> list[Any]:
    return [{**DEFINED, "name": f"find_{number}"} for number in range(count)]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("tool", [PLAIN, DEFINED])
def test_a_tool_is_written_in_each_format(name: str, tool: dict[str, Any]) -> None:
    scope = {"input": {"tools": [tool], "format": name}}
    assert evaluate("provider_tools(input.tools, input.format)", scope) == [WRITTEN[name]]


def test_a_tool_of_the_provider_keeps_its_fields() -> None:
    own = {"type": "web_search", "name": "web_search", "max_uses": 3}
    assert ToolLists().written([own], "anthropic_messages") == [own]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("provider_tools([], 'smoke')", "there is no request format 'smoke'"),
        ("provider_tools('x', 'gemini')", "it takes a list, not string"),
        ("provider_tools([1], 'gemini')", "it takes a map, not int"),
        ("provider_tools([], 1)", "it takes a text, not int"),
        ("provider_tools([{'name': 'a', 'description': ''}], 'gemini')", "a tool has no 'input_schema'"),
    ],
)
def test_other_values_are_refused(expression: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        evaluate(expression, {})


def test_the_same_list_gives_the_same_result_and_the_memory_is_bounded() -> None:
    lists, tools = ToolLists(), many()
    first = lists.written(tools, "gemini")
    assert lists.written(tools, "gemini") is first
    assert lists.written(tools, "openai_chat") is not first
    assert lists.written(many(), "gemini") is not first
    others = [many() for _ in range(MAX_KEPT)]
    for other in others:
        lists.written(other, "gemini")
    again = lists.written(tools, "gemini")
    assert again == first and again is not first
    assert len(lists._kept) == MAX_KEPT
    few = many(MIN_KEPT - 1)
    assert lists.written(few, "gemini") is not lists.written(few, "gemini")


def test_what_is_kept_costs_an_expression_the_same() -> None:
    scope = {"input": {"tools": many(1_000)}}
    once = evaluate("provider_tools(input.tools, 'gemini')", scope)
    assert evaluate("provider_tools(input.tools, 'gemini')", scope) is once
    assert len(tool_lists.TOOL_LISTS._kept) <= MAX_KEPT


@pytest.mark.parametrize("count", [0, 1, MIN_KEPT - 1, MIN_KEPT, 200])
def test_the_estimate_of_a_request_is_that_of_its_parts(count: int) -> None:
    request: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hällo"}]}
    request["tools"] = many(count)
    # Under another name nothing is kept.
    other = {("items" if name == "tools" else name): value for name, value in request.items()}
    assert json_tokens(request) == json_tokens(request) == json_tokens(other)


def test_a_large_list_is_checked_once_and_only_a_few_are_remembered() -> None:
    lists = [many(2_000) for _ in range(payloads._MAX_LARGE + 2)]
    for each in lists:
        for _ in range(2):
            assert payloads.check({"tools": each}) is None
    assert len(payloads._large) <= payloads._MAX_LARGE
