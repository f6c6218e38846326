"""Compact runs: runs stored as their journal and the row that lists them.

Most runs end in the commit in which they start: those that serve a turn, such as its context assembly, and
those of clients whose tasks need no I/O. Their rows and events follow from the decisions in their journal, so
the commit stores only the journal (`wonder_server.ports.journal.Commit.compact`). The first read of other
rows expands a compact run by writing the rest; its events are derived for each reader. Clients see no
difference. See docs/adr/0017-compact-runs.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from wonder_server.codec.interning import Interner
from wonder_server.codec.seals import Seals
from wonder_server.core.actor.derivation import derived
from wonder_server.core.actor.planner import Planner
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.record_store import Reads, StoredRow, Writes
from wonder_server.record import decoding
from wonder_server.record.encoding import Encoder, Known

ALWAYS_WRITTEN: Final = frozenset({"runs"})
"""Tables whose rows a compact run has too."""

MAX_EXPANDED_AT_ONCE: Final = 10
"""Maximum number of runs expanded in one write, since other writes wait meanwhile."""

MAX_DERIVED_BYTES: Final = 256 * 1024
"""Maximum size of a journal from which events are derived for a reader, unpacked and without parts."""

ALL: Final = 1 << 31
"""More than any actor has journal rows."""


class CompactRunError(Exception):
    """Raised for a read of runs that are stored in compact form."""

    def __init__(self, actors: list[str]) -> None:
        super().__init__(f"{len(actors)} runs are stored in compact form")
        self.actors = actors


def require_expanded(reads: Reads, actors: Sequence[str]) -> None:
    """Raise `CompactRunError` with those of ``actors`` that are stored in compact form, if any."""
    _raise_if_any(reads.compact_runs(actors))


def require_heads(reads: Reads, actors: Sequence[str]) -> None:
    """Raise `CompactRunError` with those of ``actors`` that are stored in compact form without their heads,
    as earlier versions did, if any."""
    _raise_if_any(reads.compact_runs(actors, without_heads=True))


def _raise_if_any(found: Sequence[StoredRow]) -> None:
    if found:
        raise CompactRunError([row[0] for row in found])


def expand(writes: Writes, actors: Sequence[str], planner: Planner, seals: Seals) -> None:
    """Write the rows and events of those of ``actors`` that are still stored in compact form."""
    encoder, found = (
        Encoder(Interner(), {planner.prefix: planner.kind}, partial(decoding.message_texts, seals=seals)),
        [],
    )
    for actor, root, entry_head in writes.compact_runs(actors):
        commit = Commit(actor, entry_head=entry_head, root=root)
        entries = decoding.entries(decoding.PartReader(writes, actor, seals), planner, 0, ALL)
        commit.add_all(derived(planner, entries))
        encoder.add(commit)
        found.append(actor)
    writes.mark_expanded(found)
    batch, _ = encoder.batch(writes, Known())
    batch.fences = []  # The rows follow from committed entries, whose owner needs not be this node.
    writes.write(batch)


def events(
    reads: Reads, actor: str, planner: Planner, page: tuple[int, int], seals: Seals
) -> list[Event] | None:
    """Return the events of a compact run; None if the actor is none.

    ``page`` is the sequence after which they begin, and the maximum number.

    A run with a journal of more than `MAX_DERIVED_BYTES` raises `CompactRunError`, so that its events are
    read from rows, in pages.
    """
    found = reads.compact_runs([actor])
    if not found:
        return None
    if decoding.journal_size(reads.entries(actor, 0, ALL)) > MAX_DERIVED_BYTES:
        _raise_if_any(found)
    root = found[0][1]
    commit = Commit(actor, root=root)
    part = decoding.PartReader(reads, actor, seals)
    commit.add_all(derived(planner, decoding.entries(part, planner, 0, ALL)))
    after = max(page[0], 0)
    return commit.events[after : after + page[1]]
