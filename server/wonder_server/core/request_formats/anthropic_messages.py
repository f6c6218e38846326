"""Anthropic messages. Sources: Anthropic, "Create a message", "Tool use", "Extended thinking", its errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wonder_server.core.content.media_types import part_type
from wonder_server.core.content.parts import IMAGE
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats import output_schemas
from wonder_server.core.request_formats.format import FileContent, RequestFormat
from wonder_server.core.request_formats.neutral import (
    ASSISTANT,
    TOOL,
    USER,
    arguments_of,
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
    LEFT_OUT,
    Ids,
    Notes,
    Request,
    is_blank,
    listed,
    objects,
    tool_schema,
    valid_name,
    valid_tools,
    without,
)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
MAX_ID, MIN_THINKING_BUDGET, MIN_TOP_P = 64, 1024, 0.95
_THOUGHTS = ("thinking", "redacted_thinking")

Message = JsonDict


def valid(request: Request, provider: str, notes: Notes) -> Request:
    """Return a valid form of the request."""
    request = {**request, "messages": _messages(objects(request.get("messages")))}
    request = _with_system(request)
    tools = _tools(listed(request.get("tools")), notes)
    if not tools and (called := _called(request["messages"])):
        # A request whose messages contain calls must declare the called tools.
        schema = {"type": "object", "properties": {}}
        tools = [{"name": name, "input_schema": schema} for name in called]
        request = {**request, "tool_choice": {"type": "none"}}
    request = {**request, "tools": tools} if tools else without(request, "tools", "tool_choice")
    stops = request.get("stop_sequences")
    if stops is not None:
        stops = [stop for stop in listed(stops) if not is_blank(stop)]
        request = {**request, "stop_sequences": stops} if stops else without(request, "stop_sequences")
    return without(_with_thinking(request), "n")


# --- parameters -------------------------------------------------------------------------------------


def _with_system(request: Request) -> Request:
    system = request.get("system")
    if isinstance(system, list):
        blocks = [block for block in objects(system) if not _is_blank_text(block)]
        if blocks:
            return request if len(blocks) == len(system) else {**request, "system": blocks}
        return without(request, "system")
    return without(request, "system") if is_blank(system) else request


def _with_thinking(request: Request) -> Request:
    """Adjust the parameters that thinking restricts: it uses part of the answer's tokens and excludes
    others.
    """
    thinking = request.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return request
    budget, most = thinking.get("budget_tokens"), request.get("max_tokens")
    if type(budget) is int and type(most) is int and not MIN_THINKING_BUDGET <= budget < most:
        budget = max(MIN_THINKING_BUDGET, min(budget, most // 2))
        if budget >= most:
            return without(request, "thinking")
        request = {**request, "thinking": {**thinking, "budget_tokens": budget}}
    if not _may_think(request["messages"]):
        return without(request, "thinking")
    if request.get("temperature") not in (None, 1):
        request = without(request, "temperature")
    top_p = request.get("top_p")
    if isinstance(top_p, int | float) and not MIN_TOP_P <= top_p <= 1:
        request = without(request, "top_p")
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        request = {**request, "tool_choice": {"type": "auto"}}
    return without(request, "top_k")


def _may_think(messages: list[Message]) -> bool:
    """Return True if thinking is allowed: an answer that continues after tool results must begin with a
    thought.
    """
    if messages[-1]["role"] == "assistant":
        return False  # The answer has begun without a thought.
    results = any(block.get("type") == "tool_result" for block in objects(messages[-1].get("content")))
    if not results or len(messages) < 2:
        return True
    first = next(iter(objects(messages[-2].get("content"))), {})
    return first.get("type") in _THOUGHTS


def _tools(tools: list[JsonValue], notes: Notes) -> list[JsonValue]:
    """Return the client tools with valid schemas, and the provider's own tools unchanged."""
    own = [tool for tool in objects(tools) if tool.get("type") in (None, "custom")]
    others = [tool for tool in objects(tools) if tool.get("type") not in (None, "custom")]
    kept = []
    for tool in valid_tools(own, NAME, notes):
        if is_blank(tool.get("description")):
            tool = without(tool, "description")
        kept.append({**tool, "input_schema": _schema(tool, notes)})
    return [*kept, *others]


def _schema(tool: JsonDict, notes: Notes) -> JsonDict:
    schema = tool_schema(tool.get("input_schema"))
    properties = schema["properties"]
    unfit = [name for name in properties if not PROPERTY.fullmatch(name)]
    if not unfit:
        return schema
    notes.append(f"fields of the tool {tool['name']!r} are left out: no such names are taken: {unfit[:3]!r}")
    kept = {name: part for name, part in properties.items() if name not in unfit}
    required = [name for name in listed(schema.get("required")) if name in kept]
    return {**without(schema, "required"), "properties": kept, **({"required": required} if required else {})}


def _called(messages: list[Message]) -> list[str]:
    blocks = (block for message in messages for block in objects(message.get("content")))
    return list(dict.fromkeys(block["name"] for block in blocks if block.get("type") == "tool_use"))


# --- messages ---------------------------------------------------------------------------------------


def _messages(given: list[Message]) -> list[Message]:
    messages, ids, at = list[Message](), Ids(MAX_ID), 0
    while at < len(given):
        message, at = given[at], at + 1
        if message.get("role") != "assistant":
            kept = _with_blocks(message, [b for b in _blocks(message) if b.get("type") != "tool_result"])
            if kept is None and at == len(given):
                kept = {"role": "user", "content": EMPTY_MESSAGE}
            messages += [] if kept is None else [kept]
            continue
        turn = at
        while at < len(given) and given[at].get("role") != "assistant":
            at += 1
        replies, by_call = given[turn:at], _results(given[turn:at])
        blocks, results = _answered(_blocks(message), by_call, ids)
        answer = _with_blocks(message, blocks)
        if answer is None:
            results = []
        messages += [] if answer is None else [answer]
        messages += _user_message(replies, results, is_last=at == len(given))
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": LEFT_OUT if messages else EMPTY_MESSAGE})
    return _without_end(messages)


def _blocks(message: Message) -> list[JsonDict]:
    content = message.get("content")
    if isinstance(content, str):
        return [] if is_blank(content) else [{"type": "text", "text": content}]
    return [block for block in objects(content) if not _is_refused(block)]


def _is_blank_text(block: JsonDict) -> bool:
    return block.get("type") == "text" and is_blank(block.get("text"))


def _is_refused(block: JsonDict) -> bool:
    match block.get("type"):
        case "text":
            return is_blank(block.get("text"))
        case "thinking":
            return is_blank(block.get("signature")) or not isinstance(block.get("thinking"), str)
        case "redacted_thinking":
            return is_blank(block.get("data"))
        case None:
            return True
    return False


def _with_blocks(message: Message, blocks: list[JsonDict]) -> Message | None:
    """Return ``message`` with these blocks, itself if they are unchanged; None without blocks."""
    content = message.get("content")
    if not blocks:
        return None
    if isinstance(content, str) or blocks == content:
        return message
    return {**message, "content": blocks}


def _results(replies: list[Message]) -> list[JsonDict]:
    """Return the tool results in the messages after an answer."""
    blocks = (block for message in replies for block in objects(message.get("content")))
    return [block for block in blocks if block.get("type") == "tool_result"]


def _answered(
    blocks: list[JsonDict], results: list[JsonDict], ids: Ids
) -> tuple[list[JsonDict], list[JsonDict]]:
    """Return the blocks of an answer without unanswered calls, and the results of its calls in their
    order.
    """
    left, kept, found = list(results), list[JsonDict](), list[JsonDict]()
    for block in blocks:
        if block.get("type") != "tool_use":
            kept.append(block)
            continue
        result = next((each for each in left if each.get("tool_use_id") == block.get("id")), None)
        if result is None:
            continue
        left.remove(result)
        call_id = ids.assign(block.get("id"))
        kept.append(_call(block, call_id))
        found.append(_result(result, call_id))
    while kept and kept[-1].get("type") in _THOUGHTS:
        kept.pop()  # An answer may not end with a thought.
    return kept, found


def _call(block: JsonDict, call_id: str) -> JsonDict:
    name, given = valid_name(block.get("name"), NAME), block.get("input")
    if call_id == block.get("id") and name == block.get("name") and isinstance(given, dict):
        return block
    return {**block, "id": call_id, "name": name, "input": given if isinstance(given, dict) else {}}


def _result(result: JsonDict, call_id: str) -> JsonDict:
    content = result.get("content")
    if isinstance(content, list):
        parts = [part for part in objects(content) if not _is_blank_text(part)]
        if len(parts) != len(content):
            result = {**result, "content": parts} if parts else without(result, "content")
    elif is_blank(content):
        result = without(result, "content")
    return result if result.get("tool_use_id") == call_id else {**result, "tool_use_id": call_id}


def _user_message(replies: list[Message], results: list[JsonDict], *, is_last: bool) -> list[Message]:
    """Return the messages after an answer. The results come first, in the next message."""
    messages: list[Message] = []
    for place, message in enumerate(replies):
        blocks = [block for block in _blocks(message) if block.get("type") != "tool_result"]
        if place == 0:
            blocks = [*results, *blocks]
        kept = _with_blocks(message, blocks)
        if kept is not None:
            messages.append(kept)
    if replies and is_last and not messages:
        messages.append({"role": "user", "content": EMPTY_MESSAGE})
    return messages


def _without_end(messages: list[Message]) -> list[Message]:
    """Remove white space at the end of an answer that the model is to continue."""
    last = messages[-1]
    if last["role"] != "assistant":
        return messages
    content = last.get("content")
    if isinstance(content, str):
        return [*messages[:-1], {**last, "content": content.rstrip()}]
    blocks = objects(content)
    if blocks[-1].get("type") == "text":
        blocks = [*blocks[:-1], {**blocks[-1], "text": blocks[-1]["text"].rstrip()}]
    return [*messages[:-1], {**last, "content": blocks}]


def ask_output(request: Request, parameters: JsonObject, schema: JsonDict) -> Request | None:
    """Return the request with the schema as the format of ``output_config``."""
    given = request.get("output_config", parameters.get("output_config"))
    config = given if isinstance(given, dict) else {}
    accepted = output_schemas.closed(schema)
    if accepted is None or "format" in config or "output_format" in {**parameters, **request}:
        return None
    return {
        **request,
        "output_config": {**config, "format": {"type": "json_schema", "schema": accepted}},
    }


def write_messages(messages: Sequence[JsonObject]) -> list[JsonDict]:
    """Return messages in the neutral form as Anthropic's: results of one answer are one message of the user.

    The first message must be the user's; the API joins consecutive messages of one role.
    """
    written: list[JsonDict] = []
    results: list[JsonValue] = []
    for message in messages:
        if message.get("role") == TOOL:
            if not results:
                written.append({"role": USER, "content": results})
            results.append(_written_result(message))
            continue
        results = []
        text = text_message(message)
        if text is not None:
            written.append(text)
        elif calls := calls_of(message):
            written.append(
                {"role": ASSISTANT, "content": [*_text_blocks(message), *map(_written_call, calls)]}
            )
        elif not is_empty(message):
            written.append(plain_message(message, text_block))
    first = written[0] if written else {}
    return [{"role": USER, "content": LEFT_OUT}, *written] if first.get("role") == ASSISTANT else written


def _text_blocks(message: JsonObject) -> list[JsonDict]:
    content = content_of(message)
    return [] if is_blank(content) else [{"type": "text", "text": content}]


def _written_call(call: JsonObject) -> JsonDict:
    return {"type": "tool_use", "id": call.get("id"), "name": call["name"], "input": arguments_of(call)}


def _written_result(message: JsonObject) -> JsonDict:
    result = {
        "type": "tool_result",
        "tool_use_id": message.get("tool_call_id"),
        "content": FORMAT.write_result(message.get("content"), files_of(message)),
    }
    return {**result, "is_error": True} if message.get("is_error") is True else result


def write_file(content: FileContent) -> JsonDict:
    """Return an image or a document as a part of a user's message."""
    source = {"type": "base64", "media_type": content.media_type, "data": content.data}
    if part_type(content.media_type) == IMAGE:
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": content.name}


FORMAT = RequestFormat(
    name="anthropic_messages",
    provider="anthropic",
    provider_title="Anthropic",
    messages="messages",
    tool_name=NAME,
    make_valid=valid,
    ask_output=ask_output,
    write_messages=write_messages,
    write_text=text_block,
    write_file=write_file,
)
