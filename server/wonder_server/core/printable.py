"""Texts of other programs, made printable on one line of an error or a log."""

from __future__ import annotations

from typing import Final

MAX_TEXT: Final = 500
"""Characters of another program's text in one error, progress message or log line."""

_TRACE: Final = "Traceback (most recent call last)"


def printable(text: str, max_characters: int = MAX_TEXT) -> str:
    """Return ``text`` on one line with at most ``max_characters``; unprintable characters become escapes."""
    cut = text[: max_characters + 1].rstrip("\r\n")
    shown = "".join([each if each.isprintable() else _escape(each) for each in cut[:max_characters]])
    is_cut = len(cut) > max_characters or len(shown) > max_characters
    return f"{shown[:max_characters]}…" if is_cut else shown


def quoted(text: str, max_characters: int = MAX_TEXT) -> str:
    """Return another program's reason, as `printable`, without a stack trace at its end."""
    return printable(text.partition(_TRACE)[0].strip(), max_characters) or "no reason was given"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
