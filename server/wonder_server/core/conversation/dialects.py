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

from wonder_server.core.conversation.values import ToolResult

Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one request format goes on.

    ``resume(request, raw, results)`` appends the assistant's message and its tools' results.
    No results: the model called nothing, and what it is told next is a notice.
    ``notice(request, text)`` tells the model what happened meanwhile: an async tool has ended.
    ``wrap_up(request, note)`` forbids tools and adds a note for the model.
    """

    resume: Callable[[Request, dict[str, Any], Sequence[ToolResult]], Request]
    notice: Callable[[Request, str], Request]
    wrap_up: Callable[[Request, str], Request]


def result_text(result: ToolResult) -> str:
    """A tool's result as the text that the model reads."""
    if result.success:
        return result.result if isinstance(result.result, str) else _json(result.result)
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


DIALECTS: dict[str, Dialect] = {
    "openai_chat": Dialect(_openai_resume, _openai_notice, _openai_wrap_up),
    "anthropic_messages": Dialect(_anthropic_resume, _anthropic_notice, _anthropic_wrap_up),
}


def dialect_of(request_format: str) -> Dialect:
    """The dialect of a format; one that is not listed is taken for OpenAI's, which most providers speak."""
    return DIALECTS.get(request_format, DIALECTS["openai_chat"])
