"""The journal: where actors are written down, and read from again."""

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
    """One step of an actor: an input and what was decided, in order (``sequence`` from 1)."""

    sequence: int
    at_ms: int
    input: Any
    decisions: tuple[Any, ...]


class Event(msgspec.Struct, gc=False):
    """One event of the record. ``sequence`` counts an actor's events from 1, without gaps.

    ``wire`` is room for the rpc layer to keep the encoded event, so that many readers cost one encoding.
    """

    sequence: int
    at_ms: int
    actor_id: str
    emit: Emit
    wire: bytes | None = None


DELETIONS = "deletions"
"""The scope of requests to delete: they are remembered beyond what they deleted."""


@dataclass(slots=True)
class Commit:
    """Everything that one actor wants written in one transaction.

    ``brief``: it is an actor's first and its last, and ``changes`` are only the row by which it is listed.
    What else its decisions write follows from its entries (`add_all`): whoever keeps the journal writes that
    when somebody looks, who cannot tell that it was not there before.
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
    """See `Planner.root`; counts when the actor is first written."""
    compact: bool = False

    def add(self, changes: Iterable[Change], at_ms: int) -> None:
        """Take in what a decision writes."""
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
        """Take in what the decisions of journal entries write, if that follows from them alone."""
        record = self.planner.record
        for entry in entries:
            for decision in entry.decisions:
                self.add(record(None, decision), entry.at_ms)


def frees_space(commit: Commit) -> bool:
    """Return True for a commit that deletes, or that ends what has to end before its record can be
    deleted."""
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
    """An actor as it was written: its rows by table, how far its journal and events go, and the time of its
    last journal entry (0 if it has none)."""

    rows: dict[str, list[Any]]
    entry_head: int
    event_head: int
    at_ms: int = 0


class Journal(Protocol):
    """One shard's journal. All methods raise STORAGE_UNAVAILABLE (transient) when the disk fails."""

    async def load(self, actor_id: str, planner: Planner) -> Loaded | None:
        """The actor, or None if it was never written."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> None:
        """Write all of them in one transaction; on disk when this returns."""
        ...

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[Any]:
        """`commit` without waiting: written after all that was submitted before it. The future says when
        they are on disk, or that they are not; its value means nothing."""
        ...

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        """What a request was told before, if it was carried out."""
        ...

    async def events(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Event]:
        """Events with a sequence above ``after``, in order: at most ``limit``, fewer where they are large,
        but one if there is any."""
        ...

    async def entries(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Entry]:
        """Journal entries with a sequence above ``after``, in order."""
        ...

    async def unfinished(self) -> list[str]:
        """The actors that have operations in their outbox."""
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
