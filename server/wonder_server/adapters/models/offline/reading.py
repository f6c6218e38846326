"""`ParsedRequest`: the parts of a request in any format that the offline model uses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wonder_server.adapters.models.formats.wire_format import WireFormat
from wonder_server.adapters.models.offline.example_values import schema_of
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats import anthropic_messages
from wonder_server.core.request_formats.neutral import ASIDE


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result: the tool's name and the text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """The parts of a request.

    - ``user_text`` is the last user message without its speaker's label, and ``results``
      are the tool results that follow it.
    - ``memories`` are the memories in the system prompt, and in the context before the last user message.
    - ``tools`` maps names to input schemas; empty if tools are forbidden.
    - ``schema`` is that of the output; None without one.
    - ``words`` counts the words of the whole request.
    """

    format: str
    user_text: str
    results: tuple[Result, ...]
    memories: tuple[str, ...]
    tools: dict[str, JsonDict]
    message_count: int
    words: int
    max_tokens: int | None
    schema: JsonObject | None = None

    def tool_named(self, name: str) -> str | None:
        """Return the offered tool with this name, in any case."""
        return next((tool for tool in self.tools if tool.lower() == name.lower()), None)

    def tool_like(self, part: str) -> str | None:
        """Return the offered tool with this name, else the first whose name contains it."""
        return self.tool_named(part) or next((tool for tool in self.tools if part in tool.lower()), None)

    def text_field(self, tool: str) -> str:
        """Return the first required string field of a tool's input, else its first string field."""
        schema = self.tools[tool]
        properties = schema.get("properties") or {}
        strings = [name for name, field in properties.items() if (field or {}).get("type") == "string"]
        required = [name for name in schema.get("required") or () if name in strings]
        return str((required or strings or ["text"])[0])


def read(request: JsonDict, wire_format: WireFormat) -> ParsedRequest:
    """Return the parts of a request. Parts of unexpected shape are ignored."""
    anthropic = wire_format.format is anthropic_messages.FORMAT
    schema = schema_of(request)
    request = wire_format.as_chat(request)
    messages = [message for message in request.get("messages") or () if isinstance(message, dict)]
    texts = [_text(message.get("content")) for message in messages]
    system = [
        text for text, message in zip(texts, messages, strict=True) if message.get("role") in _SYSTEM_ROLES
    ]
    if anthropic:
        system.insert(0, _text(request.get("system")))
    user_text, results = _last_exchange(messages)
    context, user_text = _divide(user_text)
    everything = " ".join(filter(None, (*texts, system[0] if anthropic else "")))
    limit = request.get("max_tokens") or request.get("max_completion_tokens")
    return ParsedRequest(
        format=wire_format.name,
        user_text=user_text,
        results=tuple(results),
        memories=tuple(memory for text in (*system, context) for memory in _memories(text)),
        tools=_tools(request, anthropic=anthropic),
        message_count=len(messages),
        words=everything.count(" ") + 1 if everything else 0,
        max_tokens=int(limit) if isinstance(limit, int | float) else None,
        schema=schema,
    )


_SYSTEM_ROLES = ("system", "developer")


def _text(content: JsonValue) -> str:
    """Return the text of a message's content: a string, or its text blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(block.get("text", ""))
        for block in content
        if isinstance(block, dict) and block.get("type") == "text" and not _is_aside(block.get("text"))
    )


def _is_aside(text: JsonValue) -> bool:
    """Return True for a notice of the platform beside the user's message, such as what others said."""
    return isinstance(text, str) and text.startswith(ASIDE)


def _last_exchange(messages: list[JsonDict]) -> tuple[str, list[Result]]:
    """Return the last user message and the tool results that follow it."""
    after = len(messages)
    while after and not _is_user_text(messages[after - 1]):
        after -= 1
    user_text = _text(messages[after - 1].get("content")) if after else ""
    if after == len(messages):
        return user_text, []
    names: dict[str, str] = {}
    results: list[Result] = []
    for position, message in enumerate(messages):
        names.update(_call_names(message))
        if position >= after:
            results += [Result(names.get(call_id, "tool"), text) for call_id, text in _tool_results(message)]
    return user_text, results


_CONTEXT = "[Context, added by the platform]\n"
_MESSAGE = "\n[Message]\n"
_LABEL = re.compile(r"\A\[(?:user|agent|workflow)(?: [^\[\]\n]+)?\]\s+")
"""A speaker's label before a message (`core.conversation.model.speakers`)."""


def _divide(text: str) -> tuple[str, str]:
    """Return the context that the standard context assembly puts before a message, and the message.

    With several participants the message begins with its speaker, which is not a part of its words.
    """
    context, message = "", text
    if text.startswith(_CONTEXT):
        context, _, message = text.partition(_MESSAGE)
    return context, _LABEL.sub("", message)


def _is_user_text(message: JsonDict) -> bool:
    """Return True for a message of a user, which may not contain tool results as in some formats."""
    if message.get("role") != "user" or next(_tool_results(message), None) is not None:
        return False
    content = message.get("content")
    first = next(iter(_blocks(message)), {}).get("text") if isinstance(content, list) else content
    return not _is_aside(first)


def _call_names(message: JsonDict) -> Iterator[tuple[str, str]]:
    for call in message.get("tool_calls") or ():
        yield call.get("id", ""), (call.get("function") or {}).get("name", "tool")
    for block in _blocks(message):
        if block.get("type") == "tool_use":
            yield block.get("id", ""), block.get("name", "tool")


def _tool_results(message: JsonDict) -> Iterator[tuple[str, str]]:
    if message.get("role") == "tool":
        yield message.get("tool_call_id", ""), _text(message.get("content"))
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            yield block.get("tool_use_id", ""), _text(block.get("content"))


def _blocks(message: JsonDict) -> list[JsonDict]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _memories(system: str) -> Iterator[str]:
    """Yield the lines ``- text`` under a line ``Memories:``, up to the first other line."""
    listing = False
    for line in system.splitlines():
        stripped = line.strip()
        if stripped.lstrip("# ").lower().rstrip(":") == "memories":
            listing = True
        elif listing and stripped.startswith("- "):
            yield stripped[2:].strip()
        elif stripped:
            listing = False


def _tools(request: JsonDict, *, anthropic: bool) -> dict[str, JsonDict]:
    choice = request.get("tool_choice")
    if choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none"):
        return {}
    tools = {}
    for tool in request.get("tools") or ():
        described = tool if anthropic else tool.get("function") or {}
        schema = described.get("input_schema" if anthropic else "parameters")
        if name := described.get("name"):
            tools[name] = schema if isinstance(schema, dict) else {}
    return tools
