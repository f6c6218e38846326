"""Texts cut to a number of bytes, with a notice that says how much is missing."""

from __future__ import annotations

from typing import Final

NOTICE_BYTES: Final = 128
"""The most bytes that a notice has."""


def utf8_size(text: str) -> int:
    """Bytes of ``text`` in UTF-8. A lone surrogate counts as its replacement."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def truncate_text(text: str, max_bytes: int, hint: str = "") -> str:
    """Return ``text`` if it has at most ``most`` bytes, else its beginning and a notice, together that long.

    The cut is between two characters. ``hint`` is a short sentence that ends the notice, such as where the
    whole is kept. ``most`` below `NOTICE_BYTES` leaves only the notice.
    """
    size = utf8_size(text)
    if size <= max_bytes:
        return text
    kept = utf8_prefix(text, max(0, max_bytes - NOTICE_BYTES - len(hint.encode())))
    return kept + notice(size - utf8_size(kept), size, hint)


def utf8_prefix(text: str, max_bytes: int) -> str:
    """Return the longest beginning of ``text`` that has at most ``most`` bytes."""
    if max_bytes >= 4 * len(text):
        return text
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def notice(missing: int, size: int, hint: str = "") -> str:
    """Return the notice that stands where a text of ``size`` bytes was cut."""
    said = f"{missing} of {size} bytes are left out here."
    return f"\n[Cut: {said}{' ' if hint else ''}{hint}]"


def is_notice(text: str) -> bool:
    """Return True if ``text`` is nothing but a notice."""
    return text.startswith("[Cut: ") and text.endswith("]") and len(text) <= 2 * NOTICE_BYTES
