"""Tables of a record store: names, columns that a commit writes, and the stored form of values.

All row tables have the same columns, so one statement writes them all: the owner (``actor``), the parent row
(``parent``), another name (``alias``), the position (``ordinal``, ``created_ms``), and the value. Other
fields that queries filter by have columns of their own (`FILTER_COLUMNS`).
"""

from __future__ import annotations

from typing import Final

from wonder_server.codec.usage_seals import COLUMNS as _SUMS
from wonder_server.core.budget import CHARGES

FIRST_TABLES: Final = (
    "conversations",
    "turns",
    "messages",
    "moves",
    "works",
    "requests",
    "operations",
    "runs",
    "tokens",
    "executions",
    "context",
)
TABLES_OF_WORKFLOWS: Final = ("forks", "gates", "signals")
TABLES_OF_ACCOUNTS: Final = (CHARGES,)

ROW_TABLES: Final = (*FIRST_TABLES, *TABLES_OF_WORKFLOWS, *TABLES_OF_ACCOUNTS)
"""Tables of the values that planners write with `core.actor.changes.Put`."""

INTERNED_TABLES: Final = frozenset(
    {"works", "requests", "operations", "runs", "executions", "context", "forks", "signals"}
)
"""Tables whose long values are stored as parts (see `codec.interning`)."""

MESSAGES: Final = "messages"
"""The table of messages, which other values refer to (see `codec.message_texts`)."""

EXACT_TABLES: Final = frozenset({MESSAGES, "conversations", "gates", CHARGES})
"""Tables whose values refer to nothing: messages, and those that lists filter by fields of their values."""

PACKED_TABLES: Final = frozenset({*ROW_TABLES, "entries", "events", "parts"}) - {
    CHARGES,
    "conversations",
    "gates",
}
"""Tables whose contents are packed (see `codec.packing`). Lists of conversations and gates filter by fields
of the value, and such a filter would unpack every row. Other tables are filtered by columns, or within one
actor. Charges are never kept."""

SHARED: Final = ""
"""The root of parts that every root may refer to: those of the pinned definitions of runs. Runs are many, and
each is its own root. Conversations keep their own parts, so that an archive of one is complete."""

FILTER_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "runs": {
        "scope.project_id": "project_id",
        "workflow_id": "workflow_id",
        "workflow_ref": "workflow_ref",
        "parent.actor_id": "parent_actor",
    },
    "conversations": {"called_by": "called_by"},
    CHARGES: {name: name for name in _SUMS},
}
"""Additional columns of a table, by the path of their value in the row's value. The first write of a row sets
them; they never change."""

SEALED: Final = (*FIRST_TABLES, *TABLES_OF_WORKFLOWS, "entries", "events")
"""Tables whose rows have a seal (see `codec.seals`) and a position that decides whether they may lack one.
Charges are never kept, parts are named by the hash of their content, and accounts have another kind of seal
(`codec.usage_seals`)."""

SEALED_BY_KEY: Final = ("actors", "requests_answered")
"""Tables in key order. If such a table has rows older than seals, each of its rows may lack one."""

_ROW: Final = ("actor", "id", "parent", "ordinal", "status", "alias", "live", "created_ms", "data", "seal")

WRITTEN_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "actors": ("id", "kind", "root", "entry_head", "event_head", "brief", "seal"),
    "entries": ("actor", "sequence", "at_ms", "epoch", "input", "decisions", "seal"),
    "events": ("actor", "sequence", "at_ms", "name", "kind", "turn_id", "message_id", "data", "seal"),
    "requests_answered": ("scope", "id", "actor", "fingerprint", "answer", "seal"),
    "parts": ("root", "hash", "data"),
    **{table: (*_ROW, *FILTER_COLUMNS.get(table, {}).values()) for table in ROW_TABLES},
}
"""The columns that a commit writes, by table, in the order of `ports.record_store.WriteBatch.rows`."""

READ_ROW: Final = ("actor", "id", "parent", "ordinal", "status", "alias", "live", "data", "seal")
"""The columns of a row that a store returns, before the row's position."""
READ_EVENT: Final = ("actor", "sequence", "at_ms", "name", "kind", "turn_id", "message_id", "data", "seal")
"""The columns of an event that a store returns, before the row's position."""
READ_ENTRY: Final = ("sequence", "at_ms", "epoch", "input", "decisions", "seal")
"""The columns of a journal row that a store returns, before the row's position."""
