"""Queries of the record: rows and events of all conversations and runs in all shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from wonder_server.core.history.text_query import TextQuery
from wonder_server.ports.journal import Event

RowValue: TypeAlias = Any
"""Value of a row: an instance of the class that the planner names for the row's table."""


Position: TypeAlias = tuple[int, str]
"""The place of a row in the order of a query: order column, id."""


class QueryResult(list[RowValue]):
    """Values in the requested order. ``truncated``: reading stopped at ``max_bytes``, after at least one
    value, or at the limit of what is read. ``end`` is then the position of the last row that was read if rows
    after the last value were read too; None otherwise."""

    def __init__(
        self, values: Iterable[RowValue] = (), *, truncated: bool = False, end: Position | None = None
    ) -> None:
        super().__init__(values)
        self.truncated = truncated
        self.end = end


def is_truncated(found: Sequence[object]) -> bool:
    """Return True if further values were left out for their size."""
    return isinstance(found, QueryResult) and found.truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A selection of rows of one table, and their order.

    Empty filters select all. ``actors`` selects the rows of several actors. ``fields`` compares fields of the
    value (path, wanted; one of several; any that is not empty for ``()``); a field in a missing object counts
    as empty. ``members`` requires an entry with an id in a list of the value
    (list, id). ``allowed`` requires a text in a list of texts, or an empty list (list, text).
    ``colocated_with`` is an id in whose shard the row must be. ``start_ms`` and ``end_ms`` limit the time of
    creation; the latter is exclusive, 0 is open. ``after`` is the (order column, id) of the last row of the
    previous page. The order is by ``ordinal`` within an actor or by creation time across all. With ``by_id``
    it is by id, which is the order of creation too and needs no sort in a table of all actors; the order
    column is then 0. ``max_bytes`` limits the stored size of the result, 0 is unlimited; see `QueryResult`.
    ``projects`` selects the rows of conversations and runs of these projects, None of all; the views of
    access scopes add theirs. ``text`` selects the messages that contain its words; ``max_read`` limits the
    rows that each store reads for it, those that other filters exclude included; 0 is unlimited.
    ``max_read_bytes`` limits the size of the contents that each store reads for it; the last one may exceed
    it.
    """

    table: str
    id: str = ""
    actor: str = ""
    actors: tuple[str, ...] = ()
    colocated_with: str = ""
    parent: str = ""
    alias: str = ""
    statuses: tuple[str, ...] = ()
    fields: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    members: tuple[tuple[str, str], ...] = ()
    allowed: tuple[tuple[str, str], ...] = ()
    start_ms: int = 0
    end_ms: int = 0
    by_ordinal: bool = False
    by_id: bool = False
    newest_first: bool = True
    after: tuple[int, str] | None = None
    limit: int = 50
    max_bytes: int = 0
    projects: frozenset[str] | None = None
    text: TextQuery | None = None
    max_read: int = 0
    max_read_bytes: int = 0
    lenient: bool = False
    """Omit damaged rows, which are logged, instead of raising STORAGE_UNAVAILABLE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """A selection of events: of one actor oldest first, of all actors newest first.

    ``after`` is (time, actor, sequence) of the last event of the previous page. Times are in milliseconds,
    ``end_ms`` is exclusive, 0 is open. ``max_bytes`` and ``projects`` as in `Query`.
    """

    actor: str = ""
    after_sequence: int = 0
    names: tuple[str, ...] = ()
    turn_id: str = ""
    project_id: str = ""
    start_ms: int = 0
    end_ms: int = 0
    after: tuple[int, str, int] | None = None
    limit: int = 50
    max_bytes: int = 0
    projects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The end of an actor's record: sequence and time of its last event, and the highest ordinal of its node
    executions, which is 0 for a conversation."""

    sequence: int
    at_ms: int
    executions: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows of one actor for each of several queries, and its head at the same moment."""

    head: Head
    rows: list[list[RowValue]]


class Records(Protocol):
    """Queries over all shards."""

    async def head(self, actor_id: str) -> int | None:
        """Return the sequence of an actor's last event; None if the actor does not exist."""
        ...

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        """Return the heads of the actors that exist."""
        ...

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        """Return the results of these queries of one actor at one moment; None if the actor does not
        exist."""
        ...

    async def get(self, table: str, row_id: str, actor: str = "") -> RowValue | None:
        """Return the value of one row, or None. ``actor`` limits the search to its shard."""
        ...

    async def find(self, query: Query) -> list[RowValue]:
        """Return the values of the selected rows, in order."""
        ...

    async def events(self, prefix: str, query: EventQuery) -> list[Event]:
        """Return the selected events of the actors whose ids have this prefix, in order."""
        ...
