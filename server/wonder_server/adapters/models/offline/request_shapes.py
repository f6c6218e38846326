"""Requests in the formats of OpenAI responses and Gemini, in the shape of OpenAI chat. Pure.

Only for the offline model, which reads requests and sends none; what it has no use for is left out, and what
has an unexpected shape is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wonder_server.adapters.models.common import format_names

Json = dict[str, Any]


def as_chat(request: Json, format_name: str) -> Json:
    """``request`` itself where its format is another one."""
    match format_name:
        case format_names.OPENAI_RESPONSES:
            return _responses(request)
        case format_names.GEMINI:
            return _gemini(request)
        case _:
            return request


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _responses(request: Json) -> Json:
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given)
    messages = [_item(item) for item in items]
    if request.get("instructions"):
        messages.insert(0, {"role": "system", "content": request["instructions"]})
    tools = [{"type": "function", "function": tool} for tool in _objects(request.get("tools"))]
    return {
        "messages": messages,
        "tools": tools,
        "tool_choice": request.get("tool_choice"),
        "max_tokens": request.get("max_output_tokens"),
    }


def _item(item: Json) -> Json:
    match item.get("type"):
        case "function_call":
            call = {"id": item.get("call_id", ""), "function": {"name": item.get("name", "tool")}}
            return {"role": "assistant", "tool_calls": [call]}
        case "function_call_output":
            return {
                "role": "tool",
                "tool_call_id": item.get("call_id", ""),
                "content": item.get("output", ""),
            }
    content = item.get("content")
    if isinstance(content, list):
        texts = [str(part.get("text", "")) for part in _objects(content) if "text" in part]
        content = "\n".join(texts)
    return {"role": item.get("role", ""), "content": content}


def _gemini(request: Json) -> Json:
    messages = [message for content in _objects(request.get("contents")) for message in _content(content)]
    if system := _texts(_object(request.get("systemInstruction"))):
        messages.insert(0, {"role": "system", "content": system})
    declared = [
        {
            **declaration,
            "parameters": declaration.get("parametersJsonSchema") or declaration.get("parameters"),
        }
        for tool in _objects(request.get("tools"))
        for declaration in _objects(tool.get("functionDeclarations"))
    ]
    calling = _object(_object(request.get("toolConfig")).get("functionCallingConfig"))
    return {
        "messages": messages,
        "tools": [{"type": "function", "function": declaration} for declaration in declared],
        "tool_choice": "none" if calling.get("mode") == "NONE" else None,
        "max_tokens": _object(request.get("generationConfig")).get("maxOutputTokens"),
    }


def _content(content: Json) -> Iterator[Json]:
    """A content's function responses, each as a message, and what else it says, if anything."""
    calls = []
    for part in _objects(content.get("parts")):
        called, answered = _object(part.get("functionCall")), _object(part.get("functionResponse"))
        if called:
            calls.append({"id": called.get("name", ""), "function": {"name": called.get("name", "tool")}})
        if answered:
            response = _object(answered.get("response"))
            said = response.get("output", response)
            text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
            yield {"role": "tool", "tool_call_id": answered.get("name", ""), "content": text}
    text = _texts(content)
    if text or calls:
        role = "assistant" if content.get("role") == "model" else "user"
        yield {"role": role, "content": text, **({"tool_calls": calls} if calls else {})}


def _texts(content: Json) -> str:
    parts = _objects(content.get("parts"))
    return "\n".join(str(part["text"]) for part in parts if "text" in part and not part.get("thought"))
