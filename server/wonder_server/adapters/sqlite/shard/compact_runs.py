"""Runs that were written in brief: their journal, and the row by which they are listed.

Most runs serve a turn, as its context assembly does: they end in the commit in which they begin, and nobody
ever looks at them. Their rows and events follow from the decisions in their journal, so only that is written
(`wonder_server.ports.journal.Commit.brief`). Whoever does look has the rest written first: nobody can tell.
See docs/adr/0017-compact-runs.md.
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
"""Tables with the rows that are written in any case."""

MAX_EXPANDED_AT_ONCE: Final = 10
"""So many are written out in one go, as others' writes wait meanwhile."""

_PREFIX: Final = f"{RUN.prefix}_"


class CompactRunError(Exception):
    """These actors are not written whole."""

    def __init__(self, actors: list[str]) -> None:
        super().__init__(f"{len(actors)} actors are written in brief")
        self.actors = actors


def supports_compact(actor_id: str) -> bool:
    """Whether actors of this kind are ever written in brief."""
    return actor_id.startswith(_PREFIX)


def require_expanded(connection: sqlite3.Connection, actors: Sequence[str]) -> None:
    """Raise `BriefError` with those of ``actors`` that are written in brief, if any are."""
    found = _compact_runs(connection, actors)
    if found:
        raise CompactRunError([actor for actor, _, _ in found])


def expand(connection: sqlite3.Connection, actors: Sequence[str], seals: Seals) -> None:
    """Write what follows from the journals of those of ``actors`` that still are written in brief."""
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
