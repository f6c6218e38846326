"""Filters as SQL conditions on table ``memories``: constant text with bound values."""

from __future__ import annotations

import json
from typing import Final

from wonder_server.adapters.sqlite.connection import SqlValue
from wonder_server.adapters.sqlite.memory.metadata_index import metadata_terms
from wonder_server.core.memory.records import Filter

LIVE: Final = "superseded_by_id = '' AND archived_ms = 0"
# A list of any length is one bound parameter, a JSON array.
_TYPES: Final = "type IN (SELECT value FROM json_each(:types))"
_OTHER_TYPES: Final = "type NOT IN (SELECT value FROM json_each(:other_types))"
_SAID: Final = "coalesce(said_ms, created_ms)"
_FIELDS: Final = """key IN (
    SELECT memory_key FROM fields WHERE mark IN (SELECT value FROM json_each(:marks))
    GROUP BY memory_key HAVING count(*) = json_array_length(:marks)
)"""


def conditions(agent_id: str, wanted: Filter) -> tuple[str, dict[str, SqlValue]]:
    """Return the WHERE condition for a filter and its parameters, which include ``agent``."""
    parameters: dict[str, SqlValue] = {"agent": agent_id}
    found = ["memories.agent_id = :agent"]
    if not wanted.set_aside:
        found.append(LIVE)
    if wanted.types:
        found.append(_TYPES)
        parameters["types"] = json.dumps(wanted.types)
    if wanted.other_types:
        found.append(_OTHER_TYPES)
        parameters["other_types"] = json.dumps(wanted.other_types)
    if wanted.metadata:
        found.append(_FIELDS)
        parameters["marks"] = json.dumps(metadata_terms(agent_id, wanted.metadata))
    if wanted.conversation_id:
        found.append("conversation_id = :conversation")
        parameters["conversation"] = wanted.conversation_id
    if wanted.turn_id:
        found.append("turn_id = :turn")
        parameters["turn"] = wanted.turn_id
    if wanted.subject:
        # SQLite uses the partial index only for a query with its condition.
        found.append("subject = :subject AND subject != ''")
        parameters["subject"] = wanted.subject
    for condition, name, time in (
        ("created_ms >= :start", "start", wanted.start_ms),
        ("created_ms < :end", "end", wanted.end_ms),
        (f"{_SAID} >= :said_start", "said_start", wanted.said_start_ms),
        (f"{_SAID} < :said_end", "said_end", wanted.said_end_ms),
    ):
        if time is not None:
            found.append(condition)
            parameters[name] = time
    return " AND ".join(found), parameters
