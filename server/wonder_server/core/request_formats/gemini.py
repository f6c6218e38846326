"""Gemini ``generateContent``. Sources: Google, "Generating content", "Function calling", and its 400s."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wonder_server.core.content.media_types import JPEG, PDF, PNG, WEBP
from wonder_server.core.content.parts import reference_of
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats.format import FileContent, RequestFormat, Show, file_of, in_words
from wonder_server.core.request_formats.neutral import (
    ASSISTANT,
    FILES_NOTE,
    TOOL,
    USER,
    arguments_of,
    calls_of,
    files_of,
    is_empty,
    is_parts,
    text_of,
    write_parts,
)
from wonder_server.core.request_formats.parts import (
    EMPTY_MESSAGE,
    LEFT_OUT,
    Notes,
    Request,
    is_blank,
    objects,
    tool_schema,
    valid_name,
    valid_tools,
    without,
)

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters")
_CONFIGS = ("generationConfig", "generation_config")

Content = JsonDict
Part = JsonDict


def valid(request: Request, provider: str, notes: Notes) -> Request:
    """Return a valid form of the request."""
    request = {**request, "contents": _contents(_given(request.get("contents")))}
    for key in ("systemInstruction", "system_instruction"):
        system = request.get(key)
        if isinstance(system, dict):
            parts = [part for part in objects(system.get("parts")) if not _is_blank(part)]
            request = {**request, key: {**system, "parts": parts}} if parts else without(request, key)
    taken = set[str]()
    tools = [fitted for tool in objects(request.get("tools")) if (fitted := _tool(tool, notes, taken))]
    request = {**request, "tools": tools} if tools else without(request, "tools")
    if not any(tool.get(name) for tool in tools for name in _DECLARATIONS):
        request = without(request, "toolConfig", "tool_config")
    for key in _CONFIGS:
        config = request.get(key)
        if isinstance(config, dict):
            # The server reads one answer; more would only add cost.
            request = {**request, key: without(config, "candidateCount", "candidate_count")}
    return request


def _tool(tool: JsonDict, notes: Notes, taken: set[str]) -> JsonDict:
    """Return a tool with its valid declarations; an empty one if none is left."""
    for key in _DECLARATIONS:
        if key in tool:
            kept = [_declaration(each) for each in valid_tools(objects(tool[key]), NAME, notes, taken)]
            tool = {**tool, key: kept} if kept else without(tool, key)
    return tool


def _declaration(given: JsonDict) -> JsonDict:
    for key in _SCHEMAS:
        if key in given:
            return {**given, key: tool_schema(given[key])}
    return given


def _given(contents: JsonValue) -> list[Content]:
    """Return the contents as a list. They may be a single text."""
    if isinstance(contents, str):
        return [{"role": "user", "parts": [{"text": contents}]}]
    return objects(contents)


def _contents(given: list[Content]) -> list[Content]:
    contents, at = list[Content](), 0
    while at < len(given):
        content, at = given[at], at + 1
        parts = [part for part in objects(content.get("parts")) if not _is_blank(part)]
        if content.get("role") != "model":
            kept = [part for part in parts if not _response(part)]
            if not kept and at == len(given):
                kept = [{"text": EMPTY_MESSAGE}]
            contents += [_with_parts(content, kept)] if kept else []
            continue
        begins = at
        while at < len(given) and given[at].get("role") != "model":
            at += 1
        replies = given[begins:at]
        responses = [part for each in replies for part in objects(each.get("parts")) if _response(part)]
        parts, responses = _answered(parts, responses)
        if parts:
            contents.append(_with_parts(content, parts))
        contents += _user_content(replies, responses, is_last=at == len(given))
    if not contents or contents[0].get("role") == "model":
        contents.insert(0, {"role": "user", "parts": [{"text": LEFT_OUT if contents else EMPTY_MESSAGE}]})
    return contents


def _user_content(replies: list[Content], responses: list[Part], *, is_last: bool) -> list[Content]:
    """Return the contents after an answer. The function responses come first, in a content of their own."""
    contents: list[Content] = []
    if responses:
        first = replies[0]
        contents.append(_with_parts(first, responses) if first.get("parts") == responses else
                    {"role": "user", "parts": responses})  # fmt: skip
    for content in replies:
        parts = [
            part for part in objects(content.get("parts")) if not _is_blank(part) and not _response(part)
        ]
        contents += [_with_parts(content, parts)] if parts else []
    if replies and is_last and not contents:
        contents.append({"role": "user", "parts": [{"text": EMPTY_MESSAGE}]})
    return contents


def _answered(parts: list[Part], responses: list[Part]) -> tuple[list[Part], list[Part]]:
    """Return the parts of an answer without unanswered calls, and the responses of its calls in their
    order.
    """
    left, kept, found = list(responses), list[Part](), list[Part]()
    for part in parts:
        call = part.get("functionCall")
        if call is None:
            kept.append(part)
            continue
        call = call if isinstance(call, dict) else {}
        response = next((each for each in left if _answers(_response(each), call)), None)
        if response is None:
            continue
        left.remove(response)
        name = valid_name(call.get("name"), NAME)
        arguments = call.get("args")
        if name != call.get("name") or (arguments is not None and not isinstance(arguments, dict)):
            call = {**call, "name": name, "args": arguments if isinstance(arguments, dict) else {}}
            part = {**part, "functionCall": call}
        kept.append(part)
        found.append(_named(response, name))
    return kept, found


def _answers(response: JsonDict, call: JsonDict) -> bool:
    if call.get("id") or response.get("id"):
        return response.get("id") == call.get("id")
    return response.get("name") == call.get("name")


def _named(part: Part, name: str) -> Part:
    response = _response(part)
    output = response.get("response")
    if response.get("name") == name and isinstance(output, dict):
        return part
    fitted = {
        **response,
        "name": name,
        "response": output if isinstance(output, dict) else {"output": output},
    }
    return {**part, "functionResponse": fitted}


def _response(part: Part) -> JsonDict:
    found = part.get("functionResponse")
    return found if isinstance(found, dict) else {}


def _with_parts(content: Content, parts: list[Part]) -> Content:
    """Return the content with these parts, itself if they are unchanged."""
    role = "model" if content.get("role") == "model" else "user"
    if content.get("parts") == parts and content.get("role") == role:
        return content
    return {**content, "role": role, "parts": parts}


def _is_blank(part: Part) -> bool:
    """Return True if a part is empty. A part with a signature is kept, with or without text."""
    if not [name for name in part if name != "thought"]:
        return True
    only_text = set(part) <= {"text", "thought"}
    return only_text and is_blank(part.get("text"))


_FORMS = ("responseMimeType", "response_mime_type", "responseSchema", "response_schema", "responseJsonSchema")


def ask_output(request: Request, parameters: JsonObject, schema: JsonDict) -> Request | None:
    """Return the request with the schema in ``generationConfig``; None beside tools, which models before
    Gemini 3 reject ("Function calling with a response mime type: 'application/json' is unsupported").
    """
    merged = {**parameters, **request}
    if merged.get("tools"):
        return None
    key = next((name for name in _CONFIGS if name in merged), _CONFIGS[0])
    given = merged.get(key)
    config = given if isinstance(given, dict) else {}
    if any(name in config for name in _FORMS):
        return None
    asked = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return {**request, key: {**config, **asked}}


def write_messages(messages: Sequence[JsonObject]) -> list[JsonDict]:
    """Return messages in the neutral form as contents: the results of one answer are one content.

    Calls and results have no ids, since the server made those of a model that gave none. The API rejects
    empty texts.
    """
    contents: list[JsonDict] = []
    results: list[JsonValue] = []
    for message in messages:
        if message.get("role") == TOOL:
            if not results:
                contents.append({"role": USER, "parts": results})
            results.append(_written_result(message))
            continue
        results = []
        if not is_empty(message):
            calls = [
                {"functionCall": {"name": call["name"], "args": arguments_of(call)}}
                for call in calls_of(message)
            ]
            text = text_of(message)
            if is_parts(text):
                texts = write_parts(text, lambda each: {"text": each})
            else:
                texts = [] if calls and is_blank(text) else [{"text": text}]
            role = "model" if message.get("role") == ASSISTANT else USER
            contents.append({"role": role, "parts": [*texts, *calls]})
    first = contents[0] if contents else {}
    left_out = {"role": USER, "parts": [{"text": LEFT_OUT}]}
    return [left_out, *contents] if first.get("role") == "model" else contents


def with_files(response: JsonDict, files: Sequence[JsonObject]) -> JsonDict:
    """Return a function response with the places of its files."""
    return {**response, "parts": [reference_of(file) for file in files]} if files else response


def fill_result(content: Content, show: Show) -> tuple[Content, list[JsonDict]] | None:
    """See `RequestFormat.fill_result`. The words stand in the response; only new models take images there."""
    given = objects(content.get("parts"))
    if not any(_response(part) for part in given):
        return None
    filled, shown = list[Part](), list[JsonDict]()
    for part in given:
        response = _response(part)
        items = objects(response.get("parts"))
        if not any(file_of(item) is not None for item in items):
            filled.append(part)
            continue
        words, parts = in_words(items, show)
        shown += parts
        texts, others = (
            [each for each in words if isinstance(each, str)],
            [each for each in words if not isinstance(each, str)],
        )
        given_output = response.get("response")
        output = given_output if isinstance(given_output, dict) else {"output": given_output}
        response = {**without(response, "parts"), "response": {**output, "files": texts}}
        filled.append({**part, "functionResponse": {**response, "parts": others} if others else response})
    return {**content, "parts": filled}, shown


def files_content(parts: Sequence[JsonDict]) -> Content:
    """Return the content after tool results that shows their images and documents: responses have a content
    of their own."""
    return {"role": USER, "parts": [{"text": FILES_NOTE}, *parts]}


def _written_result(message: JsonObject) -> Part:
    key = "error" if message.get("is_error") is True else "output"
    response = {"name": message.get("name", ""), "response": {key: message.get("content")}}
    return {"functionResponse": with_files(response, files_of(message))}


def write_file(content: FileContent) -> JsonDict:
    """Return an image or a document as a part of a user's message."""
    return {"inlineData": {"mimeType": content.media_type, "data": content.data}}


def write_own(others: JsonDict, file: FileContent | str) -> JsonDict:
    """Return an image of the model with the signature that it had."""
    return {**others, **({"text": file} if isinstance(file, str) else write_file(file))}


FORMAT = RequestFormat(
    name="gemini",
    provider="gemini",
    provider_title="Gemini",
    messages="contents",
    tool_name=NAME,
    make_valid=valid,
    ask_output=ask_output,
    write_messages=write_messages,
    write_text=lambda text: {"text": text},
    write_file=write_file,
    write_own=write_own,
    fill_result=fill_result,
    files_message=files_content,
    # It takes no GIF.
    media_types=frozenset({PNG, JPEG, WEBP, PDF}),
)
