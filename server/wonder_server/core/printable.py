"""Texts of other programs, made fit for one line of an error or a log."""

from __future__ import annotations

from typing import Final

MAX_TEXT: Final = 500
"""Characters of another program's text in one error, progress message or log line."""

_TRACE: Final = "Traceback (most recent call last)"


def printable(text: str, most: int = MAX_TEXT) -> str:
    """Return ``text`` on one line: at most ``most`` characters, those that do not print as escapes."""
    cut = text[: most + 1].rstrip("\r\n")
    shown = "".join([each if each.isprintable() else _escape(each) for each in cut[:most]])
    return f"{shown[:most]}…" if len(cut) > most or len(shown) > most else shown


def quoted(text: str, most: int = MAX_TEXT) -> str:
    """Return what another program gives as a reason, as `printable`, without a stack trace at its end."""
    return printable(text.partition(_TRACE)[0].strip(), most) or "it does not say why"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
