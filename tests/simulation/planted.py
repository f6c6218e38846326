"""Nodes with one planted fault each, so that tests show that the simulation finds it.

Each fault is an adapter of a port that misbehaves at times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.archives import NodeArchives
from tests.simulation.disk import Disk, NodeRecords, NodeStores
from tests.simulation.memories import memory_disk
from tests.simulation.node import CompleteInput, Dispatch, NodeParts, Publish
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core import frozen
from wonder_server.core.actor.commands import Command, RunTask
from wonder_server.core.budget import Account
from wonder_server.core.conversation.model.inputs import TimerFired
from wonder_server.core.coordinator.model.inputs import NodeTimerFired
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.ports.archives import ArchivedRow
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.memories import Entry, Stored
from wonder_server.services.workers import WorkerPool
from wonder_server.services.workers.messages import Registration
from wonder_server.services.workers.session import WorkerSession

CHANCE: Final = 0.2
"""Probability with which a planted fault occurs at each occasion."""


class EarlyStores(NodeStores):
    """Acknowledges a commit, at times, before it is written."""

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[None]:
        written = super().submit(commits)
        if self.dice.random() >= CHANCE:
            return written
        written.add_done_callback(lambda done: done.exception())
        early: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        early.set_result(None)
        return early


class ForgetfulStores(NodeStores):
    """Forgets, at times, the requests that a commit answers."""

    def write(self, commits: Sequence[Commit]) -> None:
        forgets = self.dice.random() < CHANCE
        super().write([replace(commit, requests=[]) for commit in commits] if forgets else commits)


class UnfencedJournal(MemoryJournal):
    """Returns raised epochs, and accepts the commits of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._returned = 0

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        self._returned += 1
        return dict.fromkeys(shards, self._returned)


def dispatch_twice(dispatch: Dispatch, dice: random.Random) -> Dispatch:
    """Dispatch a task that must not be repeated, at times, again a moment later."""

    def dispatching(actor_id: str, command: Command) -> None:
        dispatch(actor_id, command)
        if isinstance(command, RunTask) and not command.repeatable and dice.random() < CHANCE:
            asyncio.get_running_loop().call_later(0.1, dispatch, actor_id, command)

    return dispatching


def publish_some(publish: Publish, dice: random.Random) -> Publish:
    """Publish, at times, all events but the first."""

    def publishing(actor_id: str, events: list[Event]) -> None:
        publish(actor_id, events[1:] if dice.random() < CHANCE else events)

    return publishing


def lose_timers(complete_input: CompleteInput, dice: random.Random) -> CompleteInput:
    """Plan, at times, a timer of no operation in place of the one that fired."""

    def losing(actor_id: str, state: object, event: object) -> object:
        found = complete_input(actor_id, state, event)
        if isinstance(found, TimerFired | NodeTimerFired) and dice.random() < CHANCE:
            return frozen.replace(found, operation_id="")
        return found

    return losing


class CarelessArchives(NodeArchives):
    """Leaves out, at times, the last message of a conversation."""

    def rows(self, actor_id: str) -> list[ArchivedRow]:
        found = super().rows(actor_id)
        places = [place for place, (table, _) in enumerate(found) if table == "messages"]
        if places and self.stores.dice.random() < CHANCE:
            del found[places[-1]]
        return found


class LavishWorkers(WorkerPool):
    """Gives each lost job to another worker, also if it must not be repeated."""

    def join(self, registration: Registration) -> WorkerSession:
        kinds = tuple(replace(kind, idempotent=True) for kind in registration.kinds)
        return super().join(replace(registration, kinds=kinds))


class LossyRecords(NodeRecords):
    """Forgets what agents have spent."""

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        return dict.fromkeys(agent_ids, Account())


class RepetitiveMemories(SqliteMemories):
    """Forgets which operations have written which memories."""

    async def add(
        self,
        agent_id: str,
        entries: Sequence[Entry],
        embedder: str,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> list[Stored]:
        drafts = [replace(entry.draft, idempotency_key="", unless_known=False) for entry in entries]
        entries = [replace(entry, draft=draft) for entry, draft in zip(entries, drafts, strict=True)]
        return await super().add(agent_id, entries, embedder, now_ms, request)


@dataclass(frozen=True)
class Planted:
    """A planted fault: the parts of a node that has it, and the words with which the simulation reports it.

    ``kinds`` are the kinds of stories that can show it; empty is all.
    """

    parts: NodeParts
    words: str
    kinds: tuple[str, ...] = ()


PLANTED: Final[dict[str, Planted]] = {
    "an event shown before it is on disk": Planted(NodeParts(stores=EarlyStores), "before it was on disk"),
    "a double dispatch": Planted(NodeParts(wrap_dispatch=dispatch_twice), "must not be repeated"),
    "a lost timer": Planted(NodeParts(wrap_complete_input=lose_timers), "still wait|stuck"),
    "a stale epoch accepted": Planted(
        NodeParts(disk=lambda trace: Disk(trace, UnfencedJournal())),
        "epochs fall|does not continue the record",
    ),
    "a gap in a stream": Planted(NodeParts(wrap_publish=publish_some), "was shown in place of|end early"),
    "a request_id forgotten": Planted(
        NodeParts(stores=ForgetfulStores), "then with|started twice|times in the record"
    ),
    "an archive that drops the last message": Planted(
        NodeParts(archives=CarelessArchives), "0 times in the record|messages", ("talk",)
    ),
    "a lease honoured twice": Planted(NodeParts(workers=LavishWorkers), "must not be repeated", ("worker",)),
    "a budget forgotten": Planted(NodeParts(records=LossyRecords), "more than its budget", ("budget",)),
    "a memory written twice": Planted(
        NodeParts(
            memories=lambda database, ranker, stores: RepetitiveMemories(
                database, ranker, memory_disk(stores).seals
            )
        ),
        "written twice",
        ("talk",),
    ),
}
"""The planted faults by name."""
