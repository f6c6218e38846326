"""The few places where a provider's request format matters to the loop.

Assembly makes a provider-native request; as the turn goes on, the loop appends the model's own message
and the results of its tool calls, and, when moves run out, asks for an answer without tools. Each
format is one entry of `DIALECTS`; requests are never changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wonder_server.core.conversation.context.tool_output import without_copies
from wonder_server.core.conversation.model.values import ToolResult

Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one request format goes on.

    ``messages``: the field that lists what has been said, as objects.
    ``resume(request, raw, results)`` appends the assistant's message and its tools' results.
    No results: the model called nothing, and what it is told next is a notice.
    ``notice(request, text)`` tells the model what happened meanwhile: an async tool has ended.
    ``wrap_up(request, note)`` forbids tools and adds a note for the model.
    """

    messages: str
    resume: Callable[[Request, dict[str, Any], Sequence[ToolResult]], Request]
    notice: Callable[[Request, str], Request]
    wrap_up: Callable[[Request, str], Request]

    def fits(self, request: Request) -> bool:
        """Whether what has been said is where the other functions look for it."""
        said = request.get(self.messages)
        return isinstance(said, list) and not [m for m in said if not isinstance(m, dict)]


def result_text(result: ToolResult) -> str:
    """A tool's result as the text that the model reads."""
    if result.success:
        read = without_copies(result.result)
        return read if isinstance(read, str) else _json(read)
    return _json({"error": {"code": result.code, "message": result.message, "retriable": result.retriable}})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _openai_resume(request: Request, raw: dict[str, Any], results: Sequence[ToolResult]) -> Request:
    answers = [
        {"role": "tool", "tool_call_id": result.tool_call_id, "content": result_text(result)}
        for result in results
    ]
    return {**request, "messages": [*request.get("messages", []), raw, *answers]}


def _openai_notice(request: Request, text: str) -> Request:
    # As the user's: many providers take a system message at the beginning only.
    return {**request, "messages": [*request.get("messages", []), {"role": "user", "content": text}]}


def _openai_wrap_up(request: Request, note: str) -> Request:
    messages = [*request.get("messages", []), {"role": "system", "content": note}]
    wrapped = {**request, "messages": messages}
    if wrapped.get("tools"):
        wrapped["tool_choice"] = "none"
    return wrapped


def _anthropic_resume(request: Request, raw: dict[str, Any], results: Sequence[ToolResult]) -> Request:
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": result.tool_call_id,
            "content": result_text(result),
            **({} if result.success else {"is_error": True}),
        }
        for result in results
    ]
    # A message without content is refused.
    answer = [{"role": "user", "content": blocks}] if blocks else []
    said = [raw] if raw.get("content") != [] else []
    return {**request, "messages": [*request.get("messages", []), *said, *answer]}


def _anthropic_notice(request: Request, text: str) -> Request:
    messages = list(request.get("messages", []))
    block = {"type": "text", "text": text}
    if messages and messages[-1].get("role") == "user":
        last = messages[-1]
        content = last.get("content", [])
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = said if isinstance(said, list) else []
        messages[-1] = {**last, "content": [*blocks, block]}
    else:
        messages.append({"role": "user", "content": [block]})
    return {**request, "messages": messages}


def _anthropic_wrap_up(request: Request, note: str) -> Request:
    wrapped = _anthropic_notice(request, note)
    if wrapped.get("tools"):
        # The tools stay listed: a request whose history uses them is refused without them.
        wrapped["tool_choice"] = {"type": "none"}
    return wrapped


def _responses_resume(request: Request, raw: dict[str, Any], results: Sequence[ToolResult]) -> Request:
    said = _list(raw.get("output"))
    if request.get("store") is False:
        said = _unstored(said)
    answers = [
        {"type": "function_call_output", "call_id": result.tool_call_id, "output": result_text(result)}
        for result in results
    ]
    return {**request, "input": [*_input(request), *said, *answers]}


def _unstored(items: list[Any]) -> list[Any]:
    """Items that the provider can take back although it kept nothing: reasoning goes only whole (encrypted),
    and without it the other items may not refer to it by their ids."""
    known = [item for item in items if isinstance(item, dict)]
    kept = [item for item in known if item.get("type") != "reasoning" or item.get("encrypted_content")]
    if len(kept) == len(known):
        return items
    return [{name: value for name, value in item.items() if name != "id"} for item in kept]


def _responses_notice(request: Request, text: str) -> Request:
    return {**request, "input": [*_input(request), {"role": "user", "content": text}]}


def _responses_wrap_up(request: Request, note: str) -> Request:
    wrapped = {**request, "input": [*_input(request), {"role": "system", "content": note}]}
    if wrapped.get("tools"):
        wrapped["tool_choice"] = "none"
    return wrapped


def _input(request: Request) -> list[Any]:
    """The input of a request to OpenAI responses, which may be a single text."""
    given = request.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else _list(given)


def _gemini_resume(request: Request, raw: dict[str, Any], results: Sequence[ToolResult]) -> Request:
    said = [raw] if raw.get("parts") else []
    parts = [part for part in _list(raw.get("parts")) if isinstance(part, dict)]
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    answers = [_function_response(calls, position, result) for position, result in enumerate(results)]
    answer = [{"role": "user", "parts": answers}] if answers else []
    return {**request, "contents": [*_list(request.get("contents")), *said, *answer]}


def _function_response(calls: list[dict[str, Any]], position: int, result: ToolResult) -> dict[str, Any]:
    """A result as Gemini takes it: with the function's name, and an id only where the call had one."""
    by_id = (call for call in calls if call.get("id") == result.tool_call_id)
    # Without ids of its own the calls are known by their order, which is that of the results.
    call = next(by_id, calls[position] if position < len(calls) else {})
    failure = {"code": result.code, "message": result.message, "retriable": result.retriable}
    response = {
        **({"id": call["id"]} if call.get("id") else {}),
        "name": call.get("name", ""),
        "response": {"output": without_copies(result.result)} if result.success else {"error": failure},
    }
    return {"functionResponse": response}


def _gemini_notice(request: Request, text: str) -> Request:
    # A content of its own: one with function responses may hold nothing else.
    said = {"role": "user", "parts": [{"text": text}]}
    return {**request, "contents": [*_list(request.get("contents")), said]}


def _gemini_wrap_up(request: Request, note: str) -> Request:
    wrapped = _gemini_notice(request, note)
    if wrapped.get("tools"):
        wrapped["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    return wrapped


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


DIALECTS: dict[str, Dialect] = {
    "openai_chat": Dialect("messages", _openai_resume, _openai_notice, _openai_wrap_up),
    "openai_responses": Dialect("input", _responses_resume, _responses_notice, _responses_wrap_up),
    "anthropic_messages": Dialect("messages", _anthropic_resume, _anthropic_notice, _anthropic_wrap_up),
    "gemini": Dialect("contents", _gemini_resume, _gemini_notice, _gemini_wrap_up),
}


def dialect_of(request_format: str) -> Dialect:
    """The dialect of a format; one that is not listed is taken for OpenAI's, which most providers speak."""
    return DIALECTS.get(request_format, DIALECTS["openai_chat"])
