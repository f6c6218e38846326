"""Excerpts of large tool results: the part that the model gets, and the part that it reads later.

Positions are bytes of the result's text in UTF-8. Every cut is between two characters.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wonder_server.core.conversation.model.event_payloads import ResultExcerpt

_NOTICE_BYTES: Final = 384
"""Bytes that a notice takes of the excerpt. The longest has 350: positions below 10^7, a name of 64."""
_TAIL_SHARE: Final = 4
"""One part in four of the text in an excerpt is its end: errors and totals often come last."""


class TextPiece(NamedTuple):
    """A piece of a text: where it begins and ends, and the size of the text, in bytes."""

    text: str
    start: int
    end: int
    size: int


def excerpt_text(text: str, excerpt: ResultExcerpt) -> str:
    """Return the beginning and the end of ``text``, with a notice in between that says how to read on."""
    data = text.encode("utf-8", "replace")
    if len(data) <= excerpt.max_bytes:
        return text
    space = max(0, excerpt.max_bytes - _NOTICE_BYTES)
    tail_bytes = space // _TAIL_SHARE
    head = data[: space - tail_bytes].decode("utf-8", "ignore")
    tail = data[len(data) - tail_bytes :].decode("utf-8", "ignore")
    start, end = len(head.encode()), len(data) - len(tail.encode())
    how = (
        f"Read them with the tool {excerpt.reader}: result_id {excerpt.result_id}, offset {start}."
        if excerpt.reader
        else "If you need them, call the tool for a smaller part."
    )
    notice = f"[Cut by the platform: bytes {start} to {end} of {len(data)} are left out here. {how}]"
    return f"{head}\n\n{notice}\n\n{tail}"


def piece_of(text: str, offset: int, length: int) -> TextPiece:
    """Return about ``length`` bytes of ``text`` from ``offset`` on, at least one character if there is one.

    A character that the offset or the end divides belongs to the piece in which it begins.
    """
    data = text.encode("utf-8", "replace")
    start = _boundary(data, min(offset, len(data)))
    end = _boundary(data, min(start + length, len(data)))
    if end == start and start < len(data):
        end = _next_boundary(data, start + 1)
    return TextPiece(data[start:end].decode(), start, end, len(data))


def _boundary(data: bytes, position: int) -> int:
    """Return the beginning of the character at ``position``."""
    while 0 < position < len(data) and _is_inside(data[position]):
        position -= 1
    return position


def _next_boundary(data: bytes, position: int) -> int:
    while position < len(data) and _is_inside(data[position]):
        position += 1
    return position


def _is_inside(byte: int) -> bool:
    """Return True for a byte that continues a character."""
    return byte & 0xC0 == 0x80
