"""The memory of one actor: state, mailbox, and the batches that are not on disk.

An actor's writes go through two places, in order::

    mailbox ──plan──▶ batch ──submit──▶ inflight ──▶ on disk: published, dispatched, answered

``batch`` collects planned changes until they are submitted. ``inflight`` is the batch whose commit is in
progress; an actor has at most one. A batch that is not ``due`` (see `wonder_server.actors.runtime.loop`)
may stay in memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from wonder_server.actors.runtime.fair_queue import Lane
from wonder_server.core.actor.changes import Put
from wonder_server.core.actor.commands import Command
from wonder_server.core.actor.derivation import derived
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import CompletedRequest, IdempotencyKey
from wonder_server.ports.journal import Commit, Event

MAX_RECENT_REQUESTS = 256
"""Requests whose answers an actor in memory holds. The loop reads older ones from the store."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of `Loop.ask`, once it is on disk.

    ``decisions`` are empty if the request was executed before. ``answer`` is the stored answer of the
    request: ids by name, and ``first_sequence`` and ``last_sequence`` of its events.
    """

    decisions: tuple[object, ...]
    answer: dict[str, str]


@dataclass(slots=True, eq=False)
class Envelope:
    """An input in a mailbox, with the future of its caller and the commits of a volatile run that answers."""

    input: object
    reply: asyncio.Future[Outcome] | None = None
    request: IdempotencyKey | None = None
    child_commits: Sequence[Commit] = ()
    entry_head: int | None = None
    """The sequence of the actor's last journal entry for which the input is meant; None for any. At another
    sequence nothing is decided."""
    deduplicated: bool = False
    """True after the loop has read the request's earlier answer from the store."""

    def resolve(self, outcome: Outcome | WonderError) -> None:
        """Resolve the caller's future, if there is one and it is still pending."""
        if self.reply is None or self.reply.done():
            return
        if isinstance(outcome, WonderError):
            self.reply.set_exception(outcome)
        else:
            self.reply.set_result(outcome)


@dataclass(slots=True, eq=False)
class Batch:
    """Planned changes that are written in one commit, and the actions that follow the commit."""

    commit: Commit
    planner: Planner
    inputs: list[Envelope] = field(default_factory=list)
    """The inputs that the batch was planned from."""
    due: bool = False
    """True if the batch must be written as soon as possible."""
    child_commits: list[Commit] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)
    """Timer of each changed operation, by operation id, in the actor's time; 0 cancels it."""
    replies: list[tuple[Envelope, Outcome | WonderError]] = field(default_factory=list)
    early_commands: list[Command] = field(default_factory=list)
    """Commands that were dispatched before the commit."""
    cancelled_operations: set[str] = field(default_factory=set)
    """Operations that ``commands`` cancel."""
    yielded_to_children: bool = False
    """True after the batch has waited once for the children that it started."""
    may_be_compact: bool = False
    """True while the commit may become compact: the batch holds the actor's whole journal, and its decisions
    allow it. Rows and events are not recorded until then."""
    recorded_entries: int = 0
    """Number of entries whose rows and events are in the commit. A compact run never needs those of the
    others."""

    @property
    def event_head(self) -> int:
        """The sequence of the last event, counting the events that are not recorded yet."""
        commit = self.commit
        count = self.planner.event_count
        return commit.event_head + sum(
            [count(entry.decisions) for entry in islice(commit.entries, self.recorded_entries, None)]
        )

    def record(self) -> None:
        """Add the rows and events of the remaining entries to the commit."""
        commit, since = self.commit, len(self.commit.changes)
        commit.add_all(derived(self.planner, commit.entries, self.recorded_entries))
        self.recorded_entries = len(commit.entries)
        self.collect_timers(since)

    def collect_timers(self, since: int) -> None:
        """Collect the timers of operations from the changes at index ``since`` and later."""
        for change in islice(self.commit.changes, since, None):
            if change.table == "operations":
                self.timers[change.id] = change.ordinal if isinstance(change, Put) else 0

    def last_events(self) -> list[Event]:
        """Return the events of the last entry of a compact commit."""
        last = self.commit.entries[-1]
        before = self.commit.event_head - self.planner.event_count(last.decisions)
        last_one = Commit(self.commit.actor_id, event_head=before)
        last_one.add_all(derived(self.planner, self.commit.entries, len(self.commit.entries) - 1))
        return last_one.events

    def all_commits(self) -> list[Commit]:
        """Return the commits to write, in order."""
        own = self.commit
        return [*self.child_commits, own] if own.entries or own.requests else self.child_commits


class Home(Protocol):
    """The loop of an actor's shard, as the parts see it that all loops share."""

    def work(self, actor: Actor) -> None:
        """Do the actor's work for one time slice."""
        ...

    def submit_if_due(self, actor: Actor) -> None:
        """Submit the actor's batch if it is due and no commit of the actor is in flight."""
        ...

    def on_flush_due(self, actor: Actor, batch: Batch) -> bool:
        """Write a batch that has stayed in memory for long. Return False to be asked again later."""
        ...


TURN_LANE: Final = Lane(is_bulk=False)
BULK_LANE: Final = Lane(is_bulk=True)


@dataclass(slots=True, eq=False)
class Actor:
    """One actor in memory. ``state`` is None until it is loaded."""

    id: str
    planner: Planner
    home: Home
    state: object = None
    entry_head: int = 0
    event_head: int = 0
    clock_offset_ms: int = 0
    """Lead of the actor's time over the server's. The actor's time continues at the end of its record if the
    clock was set back over a restart."""
    mailbox: deque[Envelope] = field(default_factory=deque)
    ready_commands: deque[Command] = field(default_factory=deque)
    """Commands to dispatch in the next slice."""
    batch: Batch | None = None
    inflight: Batch | None = None
    submitted: bool = False
    """True after the first submit. From then on the record on disk may not fall behind, volatile or not."""
    committed: bool = False
    """True after the first successful commit."""
    scheduled: bool = False
    low_priority: bool = False
    """True for an actor that another actor started; see `Scheduler`."""
    high_priority: bool = False
    """True if the actor is scheduled ahead of low-priority actors, for example because a caller waits for
    it."""
    lane: Lane = TURN_LANE
    """The queue in which the actor waits for its slice and for its commit."""
    waits_for_commit: bool = False
    """True while the batch waits for bulk commits in flight to finish."""
    loading: bool = False
    """True while a read for the actor is in progress."""
    failure: tuple[WonderError, Envelope] | None = None
    """The error that made the state invalid, and the input that caused it."""
    write_through: bool = False
    """True after a failed commit: no early dispatch, since that work would probably be lost again."""
    isolate_inputs: int = 0
    """Number of inputs to commit one at a time, to find the one that cannot be written."""
    parent_uncommitted: bool = False
    """True while the parent's start of this actor is not on disk; only side-effect-free commands are
    dispatched."""
    commit_waiters: list[Actor] = field(default_factory=list)
    """Actors whose commits wait for this actor's."""
    recent_requests: OrderedDict[tuple[str, str], CompletedRequest] = field(default_factory=OrderedDict)
    """Recent requests with their answers, by scope and id."""
    has_all_requests: bool = False
    """True if ``recent_requests`` holds every request of this actor, so the store need not be read."""

    @property
    def idle(self) -> bool:
        """True if the actor has no work until its next input."""
        return not (
            self.mailbox
            or self.ready_commands
            or self.scheduled
            or self.waits_for_commit
            or self.loading
            or self.inflight is not None
            or self.batch is not None
        )

    def server_time_ms(self, at_ms: int) -> int:
        """Return the server time of ``at_ms``, a time of the actor. 0 means never and stays 0."""
        return max(1, at_ms - self.clock_offset_ms) if at_ms else 0

    def open_batch(self) -> Batch:
        """Open a batch for the inputs that are planned from now on."""
        batch = self.batch = Batch(Commit(self.id, event_head=self.event_head), self.planner)
        batch.may_be_compact = self.planner.compact_row is not None and not self.entry_head
        return batch

    def seal_batch(self, *, final: bool = False) -> Batch:
        """Close the batch and complete its commit. The next input opens another batch.

        ``final``: the run has ended, and the caller cancels its timers.
        """
        batch, self.batch = self.batch, None
        assert batch is not None, "the actor has an open batch"
        commit = batch.commit
        # Recorded entries may have set timers.
        is_compact = batch.may_be_compact and (final or not batch.recorded_entries) and not self.mailbox
        compact_row = self.planner.compact_row if is_compact and commit.entries else None
        row = compact_row(self.state) if compact_row is not None else None
        if row is not None:
            commit.event_head = batch.event_head
            commit.compact, commit.changes, commit.events = True, [row], []
        elif batch.recorded_entries < len(commit.entries):
            batch.record()
        self.event_head = commit.event_head
        commit.entry_head = self.entry_head
        commit.root = self.planner.root(self.id, self.state)
        return batch

    def record_request(self, request: IdempotencyKey, completed: CompletedRequest) -> None:
        """Store the answer of a completed request in memory."""
        self.recent_requests[request.scope, request.id] = completed
        if len(self.recent_requests) > MAX_RECENT_REQUESTS:
            self.recent_requests.popitem(last=False)
            self.has_all_requests = False
