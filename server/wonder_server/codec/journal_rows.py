"""Rows of the journal: the entries that one commit adds to an actor, as one stored value.

The content of a row has three lines for each entry: its time, its input and its decisions. JSON of the
encoder contains no line breaks. The row has the sequence and the time of its last entry.

One row for several entries packs better than a row for each: decisions repeat most of their input, and the
entries of a run repeat each other. Earlier versions wrote one row for each entry, with the decisions in a
column of their own. That column is empty in today's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from wonder_server.codec.stored_names import tag_of
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord

MAX_ROW_BYTES: Final = 256 * 1024
"""A row takes no further entry from this size on, so that a reader of one entry unpacks little else."""


class JournalLine(NamedTuple):
    """One stored entry: the sequence, the time, and the JSON of the input and of the decisions."""

    sequence: int
    at_ms: int
    input: bytes
    decisions: bytes


class JournalRow(NamedTuple):
    """A row to store: the sequence and time of its last entry, and its content."""

    sequence: int
    at_ms: int
    content: bytes


def write_rows(entries: Iterable[tuple[int, int, str, str]]) -> Iterator[JournalRow]:
    """Yield the rows of consecutive entries, each given as its sequence, time, input and decisions."""
    lines: list[str] = []
    size = sequence = at_ms = 0
    for sequence, at_ms, data, decisions in entries:
        lines += (str(at_ms), data, decisions)
        size += len(data) + len(decisions)
        if size >= MAX_ROW_BYTES:
            yield JournalRow(sequence, at_ms, "\n".join(lines).encode())
            lines, size = [], 0
    if lines:
        yield JournalRow(sequence, at_ms, "\n".join(lines).encode())


def read_row(sequence: int, at_ms: int, content: bytes, decisions: bytes) -> list[JournalLine]:
    """Return the entries of a row, in order. Raises ValueError if the content is damaged."""
    if decisions:
        return [JournalLine(sequence, at_ms, content, decisions)]
    lines = content.split(b"\n")
    count, rest = divmod(len(lines), 3)
    if rest:
        raise ValueError("a row of the journal does not consist of whole entries")
    first = sequence - count + 1
    return [
        JournalLine(first + index, int(lines[3 * index]), lines[3 * index + 1], lines[3 * index + 2])
        for index in range(count)
    ]


def begins_archived(lines: Iterable[JournalLine]) -> bool:
    """Return True if one of these entries erased the record before it, as an archived conversation's first
    one does."""
    decided = [msgspec.json.decode(line.decisions) for line in lines]
    return any(type(each) is list and each[:1] == _ERASES for decisions in decided for each in decisions)


_ERASES: Final = [tag_of(EraseRecord)]
