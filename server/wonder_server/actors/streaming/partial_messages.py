"""Messages in progress: their text so far, and the reasoning and tool calls beside it.

The record holds a message only when it is complete. A reader that attaches in between gets what was streamed
so far, in the order in which it was streamed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from wonder_server.actors.streaming.items import Delta, Part, PartKind

MAX_PART_CHARACTERS: Final = 1 << 20
"""Characters of one kind that a message streams beside its text. It streams no more of that kind then. The
text itself has at most 1 MiB (`adapters/models/bounded.py`)."""
_PART_CHARACTERS: Final = 64
"""Characters that each tool call counts in addition to its arguments."""
_MAX_SEGMENTS: Final = 1000
"""Segments whose order is kept. A model that writes many calls piece by piece in parallel has more."""

_Key = tuple[PartKind, int]


@dataclass(slots=True)
class _Segment:
    """Consecutive pieces of one part, and the length of the text before them."""

    part: Part
    offset: int
    text_before: int
    pieces: list[str]

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class _Parts:
    """The parts of one message."""

    def __init__(self) -> None:
        self.segments: list[_Segment] = []
        self._last: dict[_Key, _Segment] = {}
        self._lengths: dict[_Key, int] = {}
        self._counts: dict[PartKind, int] = {}

    def add(self, part: Part, text: str, text_before: int) -> tuple[Part, int] | None:
        """Add a piece. Return the part as it is known now, and the offset of the piece; None if the kind has
        reached its limit."""
        key = (part.kind, part.index)
        last = self._last.get(key)
        count = self._counts.get(part.kind, 0) + len(text) + (0 if last else _PART_CHARACTERS)
        self._counts[part.kind] = count
        if count > MAX_PART_CHARACTERS:
            return None
        offset = self._lengths.get(key, 0)
        self._lengths[key] = offset + len(text)
        if last is not None:
            part = _merged(last.part, part)
        if last is None or not self._continues(last, text_before):
            last = self._last[key] = _Segment(part, offset, text_before, [])
            self.segments.append(last)
        last.part = part
        last.pieces.append(text)
        return part, offset

    def _continues(self, last: _Segment, text_before: int) -> bool:
        """Return True if the next piece of a part belongs to its last segment."""
        is_next = last is self.segments[-1] and last.text_before == text_before
        return is_next or len(self.segments) >= _MAX_SEGMENTS


@dataclass(slots=True)
class PartialMessage:
    """A message in progress.

    ``attempt`` is that of the last restart after which readers of the text had text to discard, 0 without
    one. ``attempt_of_parts`` is the same for readers that get parts too.
    """

    turn_id: str
    attempt: int = 0
    attempt_of_parts: int = 0
    length: int = 0
    pieces: list[str] = field(default_factory=list)
    parts: _Parts | None = None

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def restarted(self, attempt: int) -> PartialMessage:
        """Return the message at the start of another attempt. Its readers discard what they have seen."""
        has_text = bool(self.length or self.attempt)
        has_any = has_text or self.parts is not None or bool(self.attempt_of_parts)
        return PartialMessage(self.turn_id, attempt if has_text else 0, attempt if has_any else 0)

    def add_part(self, part: Part, text: str) -> tuple[Part, int] | None:
        """Add a piece beside the text. See `_Parts.add`."""
        if self.parts is None:
            self.parts = _Parts()
        return self.parts.add(part, text, self.length)

    def deltas(self, message_id: str, kinds: Collection[PartKind]) -> list[Delta]:
        """Return what was streamed so far, for a new reader of the text and of parts of these kinds."""
        if not kinds:
            if not self.length and not self.attempt:
                return []
            return [Delta(self.turn_id, message_id, 0, self.text(), self.attempt)]
        return list(self._all_deltas(message_id, kinds))

    def _all_deltas(self, message_id: str, kinds: Collection[PartKind]) -> Iterator[Delta]:
        if self.attempt_of_parts:
            yield Delta(self.turn_id, message_id, 0, "", self.attempt_of_parts)
        text, shown = self.text(), 0
        for segment in self.parts.segments if self.parts is not None else ():
            if segment.part.kind not in kinds:
                continue
            if segment.text_before > shown:
                yield Delta(self.turn_id, message_id, shown, text[shown : segment.text_before])
                shown = segment.text_before
            yield Delta(self.turn_id, message_id, segment.offset, segment.text(), part=segment.part)
        if self.length > shown:
            yield Delta(self.turn_id, message_id, shown, text[shown:])


def _merged(known: Part, part: Part) -> Part:
    """Return ``known`` with what ``part`` adds to it; the same object if it adds nothing."""
    if part is known or (part.call_id in ("", known.call_id) and part.name in ("", known.name)):
        return known
    return Part(known.kind, known.index, part.call_id or known.call_id, part.name or known.name)
