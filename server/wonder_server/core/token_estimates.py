"""How many tokens a text has, estimated: a quarter of its bytes in UTF-8 (document 3).

That is about right for English prose; other scripts take more bytes for a letter as they take more tokens.
Counting exactly would take a tokenizer's tables and, for a long request, a tenth of a second: far too long
for something that is asked before each call of a model. A part that stays free covers the difference
(``ContextWindow.threshold``).
"""

from __future__ import annotations

from typing import Any

BYTES_PER_TOKEN = 4
PER_MESSAGE = 4
"""What formats add around each message."""


def text_tokens(text: str) -> int:
    """Tokens of a text."""
    return -(-byte_size(text) // BYTES_PER_TOKEN)


def json_tokens(value: Any) -> int:
    """Tokens of a request or a part of one, as it is written in JSON."""
    return -(-_written(value) // BYTES_PER_TOKEN)


def byte_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _written(value: Any) -> int:
    """About the bytes of the texts and numbers in ``value``, and a little for what holds them."""
    total, rest = 0, [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            total += byte_size(item)
        elif isinstance(item, dict):
            total += PER_MESSAGE + sum(len(key) for key in item)
            rest.extend(item.values())
        elif isinstance(item, (list, tuple)):
            total += 2 * len(item)
            rest.extend(item)
        else:
            total += PER_MESSAGE
    return total
