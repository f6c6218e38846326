"""OpenAI responses. Sources: OpenAI, "Create a model response", and its servers' 400 responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.content.media_types import part_type
from wonder_server.core.content.parts import IMAGE
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats import output_schemas
from wonder_server.core.request_formats.format import FileContent, RequestFormat
from wonder_server.core.request_formats.neutral import (
    ASSISTANT,
    TOOL,
    WriteText,
    arguments_text,
    calls_of,
    content_of,
    files_of,
    is_empty,
    plain_message,
    text_message,
)
from wonder_server.core.request_formats.openai_chat import MAX_DESCRIPTION, MAX_TOOLS, NAME, is_plain_text
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

MAX_ID, MIN_ANSWER = 64, 16
_CALL, _OUTPUT = "function_call", "function_call_output"
IMAGE_CALL: Final = "image_generation_call"


def valid(request: Request, provider: str, notes: Notes) -> Request:
    """Return a valid form of the request."""
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    # The provider may store the earlier items.
    continues = bool(request.get("previous_response_id") or request.get("conversation"))
    fitted = _items(items, continues=continues)
    request = {**request, "input": given if isinstance(given, str) and fitted == items else fitted}
    if is_blank(request.get("instructions")):
        request = without(request, "instructions")
    tools = _tools(listed(request.get("tools")), notes)
    request = (
        {**request, "tools": tools}
        if tools
        else without(request, "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls")
    )
    most = request.get("max_output_tokens")
    if type(most) is int and most < MIN_ANSWER:
        request = {**request, "max_output_tokens": MIN_ANSWER}
    wanted = request.get("text")
    form = wanted.get("format") if isinstance(wanted, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_object":
        if "json" not in f"{request.get('instructions', '')}{request['input']}".lower():
            rest = without(wanted, "format") if isinstance(wanted, dict) else {}
            request = {**request, "text": rest} if rest else without(request, "text")
    return without(request, "n")


def _tools(tools: list[JsonValue], notes: Notes) -> list[JsonValue]:
    functions = [tool for tool in objects(tools) if tool.get("type") == "function"]
    others = [tool for tool in objects(tools) if tool.get("type") != "function"]
    kept = [
        shortened({**tool, "parameters": tool_schema(tool.get("parameters"))}, MAX_DESCRIPTION, notes)
        for tool in valid_tools(functions, NAME, notes)[:MAX_TOOLS]
    ]
    return [*kept, *others]


def _items(items: list[JsonDict], *, continues: bool) -> list[JsonDict]:
    outputs = [(at, item) for at, item in enumerate(items) if item.get("type") == _OUTPUT]
    answered, ids, kept = dict[int, str](), Ids(MAX_ID), list[JsonDict]()
    for at, item in enumerate(items):
        if item.get("type") == _CALL:
            found = next(
                (
                    place
                    for place, output in outputs
                    if place > at and place not in answered and output.get("call_id") == item.get("call_id")
                ),
                None,
            )
            if found is not None:
                answered[found] = ids.assign(item.get("call_id"))
                kept.append(_call(item, answered[found]))
        elif item.get("type") == _OUTPUT:
            if at in answered:
                kept.append(_output(item, answered[at]))
            elif continues:
                kept.append(item)
        elif item.get("type") == "reasoning":
            kept.append(item)
        elif (readable := _readable_message(item)) is not None:
            kept.append(readable)
        elif at == len(items) - 1 and item.get("role") == "user":
            kept.append({**item, "content": EMPTY_MESSAGE})
    kept = _without_unused_reasoning(kept)
    return kept or [{"role": "user", "content": EMPTY_MESSAGE}]


def _without_unused_reasoning(items: list[JsonDict]) -> list[JsonDict]:
    """Return the items without reasoning that no item of the model follows, which the provider rejects."""
    kept: list[JsonDict] = []
    is_used = False
    for item in reversed(items):
        kind = item.get("type")
        if kind != "reasoning":
            is_used = kind not in (None, "message", _OUTPUT) or item.get("role") == "assistant"
        elif not is_used:
            continue
        kept.append(item)
    return kept[::-1]


def _readable_message(item: JsonDict) -> JsonDict | None:
    """Return a message with its readable parts; None without any. Other items are returned unchanged."""
    if item.get("type") not in (None, "message"):
        return item
    content = item.get("content")
    if isinstance(content, list):
        parts = [part for part in content if not _is_blank_part(part)]
        if not parts:
            return None
        return item if len(parts) == len(content) else {**item, "content": parts}
    return None if is_blank(content) else item


def _is_blank_part(part: JsonValue) -> bool:
    if not isinstance(part, dict):
        return True
    kind = part.get("type")
    if kind == "refusal":
        return is_blank(part.get("refusal"))
    return kind in ("input_text", "output_text", "text", None) and is_blank(part.get("text"))


def _call(item: JsonDict, call_id: str) -> JsonDict:
    fitted = {
        "call_id": call_id,
        "name": valid_name(item.get("name"), NAME),
        "arguments": json_object(item.get("arguments")),
    }
    return item if all(item.get(name) == value for name, value in fitted.items()) else {**item, **fitted}


def _output(item: JsonDict, call_id: str) -> JsonDict:
    output = item.get("output")
    if isinstance(output, str) and is_blank(output):
        output = EMPTY_RESULT
    if output is item.get("output") and item.get("call_id") == call_id:
        return item
    return {**item, "call_id": call_id, "output": output}


def ask_output(request: Request, parameters: JsonObject, schema: JsonDict) -> Request | None:
    """Return the request with the schema as the format of its text."""
    given = request.get("text", parameters.get("text"))
    text = given if isinstance(given, dict) else {}
    if not is_plain_text(text.get("format")):
        return None
    form = {
        "type": "json_schema",
        "name": output_schemas.NAME,
        "schema": schema,
        "strict": output_schemas.is_strict(schema),
    }
    return {**request, "text": {**text, "format": form}}


def write_messages(messages: Sequence[JsonObject]) -> list[JsonDict]:
    """Return messages in the neutral form as items: one for a text, for each call and for each result."""
    items: list[JsonDict] = []
    for message in messages:
        text = text_message(message)
        if text is not None:
            items.append(text)
            continue
        if message.get("role") == TOOL:
            call_id = message.get("tool_call_id")
            output = FORMAT.write_result(message.get("content"), files_of(message))
            items.append({"type": _OUTPUT, "call_id": call_id, "output": output})
        elif calls := calls_of(message):
            content = content_of(message)
            items += [] if is_blank(content) else [{"role": ASSISTANT, "content": content}]
            items += [
                {
                    "type": _CALL,
                    "call_id": call.get("id"),
                    "name": call["name"],
                    "arguments": arguments_text(call),
                }
                for call in calls
            ]
        elif not is_empty(message):
            items.append(plain_message(message, _writer(message)))
    return items


def _writer(message: JsonObject) -> WriteText:
    """Return the writer of the texts of a message: those of the model are its output."""
    kind = "output_text" if message.get("role") == ASSISTANT else "input_text"
    return lambda text: {"type": kind, "text": text}


def write_file(content: FileContent) -> JsonDict:
    """Return an image or a document as a part of a user's message."""
    if part_type(content.media_type) == IMAGE:
        return {"type": "input_image", "image_url": content.url}
    return {"type": "input_file", "filename": content.name, "file_data": content.url}


def write_own(others: JsonDict, file: FileContent | str) -> JsonDict:
    """Return the call that made an image; a message of the model without the content."""
    if isinstance(file, str):
        return {"role": ASSISTANT, "content": file}
    return {**others, "result": file.data}


FORMAT = RequestFormat(
    name="openai_responses",
    provider="openai",
    provider_title="OpenAI",
    messages="input",
    tool_name=NAME,
    max_description=MAX_DESCRIPTION,
    make_valid=valid,
    ask_output=ask_output,
    write_messages=write_messages,
    write_text=lambda text: {"type": "input_text", "text": text},
    write_file=write_file,
    write_own=write_own,
)
