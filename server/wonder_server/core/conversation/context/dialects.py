"""The differences between the providers' request formats that the agent loop depends on.

Context assembly makes a request in the provider's format. As the turn continues, the loop appends the
model's message and its tool results, and forbids tools when the limit of moves is reached. Each format of
`core.request_formats` is one entry of `DIALECTS`. Requests are never changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wonder_server.core.content.parts import files_in
from wonder_server.core.conversation.context.result_excerpts import excerpt_text
from wonder_server.core.conversation.context.tool_output import without_copies
from wonder_server.core.conversation.model.values import ToolResult
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import (
    FALLBACK,
    RequestFormat,
    anthropic_messages,
    gemini,
    openai_chat,
    openai_responses,
)

Request = JsonDict


@dataclass(frozen=True, slots=True)
class Dialect:
    """Functions of one request format.

    - ``resume(request, raw, results)`` appends the assistant's message and the results of its tool calls.
      Without results a notice follows.
    - ``notice(request, text)`` appends a notice of the platform, with the role of the user: many providers
      accept a system message only at the beginning.
    - ``forbid_tools(request)`` keeps the tools and forbids their use.
    - ``choose_tool(request, choice)`` sets the choice among the tools: ``auto``, ``none``, ``required``, or
      the name of a tool, with or without `NAMED` before it. A request without tools stays the same.
    - ``insert_notice(request, head, text)`` adds a notice after the first ``head`` messages, or to the
      instructions if the format has a field for them.
    """

    format: RequestFormat
    resume: Callable[[Request, JsonDict, Sequence[ToolResult]], Request]
    notice: Callable[[Request, str], Request]
    forbid_tools: Callable[[Request], Request]
    choose_tool: Callable[[Request, str], Request]
    insert_notice: Callable[[Request, int, str], Request]

    @property
    def messages(self) -> str:
        """The field that lists the messages, as objects."""
        return self.format.messages

    def fits(self, request: Request) -> bool:
        """Return True if the request has the list of messages that the other functions extend."""
        messages = request.get(self.messages)
        return isinstance(messages, list) and all(isinstance(each, dict) for each in messages)

    def wrap_up(self, request: Request, note: str) -> Request:
        """Return the request with tools forbidden and with ``note`` as its last notice."""
        return self.forbid_tools(self.notice(request, note))


def result_text(result: ToolResult) -> str:
    """Return a tool's result as text for the model: all of it, or its excerpt."""
    text = whole_result_text(result)
    text = text if result.excerpt is None else excerpt_text(text, result.excerpt)
    return f"{text}\n({result.note})" if result.note else text


def result_files(result: ToolResult) -> list[JsonDict]:
    """Return the images and files in a tool's result, which the model gets beside the text."""
    return files_in(result.result) if result.success else []


def whole_result_text(result: ToolResult) -> str:
    """Return a tool's result as text, however large."""
    if result.success:
        value = without_copies(_shown(result))
        return value if isinstance(value, str) else _json(value)
    return _json({"error": {"code": result.code, "message": result.message, "retriable": result.retriable}})


def _shown(result: ToolResult) -> JsonValue:
    value = result.result
    if not result.hidden or not isinstance(value, dict):
        return value
    return {name: member for name, member in value.items() if name not in result.hidden}


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _openai_resume(request: Request, raw: JsonDict, results: Sequence[ToolResult]) -> Request:
    answers = [
        {
            "role": "tool",
            "tool_call_id": result.tool_call_id,
            "content": openai_chat.FORMAT.write_result(result_text(result), result_files(result)),
        }
        for result in results
    ]
    return {**request, "messages": [*request.get("messages", []), raw, *answers]}


def _openai_notice(request: Request, text: str) -> Request:
    return {**request, "messages": [*request.get("messages", []), {"role": "user", "content": text}]}


def _openai_forbid_tools(request: Request) -> Request:
    return {**request, "tool_choice": "none"} if request.get("tools") else request


def _openai_choose_tool(request: Request, choice: str) -> Request:
    if not request.get("tools"):
        return request
    named: JsonDict = {"type": "function", "function": {"name": _name(choice)}}
    return {**request, "tool_choice": choice if choice in _CHOICES else named}


_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
"""The words of a tool choice, with those of Anthropic and Gemini. Any other choice is the name of a tool."""

NAMED = "tool:"
"""Prefix of a tool choice that makes it the name of a tool, even if the tool is named like a word."""


def _name(choice: str) -> str:
    return choice.removeprefix(NAMED)


def kept_settings(before: Request, chosen: Request) -> Request:
    """Return the request ``chosen`` with what ``before`` says beside the choice among its tools: not to call
    several at once (Anthropic), and settings of tools that are no functions (Gemini)."""
    earlier, choice = before.get("tool_choice"), chosen.get("tool_choice")
    kept = earlier.get("disable_parallel_tool_use") if isinstance(earlier, dict) else None
    if kept is not None and isinstance(choice, dict) and choice.get("type") != "none":
        return {**chosen, "tool_choice": {**choice, "disable_parallel_tool_use": kept}}
    configured, config = before.get("toolConfig"), chosen.get("toolConfig")
    if isinstance(configured, dict) and isinstance(config, dict):
        return {**chosen, "toolConfig": {**configured, **config}}
    return chosen


def _responses_choose_tool(request: Request, choice: str) -> Request:
    if not request.get("tools"):
        return request
    named: JsonDict = {"type": "function", "name": _name(choice)}
    return {**request, "tool_choice": choice if choice in _CHOICES else named}


def _anthropic_choose_tool(request: Request, choice: str) -> Request:
    if not request.get("tools"):
        return request
    word = _CHOICES.get(choice)
    return {**request, "tool_choice": {"type": word} if word else {"type": "tool", "name": _name(choice)}}


def _gemini_choose_tool(request: Request, choice: str) -> Request:
    if not request.get("tools"):
        return request
    mode = _CHOICES.get(choice, "any").upper()
    names: JsonDict = {} if choice in _CHOICES else {"allowedFunctionNames": [_name(choice)]}
    return {**request, "toolConfig": {"functionCallingConfig": {"mode": mode, **names}}}


def _anthropic_resume(request: Request, raw: JsonDict, results: Sequence[ToolResult]) -> Request:
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": result.tool_call_id,
            "content": anthropic_messages.FORMAT.write_result(result_text(result), result_files(result)),
            **({} if result.success else {"is_error": True}),
        }
        for result in results
    ]
    # The provider rejects a message without content.
    answer = [{"role": "user", "content": blocks}] if blocks else []
    own = [raw] if raw.get("content") != [] else []
    return {**request, "messages": [*request.get("messages", []), *own, *answer]}


def _anthropic_notice(request: Request, text: str) -> Request:
    messages = list(request.get("messages", []))
    block = {"type": "text", "text": text}
    if messages and messages[-1].get("role") == "user":
        last = messages[-1]
        content = last.get("content", [])
        given = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = given if isinstance(given, list) else []
        messages[-1] = {**last, "content": [*blocks, block]}
    else:
        messages.append({"role": "user", "content": [block]})
    return {**request, "messages": messages}


def _anthropic_forbid_tools(request: Request) -> Request:
    # Keep the tools: the provider rejects a request whose history uses missing tools.
    return {**request, "tool_choice": {"type": "none"}} if request.get("tools") else request


def _responses_resume(request: Request, raw: JsonDict, results: Sequence[ToolResult]) -> Request:
    items = _list(raw.get("output"))
    if request.get("store") is False:
        items = _unstored(items)
    answers = [
        {
            "type": "function_call_output",
            "call_id": result.tool_call_id,
            "output": openai_responses.FORMAT.write_result(result_text(result), result_files(result)),
        }
        for result in results
    ]
    return {**request, "input": [*_input(request), *items, *answers]}


def _unstored(items: list[JsonValue]) -> list[JsonValue]:
    """Return the items that the provider accepts although it stored nothing.

    It accepts only encrypted reasoning. Without the reasoning, the other items may not carry their ids.
    """
    known = [item for item in items if isinstance(item, dict)]
    kept = [item for item in known if item.get("type") != "reasoning" or item.get("encrypted_content")]
    if len(kept) == len(known):
        return items
    return [{name: value for name, value in item.items() if name != "id"} for item in kept]


def _responses_notice(request: Request, text: str) -> Request:
    return {**request, "input": [*_input(request), {"role": "user", "content": text}]}


def _input(request: Request) -> list[JsonValue]:
    """Return the input of an OpenAI responses request as a list; it may be a single text."""
    given = request.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else _list(given)


def _gemini_resume(request: Request, raw: JsonDict, results: Sequence[ToolResult]) -> Request:
    own = [raw] if raw.get("parts") else []
    parts = [part for part in _list(raw.get("parts")) if isinstance(part, dict)]
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    answers = [_function_response(calls, position, result) for position, result in enumerate(results)]
    answer = [{"role": "user", "parts": answers}] if answers else []
    return {**request, "contents": [*_list(request.get("contents")), *own, *answer]}


def _function_response(calls: list[JsonDict], position: int, result: ToolResult) -> JsonDict:
    """Return a result in Gemini's form: with the function's name, and with an id only if the call had one."""
    by_id = (call for call in calls if call.get("id") == result.tool_call_id)
    # Calls without ids are matched by position: results have the order of the calls.
    call = next(by_id, calls[position] if position < len(calls) else {})
    shown: JsonValue
    if result.excerpt is not None:
        shown = result_text(result)
    elif result.success:
        shown = without_copies(_shown(result))
    else:
        shown = {"code": result.code, "message": result.message, "retriable": result.retriable}
    response = {
        **({"id": call["id"]} if call.get("id") else {}),
        "name": call.get("name", ""),
        "response": {"output" if result.success else "error": shown},
    }
    return {"functionResponse": gemini.with_files(response, result_files(result))}


def _gemini_notice(request: Request, text: str) -> Request:
    # Use a separate content: a content with function responses may have no other parts.
    notice = {"role": "user", "parts": [{"text": text}]}
    return {**request, "contents": [*_list(request.get("contents")), notice]}


def _gemini_forbid_tools(request: Request) -> Request:
    if not request.get("tools"):
        return request
    return {**request, "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _insert_in_list(where: str) -> Callable[[Request, int, str], Request]:
    def insert(request: Request, head: int, text: str) -> Request:
        messages = request[where]
        notice = {"role": "system", "content": text}
        return {**request, where: [*messages[:head], notice, *messages[head:]]}

    return insert


def _anthropic_insert(request: Request, head: int, text: str) -> Request:
    system = request.get("system")
    if isinstance(system, list):
        return {**request, "system": [*system, {"type": "text", "text": text}]}
    return {**request, "system": f"{system}\n\n{text}" if system else text}


def _gemini_insert(request: Request, head: int, text: str) -> Request:
    key = "system_instruction" if "system_instruction" in request else "systemInstruction"
    given = request.get(key)
    parts = given.get("parts") if isinstance(given, dict) else None
    return {**request, key: {"parts": [*(parts if isinstance(parts, list) else ()), {"text": text}]}}


DIALECTS: dict[str, Dialect] = {
    each.format.name: each
    for each in (
        Dialect(
            openai_chat.FORMAT,
            _openai_resume,
            _openai_notice,
            _openai_forbid_tools,
            _openai_choose_tool,
            _insert_in_list("messages"),
        ),
        Dialect(
            openai_responses.FORMAT,
            _responses_resume,
            _responses_notice,
            _openai_forbid_tools,
            _responses_choose_tool,
            _insert_in_list("input"),
        ),
        Dialect(
            anthropic_messages.FORMAT,
            _anthropic_resume,
            _anthropic_notice,
            _anthropic_forbid_tools,
            _anthropic_choose_tool,
            _anthropic_insert,
        ),
        Dialect(
            gemini.FORMAT,
            _gemini_resume,
            _gemini_notice,
            _gemini_forbid_tools,
            _gemini_choose_tool,
            _gemini_insert,
        ),
    )
}
"""The dialect of each request format, by the format's name."""


def dialect_of(request_format: str) -> Dialect:
    """Return the dialect of a format; OpenAI's chat format for any other name, since most providers
    accept it.
    """
    return DIALECTS.get(request_format, DIALECTS[FALLBACK.name])


def wrap_up_by_system_message(request: Request, request_format: str, note: str) -> Request:
    """Return the request with tools forbidden and with ``note``, as turns with the rules 0 have it: in the
    formats of OpenAI the note is a system message at the end.
    """
    dialect = dialect_of(request_format)
    if dialect.format is openai_responses.FORMAT:
        messages = _input(request)
    elif dialect.format is openai_chat.FORMAT:
        messages = request.get("messages", [])
    else:
        return dialect.wrap_up(request, note)
    return dialect.forbid_tools(
        {**request, dialect.messages: [*messages, {"role": "system", "content": note}]}
    )
