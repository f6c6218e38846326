"""OpenAI chat completions. Sources: OpenAI, "Create chat completion", and the errors of its servers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wonder_server.core.content.media_types import part_type
from wonder_server.core.content.parts import IMAGE, joined, stand_in
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats import output_schemas
from wonder_server.core.request_formats.format import FileContent, RequestFormat, Show, file_of, in_words
from wonder_server.core.request_formats.neutral import (
    ASSISTANT,
    FILES_NOTE,
    TOOL,
    USER,
    arguments_text,
    calls_of,
    content_of,
    files_of,
    is_empty,
    plain_message,
    text_block,
    text_message,
)
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


def ask_output(request: Request, parameters: JsonObject, schema: JsonDict) -> Request | None:
    """Return the request with the schema as ``response_format``."""
    given = request.get("response_format", parameters.get("response_format"))
    if not is_plain_text(given):
        return None
    form = {"name": output_schemas.NAME, "schema": schema, "strict": output_schemas.is_strict(schema)}
    return {**request, "response_format": {"type": "json_schema", "json_schema": form}}


def is_plain_text(form: JsonValue) -> bool:
    """Return True if a form of answers is unset or plain text."""
    return form is None or (isinstance(form, dict) and form.get("type") == "text")


def write_messages(messages: Sequence[JsonObject]) -> list[JsonDict]:
    """Return messages in the neutral form as those of a chat: a message for each result."""
    written: list[JsonDict] = []
    for message in messages:
        text = text_message(message)
        if text is not None:
            written.append(text)
        elif not is_empty(message):
            written.append(_written(message))
    return written


def fill_result(message: JsonDict, show: Show) -> tuple[JsonDict, list[JsonDict]] | None:
    """See `RequestFormat.fill_result`. The content of a result is one text, which all servers accept."""
    content = message.get("content")
    if message.get("role") != TOOL:
        return None
    items = objects(content)
    if not any(file_of(item) is not None for item in items):
        return message, []
    words, parts = in_words(items, show)
    texts = [text_block(each) if isinstance(each, str) else each for each in words]
    if all(isinstance(each.get("text"), str) for each in texts):
        return {**message, "content": "\n".join([each["text"] for each in texts])}, parts
    return {**message, "content": texts}, parts


def files_message(parts: Sequence[JsonDict]) -> JsonDict:
    """Return the message after tool results that shows their images and documents."""
    return {"role": USER, "content": [text_block(FILES_NOTE), *parts]}


def _written(message: JsonObject) -> JsonDict:
    if message.get("role") == TOOL:
        content = FORMAT.write_result(message.get("content"), files_of(message))
        return {"role": TOOL, "tool_call_id": message.get("tool_call_id"), "content": content}
    calls = calls_of(message)
    if not calls:
        return plain_message(message, text_block)
    content = content_of(message)
    return {
        "role": ASSISTANT,
        "content": None if is_blank(content) else content,
        "tool_calls": [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call["name"], "arguments": arguments_text(call)},
            }
            for call in calls
        ],
    }


def write_file(content: FileContent) -> JsonDict:
    """Return an image or a document as a part of a user's message."""
    if part_type(content.media_type) == IMAGE:
        return {"type": "image_url", "image_url": {"url": content.url}}
    return {"type": "file", "file": {"filename": content.name, "file_data": content.url}}


def describe_images(raw: JsonDict, files: Sequence[JsonDict]) -> JsonDict:
    """Return an answer with its images in words: a message of an assistant has only texts."""
    content = raw.get("content")
    words = [stand_in(file, str(file.get("remark", ""))) for file in files]
    return {**raw, "content": joined([*([content] if isinstance(content, str) and content else []), *words])}


FORMAT = RequestFormat(
    name="openai_chat",
    provider="openai",
    provider_title="OpenAI",
    messages="messages",
    tool_name=NAME,
    max_description=MAX_DESCRIPTION,
    make_valid=valid,
    ask_output=ask_output,
    write_messages=write_messages,
    write_text=text_block,
    write_file=write_file,
    describe_images=describe_images,
    fill_result=fill_result,
    files_message=files_message,
)
