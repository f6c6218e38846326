"""What the loop holds of one actor: its working set, its mailbox, and what of it is not on disk yet.

An actor's writes go through two places, in order::

    mailbox ──plan──▶ batch ──submit──▶ underway ──▶ on disk: shown, handed out, answered

``batch`` takes what is planned until it is submitted; ``underway`` is the one commit at a time that an actor
waits for. A batch that is not ``due`` (see `wonder_server.actors.loop`) may stay where it is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from wonder_server.actors.lanes import Lane
from wonder_server.core.commands import Command
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import Answered, Request
from wonder_server.core.planner import Planner
from wonder_server.core.records import Put
from wonder_server.ports.journal import Commit

REQUESTS_AT_HAND = 256
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
    carried: Sequence[Commit] = ()
    looked_up: bool = False
    """Whether the store was asked if the request was carried out before."""

    def tell(self, outcome: Outcome | WonderError) -> None:
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
    taken: list[Envelope] = field(default_factory=list)
    """The inputs that it comes from."""
    due: bool = False
    """Whether it is to be written as soon as it can be."""
    carried: list[Commit] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    wakes: dict[str, int] = field(default_factory=dict)
    """Operation id -> when it wants to be woken; 0 to forget it."""
    replies: list[tuple[Envelope, Outcome | WonderError]] = field(default_factory=list)
    begun: list[Command] = field(default_factory=list)
    """Commands that were handed out before it is written."""
    stopped: set[str] = field(default_factory=set)
    """Operations that ``commands`` stop."""
    waited: bool = False
    """Whether children that it has begun had their turn before it is written."""
    recorded: int = 0
    """Entries of which is known what rows and events they lead to; that of the others may not be needed."""

    def record(self) -> None:
        """Find out what rows and events the entries lead to."""
        commit, since = self.commit, len(self.commit.changes)
        commit.add_all(commit.entries[self.recorded :])
        self.recorded = len(commit.entries)
        self.note_wakes(since)

    def note_wakes(self, since: int) -> None:
        """Remember when operations want to be woken, from the rows of theirs that came in since."""
        for change in islice(self.commit.changes, since, None):
            if change.table == "operations":
                self.wakes[change.id] = change.ordinal if isinstance(change, Put) else 0

    def writes(self) -> list[Commit]:
        """What is to be written, in order."""
        own = self.commit
        return [*self.carried, own] if own.entries or own.requests else self.carried


TURNS: Final = Lane(is_bulk=False)
BULK: Final = Lane(is_bulk=True)


@dataclass(slots=True, eq=False)
class Actor:
    """One actor in memory. ``state`` is None until it is loaded."""

    id: str
    planner: Planner
    state: Any = None
    entry_head: int = 0
    event_head: int = 0
    ahead_ms: int = 0
    """How far the actor's time is ahead of the server's: its record goes on where it ended, though the clock
    was set back over a restart."""
    mailbox: deque[Envelope] = field(default_factory=deque)
    going: deque[Command] = field(default_factory=deque)
    """Commands that may go out now."""
    batch: Batch | None = None
    underway: Batch | None = None
    submitted: bool = False
    """Whether it was ever given to the store; then what is on disk may not fall behind, volatile or not."""
    on_disk: bool = False
    """Whether the store has said that it is there."""
    scheduled: bool = False
    crowd: bool = False
    """Whether it is one of many that another actor has begun."""
    urgent: bool = False
    """Whether somebody waits for its next stretch, so that it need not wait for the crowd."""
    lane: Lane = TURNS
    """The queue in which it waits for its stretch and for the disk."""
    queued: bool = False
    """Whether its batch waits for room among the commits under way."""
    reading: bool = False
    """Whether it waits for something from disk."""
    broken: tuple[WonderError, Envelope] | None = None
    """Why its working set is no good any more, and the input that broke it."""
    careful: bool = False
    """Whether everything waits for the disk, as the last commit failed: early work would be done in vain."""
    singly: int = 0
    """How many inputs are still to be written each on its own, to find the one that cannot be."""
    ahead: bool = False
    """Whether what began it is not on disk yet, so that it may only do what leaves no trace."""
    followers: list[Actor] = field(default_factory=list)
    """Those who may only be written when this one is."""
    answered: OrderedDict[tuple[str, str], Answered] = field(default_factory=OrderedDict)
    """Requests carried out lately, by scope and id."""
    knows_all_answered: bool = False
    """Whether ``answered`` holds every request there ever was, so that the store need not be asked."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left to do for it until it hears of something."""
        return not (
            self.mailbox
            or self.going
            or self.scheduled
            or self.queued
            or self.reading
            or self.underway is not None
            or self.batch is not None
        )

    def begin_batch(self) -> Batch:
        """What is planned from now on."""
        batch = self.batch = Batch(Commit(self.id, self.planner, event_head=self.event_head))
        return batch

    def take_batch(self, *, last: bool = False) -> Batch:
        """What was planned, sealed for writing; what comes next begins another. ``last``: nothing comes next,
        and nobody waits for what this one wrote, so that it may be written in brief."""
        batch, self.batch = self.batch, None
        assert batch is not None, "there is something planned"
        commit = batch.commit
        summarise = self.planner.summary if last and self._is_brief(batch) else None
        summary = summarise(self.state) if summarise is not None else None
        if summary is not None:
            commit.brief, commit.changes, commit.events, commit.event_head = True, [summary], [], 0
        elif batch.recorded < len(commit.entries):
            batch.record()
        self.event_head = commit.event_head
        commit.entry_head = self.entry_head
        commit.root = self.planner.root(self.id, self.state)
        return batch

    def _is_brief(self, batch: Batch) -> bool:
        """Whether ``batch`` holds all there is of the actor, and will be."""
        entries = len(batch.commit.entries)
        return 0 < entries == self.entry_head and not batch.commit.requests and not self.mailbox

    def remember(self, request: Request, told: Answered) -> None:
        """Keep at hand what a request was told."""
        self.answered[request.scope, request.id] = told
        if len(self.answered) > REQUESTS_AT_HAND:
            self.answered.popitem(last=False)
            self.knows_all_answered = False
