"""Tests that every request is valid by the provider's documentation (`tests.fakes.provider_validation`)."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.provider_validation import rejection
from wonder_server.adapters.models import formats
from wonder_server.core.conversation.context.dialects import DIALECTS, dialect_of
from wonder_server.core.conversation.model.values import ToolErrorCode, ToolResult
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ToolCall
from wonder_server.core.request_formats import for_side_call, valid_request
from wonder_server.core.request_formats.parts import all_readable

PROVIDERS = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic_messages": "anthropic",
    "gemini": "gemini",
}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def profile(format_name: str, **parameters: JsonValue) -> ModelProfile:
    return ModelProfile(provider=PROVIDERS[format_name], model="m", format=format_name, parameters=parameters)


def sent(format_name: str, request: JsonDict, **parameters: JsonValue) -> JsonDict:
    """Return the request as it is sent. The input is not changed in place."""
    before = copy.deepcopy(request)
    body: JsonDict = all_readable(
        formats.apply_parameters(profile(format_name, **parameters), request, format_name)
    )
    assert request == before
    again, _ = valid_request(format_name, body, PROVIDERS[format_name])
    assert again == body, "what is valid is left as it is"
    if format_name == "openai_chat":
        body = {**body, "stream": True}
    return body


def tool(format_name: str, name: str, schema: JsonValue, description: str = "d") -> JsonDict:
    match format_name:
        case "openai_chat":
            function = {"name": name, "description": description, "parameters": schema}
            return {"type": "function", "function": function}
        case "openai_responses":
            return {"type": "function", "name": name, "description": description, "parameters": schema}
        case "anthropic_messages":
            return {"name": name, "description": description, "input_schema": schema}
        case _:
            declaration = {"name": name, "description": description, "parametersJsonSchema": schema}
            return {"functionDeclarations": [declaration]}


def build_request(format_name: str, *said: tuple[str, str], tools: list[JsonDict] | None = None) -> JsonDict:
    """Return a request in the form of the standard library."""
    messages = [{"role": role, "content": text} for role, text in said]
    request: JsonDict
    match format_name:
        case "openai_chat":
            request = {"model": "m", "messages": [{"role": "system", "content": "S"}, *messages]}
        case "openai_responses":
            request = {"model": "m", "instructions": "S", "input": messages}
        case "anthropic_messages":
            request = {"model": "m", "system": "S", "messages": messages}
        case _:
            roles = {"user": "user", "assistant": "model"}
            contents = [{"role": roles[role], "parts": [{"text": text}]} for role, text in said]
            request = {"contents": contents}
    return {**request, **({"tools": tools} if tools else {})}


# --- any answer of a model --------------------------------------------------------------------------

BLANK = st.sampled_from(["", " ", "\n", "\t \n", "\x00"])
PIECES = BLANK | st.text(max_size=12) | st.sampled_from(["\ud800", "Hello ", "a\x00b"])
NAMES = st.sampled_from(["find", "", " ", "no such tool", "9lives", "-x", "é", "a" * 100]) | st.text(
    max_size=8
)
IDS = st.sampled_from(["", "call_1", "call_1", "call 2", "é", "x" * 100]) | st.text(max_size=6)
CALLS = st.builds(
    ToolCall,
    id=IDS,
    name=NAMES,
    arguments=st.none() | st.just({}) | st.dictionaries(st.text(max_size=3), PIECES, max_size=2),
)
OUTPUTS = PIECES | st.none() | st.just({}) | st.lists(PIECES, max_size=2)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[ToolCall], list[ToolResult]]:
    """Draw an answer of a model and results: of its calls, sometimes of others, repeated or missing."""
    calls = draw(st.lists(CALLS, max_size=3))
    results = [
        ToolResult(tool_call_id=call.id, success=True, result=draw(OUTPUTS))
        if draw(st.booleans())
        else ToolResult(tool_call_id=call.id, success=False, code=ToolErrorCode.TIMEOUT, message=draw(PIECES))
        for call in calls
    ]
    if results and draw(st.integers(0, 4)) == 0:
        results.pop(draw(st.integers(0, len(results) - 1)))
    return draw(PIECES), calls, results


@pytest.mark.parametrize("format_name", PROVIDERS)
@given(
    history=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), PIECES), max_size=4),
    said=st.lists(answers(), max_size=3),
    notice=st.none() | PIECES,
    wraps_up=st.booleans(),
)
def test_the_next_request_is_valid_after_any_answer(
    format_name: str,
    history: list[tuple[str, str]],
    said: list[tuple[str, list[ToolCall], list[ToolResult]]],
    notice: str | None,
    wraps_up: bool,
) -> None:
    dialect = dialect_of(format_name)
    request = build_request(
        format_name, *history, ("user", "Now?"), tools=[tool(format_name, "find", SCHEMA)]
    )
    for text, calls, results in said:
        raw = formats.message(format_name, text, calls)
        request = dialect.resume(request, raw, results)
    if notice is not None:
        request = dialect.notice(request, notice)
    if wraps_up:
        request = dialect.wrap_up(request, "Stop.")
    assert rejection(format_name, sent(format_name, request)) == ""


@pytest.mark.parametrize("format_name", PROVIDERS)
@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\t"])
def test_an_answer_of_white_space_is_not_sent_back(format_name: str, blank: str) -> None:
    request = build_request(format_name, ("user", "Hello?"), ("assistant", blank), ("user", "Are you there?"))
    assert rejection(format_name, request | {"max_tokens": 9} if format_name[0] == "a" else request)
    body = sent(format_name, request)
    assert rejection(format_name, body) == ""
    assert len(body[DIALECTS[format_name].messages]) == len(request[DIALECTS[format_name].messages]) - 1


@pytest.mark.parametrize("format_name", PROVIDERS)
def test_a_valid_request_is_sent_unchanged(format_name: str) -> None:
    tools = [tool(format_name, "find", SCHEMA)]
    request = build_request(
        format_name, ("user", "Hello?"), ("assistant", "Yes."), ("user", "Look."), tools=tools
    )
    calls = [ToolCall(id="c1", name="find", arguments={"q": "x"})]
    raw = formats.message(format_name, "I look.", calls)
    request = dialect_of(format_name).resume(
        request, raw, [ToolResult(tool_call_id="c1", success=True, result={"n": 1})]
    )
    body, notes = valid_request(format_name, request, PROVIDERS[format_name])
    assert (body, notes) == (request, [])
    messages = DIALECTS[format_name].messages
    assert all(a is b for a, b in zip(body[messages], request[messages], strict=True))


def test_thoughts_without_a_signature_or_without_an_answer_are_not_sent_back() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    unsigned = {"type": "thinking", "thinking": "Hm."}
    text = {"type": "text", "text": "Yes."}
    for content, kept in (([unsigned, text], [text]), ([thought], None), ([thought, text], [thought, text])):
        request = build_request("anthropic_messages", ("user", "Hello?"))
        request["messages"] += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": "Go on."},
        ]
        body = sent("anthropic_messages", request)
        assert rejection("anthropic_messages", body) == ""
        found = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
        assert found == ([] if kept is None else [kept])


def test_an_answer_to_continue_does_not_end_with_white_space() -> None:
    body = sent(
        "anthropic_messages",
        build_request("anthropic_messages", ("user", "Hello?"), ("assistant", "It is \n")),
    )
    assert body["messages"][-1]["content"] == "It is"
    assert rejection("anthropic_messages", body) == ""


def test_signatures_of_gemini_stay_in_place() -> None:
    signed = {"text": "", "thoughtSignature": "abc"}
    request = build_request("gemini", ("user", "Hello?"))
    request["contents"] += [
        {"role": "model", "parts": [{"text": "Yes."}, {"text": " "}, signed]},
        {"role": "user", "parts": [{"text": "Go on."}]},
    ]
    body = sent("gemini", request)
    assert body["contents"][1]["parts"] == [{"text": "Yes."}, signed]
    assert rejection("gemini", body) == ""


def test_reasoning_of_responses_without_its_item_is_omitted() -> None:
    request = build_request("openai_responses", ("user", "Hello?"))
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    blank = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": " "}]}
    request["input"] += [thought, blank, {"role": "user", "content": "And?"}]
    body = sent("openai_responses", request)
    assert thought not in body["input"] and rejection("openai_responses", body) == ""


# --- parameters that depend on others ---------------------------------------------------------------

THINKING = {"thinking": {"type": "enabled", "budget_tokens": 8000}}
JSON_OBJECT = {"type": "json_object"}


@pytest.mark.parametrize(
    ("format_name", "parameters", "own", "gone"),
    [
        ("openai_chat", {"parallel_tool_calls": False}, {}, ["parallel_tool_calls"]),
        ("openai_chat", {"tool_choice": "auto"}, {}, ["tool_choice"]),
        ("openai_chat", {"tools": []}, {}, ["tools"]),
        ("openai_chat", {"function_call": "auto"}, {}, ["function_call"]),
        ("openai_chat", {"response_format": JSON_OBJECT}, {}, ["response_format"]),
        ("openai_chat", {"max_tokens": 9}, {"max_completion_tokens": 20}, ["max_tokens"]),
        ("openai_chat", {"max_tokens": 9, "max_completion_tokens": 20}, {}, ["max_tokens"]),
        ("openai_chat", {"n": 3}, {}, ["n"]),
        ("openai_chat", {"top_logprobs": 3}, {}, ["top_logprobs"]),
        ("openai_responses", {"parallel_tool_calls": True, "tool_choice": "auto"}, {}, ["tool_choice"]),
        ("openai_responses", {"text": {"format": JSON_OBJECT}}, {}, ["text"]),
        ("openai_responses", {"max_output_tokens": 5}, {}, []),
        ("anthropic_messages", THINKING, {"max_tokens": 1024}, ["thinking"]),
        ("anthropic_messages", {**THINKING, "max_tokens": 1024}, {}, ["thinking"]),
        ("anthropic_messages", {**THINKING, "max_tokens": 4096}, {}, []),
        ("anthropic_messages", THINKING, {}, []),
        ("anthropic_messages", {**THINKING, "temperature": 0.2}, {}, ["temperature"]),
        ("anthropic_messages", {**THINKING, "top_k": 5, "top_p": 0.5}, {}, ["top_k", "top_p"]),
        ("anthropic_messages", {"tool_choice": {"type": "auto"}}, {}, ["tool_choice"]),
        ("anthropic_messages", {"stop_sequences": [" ", ""]}, {}, ["stop_sequences"]),
        ("anthropic_messages", {}, {"system": " "}, ["system"]),
        ("anthropic_messages", {}, {"system": [{"type": "text", "text": ""}]}, ["system"]),
        ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, {}, ["toolConfig"]),
        ("gemini", {"generationConfig": {"candidateCount": 2}}, {}, []),
        ("gemini", {"tools": [{"functionDeclarations": []}]}, {}, ["tools"]),
        ("gemini", {}, {"systemInstruction": {"parts": [{"text": ""}]}}, ["systemInstruction"]),
    ],
)
def test_a_parameter_that_conflicts_with_others_is_not_sent(
    format_name: str, parameters: JsonDict, own: JsonDict, gone: list[str]
) -> None:
    request = {**build_request(format_name, ("user", "Hello?")), **own}
    body = sent(format_name, request, **parameters)
    assert rejection(format_name, body) == ""
    assert [name for name in gone if name in body] == []


def test_a_thinking_model_keeps_tokens_for_its_answer_without_a_limit() -> None:
    body = sent("anthropic_messages", build_request("anthropic_messages", ("user", "Hello?")), **THINKING)
    assert body["max_tokens"] == 12_096 and body["thinking"]["budget_tokens"] == 8000


def test_a_turn_that_started_without_a_thought_continues_without_one() -> None:
    request = build_request(
        "anthropic_messages", ("user", "?"), tools=[tool("anthropic_messages", "find", SCHEMA)]
    )
    raw = formats.message("anthropic_messages", "", [ToolCall(id="c1", name="find", arguments={})])
    results = [ToolResult(tool_call_id="c1", success=True, result="ok")]
    request = dialect_of("anthropic_messages").resume(request, raw, results)
    body = sent("anthropic_messages", request, **THINKING)
    assert "thinking" not in body and rejection("anthropic_messages", body) == ""


def test_a_request_with_calls_declares_the_called_tools() -> None:
    request = build_request("anthropic_messages", ("user", "?"))
    raw = formats.message("anthropic_messages", "", [ToolCall(id="c1", name="find", arguments={})])
    results = [ToolResult(tool_call_id="c1", success=True, result="ok")]
    body = sent("anthropic_messages", dialect_of("anthropic_messages").resume(request, raw, results))
    assert [each["name"] for each in body["tools"]] == ["find"] and body["tool_choice"] == {"type": "none"}
    assert rejection("anthropic_messages", body) == ""


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({"temperature": 0.2, "max_tokens": 50, "stop": ["x"], "response_format": {}}, {"temperature": 0.2}),
        ({"reasoning_effort": "low", "tool_choice": "auto", "n": 2}, {"reasoning_effort": "low"}),
        ({**THINKING, "service_tier": "auto"}, {"service_tier": "auto"}),
        (
            {"generationConfig": {"temperature": 0, "responseMimeType": "x", "thinkingConfig": {}}},
            {"generationConfig": {"temperature": 0}},
        ),
        ({"generationConfig": {"maxOutputTokens": 5}}, {}),
        ({"output_config": {"effort": "low", "format": {}}}, {"output_config": {"effort": "low"}}),
    ],
)
def test_a_summary_inherits_connection_parameters_but_no_answer_parameters(
    parameters: JsonDict, kept: JsonDict
) -> None:
    assert for_side_call(parameters) == kept


# --- tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", PROVIDERS)
@pytest.mark.parametrize(
    ("schema", "fields", "required"),
    [
        ({}, [], []),
        ({"properties": {"a": {}}, "required": ["a"]}, ["a"], ["a"]),
        (
            {
                "anyOf": [
                    {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
                    {"properties": {"a": {}}, "required": ["a"]},
                ]
            },
            ["a", "b"],
            ["a"],
        ),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            ["a", "b"],
            ["a"],
        ),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}}, ["a"], []),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}, [], []),
        ({"type": "array", "items": {}}, [], []),
        ({"enum": [{"a": 1}]}, [], []),
        (None, [], []),
        (True, [], []),
    ],
)
def test_the_schema_of_a_tool_is_an_object_with_its_fields(
    format_name: str, schema: JsonValue, fields: list[str], required: list[str]
) -> None:
    request = build_request(format_name, ("user", "?"), tools=[tool(format_name, "find", schema)])
    body = sent(format_name, request)
    assert rejection(format_name, body) == ""
    text = json.dumps(body["tools"])
    (found,) = [
        each for each in _schemas(json.loads(text)) if each.get("type") == "object" and "properties" in each
    ]
    assert sorted(found["properties"]) == fields and found.get("required", []) == required


def _schemas(value: JsonValue) -> list[JsonDict]:
    keys = ("parameters", "input_schema", "parametersJsonSchema")
    if isinstance(value, list):
        return [found for each in value for found in _schemas(each)]
    if not isinstance(value, dict):
        return []
    return [value[key] for key in keys if key in value] + [
        found for key in ("function", "functionDeclarations") for found in _schemas(value.get(key))
    ]


@pytest.mark.parametrize("format_name", PROVIDERS)
def test_a_tool_with_an_invalid_name_is_omitted_with_a_note(format_name: str) -> None:
    names = ["find", "", "no such name", "é", "find", "x" * 200]
    request = build_request(
        format_name, ("user", "?"), tools=[tool(format_name, name, SCHEMA) for name in names]
    )
    assert rejection(format_name, sent(format_name, request)) == ""
    _, notes = valid_request(format_name, request, PROVIDERS[format_name])
    assert len(notes) >= (4 if format_name == "gemini" else 5)
    assert any("'no such name' is left out" in note for note in notes)


def test_openai_gets_descriptions_up_to_its_maximum_length() -> None:
    tools = [tool("openai_chat", "find", SCHEMA, "d" * 2000)]
    body = sent("openai_chat", build_request("openai_chat", ("user", "?"), tools=tools))
    assert len(body["tools"][0]["function"]["description"]) == 1024
