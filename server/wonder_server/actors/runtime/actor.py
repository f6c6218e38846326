"""What the loop holds of one actor: its working set, its mailbox, and what of it is not on disk yet.

An actor's writes go through two places, in order::

    mailbox ──plan──▶ batch ──submit──▶ underway ──▶ on disk: shown, handed out, answered

``batch`` takes what is planned until it is submitted; ``underway`` is the one commit at a time that an actor
waits for. A batch that is not ``due`` (see `wonder_server.actors.runtime.loop`) may stay where it is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from wonder_server.actors.runtime.fair_queue import Lane
from wonder_server.core.actor.changes import Put
from wonder_server.core.actor.commands import Command
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import CompletedRequest, Request
from wonder_server.ports.journal import Commit

MAX_RECENT_REQUESTS = 256
"""Requests that an actor in memory remembers the answers to; older ones are looked up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a caller of `Loop.ask` is told, once it is on disk.

    ``decisions`` are empty if the request was carried out before; ``answer`` is what it was told then, and
    is told now: ids by name, and ``first_sequence`` and ``last_sequence`` of the events it led to.
    """

    decisions: tuple[Any, ...]
    answer: dict[str, str]


@dataclass(slots=True, eq=False)
class Envelope:
    """An input on its way, with who waits for its outcome and the writes of a volatile run that answers."""

    input: Any
    reply: asyncio.Future[Outcome] | None = None
    request: Request | None = None
    child_commits: Sequence[Commit] = ()
    deduplicated: bool = False
    """Whether the store was asked if the request was carried out before."""

    def resolve(self, outcome: Outcome | WonderError) -> None:
        """Tell whoever asked, if somebody did and still waits."""
        if self.reply is None or self.reply.done():
            return
        if isinstance(outcome, WonderError):
            self.reply.set_exception(outcome)
        else:
            self.reply.set_result(outcome)


@dataclass(slots=True, eq=False)
class Batch:
    """What was planned and goes to disk together, and what is done once it is there."""

    commit: Commit
    inputs: list[Envelope] = field(default_factory=list)
    """The inputs that it comes from."""
    due: bool = False
    """Whether it is to be written as soon as it can be."""
    child_commits: list[Commit] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)
    """Operation id -> when it wants to be woken; 0 to forget it."""
    replies: list[tuple[Envelope, Outcome | WonderError]] = field(default_factory=list)
    early_commands: list[Command] = field(default_factory=list)
    """Commands that were handed out before it is written."""
    cancelled_operations: set[str] = field(default_factory=set)
    """Operations that ``commands`` stop."""
    yielded_to_children: bool = False
    """Whether children that it has begun had their turn before it is written."""
    recorded_entries: int = 0
    """Entries of which is known what rows and events they lead to; that of the others may not be needed."""

    def record(self) -> None:
        """Find out what rows and events the entries lead to."""
        commit, since = self.commit, len(self.commit.changes)
        commit.add_all(commit.entries[self.recorded_entries :])
        self.recorded_entries = len(commit.entries)
        self.collect_timers(since)

    def collect_timers(self, since: int) -> None:
        """Remember when operations want to be woken, from the rows of theirs that came in since."""
        for change in islice(self.commit.changes, since, None):
            if change.table == "operations":
                self.timers[change.id] = change.ordinal if isinstance(change, Put) else 0

    def all_commits(self) -> list[Commit]:
        """What is to be written, in order."""
        own = self.commit
        return [*self.child_commits, own] if own.entries or own.requests else self.child_commits


TURN_LANE: Final = Lane(is_bulk=False)
BULK_LANE: Final = Lane(is_bulk=True)


@dataclass(slots=True, eq=False)
class Actor:
    """One actor in memory. ``state`` is None until it is loaded."""

    id: str
    planner: Planner
    state: Any = None
    entry_head: int = 0
    event_head: int = 0
    clock_offset_ms: int = 0
    """How far the actor's time is ahead of the server's: its record goes on where it ended, though the clock
    was set back over a restart."""
    mailbox: deque[Envelope] = field(default_factory=deque)
    ready_commands: deque[Command] = field(default_factory=deque)
    """Commands that may go out now."""
    batch: Batch | None = None
    inflight: Batch | None = None
    submitted: bool = False
    """Whether it was ever given to the store; then what is on disk may not fall behind, volatile or not."""
    committed: bool = False
    """Whether the store has said that it is there."""
    scheduled: bool = False
    low_priority: bool = False
    """Whether it is one of many that another actor has begun."""
    high_priority: bool = False
    """Whether somebody waits for its next stretch, so that it need not wait for the crowd."""
    lane: Lane = TURN_LANE
    """The queue in which it waits for its stretch and for the disk."""
    waits_for_commit: bool = False
    """Whether its batch waits for room among the commits under way."""
    loading: bool = False
    """Whether it waits for something from disk."""
    failure: tuple[WonderError, Envelope] | None = None
    """Why its working set is no good any more, and the input that broke it."""
    write_through: bool = False
    """Whether everything waits for the disk, as the last commit failed: early work would be done in vain."""
    isolate_inputs: int = 0
    """How many inputs are still to be written each on its own, to find the one that cannot be."""
    parent_uncommitted: bool = False
    """Whether what began it is not on disk yet, so that it may only do what leaves no trace."""
    commit_waiters: list[Actor] = field(default_factory=list)
    """Those who may only be written when this one is."""
    recent_requests: OrderedDict[tuple[str, str], CompletedRequest] = field(default_factory=OrderedDict)
    """Requests carried out lately, by scope and id."""
    has_all_requests: bool = False
    """Whether ``answered`` holds every request there ever was, so that the store need not be asked."""

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do for it until it hears of something."""
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
        """What is planned from now on."""
        batch = self.batch = Batch(Commit(self.id, self.planner, event_head=self.event_head))
        return batch

    def seal_batch(self, *, final: bool = False) -> Batch:
        """What was planned, sealed for writing; what comes next begins another. ``last``: nothing comes next,
        and nobody waits for what this one wrote, so that it may be written in brief."""
        batch, self.batch = self.batch, None
        assert batch is not None, "there is something planned"
        commit = batch.commit
        compact_row = self.planner.compact_row if final and self._is_compact(batch) else None
        row = compact_row(self.state) if compact_row is not None else None
        if row is not None:
            commit.compact, commit.changes, commit.events, commit.event_head = True, [row], [], 0
        elif batch.recorded_entries < len(commit.entries):
            batch.record()
        self.event_head = commit.event_head
        commit.entry_head = self.entry_head
        commit.root = self.planner.root(self.id, self.state)
        return batch

    def _is_compact(self, batch: Batch) -> bool:
        """Whether ``batch`` holds all there is of the actor, and will be."""
        entries = len(batch.commit.entries)
        return 0 < entries == self.entry_head and not batch.commit.requests and not self.mailbox

    def record_request(self, request: Request, completed: CompletedRequest) -> None:
        """Keep at hand what a request was told."""
        self.recent_requests[request.scope, request.id] = completed
        if len(self.recent_requests) > MAX_RECENT_REQUESTS:
            self.recent_requests.popitem(last=False)
            self.has_all_requests = False
