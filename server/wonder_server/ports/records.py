"""The record, for queries: rows and events of all conversations and runs, wherever they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from wonder_server.core.planner import Planner
from wonder_server.ports.journal import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which rows of one table, in which order.

    Empty filters do not filter. ``fields`` compares fields of the value itself (name, wanted); ``members``
    asks that a list in it has an entry with this id (list, id). ``after`` is the (order column, id) of the
    last row of the page before; the order is by ``ordinal`` within an actor or by creation time across all.
    """

    table: str
    id: str = ""
    actor: str = ""
    parent: str = ""
    alias: str = ""
    statuses: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    members: tuple[tuple[str, str], ...] = ()
    by_ordinal: bool = False
    newest_first: bool = True
    after: tuple[int, str] | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events: of one actor oldest first, of all newest first.

    ``after`` is (time, actor, sequence) of the last one of the page before. Times in milliseconds, ``end_ms``
    exclusive, 0 for open.
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


class Records(Protocol):
    """Queries over every shard."""

    async def head(self, actor_id: str) -> int | None:
        """Sequence of an actor's last event; None if there is no such actor."""
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
