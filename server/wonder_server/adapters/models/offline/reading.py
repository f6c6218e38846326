"""What the offline model sees in a request, whichever format it came in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wonder_server.adapters.models.common.format_names import ANTHROPIC_MESSAGES
from wonder_server.adapters.models.offline.request_shapes import as_chat


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result: the tool's name and what it said."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A request, read. ``tools``: name -> input schema, empty when tools are forbidden. ``results``:
    those that came after ``said``, the last thing a user said. ``words``: of the whole request."""

    format: str
    user_text: str
    results: tuple[Result, ...]
    memories: tuple[str, ...]
    tools: dict[str, dict[str, Any]]
    message_count: int
    words: int
    max_tokens: int | None

    def tool_named(self, name: str) -> str | None:
        """The offered tool of this name, whatever its case."""
        return next((tool for tool in self.tools if tool.lower() == name.lower()), None)

    def tool_like(self, part: str) -> str | None:
        """The offered tool of this name, else the first whose name holds it."""
        return self.tool_named(part) or next((tool for tool in self.tools if part in tool.lower()), None)

    def text_field(self, tool: str) -> str:
        """The input field of a tool that takes a text: the first required string, else the first one."""
        schema = self.tools[tool]
        properties = schema.get("properties") or {}
        strings = [name for name, field in properties.items() if (field or {}).get("type") == "string"]
        required = [name for name in schema.get("required") or () if name in strings]
        return str((required or strings or ["text"])[0])


def read(request: dict[str, Any], format_name: str) -> ParsedRequest:
    """Reads a request leniently: what has an unexpected shape is passed over."""
    anthropic = format_name == ANTHROPIC_MESSAGES
    request = as_chat(request, format_name)
    messages = [message for message in request.get("messages") or () if isinstance(message, dict)]
    texts = [_text(message.get("content")) for message in messages]
    system = [
        text for text, message in zip(texts, messages, strict=True) if message.get("role") in _SYSTEM_ROLES
    ]
    if anthropic:
        system.insert(0, _text(request.get("system")))
    said, results = _last_exchange(messages)
    everything = " ".join(filter(None, (*texts, system[0] if anthropic else "")))
    limit = request.get("max_tokens") or request.get("max_completion_tokens")
    return ParsedRequest(
        format=format_name,
        user_text=said,
        results=tuple(results),
        memories=tuple(memory for text in system for memory in _memories(text)),
        tools=_tools(request, anthropic=anthropic),
        message_count=len(messages),
        words=everything.count(" ") + 1 if everything else 0,
        max_tokens=int(limit) if isinstance(limit, int | float) else None,
    )


_SYSTEM_ROLES = ("system", "developer")


def _text(content: Any) -> str:
    """The text of a message's content: a string, or its text blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(block.get("text", ""))
        for block in content
        if isinstance(block, dict) and block.get("type") == "text"
    )


def _last_exchange(messages: list[dict[str, Any]]) -> tuple[str, list[Result]]:
    """The last thing a user said, and the tool results that followed it."""
    after = len(messages)
    while after and not _is_user_text(messages[after - 1]):
        after -= 1
    said = _text(messages[after - 1].get("content")) if after else ""
    if after == len(messages):
        return said, []
    names: dict[str, str] = {}
    results: list[Result] = []
    for position, message in enumerate(messages):
        names.update(_call_names(message))
        if position >= after:
            results += [Result(names.get(call_id, "tool"), text) for call_id, text in _tool_results(message)]
    return said, results


def _is_user_text(message: dict[str, Any]) -> bool:
    """Whether a user said it; formats have tool results among the user's messages too."""
    return message.get("role") == "user" and next(_tool_results(message), None) is None


def _call_names(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for call in message.get("tool_calls") or ():
        yield call.get("id", ""), (call.get("function") or {}).get("name", "tool")
    for block in _blocks(message):
        if block.get("type") == "tool_use":
            yield block.get("id", ""), block.get("name", "tool")


def _tool_results(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if message.get("role") == "tool":
        yield message.get("tool_call_id", ""), _text(message.get("content"))
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            yield block.get("tool_use_id", ""), _text(block.get("content"))


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _memories(system: str) -> Iterator[str]:
    """The lines ``- text`` under a line ``Memories:``, up to the first that is something else."""
    listing = False
    for line in system.splitlines():
        stripped = line.strip()
        if stripped.lstrip("# ").lower().rstrip(":") == "memories":
            listing = True
        elif listing and stripped.startswith("- "):
            yield stripped[2:].strip()
        elif stripped:
            listing = False


def _tools(request: dict[str, Any], *, anthropic: bool) -> dict[str, dict[str, Any]]:
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
