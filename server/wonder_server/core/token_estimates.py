"""Estimates of token counts: a quarter of a text's bytes in UTF-8.

The estimate is about right for English prose. Other scripts have more bytes a character, and also more
tokens. An exact count requires a tokenizer's tables and takes a tenth of a second for a long request, which
is too slow before each model call. ``ContextWindow.threshold`` leaves a margin for the difference.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.json_types import JsonObject, JsonValue

BYTES_PER_TOKEN = 4
PER_MESSAGE = 4
"""Tokens that formats add to each message."""

FILE_KEY: Final = "wonder_file"
"""Member of an object in a request that stands for a file. Its content takes the place of the object when the
request is sent."""
IMAGE_TOKENS: Final = 1_600
"""Tokens of an image of any size: providers scale it down, and count 260 to 1,600."""
MAX_TEXT_FILE_BYTES: Final = 64 << 10
"""Bytes of a text file that a request has. The rest is left out."""
PDF_BYTES_PER_TOKEN: Final = 25
"""Providers count 1,500 to 3,000 tokens for a page of a PDF, which has 50 KB as a rule."""


MIN_KEPT = 16
"""Number of tools from which on the estimate of a list is kept."""

MAX_KEPT = 32
_kept: dict[int, tuple[list[JsonValue], int]] = {}


def file_tokens(file: JsonObject) -> int:
    """Return the estimated tokens of a file by its ``media_type`` and ``size_bytes``."""
    media_type, size = str(file.get("media_type", "")), file.get("size_bytes")
    size = size if type(size) is int else 0
    if media_type.startswith("image/"):
        return IMAGE_TOKENS
    if media_type == "application/pdf":
        return max(IMAGE_TOKENS, size // PDF_BYTES_PER_TOKEN)
    return -(-min(size, MAX_TEXT_FILE_BYTES) // BYTES_PER_TOKEN)


def text_tokens(text: str) -> int:
    """Return the estimated tokens of a text."""
    return -(-byte_size(text) // BYTES_PER_TOKEN)


def json_tokens(value: JsonValue) -> int:
    """Return the estimated tokens of a request or a part of one, in its JSON form."""
    tools = value.get("tools") if type(value) is dict else None
    if type(tools) is not list or len(tools) < MIN_KEPT:
        return -(-_written(value) // BYTES_PER_TOKEN)
    others = {name: each for name, each in value.items() if name != "tools"}
    return -(-(_written(others) + len("tools") + _written_tools(tools)) // BYTES_PER_TOKEN)


def _written_tools(tools: list[JsonValue]) -> int:
    """Return `_written` of a list of tools, which is the same object in each request of an agent."""
    kept = _kept.get(id(tools))
    # An id is unique only while its object exists, so an entry holds the object and compares it.
    if kept is None or kept[0] is not tools:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        kept = _kept[id(tools)] = tools, _written(tools)
    return kept[1]


def byte_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _written(value: JsonValue) -> int:
    """Return the approximate bytes of the texts and numbers in ``value``, with an allowance for structure."""
    total, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            total += byte_size(item)
        elif isinstance(item, dict):
            if FILE_KEY in item and isinstance(item[FILE_KEY], dict):
                total += BYTES_PER_TOKEN * file_tokens(item[FILE_KEY])
                continue
            total += PER_MESSAGE + sum(len(key) for key in item)
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            total += 2 * len(item)
            pending.extend(item)
        else:
            total += PER_MESSAGE
    return total
