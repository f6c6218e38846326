"""Tools in the form of each request format: the function ``provider_tools`` of expressions.

An agent has the same list of tools in each of its turns, and the list may have a thousand. So the last
results are kept by the identity of their lists, which never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import anthropic_messages, gemini, openai_chat, openai_responses

MIN_KEPT: Final = 16
"""Number of tools from which on a result is kept."""

MAX_KEPT: Final = 32
"""Maximum number of kept results. The oldest goes first."""

_OF_THE_PLATFORM = frozenset(("id", "target_type", "async"))
"""Fields of tool definitions that no provider knows."""


class ToolLists:
    """Writes lists of tools, and keeps the last results."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[Sequence[JsonDict], list[JsonDict]]] = {}

    def written(self, tools: Sequence[JsonDict], format_name: str) -> list[JsonDict]:
        """Return the tools in the form of a request format. Raises KeyError for the name of a missing
        field."""
        key = id(tools), format_name
        # An id is unique only while its object exists, so an entry holds the object and compares it.
        kept = self._kept.get(key)
        if kept is not None and kept[0] is tools:
            return kept[1]
        write = _WRITERS[format_name]
        made = [write(tool) for tool in tools]
        if len(tools) >= MIN_KEPT:
            self._kept.pop(key, None)
            if len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = tools, made
        return made


def _openai_chat(tool: JsonDict) -> JsonDict:
    function = {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
    }
    return {"type": "function", "function": function}


def _openai_responses(tool: JsonDict) -> JsonDict:
    # Strict, the default of the API, supports only a part of JSON Schema.
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
        "strict": False,
    }


def _anthropic_messages(tool: JsonDict) -> JsonDict:
    # Tools of the provider have fields of their own.
    return {name: value for name, value in tool.items() if name not in _OF_THE_PLATFORM}


def _gemini(tool: JsonDict) -> JsonDict:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parametersJsonSchema": tool["input_schema"],
    }


_WRITERS: Mapping[str, Callable[[JsonDict], JsonDict]] = {
    openai_chat.FORMAT.name: _openai_chat,
    openai_responses.FORMAT.name: _openai_responses,
    anthropic_messages.FORMAT.name: _anthropic_messages,
    gemini.FORMAT.name: _gemini,
}

TOOL_LISTS: Final = ToolLists()
"""The lists of this process. What is kept is a pure function of the list, so that all may share it."""
