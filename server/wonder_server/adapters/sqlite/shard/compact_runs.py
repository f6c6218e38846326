"""Compact runs: runs stored as their journal and the row that lists them.

Most runs serve a turn, such as its context assembly. They end in the commit in which they start, and no
client ever reads them. Their rows and events follow from the decisions in their journal, so the commit stores
only the journal (`wonder_server.ports.journal.Commit.compact`). The first read expands a compact run by
writing the rest, so clients see no difference. See docs/adr/0017-compact-runs.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.codec.interning import Interner
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard import reads
from wonder_server.adapters.sqlite.shard.writes import Writes
from wonder_server.core.coordinator.planner import RUN
from wonder_server.ports.journal import Commit

ALWAYS_WRITTEN: Final = frozenset({"runs"})
"""Tables whose rows a compact run has too."""

MAX_EXPANDED_AT_ONCE: Final = 10
"""Maximum number of runs expanded in one write, since other writes wait meanwhile."""

_PREFIX: Final = f"{RUN.prefix}_"


class CompactRunError(Exception):
    """Raised for a read of runs that are stored in compact form."""

    def __init__(self, actors: list[str]) -> None:
        super().__init__(f"{len(actors)} runs are stored in compact form")
        self.actors = actors


def supports_compact(actor_id: str) -> bool:
    """Return True if actors of this kind can be stored in compact form."""
    return actor_id.startswith(_PREFIX)


def require_expanded(connection: sqlite3.Connection, actors: Sequence[str]) -> None:
    """Raise `CompactRunError` with those of ``actors`` that are stored in compact form, if any."""
    found = _compact_runs(connection, actors)
    if found:
        raise CompactRunError([actor for actor, _, _ in found])


def expand(connection: sqlite3.Connection, actors: Sequence[str], seals: Seals) -> None:
    """Write the rows and events of those of ``actors`` that are still stored in compact form."""
    writes = Writes(Interner())
    for actor, root, entry_head in _compact_runs(connection, actors):
        commit = Commit(actor, RUN, entry_head=entry_head, root=root)
        commit.add_all(reads.entries(connection, actor, RUN, 0, entry_head, seals))
        writes.add(commit)
        connection.execute("UPDATE actors SET brief = 0 WHERE id = ?", (actor,))
    writes.execute(connection, ())


def _compact_runs(connection: sqlite3.Connection, actors: Sequence[str]) -> list[tuple[str, str, int]]:
    marks = ", ".join("?" * len(actors))
    sql = f"SELECT id, root, entry_head FROM actors WHERE brief = 1 AND id IN ({marks})"
    return connection.execute(sql, list(actors)).fetchall()
