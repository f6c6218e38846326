"""`rejection`: the requests that real providers answer with 400.

It follows the providers' documents and errors, and is independent of the code that makes requests valid, so
that the two can disagree. The scripted provider checks every request with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from wonder_server.core.json_types import JsonDict, JsonValue

_OPENAI_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_ANTHROPIC_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
_ANTHROPIC_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_ANTHROPIC_FIELD = re.compile(r"^[a-zA-Z0-9_.-]{1,64}$")
_GEMINI_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$")


class RejectedError(Exception):
    pass


def rejection(format_name: str, body: JsonDict) -> str:
    """Return why the provider refuses the request; empty if it accepts it."""
    try:
        _readable(body)
        _FORMATS[format_name](body)
    except RejectedError as problem:
        return str(problem)
    return ""


def reject(condition: object, why: str) -> None:
    if condition:
        raise RejectedError(why)


def _readable(value: JsonValue) -> None:
    match value:
        case str():
            reject("\x00" in value, "null characters are not taken")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise RejectedError("the body is not valid JSON: a surrogate stands alone") from None
        case dict():
            for name, each in value.items():
                _readable(name)
                _readable(each)
        case list():
            for each in value:
                _readable(each)


def _is_blank(text: JsonValue) -> bool:
    return not isinstance(text, str) or not text.strip()


def _schema(schema: JsonValue, where: str) -> None:
    reject(not isinstance(schema, dict), f"{where}: not a schema")
    reject(schema.get("type") != "object", f"{where}: schema must have type 'object'")
    for keyword in ("oneOf", "anyOf", "allOf", "enum", "not"):
        reject(keyword in schema, f"{where}: '{keyword}' is not supported at the top level")
    reject("$ref" in schema, f"{where}: '$ref' is not supported at the top level")


# --- OpenAI chat ------------------------------------------------------------------------------------


def _openai_chat(body: JsonDict) -> None:
    messages = body.get("messages")
    reject(not isinstance(messages, list) or not messages, "messages: [] is too short")
    assert isinstance(messages, list)
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            call_id = message.get("tool_call_id")
            reject(call_id not in waiting, f"messages.{at}: role 'tool' must follow its 'tool_calls'")
            waiting.remove(call_id)
            reject(_empty(content), f"messages.{at}: a tool's content is empty")
            continue
        reject(waiting, f"tool_call_ids did not have response messages: {waiting}")
        reject(role not in ("system", "developer", "user", "assistant"), f"messages.{at}: role {role!r}")
        calls = message.get("tool_calls")
        reject(calls == [], f"messages.{at}.tool_calls: [] is too short")
        if not calls and not message.get("refusal"):
            reject(_empty(content), f"messages.{at}: content is empty")
        kinds = {part.get("type") for part in content} if isinstance(content, list) else set()
        reject(
            bool(kinds & {"image_url", "file"}) and role != "user",
            f"messages.{at}: Image URLs are only allowed for messages with role 'user'",
        )
        for call in calls or ():
            reject(role != "assistant", "only an assistant calls tools")
            reject(call.get("type") != "function", "tool_calls.type")
            reject(not call.get("id") or len(call["id"]) > 40, "tool_calls.id: string too long, at most 40")
            reject(call["id"] in waiting, "tool_calls.id: twice")
            function = call.get("function") or {}
            reject(not _OPENAI_NAME.match(function.get("name") or ""), "tool_calls.function.name: pattern")
            reject(not _is_object(function.get("arguments")), "tool_calls.function.arguments: no JSON object")
            waiting.append(call["id"])
    reject(waiting, f"tool_call_ids did not have response messages: {waiting}")
    tools = body.get("tools")
    reject(tools == [], "tools: [] is too short")
    reject(len(tools or ()) > 128, "tools: at most 128")
    for tool in tools or ():
        _function(tool.get("function") or {})
    _no_tools_no_choice(body, "tool_choice", "parallel_tool_calls")
    reject("max_tokens" in body and "max_completion_tokens" in body, "max_tokens and max_completion_tokens")
    reject("function_call" in body and not body.get("functions"), "function_call without functions")
    reject(body.get("stream_options") and not body.get("stream"), "stream_options without stream")
    reject(body.get("top_logprobs") is not None and not body.get("logprobs"), "top_logprobs without logprobs")
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        _openai_output(form.get("json_schema") or {})
    if form.get("type") == "json_object":
        reject("json" not in json.dumps(messages).lower(), "'messages' must contain the word 'json'")


def _openai_output(form: JsonDict) -> None:
    reject(not _OPENAI_NAME.match(form.get("name") or ""), "json_schema.name: pattern")
    reject(not isinstance(form.get("schema"), dict), "json_schema.schema: missing")
    if form.get("strict"):
        for part in _object_schemas(form["schema"]):
            _closed_object(part)
            reject(
                set(part.get("required", ())) != set(part["properties"]), "strict: 'required' must have all"
            )


def _object_schemas(schema: JsonValue) -> Iterator[JsonDict]:
    """Yield the schemas of objects in a schema."""
    for part in schema if isinstance(schema, list) else ():
        yield from _object_schemas(part)
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for name, part in schema.items():
            if name not in ("enum", "const", "default", "examples", "required"):
                yield from _object_schemas(part)


def _closed_object(schema: JsonDict) -> None:
    reject(schema.get("additionalProperties") is not False, "'additionalProperties' must be false")
    reject(not schema.get("properties"), "an object has no properties")


def _function(function: JsonDict) -> None:
    reject(not _OPENAI_NAME.match(function.get("name") or ""), "tools.function.name: pattern")
    reject(len(function.get("description") or "") > 1024, "tools.function.description: at most 1024")
    if "parameters" in function:
        _schema(function["parameters"], "tools.function.parameters")
        reject("properties" not in function["parameters"], "object schema missing properties")


def _no_tools_no_choice(body: JsonDict, *names: str) -> None:
    for name in names:
        reject(name in body and not body.get("tools"), f"{name} is only allowed when 'tools' are specified")


def _empty(content: JsonValue) -> bool:
    if isinstance(content, list):
        return not content or any(
            part.get("type") == "text" and _is_blank(part.get("text")) for part in content
        )
    return _is_blank(content)


def _is_object(text: JsonValue) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


# --- OpenAI responses -------------------------------------------------------------------------------


def _openai_responses(body: JsonDict) -> None:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    reject(not items, "input: missing")
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        _openai_output(form)
    assert isinstance(items, list)
    called: set[str] = set()
    answered: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message":
            reject(item.get("role") not in ("system", "developer", "user", "assistant"), f"input.{at}.role")
            reject(_no_content(item.get("content")), f"input.{at}.content is empty")
            _check_parts(item, f"input.{at}.content")
        elif kind == "function_call":
            call_id = item.get("call_id")
            reject(not call_id or len(call_id) > 64 or call_id in called, f"input.{at}.call_id")
            reject(not _OPENAI_NAME.match(item.get("name") or ""), f"input.{at}.name: pattern")
            reject(not _is_object(item.get("arguments")), f"input.{at}.arguments: no JSON object")
            called.add(call_id)
        elif kind == "function_call_output":
            reject(item.get("call_id") not in called, f"input.{at}: no tool call found for the output")
            answered.add(item["call_id"])
        elif kind == "reasoning":
            following = items[at + 1] if at + 1 < len(items) else {}
            of_model = following.get("role") == "assistant" or following.get("type") not in (
                None, "message", "function_call_output",
            )  # fmt: skip
            reject(not of_model, f"input.{at}: 'reasoning' without its required following item")
    reject(called - answered, f"No tool output found for function calls {called - answered}")
    reject(body.get("tools") == [], "tools: empty")
    for tool in body.get("tools") or ():
        if tool.get("type") == "function":
            _function(tool)
    _no_tools_no_choice(body, "tool_choice", "parallel_tool_calls")
    for name in ("max_tokens", "max_completion_tokens", "n", "messages"):
        reject(name in body, f"Unsupported parameter: '{name}'")
    reject((body.get("max_output_tokens") or 16) < 16, "max_output_tokens: at least 16")
    if ((body.get("text") or {}).get("format") or {}).get("type") == "json_object":
        reject(
            "json" not in json.dumps(items).lower() + str(body.get("instructions")).lower(), "no word 'json'"
        )


def _no_content(content: JsonValue) -> bool:
    if isinstance(content, list):
        return not content or any(
            _is_blank(part.get(_CONTENT_OF.get(part.get("type"), "text"))) for part in content
        )
    return _is_blank(content)


_CONTENT_OF = {"refusal": "refusal", "input_image": "image_url", "input_file": "file_data"}
"""The member with the content of each kind of part; "text" for the others."""
_USER_PARTS = {"input_text", "input_image", "input_file", None}
_OWN_PARTS = {"output_text", "refusal", None}


def _check_parts(item: JsonDict, where: str) -> None:
    allowed = _OWN_PARTS if item.get("role") == "assistant" else _USER_PARTS
    content = item.get("content")
    for part in content if isinstance(content, list) else ():
        reject(part.get("type") not in allowed, f"{where}: Invalid value: '{part.get('type')}'")


# --- Anthropic --------------------------------------------------------------------------------------


def _anthropic(body: JsonDict) -> None:
    most = body.get("max_tokens")
    reject(type(most) is not int or most < 1, "max_tokens: required")
    assert isinstance(most, int)
    form = (body.get("output_config") or {}).get("format") or {}
    for schema in _object_schemas(form.get("schema")):
        _closed_object(schema)
    messages = list(_merged(body.get("messages")))
    reject(not messages, "messages: at least one message is required")
    reject(messages[0]["role"] != "user", "messages: first message must use the 'user' role")
    ids: set[str] = set()
    for at, message in enumerate(messages):
        following = messages[at + 1]["content"] if at + 1 < len(messages) else []
        _anthropic_message(at, message, following, messages[at - 1]["content"] if at else [], ids)
    last = messages[-1]
    if last["role"] == "assistant" and last["content"][-1].get("type") == "text":
        text = last["content"][-1]["text"]
        reject(text != text.rstrip(), "final assistant content cannot end with trailing whitespace")
    system = body.get("system")
    if isinstance(system, list):
        reject(any(_is_blank(block.get("text")) for block in system), "system: text must be non-empty")
    elif system is not None:
        reject(_is_blank(system), "system: text must be non-empty")
    _anthropic_tools(body, messages)
    _anthropic_thinking(body, messages, most)
    for stop in body.get("stop_sequences") or ():
        reject(_is_blank(stop), "stop_sequences: each must contain non-whitespace")
    for name in ("n", "stop", "max_completion_tokens", "parallel_tool_calls", "response_format"):
        reject(name in body, f"{name}: Extra inputs are not permitted")


def _merged(messages: JsonValue) -> Iterator[JsonDict]:
    """Join consecutive messages of one role, as Anthropic does."""
    reject(not isinstance(messages, list), "messages: required")
    current: JsonDict | None = None
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        reject(role not in ("user", "assistant"), f"messages.{at}.role: {role!r}")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        reject(not isinstance(blocks, list) or not blocks, f"messages.{at}: must have non-empty content")
        if current is not None and current["role"] == role:
            current["content"] = [*current["content"], *blocks]
            continue
        if current is not None:
            yield current
        current = {"role": role, "content": blocks}
    if current is not None:
        yield current


def _anthropic_message(
    at: int, message: JsonDict, following: list[JsonValue], before: list[JsonValue], ids: set[str]
) -> None:
    results = [b["tool_use_id"] for b in following if b.get("type") == "tool_result"]
    calls = [b["id"] for b in before if b.get("type") == "tool_use"]
    blocks = message["content"]
    others = False
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            reject(
                _is_blank(block.get("text")),
                f"messages.{at}: text content blocks must contain non-whitespace",
            )
        elif kind == "thinking":
            reject(not block.get("signature"), f"messages.{at}: thinking.signature: Field required")
        elif kind == "tool_use":
            reject(message["role"] != "assistant", "tool_use is the assistant's")
            reject(not _ANTHROPIC_ID.match(block.get("id") or ""), f"messages.{at}: tool_use.id: pattern")
            reject(block["id"] in ids, "`tool_use` ids must be unique")
            reject(not _ANTHROPIC_NAME.match(block.get("name") or ""), f"messages.{at}: tool_use.name")
            reject(not isinstance(block.get("input"), dict), f"messages.{at}: tool_use.input: a dictionary")
            reject(block["id"] not in results, "`tool_use` without `tool_result` immediately after")
            ids.add(block["id"])
        elif kind == "tool_result":
            reject(block.get("tool_use_id") not in calls, "`tool_result` without its `tool_use` before")
            reject(others, "`tool_result` blocks must come first")
            content = block.get("content")
            if isinstance(content, list):
                reject(
                    any(_is_blank(p.get("text")) for p in content if p.get("type") == "text"), "blank result"
                )
        others = others or kind != "tool_result"
    if message["role"] == "assistant":
        reject(
            blocks[-1].get("type") in ("thinking", "redacted_thinking"), "final block cannot be `thinking`"
        )
    found = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
    reject(len(found) != len(set(found)), "a `tool_use` has several `tool_result`")


def _anthropic_tools(body: JsonDict, messages: list[JsonDict]) -> None:
    tools = body.get("tools") or []
    names = [tool.get("name") for tool in tools]
    reject(len(names) != len(set(names)), "tools: names must be unique")
    for tool in tools:
        if tool.get("type") in (None, "custom"):
            reject(not _ANTHROPIC_NAME.match(tool.get("name") or ""), "tools.name: pattern")
            _schema(tool.get("input_schema"), "tools.input_schema")
            for name in tool["input_schema"].get("properties") or {}:
                reject(not _ANTHROPIC_FIELD.match(name), "tools.input_schema.properties: pattern")
    _no_tools_no_choice(body, "tool_choice")
    kinds = {block.get("type") for message in messages for block in message["content"]}
    reject("tool_use" in kinds and not tools, "requests that include `tool_use` must define tools")


def _anthropic_thinking(body: JsonDict, messages: list[JsonDict], most: int) -> None:
    thinking = body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens", 0)
    reject(budget < 1024, "thinking.budget_tokens: at least 1024")
    reject(budget >= most, "`max_tokens` must be greater than `thinking.budget_tokens`")
    reject(body.get("temperature", 1) != 1, "`temperature` may only be 1 when thinking is enabled")
    reject("top_k" in body, "`top_k` must be unset when thinking is enabled")
    reject(not 0.95 <= body.get("top_p", 1) <= 1, "`top_p` must be at least 0.95 when thinking is enabled")
    reject((body.get("tool_choice") or {}).get("type") in ("any", "tool"), "thinking and forced tool use")
    reject(messages[-1]["role"] == "assistant", "no prefill when thinking is enabled")
    if any(block.get("type") == "tool_result" for block in messages[-1]["content"]):
        first = messages[-2]["content"][0].get("type")
        reject(first not in ("thinking", "redacted_thinking"), f"Expected `thinking`, but found `{first}`")


# --- Gemini -----------------------------------------------------------------------------------------


def _gemini(body: JsonDict) -> None:
    contents = body.get("contents")
    reject(not isinstance(contents, list) or not contents, "contents is not specified")
    assert isinstance(contents, list)
    reject(contents[0].get("role") == "model", "the first content must be the user's")
    for at in range(len(contents)):
        _gemini_content(contents, at)
    reject(any("functionCall" in part for part in contents[-1]["parts"]), "a function call has no response")
    for key in ("systemInstruction", "system_instruction"):
        if key in body:
            parts = body[key].get("parts")
            reject(not parts or any(_is_blank(part.get("text")) for part in parts), f"{key}: text is empty")
    _gemini_tools(body)
    asks_for_json = "json" in (body.get("generationConfig") or {}).get("responseMimeType", "")
    reject(asks_for_json and body.get("tools"), "Function calling with a response mime type is unsupported")
    reject(
        (body.get("generationConfig") or {}).get("candidateCount", 1) != 1, "candidateCount: one for streams"
    )
    for name in ("messages", "model", "max_tokens"):
        reject(name in body, f"Unknown name '{name}'")


def _gemini_content(contents: list[JsonDict], at: int) -> None:
    content = contents[at]
    parts = content.get("parts") or []
    reject(content.get("role") not in ("user", "model"), f"contents.{at}.role: user or model")
    reject(not parts, f"contents.{at}.parts must not be empty")
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    for part in parts:
        reject(not part, f"contents.{at}: a part needs data")
        if set(part) <= {"text", "thought"}:
            reject(_is_blank(part.get("text")), f"contents.{at}: text is empty")
    for call in calls:
        reject(content["role"] != "model", "only the model calls functions")
        reject(not _GEMINI_NAME.match(call.get("name") or ""), "functionCall.name: pattern")
        reject(not isinstance(call.get("args", {}), dict), "functionCall.args: an object")
    for response in responses:
        reject(not _GEMINI_NAME.match(response.get("name") or ""), "functionResponse.name: pattern")
        reject(not isinstance(response.get("response"), dict), "functionResponse.response: an object")
    before = contents[at - 1] if at else {"parts": []}
    open_calls = [part["functionCall"] for part in before["parts"] if "functionCall" in part]
    reject(
        len(open_calls) != len(responses),
        "the number of function response parts must equal that of function call parts",
    )
    names = sorted(str(each.get("name")) for each in responses)
    reject(names != sorted(str(each.get("name")) for each in open_calls), "functionResponse.name: another")
    reject(responses and len(responses) != len(parts), "function responses stand alone")


def _gemini_tools(body: JsonDict) -> None:
    declared = []
    for tool in body.get("tools") or ():
        reject(not tool, "tools: a tool needs a field")
        for declaration in tool.get("functionDeclarations", ()):
            declared.append(declaration.get("name"))
            reject(
                not _GEMINI_NAME.match(declaration.get("name") or ""), "functionDeclarations.name: invalid"
            )
            if "parametersJsonSchema" in declaration:
                _schema(declaration["parametersJsonSchema"], "parametersJsonSchema")
    reject(len(declared) != len(set(declared)), "duplicate function declaration")
    reject("toolConfig" in body and not declared, "function calling config without function_declarations")


_FORMATS = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic,
    "gemini": _gemini,
}
