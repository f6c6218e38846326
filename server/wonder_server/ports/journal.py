"""The journal: durable storage of actors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from wonder_server.core.actor.changes import Change, Delete, Emit, Erase, Put
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginDeletion,
    FinishDeletion,
    ReleaseArchiveObject,
    RestoreArchived,
)
from wonder_server.core.coordinator.inputs import CancelRun
from wonder_server.core.idempotency import CompletedRequest, Request


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One journal entry: an input and its decisions in order. ``sequence`` counts from 1."""

    sequence: int
    at_ms: int
    input: Any
    decisions: tuple[Any, ...]


class Event(msgspec.Struct, gc=False):
    """One event of the record. ``sequence`` counts an actor's events from 1, without gaps.

    The rpc layer stores the encoded event in ``wire``, so that it is encoded once for all readers.
    """

    sequence: int
    at_ms: int
    actor_id: str
    emit: Emit
    wire: bytes | None = None


DELETIONS = "deletions"
"""Scope of deletion requests. They stay stored after the deletion of their conversation."""


@dataclass(slots=True)
class Commit:
    """Everything that one actor writes in one transaction.

    ``compact``: this is the only commit of an actor, and ``changes`` contains only its row for lists. The
    other changes follow from the entries (`add_all`). The store writes them before the first read, so readers
    see no difference.
    """

    actor_id: str
    planner: Planner
    entries: list[Entry] = field(default_factory=list)
    changes: list[Put | Delete | Erase] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requests: list[tuple[Request, dict[str, str]]] = field(default_factory=list)
    entry_head: int = 0
    event_head: int = 0
    root: str = ""
    """See `Planner.root`. Used when the actor is first written."""
    compact: bool = False

    def add(self, changes: Iterable[Change], at_ms: int) -> None:
        """Add the changes of a decision."""
        append_change, append_event, actor_id, head = (
            self.changes.append,
            self.events.append,
            self.actor_id,
            self.event_head,
        )
        for change in changes:
            if isinstance(change, Emit):
                head += 1
                append_event(Event(head, at_ms, actor_id, change))
            else:
                append_change(change)
        self.event_head = head

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Add the changes of the entries' decisions. The planner's ``record`` must not need the state."""
        record = self.planner.record
        for entry in entries:
            for decision in entry.decisions:
                self.add(record(None, decision), entry.at_ms)


def frees_space(commit: Commit) -> bool:
    """Return True for a commit that deletes a record, or that ends work so that the record can be deleted."""
    if any(isinstance(change, Erase) or _ends_run(change) for change in commit.changes):
        return True
    return not commit.entries or any(type(entry.input) in _SPACE_FREEING_INPUTS for entry in commit.entries)


def _ends_run(change: Change) -> bool:
    return isinstance(change, Put) and change.table == "runs" and not change.live


_SPACE_FREEING_INPUTS: Final[frozenset[type]] = frozenset(
    {BeginDeletion, FinishDeletion, RestoreArchived, ReleaseArchiveObject, CancelRun, CancelTurn}
)
"""Inputs that end work of a conversation or a run, or delete it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stored actor: its rows by table, its last journal and event sequence, and the time of its last
    journal entry (0 if it has none)."""

    rows: dict[str, list[Any]]
    entry_head: int
    event_head: int
    at_ms: int = 0


class Journal(Protocol):
    """The journal of one shard. All methods raise STORAGE_UNAVAILABLE (transient) if the disk fails."""

    async def load(self, actor_id: str, planner: Planner) -> Loaded | None:
        """Return the actor, or None if it was never written."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> None:
        """Write all commits durably in one transaction."""
        ...

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[Any]:
        """Schedule the commits after all commits submitted before, without waiting.

        The future completes without a useful value when they are durable, or raises if they were not written.
        """
        ...

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        """Return the stored answer of a request, or None if the request was not executed."""
        ...

    async def events(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Event]:
        """Return events with a sequence above ``after``, in order.

        There are at most ``limit``; fewer if they are large, but at least one if there is any.
        """
        ...

    async def entries(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Entry]:
        """Return journal entries with a sequence above ``after``, in order."""
        ...

    async def unfinished(self) -> list[str]:
        """Return the ids of the actors that have operations in their outbox."""
        ...


class Journals(Protocol):
    """The journals of all shards, by the id of an actor."""

    @property
    def count(self) -> int:
        """The number of shards."""
        ...

    def of(self, actor_id: str) -> Journal:
        """Return the journal of the shard that the id names."""
        ...

    def holds(self, actor_id: str) -> bool:
        """Return True if the id names one of these shards."""
        ...
