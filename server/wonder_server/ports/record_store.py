"""Record stores: durable rows of actors, as plain values.

`wonder_server.record` turns the commits of actors into these rows and back, for every store. A store knows
tables, keys and bytes. It knows neither planners nor values, except the JSON text that it filters lists by.

A store executes functions one after another in its own thread, and gives each of them its statements. So
encoding and decoding cost that thread and not the event loop, and a function sees one state of the store.
`codec.tables` names the tables and their columns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from wonder_server.ports.records import EventQuery, Query

T = TypeVar("T")
Item = TypeVar("Item")

StoredRow: TypeAlias = tuple[Any, ...]
"""Columns of a row: text, whole numbers, bytes or None. Each method names them.

The last is the row's *position*: the order in which rows came into the table, from 1. It matters only for
tables with rows that are older than seals (`RecordStore.unsealed`). Other stores return 1.
"""

StoredValue: TypeAlias = str | int | bytes | None
"""A value that a store keeps as it is."""


class Fence(NamedTuple):
    """The epoch under which a commit's writer owns the shard of the actor."""

    actor_id: str
    shard: int
    epoch: int


class Reference(NamedTuple):
    """An external reference of a conversation that the store must find to be free."""

    actor_id: str
    project_id: str
    alias: str


@dataclass(frozen=True, slots=True)
class Erasure:
    """The removal of everything that a store keeps of an actor.

    Rows, journal rows, events and requests of the actor and of ``children`` go, and the ``children``
    themselves. The requests in ``kept_scopes`` stay. ``moved`` requests get the actor as their owner
    first. If no other actor has this one as root, its parts go too.

    ``whole``: after the other rows of the batch are written, the actor goes too, with all actors whose root
    it is, and their requests. The actor's own requests of the batch stay.
    """

    actor_id: str
    children: tuple[str, ...]
    kept_scopes: frozenset[str]
    moved: tuple[MovedRequest, ...] = ()
    whole: bool = False


class MovedRequest(NamedTuple):
    """A stored request with its new seal."""

    scope: str
    id: str
    seal: int


@dataclass(slots=True)
class WriteBatch:
    """The rows of one or more commits, to be written in one transaction, in the order of the fields.

    ``rows`` and ``deletes`` are lists of all values of all rows of a table, one after another: the columns
    `codec.tables.WRITTEN_COLUMNS` of a row to write, ``actor`` and ``id`` of a row to delete. No row is in
    both.
    """

    fences: list[Fence] = field(default_factory=list)
    """Refuse the batch with `StaleEpochError` if one is below the epoch of its shard."""
    erasures: list[Erasure] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    """Refuse the batch with ALREADY_EXISTS if another conversation has one of them."""
    rows: dict[str, list[StoredValue]] = field(default_factory=dict)
    deletes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """A page of rows: a query with the fields of values translated to stored names.

    ``columns`` compares filter columns, as ``fields`` of `Query` compares fields. ``members`` and ``allowed``
    have the meaning that they have there, with paths in the JSON of a row's value; only tables that are not
    packed are filtered by them. These and ``limit`` replace those of ``query``. The limit 0 is none: a reader
    stops when it has enough.
    """

    query: Query
    limit: int = 0
    columns: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    members: tuple[tuple[str, str], ...] = ()
    allowed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSelection:
    """A page of events. ``prefix`` begins the ids of their actors, ``names`` are stored names."""

    query: EventQuery
    prefix: str
    names: tuple[str, ...] = ()


class ActorReads(Protocol):
    """Statements that read what the owner of an actor needs."""

    def actor(self, actor_id: str) -> StoredRow | None:
        """Return entry head, event head and seal of an actor."""
        ...

    def entries(self, actor_id: str, after: int, limit: int) -> Sequence[StoredRow]:
        """Return journal rows with a sequence above ``after`` in order: `codec.tables.READ_ENTRY`,
        position."""
        ...

    def live_rows(self, table: str, actor_id: str) -> Sequence[StoredRow]:
        """Return the rows whose column ``live`` is 1: `codec.tables.READ_ROW`, position."""
        ...

    def newest_rows(self, table: str, actor_id: str, count: int) -> Sequence[StoredRow]:
        """Return the ``count`` rows with the highest ordinals, in the form of `live_rows`."""
        ...

    def rows_among(
        self, table: str, actor_id: str, column: str, values: Sequence[str]
    ) -> Sequence[StoredRow]:
        """Return the rows whose ``column``, ``id`` or ``parent``, has one of these values."""
        ...

    def parts(self, actor_id: str, hashes: Sequence[str]) -> Sequence[tuple[str, Any]]:
        """Return hash and content of these parts, of the actor's root or shared."""
        ...

    def message(self, actor_id: str, ordinal: int) -> StoredRow | None:
        """Return the row of ``messages`` with this ordinal of the actor's root, in the form of
        `live_rows`."""
        ...

    def events(self, actor_id: str, after: int, limit: int) -> Generator[StoredRow]:
        """Yield events with a sequence above ``after`` in order: `codec.tables.READ_EVENT`, position."""
        ...

    def request(self, scope: str, request_id: str) -> StoredRow | None:
        """Return actor, fingerprint, answer and seal of a completed request."""
        ...

    def requests_of(self, actor_id: str, scopes: Collection[str]) -> Sequence[StoredRow]:
        """Return scope, id, fingerprint and answer of an actor's requests in these scopes."""
        ...

    def compact_runs(self, actors: Sequence[str], *, without_heads: bool = False) -> Sequence[StoredRow]:
        """Return id, root and entry head of those of ``actors`` whose column ``brief`` is 1.

        ``without_heads``: only those whose event head is 0.
        """
        ...

    def outbox(self, prefix: str, after: str, limit: int) -> tuple[Sequence[StoredRow], Mapping[str, int]]:
        """Return the live rows of ``operations`` of the next ``limit`` actors that have any, and the times
        of these actors' last journal rows.

        The ids of the actors begin with ``prefix`` and are above ``after``. The rows are in the form of
        `live_rows`, by actor, time of creation and id.
        """
        ...

    def with_outbox(self, actors: Sequence[str]) -> Collection[str]:
        """Return those of ``actors`` that have live rows in ``operations``."""
        ...


class RecordReads(Protocol):
    """Statements that read pages of rows and events for lists."""

    def heads(self, actors: Sequence[str]) -> Sequence[StoredRow]:
        """Return id, event head, time of the last event and highest ordinal of ``executions`` of the actors
        that exist.

        The event of a compact run is not stored yet. Its time is that of the last journal row, and its
        ordinal is that of its row in ``runs``.
        """
        ...

    def rows(self, selection: RowSelection) -> Generator[StoredRow]:
        """Yield the order column, and the row in the form of `ActorReads.live_rows`.

        With `Query.text`, a row of the actors that other filters exclude is yielded too, with None as its
        data. So the limit is one of the rows read.
        """
        ...

    def listed_events(self, selection: EventSelection) -> Generator[StoredRow]:
        """Yield events in the form of `ActorReads.events`."""
        ...

    def members(self, root: str) -> Sequence[str]:
        """Return the ids of the actors whose root is ``root``, itself included."""
        ...


class Reads(ActorReads, RecordReads, Protocol):
    """All statements that read."""


class Writes(Reads, Protocol):
    """The statements of a write, which also reads."""

    def write(self, batch: WriteBatch) -> None:
        """Write the rows of a batch, all or none.

        Existing rows with the same key are an error in ``entries``, ``events`` and ``requests_answered``, and
        are left alone in ``parts``. In row tables they are replaced, except ``created_ms`` and the filter
        columns. In ``actors`` only the heads and the seal are replaced. A row of ``charges`` is not
        stored: its sums and its seal are added to the account of the agent in ``parent``.
        """
        ...

    def mark_expanded(self, actors: Sequence[str]) -> None:
        """Set the column ``brief`` of these actors to 0."""
        ...


class RecordStore(Protocol):
    """Durable rows of the actors of one or more shards.

    Errors of the storage are STORAGE_UNAVAILABLE. A commit whose outcome is unknown, since the connection was
    lost, is settled before its future completes: written or not.
    """

    @property
    def name(self) -> str:
        """Name of the store in errors."""
        ...

    @property
    def unsealed(self) -> Mapping[str, int]:
        """The last position of rows without a seal, by table. Empty for a store that always had seals."""
        ...

    def submit(
        self, fn: Callable[[Writes, list[Item]], T], items: list[Item], *, frees_space: bool
    ) -> asyncio.Future[T]:
        """Run ``fn`` in the next transaction, after all functions submitted before, and return its result
        after the commit.

        Adjacent calls with the same ``fn`` may share one call with the items of all. If it raises, each is
        called again alone. ``frees_space``: run it even if space is low.
        """
        ...

    async def write(self, fn: Callable[[Writes], T], *, frees_space: bool = False) -> T:
        """Run ``fn`` in the next transaction, and return its result after the commit. If it raises, nothing
        is written."""
        ...

    async def read(self, fn: Callable[[Reads], T], *, between_commits: bool = False) -> T:
        """Run ``fn`` after all writes submitted before, or on the committed state with
        ``between_commits``."""
        ...

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        """See `wonder_server.ports.placement.Epochs`."""
        ...
