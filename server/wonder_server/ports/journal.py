"""The journal: durable storage of actors.

The prefix of an actor's id names its planner, so neither commits nor reads need one.
`wonder_server.record` implements this port on the rows of `wonder_server.ports.record_store`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from wonder_server.core import ids
from wonder_server.core.actor.changes import Change, Delete, Emit, Erase, Put
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.idempotency import CompletedRequest, IdempotencyKey


class StaleEpochError(WonderError):
    """The store refused a commit, since its shard has another owner by now."""

    def __init__(self, actor_id: str, epoch: int, current: int) -> None:
        super().__init__(
            Fault(
                reason=Reason.OWNER_MOVED,
                message=f"The shard of {actor_id} has epoch {current}, above that of the commit, {epoch}.",
                transient=True,
            )
        )


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


def reference_key(project_id: str, external_ref: str) -> str:
    """Return the key of an external reference. The shard `ids.spread` of it is the home of the reference."""
    return f"{project_id}\n{external_ref}"


def reference_home(project_id: str, external_ref: str) -> str:
    """Return an id in the home shard of an external reference. A conversation that is created with the
    reference is in this shard, and only its owner gives the reference to a conversation of another shard."""
    return ids.in_shard("conv_0", ids.spread(reference_key(project_id, external_ref)))


def external_ref_taken(conversation_id: str) -> WonderError:
    """Build ALREADY_EXISTS for an external reference that another conversation of the project has."""
    return error(
        Reason.ALREADY_EXISTS,
        f"The project has a conversation with this external_ref: {conversation_id}.",
        field="conversation.external_ref",
        id=conversation_id,
    )


DELETIONS = "deletions"
"""Scope of deletion requests. They stay stored after the deletion of their conversation."""

KEPT: Final = frozenset({"calls", "conversations", DELETIONS})
"""Scopes of requests that stay stored after the deletion of their conversation: those that created it and
deleted it. Such a request, repeated, neither creates a second conversation nor fails as unknown."""

CREATIONS: Final = frozenset({"calls", "conversations", "runs"})
"""Scopes of requests that create actors. They stay stored while their conversation is archived, since a
repeated request must find the first answer before it can name the conversation to restore. Those of archived
runs then belong to the conversation, so that its deletion removes them."""


@dataclass(slots=True)
class Commit:
    """Everything that one actor writes in one transaction.

    ``compact``: this is the only commit of an actor, and ``changes`` contains only its row for lists. The
    other changes follow from the entries (`add_all`). The store writes them before the first read, so readers
    see no difference. Lists need only that row and ``event_head``, the number of events to come.
    """

    actor_id: str
    entries: list[Entry] = field(default_factory=list)
    changes: list[Put | Delete | Erase] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requests: list[tuple[IdempotencyKey, dict[str, str]]] = field(default_factory=list)
    entry_head: int = 0
    event_head: int = 0
    root: str = ""
    """See `Planner.root`. Used when the actor is first written."""
    compact: bool = False
    epoch: int = 0
    """Epoch under which the writer owns the actor's shard. The entries keep it."""
    frees_space: bool = False
    """The commit deletes a record, or ends work so that the record can be deleted: a full disk accepts it."""

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

    def add_all(self, decided: Iterable[tuple[Iterable[Change], int]]) -> None:
        """Add the changes and times of several decisions (`core.actor.derivation.derived`)."""
        for changes, at_ms in decided:
            self.add(changes, at_ms)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stored actor: its rows by table, its last journal and event sequence, and the time of its last
    journal entry (0 if it has none)."""

    rows: dict[str, list[Any]]
    entry_head: int
    event_head: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class PendingOperation:
    """One operation of an outbox. ``wake_ms`` is the time of its timer, 0 without one.

    ``has_unfinished_child``: the run that executes it (`Planner.child_run`) has operations in its outbox, so
    it will report its end by itself.
    """

    id: str
    value: Any
    wake_ms: int
    has_unfinished_child: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An actor with operations in its outbox, and the time of its last journal entry.

    ``operations`` is empty if one of them is damaged.
    """

    actor_id: str
    at_ms: int
    operations: tuple[PendingOperation, ...]


class Journal(Protocol):
    """The journal of one shard. All methods raise STORAGE_UNAVAILABLE (transient) if the disk fails."""

    async def load(self, actor_id: str) -> Loaded | None:
        """Return the actor, or None if it was never written."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> None:
        """Write all commits durably in one transaction.

        Raises `StaleEpochError` if the epoch of a commit is below that of its shard. ALREADY_EXISTS if a
        commit gives a conversation an external reference that another conversation of its project in this
        store has.
        """
        ...

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[Any]:
        """Schedule the commits after all commits submitted before, without waiting.

        The future completes without a useful value when they are durable, or raises if they were not written.
        """
        ...

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        """Return the stored answer of a request, or None if the request was not executed."""
        ...

    async def events(self, actor_id: str, after: int, limit: int) -> list[Event]:
        """Return events with a sequence above ``after``, in order.

        There are at most ``limit``; fewer if they are large, but at least one if there is any.
        """
        ...

    async def entries(self, actor_id: str, after: int, limit: int) -> list[Entry]:
        """Return journal entries with a sequence above ``after``, in order."""
        ...

    async def unfinished(self, prefix: str, after: str, limit: int) -> list[Unfinished]:
        """Return up to ``limit`` actors with operations in their outbox and an id above ``after``, by id.

        ``prefix`` is that of their planner's ids, without the underscore.
        """
        ...


class Journals(Protocol):
    """The journals of all shards, by the id of an actor."""

    @property
    def files(self) -> Sequence[Journal]:
        """All journals. Each holds one or more shards."""
        ...

    def of(self, actor_id: str) -> Journal:
        """Return the journal of the shard that the id names."""
        ...

    def holds(self, actor_id: str) -> bool:
        """Return True if the id names a shard."""
        ...

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        """Return the stored answer of a request from whichever shard has it, or None.

        Use it for requests that create an actor and for deletions: their ids are unique in all shards, and
        the shard of the actor can depend on more than the request's id.
        """
        ...

    async def members(self, root: str) -> list[str]:
        """Return the ids of all stored actors whose root is ``root``, itself included, in all shards.

        Earlier versions stored runs that clients started for a conversation in other shards.
        """
        ...
