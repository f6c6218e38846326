"""The decisions of a conversation, read from its journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wonder_server.core.conversation.model.decisions import MemoryWritten
from wonder_server.core.conversation.output.decision_lines import UPDATE_MEMORY, DecisionLine, line_of
from wonder_server.ports.journal import Entry
from wonder_server.ports.scoped import JournalView

ENTRIES_PAGE: Final = 10
"""Journal entries per read. Each may hold a request of several MiB."""
MAX_ENTRIES: Final = 500
"""Journal entries that one page reads at most, so that a filter on a long journal ends."""
_WRITES: Final = ("WRITE_MEMORY", UPDATE_MEMORY)


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a decision: its journal entry, and its index there. The first entry has sequence 1.

    ``writes`` are the turns of memory operations in progress by operation: their ends do not name the turn.
    """

    sequence: int = 0
    index: int = 0
    writes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of the record, with the time of its input and the name of the input's class."""

    place: Place
    at_ms: int
    cause: str
    line: DecisionLine


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """The decisions to list. Empty values match all."""

    turn_id: str = ""
    types: tuple[str, ...] = ()

    def matches(self, line: DecisionLine) -> bool:
        return (not self.turn_id or line.turn_id == self.turn_id) and (
            not self.types or line.type in self.types
        )


async def decided_after(
    journal: JournalView, conversation_id: str, after: Place, wanted: DecisionFilter, limit: int
) -> tuple[Sequence[Decided], Place | None]:
    """Return up to ``limit`` decisions after a place, in order, and the place to continue after.

    The place is None at the end of the journal. It reads at most `MAX_ENTRIES` entries.
    """
    found: list[Decided] = []
    # The entry of the place may have further decisions.
    place, sequence, read = after, max(0, after.sequence - 1), 0
    while read < MAX_ENTRIES:
        entries = await journal.entries(conversation_id, sequence, ENTRIES_PAGE)
        for entry in entries:
            for each in _decided(entry, place):
                place = each.place
                if wanted.matches(each.line):
                    found.append(each)
                    if len(found) == limit:
                        return found, place
        if not entries:
            return found, None
        sequence, read = entries[-1].sequence, read + len(entries)
        place = Place(sequence, len(entries[-1].decisions), place.writes)
    return found, place


def _decided(entry: Entry, after: Place) -> Iterator[Decided]:
    """Yield the decisions of an entry after a place. The index of a place counts from 1."""
    writes = after.writes
    done = after.index if entry.sequence == after.sequence else 0
    for index, decision in enumerate(entry.decisions[done:], done + 1):
        line = line_of(decision)
        if line.type in _WRITES:
            writes = {**writes, line.operation_id: line.turn_id}
        elif isinstance(decision, MemoryWritten):
            line = replace(line, turn_id=writes.get(line.operation_id, ""))
            writes = {key: value for key, value in writes.items() if key != line.operation_id}
        yield Decided(Place(entry.sequence, index, writes), entry.at_ms, type(entry.input).__name__, line)
