"""Sources of the parts of a request (feature D6).

A context-assembly workflow that is called with ``explain`` returns ``sources``, a list of ``{source,
source_id, text}`` with the text that each put into the request. `blocks` finds the texts in the request, so
a workflow need not know the format of its request. A workflow may also give the path itself, as ``path``.
Tool calls of a message are its ``calls``, a list of ``{name, arguments}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from wonder_server.core.content.parts import stand_in
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.token_estimates import FILE_KEY, file_tokens, text_tokens

SOURCES = (
    "persona",
    "memory",
    "turn",
    "artifact",
    "repository",
    "tool",
    "active_turn",
    "message",
    "participant",
    "time",
)
MAX_BLOCKS = 2000
EXCERPT = 200
_TEXT_KEYS = frozenset({"content", "text", "system", "instructions", "input", "description", FILE_KEY})
"""Keys of text for the model. Other keys hold settings or ids."""
_CALL_KEYS = ("arguments", "input", "args")
"""Keys of the arguments of a tool call, beside its name, in the request formats."""

_TOOL = re.compile(r"/tools/\d+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One part of a request.

    ``path`` is a JSON pointer. ``source`` is one of `SOURCES`, or empty if unknown. ``tokens`` is an
    estimate.
    """

    path: str
    source: str
    source_id: str
    excerpt: str
    tokens: int


def call_text(call: JsonValue) -> str:
    """Return a tool call as ``name({"key": …})``, with sorted keys; "" for a value that is no tool call.

    Its arguments are an object or its JSON.
    """
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ""
    arguments = next((call[key] for key in _CALL_KEYS if key in call), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return ""
    if not isinstance(arguments, dict):
        return ""
    return f"{call['name']}({json.dumps(arguments, ensure_ascii=False, sort_keys=True)})"


def with_turn_ids(hook_input: JsonDict) -> JsonDict:
    """Return the input of an assembly whose messages in threads name their turns, for ``sources``.

    The input of a turn lacks them: its messages are then those of the request, and are stored once.
    """
    turns = [
        {**turn, "thread": [{**message, "turn_id": turn["turn_id"]} for message in turn["thread"]]}
        for turn in hook_input["recent_turns"]
    ]
    return {**hook_input, "recent_turns": turns}


def blocks(request: JsonDict, sources: JsonValue) -> list[Block]:
    """Return the parts of ``request`` in the order of ``sources``, then the parts without a source.

    A source whose text the request does not contain is omitted.
    """
    texts = list(_texts(request, ""))
    found: list[Block] = []
    covered: set[str] = set()
    used: set[str] = set()
    for source, text in _given(sources):
        if len(found) >= MAX_BLOCKS:
            break
        path = source.get("path")
        path = path if isinstance(path, str) and path else _path_of(texts, text, used)
        if path is None:
            continue
        covered.add(path)
        kind, source_id = source.get("source"), source.get("source_id")
        found.append(
            Block(
                path=path,
                source=kind if kind in SOURCES else "",
                source_id=source_id if isinstance(source_id, str) else "",
                excerpt=text[:EXCERPT],
                tokens=text_tokens(text),
            )
        )
    for path, text in texts:
        key = path.rpartition("/")[2]
        is_content = text and (key in _TEXT_KEYS or key in _CALL_KEYS) and path not in covered
        if is_content and len(found) < MAX_BLOCKS:
            kind, source_id = _tool_of(path, found)
            found.append(
                Block(
                    path=path,
                    source=kind,
                    source_id=source_id,
                    excerpt=text[:EXCERPT],
                    tokens=_tokens(request, path, text),
                )
            )
    return found


def _given(sources: JsonValue) -> Iterator[tuple[JsonDict, str]]:
    """Yield each source with its text, then with each of its tool calls."""
    for source in sources if isinstance(sources, list) else ():
        if not isinstance(source, dict):
            continue
        text, calls = source.get("text"), source.get("calls")
        if isinstance(text, str) and text:
            yield source, text
        for call in calls if isinstance(calls, list) else ():
            if called := call_text(call):
                yield {**source, "path": None}, called


def _tokens(request: JsonDict, path: str, text: str) -> int:
    """Return the estimated tokens of the text, or of the file, at ``path``."""
    if not path.endswith(f"/{FILE_KEY}"):
        return text_tokens(text)
    value: JsonValue = request
    for step in path.split("/")[1:]:
        value = (
            value[int(step)] if isinstance(value, list) else value[step.replace("~1", "/").replace("~0", "~")]
        )
    return file_tokens(value)


def _tool_of(path: str, found: list[Block]) -> tuple[str, str]:
    """Return the source of a text inside a tool, such as a parameter's description; two "" for others."""
    if (inside := _TOOL.match(path)) is not None:
        for block in found:
            if block.source == "tool" and block.path.startswith(inside[0]):
                return block.source, block.source_id
    return "", ""


def _path_of(texts: list[tuple[str, str]], text: str, used: set[str]) -> str | None:
    """Return the path of ``text``: an unused equal text, else a text that contains it; None without one."""
    for path, other in texts:
        if other == text and path not in used:
            used.add(path)
            return path
    return next((path for path, other in texts if text in other), None)


def _texts(value: JsonValue, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict) and isinstance(value.get(FILE_KEY), dict):
        yield f"{path}/{FILE_KEY}", stand_in(value[FILE_KEY])
    elif isinstance(value, dict) and (called := call_text(value)):
        yield f"{path}/{next(key for key in _CALL_KEYS if key in value)}", called
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}/{index}")
