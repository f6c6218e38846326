"""OpenAI chat completions. Sources: OpenAI, "Create chat completion", and the errors of its servers."""

from __future__ import annotations

import re

from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats.format import RequestFormat
from wonder_server.core.request_formats.parts import (
    EMPTY_MESSAGE,
    EMPTY_RESULT,
    Ids,
    Notes,
    Request,
    is_blank,
    json_object,
    listed,
    objects,
    shortened,
    tool_schema,
    valid_name,
    valid_tools,
    without,
)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_TOOLS, MAX_ID, MAX_DESCRIPTION = 128, 40, 1024


def valid(request: Request, provider: str, notes: Notes) -> Request:
    """Return a valid form of the request."""
    strict = provider == "openai"
    request = {**request, "messages": _messages(request.get("messages"), MAX_ID if strict else 0)}
    tools = _tools(listed(request.get("tools")), MAX_DESCRIPTION if strict else 0, notes)
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
    # The server reads one answer; more would only add cost.
    return without(request, "n")


def says_json(messages: list[JsonDict]) -> bool:
    """Return True if a message contains the word "json", which the provider requires for JSON output."""
    return any("json" in str(message.get("content", "")).lower() for message in messages)


def _asks_for_json(wanted: JsonValue) -> bool:
    return isinstance(wanted, dict) and wanted.get("type") == "json_object"


def _tools(tools: list[JsonValue], longest: int, notes: Notes) -> list[JsonValue]:
    functions = [tool["function"] for tool in objects(tools) if isinstance(tool.get("function"), dict)]
    others = [tool for tool in objects(tools) if not isinstance(tool.get("function"), dict)]
    by_id = {id(tool["function"]): tool for tool in objects(tools) if isinstance(tool.get("function"), dict)}
    kept = []
    for function in valid_tools(functions, NAME, notes)[:MAX_TOOLS]:
        fitted = shortened(
            {**function, "parameters": tool_schema(function.get("parameters"))}, longest, notes
        )
        kept.append({**by_id[id(function)], "function": fitted})
    return [*kept, *others]


def _messages(given: JsonValue, longest_id: int) -> list[JsonDict]:
    messages, valid_messages, ids = objects(given), list[JsonDict](), Ids(longest_id)
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        if message.get("role") == "tool":
            continue  # The call of this result was omitted.
        if message.get("role") != "assistant":
            readable = _readable_message(message)
            if readable is None and at == len(messages) and message.get("role") == "user":
                readable = {**message, "content": EMPTY_MESSAGE}
            if readable is not None:
                valid_messages.append(readable)
            continue
        results = []
        while at < len(messages) and messages[at].get("role") == "tool":
            results.append(messages[at])
            at += 1
        valid_messages += _answer(message, results, ids)
    return valid_messages or [{"role": "user", "content": EMPTY_MESSAGE}]


def _readable_message(message: JsonDict) -> JsonDict | None:
    """Return the message with its readable parts; None without any."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part for part in content if not _is_blank_part(part)]
        if not parts:
            return None
        return message if len(parts) == len(content) else {**message, "content": parts}
    return None if is_blank(content) else message


def _is_blank_part(part: JsonValue) -> bool:
    return not isinstance(part, dict) or (part.get("type") in ("text", None) and is_blank(part.get("text")))


def _answer(message: JsonDict, results: list[JsonDict], ids: Ids) -> list[JsonDict]:
    """Return an answer with its answered calls, followed by their results."""
    calls, answers, left = [], [], list(results)
    for call in objects(message.get("tool_calls")):
        result = next((each for each in left if each.get("tool_call_id") == call.get("id")), None)
        if result is None:
            continue
        left.remove(result)
        call_id = ids.assign(call.get("id"))
        calls.append(_call(call, call_id))
        answers.append(_result(result, call_id))
    readable = _readable_message(message)
    if calls:
        content = message.get("content") if readable is None else readable.get("content")
        content = None if readable is None else content
        changed = {"content": content, "tool_calls": calls}
        same = all(message.get(name) == value for name, value in changed.items())
        return [message if same else {**message, **changed}, *answers]
    bare = without(readable or message, "tool_calls", "reasoning_content")
    if readable is not None:
        return [bare]
    return [] if is_blank(message.get("refusal")) else [{**bare, "content": None}]


def _call(call: JsonDict, call_id: str) -> JsonDict:
    given = call.get("function")
    function = given if isinstance(given, dict) else {}
    name, arguments = valid_name(function.get("name"), NAME), json_object(function.get("arguments"))
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


def _result(result: JsonDict, call_id: str) -> JsonDict:
    readable = _readable_message(result)
    if readable is not None and result.get("tool_call_id") == call_id:
        return readable
    return {**(readable or {**result, "content": EMPTY_RESULT}), "tool_call_id": call_id}


FORMAT = RequestFormat(
    name="openai_chat",
    provider="openai",
    provider_title="OpenAI",
    messages="messages",
    tool_name=NAME,
    max_description=MAX_DESCRIPTION,
    make_valid=valid,
)
