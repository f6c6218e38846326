"""Tool results as the model receives them, without copies.

Some actions return the same data in several forms for expressions: ``mcp`` as content blocks, text and
structured data, ``….index`` as fields and text. A tool that maps such a result as a whole would spend the
model's tokens on copies. The record, events and expressions keep all forms.

A form is omitted only if its shape and its content identify it as a copy.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.json_types import JsonDict, JsonValue

_MCP: Final = frozenset({"content", "text", "structured", "is_error"})
_INDEX: Final = frozenset({"repositories", "lines"})
_LINE: Final = frozenset({"path", "files", "text"})
_MORE: Final = "and "


def without_copies(value: JsonValue) -> JsonValue:
    """Return ``value``, the output of a tool, without copies. A value without copies is returned itself.

    The output is a payload, so its nesting is bounded.
    """
    if isinstance(value, dict):
        if _is_mcp(value):
            return _mcp(value)
        if _is_line(value):
            return value["text"]
        if _is_index(value):
            value = {"repositories": value["repositories"]}
        members = {key: without_copies(member) for key, member in value.items()}
        return value if all(members[key] is member for key, member in value.items()) else members
    if isinstance(value, list):
        items = [without_copies(item) for item in value]
        return value if all(map(_is_same, items, value)) else items
    return value


def _is_same(one: object, other: object) -> bool:
    return one is other


# --- mcp ----------------------------------------------------------------------------------------


def _is_mcp(value: JsonDict) -> bool:
    """Return True for a result of the action ``mcp``: its text is that of its content."""
    if value.keys() != _MCP or not isinstance(value["content"], list):
        return False
    blocks = value["content"]
    if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks):
        return False
    texts = [str(block.get("text", "")) for block in blocks if block["type"] == "text"]
    return isinstance(value["is_error"], bool) and value["text"] == "\n".join(texts)


def _mcp(result: JsonDict) -> JsonValue:
    """Return the structured data, which the text repeats; without structured data the content as text."""
    structured, blocks = result["structured"], result["content"]
    if structured is None:
        text: JsonValue = "\n".join([_content_block_text(block) for block in blocks])
        return {"is_error": True, "text": text} if result["is_error"] else text
    beside = [_content_block_text(block) for block in blocks if block["type"] != "text"]
    if not beside and not result["is_error"]:
        return structured
    return {
        **({"is_error": True} if result["is_error"] else {}),
        "structured": structured,
        **({"beside": beside} if beside else {}),
    }


def _content_block_text(block: JsonDict) -> str:
    """Return a content block as text. A block that is no text gives its kind and size."""
    kind = block["type"]
    if kind == "text":
        return str(block.get("text", ""))
    resource = block.get("resource")
    inner: JsonDict = resource if isinstance(resource, dict) else block
    if isinstance(inner.get("text"), str):
        return f"[{kind} {inner.get('uri', '')}]\n{inner['text']}"
    details = [kind, *[str(inner[name]) for name in ("uri", "name", "mimeType") if inner.get(name)]]
    data = inner.get("data", inner.get("blob"))
    size = f": {len(data) * 3 // 4} bytes, not shown" if isinstance(data, str) else ""
    return f"[{' '.join(details)}{size}]"


# --- indexes ------------------------------------------------------------------------------------


def _is_line(value: JsonDict) -> bool:
    """Return True for a line of an index, whose text repeats its other fields."""
    if value.keys() - {"repository"} != _LINE or not isinstance(value["files"], int):
        return False
    path, text = value["path"], value["text"]
    if not (isinstance(path, str) and isinstance(text, str)):
        return False
    whose = f"{value.get('repository', '')}: "
    return text.removeprefix(whose).startswith(path or _MORE)


def _is_index(value: JsonDict) -> bool:
    """Return True for a result of ``repo.index`` whose lines repeat those of its repositories."""
    if value.keys() != _INDEX or not isinstance(value["repositories"], list):
        return False
    lines: list[JsonValue] = []
    for each in value["repositories"]:
        if not isinstance(each, dict) or not isinstance(each.get("lines", []), list):
            return False
        lines += each.get("lines", [])
    return isinstance(value["lines"], list) and len(lines) == len(value["lines"])
