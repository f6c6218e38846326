"""Indentation of texts, so that no line of one begins where it could pose as another text's line."""

from __future__ import annotations

from typing import Final

_LINE_BREAKS: Final = ("\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


def with_newlines(text: str) -> str:
    """Return the text with a newline in place of every other kind of line break."""
    for mark in _LINE_BREAKS:
        if mark in text:
            text = text.replace(mark, "\n")
    return text


def indent(lines: str, prefix: str, first: str = "") -> str:
    """Return the text with ``first`` before its first line and ``prefix`` before each further line that is
    not empty. Its line breaks are newlines (`with_newlines`).
    """
    # Two steps of the C library: a list of lines takes 20 times as long for a text of short lines.
    indented = lines.replace("\n", "\n" + prefix)
    while f"\n{prefix}\n" in indented and prefix:
        indented = indented.replace(f"\n{prefix}\n", "\n\n")
    return first + indented
