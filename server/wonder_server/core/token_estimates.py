"""Estimates of token counts: a quarter of a text's bytes in UTF-8.

The estimate is about right for English prose. Other scripts have more bytes a character, and also more
tokens. An exact count requires a tokenizer's tables and takes a tenth of a second for a long request, which
is too slow before each model call. ``ContextWindow.threshold`` leaves a margin for the difference.
"""

from __future__ import annotations

from wonder_server.core.json_types import JsonValue

BYTES_PER_TOKEN = 4
PER_MESSAGE = 4
"""Tokens that formats add to each message."""


def text_tokens(text: str) -> int:
    """Return the estimated tokens of a text."""
    return -(-byte_size(text) // BYTES_PER_TOKEN)


def json_tokens(value: JsonValue) -> int:
    """Return the estimated tokens of a request or a part of one, in its JSON form."""
    return -(-_written(value) // BYTES_PER_TOKEN)


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
            total += PER_MESSAGE + sum(len(key) for key in item)
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            total += 2 * len(item)
            pending.extend(item)
        else:
            total += PER_MESSAGE
    return total
