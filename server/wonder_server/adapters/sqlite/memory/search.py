"""Finding memories: what full text and vectors bring, narrowed to what is wanted.

Runs in the writer's thread, as one read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final

from wonder_server.adapters.sqlite.memory.filter import conditions
from wonder_server.adapters.sqlite.memory.ranking import Bm25Ranker
from wonder_server.core.memory.records import Candidate, Filter

_FIRST_LIMIT: Final = 4
"""How many times the candidates asked for are looked at before a filter is carried out for all memories."""

# CROSS JOIN keeps SQLite from walking all of the agent's memories by an index on agent_id, where it should
# look up the few keys: 11 ms against 0.1 at 1,000 memories.
_NEAR: Final = """
    SELECT near.value, embeddings.memory_key
    FROM json_each(:keys) AS near CROSS JOIN embeddings ON embeddings.key = near.value
    WHERE +embeddings.agent_id = :agent
"""
_WANTED: Final = """
    SELECT memories.key, memories.id, significance, updated_ms
    FROM (SELECT value AS found FROM json_each(:keys)) CROSS JOIN memories ON memories.key = found
    WHERE {conditions}
"""


def recall(
    connection: sqlite3.Connection,
    ranker: Bm25Ranker,
    agent_id: str,
    query: str,
    near: Mapping[int, float],
    wanted: Filter,
    limit: int,
) -> list[Candidate]:
    """See `Memories.recall`."""
    where, parameters = conditions(agent_id, wanted)
    scored = ranker.score(connection, agent_id, query)
    parameters["keys"] = json.dumps(list(near))
    cosines: dict[int, float] = {}
    for vector_key, key in connection.execute(_NEAR, parameters):
        cosines[key] = max(cosines.get(key, 0.0), near[vector_key])
    text = scored.top(_FIRST_LIMIT * limit if wanted.narrows else limit)
    rows = _rows(connection, {*text, *cosines}, where, parameters)
    there = {row[0] for row in rows}
    text = [key for key in text if key in there]
    if len(text) < limit and scored.count > _FIRST_LIMIT * limit and wanted.narrows:
        # Most of the best are not wanted: find out which are.
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
            updated_ms=updated_ms,
            text=score,
            words=length,
            vector=cosines.get(key, 0.0),
        )
        for (key, memory_id, significance, updated_ms), (score, length) in zip(rows, scores, strict=True)
    ]


def _rows(
    connection: sqlite3.Connection, keys: Iterable[int], where: str, parameters: dict[str, Any]
) -> list[tuple[int, str, float, int]]:
    parameters["keys"] = json.dumps(list(keys))
    return connection.execute(_WANTED.format(conditions=where), parameters).fetchall()
