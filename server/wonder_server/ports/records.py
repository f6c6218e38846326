"""The record, for queries: rows and events of all conversations and runs, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wonder_server.core.actor.planner import Planner
from wonder_server.ports.journal import Event


class QueryResult(list[Any]):
    """Values in the order that was asked for. ``cut``: reading ended at ``most_bytes``, though never before
    the first value, and there are more."""

    def __init__(self, values: Iterable[Any] = (), *, truncated: bool = False) -> None:
        super().__init__(values)
        self.truncated = truncated


def is_truncated(found: Sequence[Any]) -> bool:
    """Return True if there are more values, which were left out for their size."""
    return isinstance(found, QueryResult) and found.truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which rows of one table, in which order.

    Empty filters do not filter. ``fields`` compares fields of the value itself (path, wanted; of several it
    may be any); what lies in an object that is not there counts as empty. ``members`` asks that a list in it
    has an entry with this id (list, id); ``allowed`` that a list of texts in it has this one, or nothing at
    all (list, text).
    ``beside`` is an id in whose shard the row must lie. ``start_ms`` and ``end_ms`` bound when it was made,
    the latter exclusive, 0 for open. ``after`` is the (order column, id) of the last row of the page before;
    the order is by ``ordinal`` within an actor or by creation time across all. ``most_bytes`` bounds what is
    read, as it is stored, 0 for no bound: see `Found`.
    """

    table: str
    id: str = ""
    actor: str = ""
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
    newest_first: bool = True
    after: tuple[int, str] | None = None
    limit: int = 50
    max_bytes: int = 0
    lenient: bool = False
    """Omit damaged rows, which are logged, instead of raising STORAGE_UNAVAILABLE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events: of one actor oldest first, of all newest first.

    ``after`` is (time, actor, sequence) of the last one of the page before. Times in milliseconds, ``end_ms``
    exclusive, 0 for open. ``most_bytes`` as in `Query`.
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


@dataclass(frozen=True, slots=True)
class Head:
    """Where an actor's record ends: its last event's sequence and time; its highest node execution's ordinal,
    which for a conversation is 0."""

    sequence: int
    at_ms: int
    executions: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows of one actor, those of each query by itself, and its head at the same moment."""

    head: Head
    rows: list[list[Any]]


class Records(Protocol):
    """Queries over every shard."""

    async def head(self, actor_id: str) -> int | None:
        """Sequence of an actor's last event; None if there is no such actor."""
        ...

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        """Where the records of these actors end; those that there are not are left out."""
        ...

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        """What these queries find of one actor, nothing having been written in between; None if there is no
        such actor."""
        ...

    async def get(self, table: str, row_id: str, actor: str = "") -> Any | None:
        """One row's value. ``actor`` narrows the search to its shard."""
        ...

    async def find(self, query: Query) -> list[Any]:
        """The values of the rows asked for, in order."""
        ...

    async def events(self, planner: Planner, query: EventQuery) -> list[Event]:
        """Events asked for, in order."""
        ...
