"""The journal of a shard as its owner writes it, and the commits in flight of all loops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from wonder_server.actors.runtime.actor import Actor
from wonder_server.actors.runtime.fair_queue import FairQueue
from wonder_server.core.actor.changes import Erase, Put
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.conversation.model.lifecycle_inputs import (
    BeginDeletion,
    FinishDeletion,
    ReleaseArchiveObject,
    RestoreArchived,
)
from wonder_server.core.coordinator.model.inputs import CancelRun
from wonder_server.ports.journal import Commit, Journal

MAX_BULK_COMMITS = 8
"""Commits in flight above which commits of bulk actors wait. The store writes in the order of the calls, so a
turn's commit waits for at most these. The writer still groups enough: the CPU time of ten nodes rises from
2.2 to 2.4 ms."""


class CommitsInFlight:
    """The number of commits that the stores have not finished. All loops of a process share the limit."""

    def __init__(self) -> None:
        self.count = 0
        self._deferred = FairQueue[Actor]()
        """Bulk actors with a due batch that wait for `count` to fall below `MAX_BULK_COMMITS`."""

    @property
    def is_full_for_bulk(self) -> bool:
        """True if the commits of bulk actors wait."""
        return self.count >= MAX_BULK_COMMITS

    def defer(self, actor: Actor) -> None:
        """Let a bulk actor wait."""
        if not actor.waits_for_commit:
            actor.waits_for_commit = True
            self._deferred.append(actor, actor.lane)

    def next_deferred(self) -> Actor | None:
        """Remove and return the next actor that need not wait any more, or None."""
        if not self._deferred or self.is_full_for_bulk:
            return None
        actor = self._deferred.popleft()
        actor.waits_for_commit = False
        return actor


@dataclass(frozen=True, slots=True)
class OwnedJournal:
    """A journal with the epoch under which this node owns the shard.

    Every commit carries the epoch, and says whether it frees space.
    """

    journal: Journal
    epoch: int

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[Any]:
        """Schedule the commits. See `Journal.submit`."""
        for commit in commits:
            commit.epoch, commit.frees_space = self.epoch, frees_space(commit)
        return self.journal.submit(commits)


def frees_space(commit: Commit) -> bool:
    """Return True for a commit that deletes a record, or that ends work so that the record can be deleted."""
    for change in commit.changes:
        if isinstance(change, Put):
            if not change.live and change.table == "runs":
                return True
        elif isinstance(change, Erase):
            return True
    return not commit.entries or any(input_frees_space(entry.input) for entry in commit.entries)


def input_frees_space(event: object) -> bool:
    """Return True for an input that ends work of a conversation or a run, or deletes it."""
    return type(event) in _SPACE_FREEING_INPUTS


_SPACE_FREEING_INPUTS: Final[frozenset[type]] = frozenset(
    {BeginDeletion, FinishDeletion, RestoreArchived, ReleaseArchiveObject, CancelRun, CancelTurn}
)
