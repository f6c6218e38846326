"""Search for memories: merge the results of full text and vectors, and apply the filter.

Runs in the writer thread, as one read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.sqlite.connection import SqlValue
from wonder_server.adapters.sqlite.memory.bm25 import Bm25Ranker
from wonder_server.adapters.sqlite.memory.filter import conditions
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.ranking import Candidate
from wonder_server.core.memory.records import Filter

_TOP_FACTOR: Final = 4
"""With a filter, read this multiple of the wanted candidates before evaluating the filter for all
memories."""

# CROSS JOIN makes SQLite look up the few keys. Without it, SQLite reads all of the agent's memories by an
# index: 11 ms instead of 0.1 ms at 1,000 memories.
_NEAR: Final = """
    SELECT near.value, embeddings.memory_key
    FROM json_each(:keys) AS near CROSS JOIN embeddings ON embeddings.key = near.value
    WHERE +embeddings.agent_id = :agent
"""
_WANTED: Final = """
    SELECT memories.key, memories.id, significance,
        CASE WHEN updated_ms > created_ms THEN max(updated_ms, coalesce(said_ms, 0))
             ELSE coalesce(said_ms, created_ms) END
    FROM (SELECT value AS found FROM json_each(:keys)) CROSS JOIN memories ON memories.key = found
    WHERE {conditions}
"""


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """The arguments of `Memories.recall`. ``near`` maps vector keys to cosines."""

    agent_id: str
    query: MemoryQuery
    near: Mapping[int, float]
    wanted: Filter
    limit: int


def recall(connection: sqlite3.Connection, ranker: Bm25Ranker, query: RecallQuery) -> list[Candidate]:
    """Return the candidates for a query; see `Memories.recall`."""
    wanted, limit = query.wanted, query.limit
    where, parameters = conditions(query.agent_id, wanted)
    scored = ranker.score(connection, query.agent_id, query.query)
    parameters["keys"] = json.dumps(list(query.near))
    cosines: dict[int, float] = {}
    for vector_key, key in connection.execute(_NEAR, parameters):
        cosines[key] = max(cosines.get(key, 0.0), query.near[vector_key])
    text = scored.top(_TOP_FACTOR * limit if wanted.narrows else limit)
    rows = _rows(connection, {*text, *cosines}, where, parameters)
    matching = {row[0] for row in rows}
    text = [key for key in text if key in matching]
    if len(text) < limit and scored.count > _TOP_FACTOR * limit and wanted.narrows:
        # The filter excludes most of the best: evaluate it for all of the agent's memories.
        found = connection.execute(f"SELECT key FROM memories WHERE {where}", parameters)
        text = scored.top(limit, [row[0] for row in found])
        rows = _rows(connection, {*text, *cosines}, where, parameters)
    chosen = {*text[:limit], *cosines}
    rows = [row for row in rows if row[0] in chosen]
    scores = scored.scores_of([row[0] for row in rows])
    return [
        Candidate(
            id=memory_id,
            significance=significance,
            recent_ms=recent_ms,
            text=score,
            words=length,
            vector=cosines.get(key, 0.0),
        )
        for (key, memory_id, significance, recent_ms), (score, length) in zip(rows, scores, strict=True)
    ]


def _rows(
    connection: sqlite3.Connection, keys: Iterable[int], where: str, parameters: dict[str, SqlValue]
) -> list[tuple[int, str, float, int]]:
    parameters["keys"] = json.dumps(list(keys))
    return connection.execute(_WANTED.format(conditions=where), parameters).fetchall()
