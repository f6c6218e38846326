"""OpenAI chat completions. Sources: OpenAI, "Create chat completion", and the errors of its servers."""

from __future__ import annotations

import re
from typing import Any

from wonder_server.core.request_formats.format import RequestFormat
from wonder_server.core.request_formats.parts import (
    EMPTY_MESSAGE,
    EMPTY_RESULT,
    Ids,
    Notes,
    Request,
    fit_tools,
    fitting_name,
    is_blank,
    json_object,
    listed,
    objects,
    shortened,
    tool_schema,
    without,
)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MOST_TOOLS, LONGEST_ID, LONGEST_DESCRIPTION = 128, 40, 1024


def valid(request: Request, provider: str, notes: Notes) -> Request:
    strict = provider == "openai"
    request = {**request, "messages": _messages(request.get("messages"), LONGEST_ID if strict else 0)}
    tools = _tools(listed(request.get("tools")), LONGEST_DESCRIPTION if strict else 0, notes)
    request = (
        {**request, "tools": tools}
        if tools
        else without(request, "tools", "tool_choice", "parallel_tool_calls")
    )
    if not request.get("functions"):
        request = without(request, "functions", "function_call")
    if request.get("max_completion_tokens") is not None and "max_tokens" in request:
        request = without(request, "max_tokens")
    if not request.get("logprobs"):
        request = without(request, "top_logprobs")
    if _asks_for_json(request.get("response_format")) and not says_json(request["messages"]):
        request = without(request, "response_format")
    # One answer is read; the others would be paid for.
    return without(request, "n")


def says_json(messages: list[dict[str, Any]]) -> bool:
    """Whether some message has the word, without which JSON may not be asked for."""
    return any("json" in str(message.get("content", "")).lower() for message in messages)


def _asks_for_json(wanted: Any) -> bool:
    return isinstance(wanted, dict) and wanted.get("type") == "json_object"


def _tools(tools: list[Any], longest: int, notes: Notes) -> list[Any]:
    functions = [tool["function"] for tool in objects(tools) if isinstance(tool.get("function"), dict)]
    others = [tool for tool in objects(tools) if not isinstance(tool.get("function"), dict)]
    by_id = {id(tool["function"]): tool for tool in objects(tools) if isinstance(tool.get("function"), dict)}
    kept = []
    for function in fit_tools(functions, NAME, notes)[:MOST_TOOLS]:
        fitted = shortened(
            {**function, "parameters": tool_schema(function.get("parameters"))}, longest, notes
        )
        kept.append({**by_id[id(function)], "function": fitted})
    return [*kept, *others]


def _messages(given: Any, longest_id: int) -> list[dict[str, Any]]:
    messages, said, ids = objects(given), list[dict[str, Any]](), Ids(longest_id)
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        if message.get("role") == "tool":
            continue  # Its call was left out.
        if message.get("role") != "assistant":
            spoken = _readable_message(message)
            if spoken is None and at == len(messages) and message.get("role") == "user":
                spoken = {**message, "content": EMPTY_MESSAGE}
            if spoken is not None:
                said.append(spoken)
            continue
        results = []
        while at < len(messages) and messages[at].get("role") == "tool":
            results.append(messages[at])
            at += 1
        said += _answer(message, results, ids)
    return said or [{"role": "user", "content": EMPTY_MESSAGE}]


def _readable_message(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message with what can be read of it; None if that is nothing."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part for part in content if not _is_blank_part(part)]
        if not parts:
            return None
        return message if len(parts) == len(content) else {**message, "content": parts}
    return None if is_blank(content) else message


def _is_blank_part(part: Any) -> bool:
    return not isinstance(part, dict) or (part.get("type") in ("text", None) and is_blank(part.get("text")))


def _answer(message: dict[str, Any], results: list[dict[str, Any]], ids: Ids) -> list[dict[str, Any]]:
    """An answer of the model with the calls that have a result, and the results behind it."""
    calls, answers, left = [], [], list(results)
    for call in objects(message.get("tool_calls")):
        result = next((each for each in left if each.get("tool_call_id") == call.get("id")), None)
        if result is None:
            continue
        left.remove(result)
        call_id = ids.fitting(call.get("id"))
        calls.append(_call(call, call_id))
        answers.append(_result(result, call_id))
    spoken = _readable_message(message)
    if calls:
        content = message.get("content") if spoken is None else spoken.get("content")
        content = None if spoken is None else content
        changed = {"content": content, "tool_calls": calls}
        same = all(message.get(name) == value for name, value in changed.items())
        return [message if same else {**message, **changed}, *answers]
    bare = without(spoken or message, "tool_calls", "reasoning_content")
    if spoken is not None:
        return [bare]
    return [] if is_blank(message.get("refusal")) else [{**bare, "content": None}]


def _call(call: dict[str, Any], call_id: str) -> dict[str, Any]:
    given = call.get("function")
    function = given if isinstance(given, dict) else {}
    name, arguments = fitting_name(function.get("name"), NAME), json_object(function.get("arguments"))
    if (name, arguments, call_id, "function") == (
        function.get("name"), function.get("arguments"), call.get("id"), call.get("type"),
    ):  # fmt: skip
        return call
    return {
        **call,
        "id": call_id,
        "type": "function",
        "function": {**function, "name": name, "arguments": arguments},
    }


def _result(result: dict[str, Any], call_id: str) -> dict[str, Any]:
    spoken = _readable_message(result)
    if spoken is not None and result.get("tool_call_id") == call_id:
        return spoken
    return {**(spoken or {**result, "content": EMPTY_RESULT}), "tool_call_id": call_id}


FORMAT = RequestFormat(
    name="openai_chat",
    provider="openai",
    provider_title="OpenAI",
    messages="messages",
    tool_name=NAME,
    max_description=LONGEST_DESCRIPTION,
    make_valid=valid,
)
