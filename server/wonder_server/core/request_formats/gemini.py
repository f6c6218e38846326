"""Gemini ``generateContent``. Sources: Google, "Generating content", "Function calling", and its 400s."""

from __future__ import annotations

import re
from typing import Any

from wonder_server.core.request_formats.format import RequestFormat
from wonder_server.core.request_formats.parts import (
    EMPTY_MESSAGE,
    LEFT_OUT,
    Notes,
    Request,
    fit_tools,
    fitting_name,
    is_blank,
    objects,
    tool_schema,
    without,
)

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters")
_CONFIGS = ("generationConfig", "generation_config")

Content = dict[str, Any]
Part = dict[str, Any]


def valid(request: Request, provider: str, notes: Notes) -> Request:
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
            # One answer is read; the others would be paid for.
            request = {**request, key: without(config, "candidateCount", "candidate_count")}
    return request


def _tool(tool: dict[str, Any], notes: Notes, taken: set[str]) -> dict[str, Any]:
    """A tool with the declarations that are taken; empty if nothing is left of it."""
    for key in _DECLARATIONS:
        if key in tool:
            kept = [_declaration(each) for each in fit_tools(objects(tool[key]), NAME, notes, taken)]
            tool = {**tool, key: kept} if kept else without(tool, key)
    return tool


def _declaration(given: dict[str, Any]) -> dict[str, Any]:
    for key in _SCHEMAS:
        if key in given:
            return {**given, key: tool_schema(given[key])}
    return given


def _given(contents: Any) -> list[Content]:
    """Contents may be a single text, or lack the word who said them."""
    if isinstance(contents, str):
        return [{"role": "user", "parts": [{"text": contents}]}]
    return objects(contents)


def _contents(given: list[Content]) -> list[Content]:
    said, at = list[Content](), 0
    while at < len(given):
        content, at = given[at], at + 1
        parts = [part for part in objects(content.get("parts")) if not _is_blank(part)]
        if content.get("role") != "model":
            spoken = [part for part in parts if not _response(part)]
            if not spoken and at == len(given):
                spoken = [{"text": EMPTY_MESSAGE}]
            said += [_with_parts(content, spoken)] if spoken else []
            continue
        begins = at
        while at < len(given) and given[at].get("role") != "model":
            at += 1
        heard = given[begins:at]
        responses = [part for each in heard for part in objects(each.get("parts")) if _response(part)]
        parts, responses = _answered(parts, responses)
        if parts:
            said.append(_with_parts(content, parts))
        said += _user_content(heard, responses, is_last=at == len(given))
    if not said or said[0].get("role") == "model":
        said.insert(0, {"role": "user", "parts": [{"text": LEFT_OUT if said else EMPTY_MESSAGE}]})
    return said


def _user_content(heard: list[Content], responses: list[Part], *, is_last: bool) -> list[Content]:
    """What was said after an answer: the responses of functions come first, in a content of their own."""
    said: list[Content] = []
    if responses:
        first = heard[0]
        said.append(_with_parts(first, responses) if first.get("parts") == responses else
                    {"role": "user", "parts": responses})  # fmt: skip
    for content in heard:
        parts = [
            part for part in objects(content.get("parts")) if not _is_blank(part) and not _response(part)
        ]
        said += [_with_parts(content, parts)] if parts else []
    if heard and is_last and not said:
        said.append({"role": "user", "parts": [{"text": EMPTY_MESSAGE}]})
    return said


def _answered(parts: list[Part], responses: list[Part]) -> tuple[list[Part], list[Part]]:
    """The parts of an answer, of its calls those that have a response, and these responses in their order."""
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
        name = fitting_name(call.get("name"), NAME)
        arguments = call.get("args")
        if name != call.get("name") or (arguments is not None and not isinstance(arguments, dict)):
            call = {**call, "name": name, "args": arguments if isinstance(arguments, dict) else {}}
            part = {**part, "functionCall": call}
        kept.append(part)
        found.append(_named(response, name))
    return kept, found


def _answers(response: dict[str, Any], call: dict[str, Any]) -> bool:
    if call.get("id") or response.get("id"):
        return response.get("id") == call.get("id")
    return response.get("name") == call.get("name")


def _named(part: Part, name: str) -> Part:
    response = _response(part)
    said = response.get("response")
    if response.get("name") == name and isinstance(said, dict):
        return part
    fitted = {**response, "name": name, "response": said if isinstance(said, dict) else {"output": said}}
    return {**part, "functionResponse": fitted}


def _response(part: Part) -> dict[str, Any]:
    found = part.get("functionResponse")
    return found if isinstance(found, dict) else {}


def _with_parts(content: Content, parts: list[Part]) -> Content:
    """The content with these parts; the very same if it has them."""
    role = "model" if content.get("role") == "model" else "user"
    if content.get("parts") == parts and content.get("role") == role:
        return content
    return {**content, "role": role, "parts": parts}


def _is_blank(part: Part) -> bool:
    """Whether a part holds nothing; a signature stays where its provider put it, with or without a text."""
    if not [name for name in part if name != "thought"]:
        return True
    only_text = set(part) <= {"text", "thought"}
    return only_text and is_blank(part.get("text"))


FORMAT = RequestFormat(
    name="gemini",
    provider="gemini",
    provider_title="Gemini",
    messages="contents",
    tool_name=NAME,
    make_valid=valid,
)
