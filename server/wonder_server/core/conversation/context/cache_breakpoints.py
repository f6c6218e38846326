"""Cache breakpoints of Anthropic: places of a request up to which the provider keeps it in its cache.

The other providers find the beginning of a request in their caches by themselves. A breakpoint is set when a
request is sent, so the record has none and each message is stored once. The provider takes up to four. There
are three:

- the end of the instructions, which covers the tools too
- the end of the history, which the next turn repeats
- the end of the request, if the model may call tools, so that the next call of the turn repeats it
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.conversation.context.dialects import Request, dialect_of
from wonder_server.core.conversation.context.window import encode, is_plain_message
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import anthropic_messages
from wonder_server.core.token_estimates import BYTES_PER_TOKEN

MIN_TOKENS: Final = 1024
"""Minimum tokens up to a breakpoint. The provider ignores one before its own minimum, 1,024 or more."""

_KEY: Final = "cache_control"
_MARK: Final = {"type": "ephemeral"}
_UNMARKABLE: Final = ("thinking", "redacted_thinking")


def with_breakpoints(body: Request, request_format: str) -> Request:
    """Return the request with cache breakpoints, itself if its format has none or its author has set some."""
    if dialect_of(request_format).format is not anthropic_messages.FORMAT:
        return body
    messages = body.get("messages")
    encoded = encode(body)
    too_short = len(encoded) < MIN_TOKENS * BYTES_PER_TOKEN
    if too_short or b'"cache_control":' in encoded or not isinstance(messages, list):
        return body
    marked, size = {**body}, 0
    for name in ("tools", "system"):
        size += len(encode(body[name])) if body.get(name) else 0
    if size >= MIN_TOKENS * BYTES_PER_TOKEN:
        name = "system" if body.get("system") else "tools"
        marked[name] = _marked(body[name])
    places = {_end_of_history(messages)}
    if body.get("tools") and body.get("tool_choice") != {"type": "none"}:
        places.add(len(messages) - 1)
    shown = list(messages)
    for at in places:
        if at >= 0 and size + len(encode(messages[: at + 1])) >= MIN_TOKENS * BYTES_PER_TOKEN:
            shown[at] = _marked_message(messages[at])
    return {**marked, "messages": shown}


def _end_of_history(messages: list[JsonValue]) -> int:
    """Return the index of the last message before the newest one of the user; -1 without one."""
    return next((at for at in range(len(messages) - 1, -1, -1) if is_plain_message(messages[at])), 0) - 1


def _marked_message(message: JsonValue) -> JsonValue:
    if not isinstance(message, dict) or not message.get("content"):
        return message
    return {**message, "content": _marked(message["content"])}


def _marked(value: JsonValue) -> JsonValue:
    """Return instructions, a list of tools or a message's content with a breakpoint at its end."""
    if isinstance(value, str):
        return [{"type": "text", "text": value, _KEY: _MARK}]
    if not isinstance(value, list) or not value:
        return value
    last = value[-1]
    if not isinstance(last, dict) or last.get("type") in _UNMARKABLE:
        return value
    marked: JsonDict = {**last, _KEY: _MARK}
    return [*value[:-1], marked]
