"""Texts cut to a number of bytes, with a notice about the omitted part."""

from __future__ import annotations

from typing import Final

NOTICE_BYTES: Final = 128
"""Maximum size of a notice."""


def utf8_size(text: str) -> int:
    """Bytes of ``text`` in UTF-8. A lone surrogate counts as its replacement."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def truncate_text(text: str, max_bytes: int, hint: str = "") -> str:
    """Return ``text`` if it has at most ``max_bytes``, else its beginning and a notice of that total size.

    The cut is between two characters. ``hint`` is a short sentence at the end of the notice, such as the
    place of the complete text. With ``max_bytes`` below `NOTICE_BYTES` only the notice remains.
    """
    size = utf8_size(text)
    if size <= max_bytes:
        return text
    kept = utf8_prefix(text, max(0, max_bytes - NOTICE_BYTES - len(hint.encode())))
    return kept + notice(size - utf8_size(kept), size, hint)


def utf8_prefix(text: str, max_bytes: int) -> str:
    """Return the longest beginning of ``text`` with at most ``max_bytes``."""
    if max_bytes >= 4 * len(text):
        return text
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def notice(missing: int, size: int, hint: str = "") -> str:
    """Return the notice at the end of a cut text of ``size`` bytes."""
    omitted = f"{missing} of {size} bytes are left out here."
    return f"\n[Cut: {omitted}{' ' if hint else ''}{hint}]"


def is_notice(text: str) -> bool:
    """Return True if ``text`` consists of a notice alone."""
    return text.startswith("[Cut: ") and text.endswith("]") and len(text) <= 2 * NOTICE_BYTES
