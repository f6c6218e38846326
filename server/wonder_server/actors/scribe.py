"""What goes to disk together, and what follows when it is there, or is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from wonder_server.actors.actor import Actor, Batch, Envelope
from wonder_server.actors.crew import Crew
from wonder_server.actors.idle import Idle
from wonder_server.actors.incidents import unexpected
from wonder_server.actors.lanes import FairLine
from wonder_server.actors.salvage import Interrupted
from wonder_server.core.commands import Command, RunWorkflow
from wonder_server.core.errors import WonderError
from wonder_server.core.planner import Planner
from wonder_server.ports.journal import Commit, Event, Journal

RELOAD_AFTER_S = 1.0
"""How long an actor waits after a failure before it is loaded again, unless somebody asks sooner."""

MOST_BULK = 8
"""Commits under way, above which those of bulk work wait. The store writes in the order of the calls, so a
turn's commit waits for no more than these. The writer still has enough to group: the CPU of ten nodes
rises from 2.2 to 2.4 ms."""


class Scribe(Crew):
    """Writes what the crew has planned: one commit at a time for each actor, ancestors before those that they
    have begun. The laws are at the head of `wonder_server.actors.loop`."""

    def __init__(
        self,
        planners: Iterable[Planner],
        idle: Idle,
        journal_of: Callable[[str], Journal],
        publish: Callable[[str, list[Event]], None],
    ) -> None:
        super().__init__(planners, idle)
        self._journal_of = journal_of
        self._publish = publish
        self._interrupted: dict[str, Interrupted] = {}
        """Actors whose working set was thrown away, and what they are to be told when they are loaded."""
        self._writing = 0
        """Commits under way."""
        self._unwritable = FairLine[Actor]()
        """Actors of bulk work whose batches are due, while many commits are under way."""

    def _complete(self, actor: Actor, batch: Batch) -> None:
        """Do what waited for the batch, which is on disk."""
        raise NotImplementedError

    def _give_up(
        self, actor: Actor, failed: Batch | None, problem: WonderError, culprit: Envelope | None
    ) -> None:
        """Throw the working set away; load it again later, and tell it again what is left."""
        raise NotImplementedError

    def _take_back(self, actor: Actor, begun: list[Command], problem: WonderError) -> None:
        """Stop what was begun too early."""
        raise NotImplementedError

    def _write(self, actor: Actor) -> None:
        """Submit the actor's batch if it is due and nothing is under way."""
        batch = actor.batch
        if actor.underway is not None:
            return
        if actor.broken is not None:
            problem, culprit = actor.broken
            self._give_up(actor, None, problem, culprit)
        elif batch is None or not batch.due:
            return
        elif not batch.writes():
            actor.batch = None
            self._complete(actor, batch)
        else:
            group = self._lineage(actor)
            if not group:
                return
            if actor.lane.is_bulk and self._writing >= MOST_BULK:
                if not actor.queued:
                    actor.queued = True
                    self._unwritable.append(actor, actor.lane)
                return
            self._submit(group)

    def _lets_children_go_first(self, actor: Actor) -> bool:
        """Whether children that the actor's batch has begun have their turn before it is written, once: most
        are at their end then, and one commit holds their answers too."""
        batch = actor.batch
        if batch is None or not batch.due or batch.waited or not batch.begun or actor.underway is not None:
            return False
        batch.waited = any(
            isinstance(command, RunWorkflow) and self._is_about_to_begin(command.run_id)
            for command in batch.begun
        )
        return batch.waited

    def _is_about_to_begin(self, actor_id: str) -> bool:
        actor = self._actors.get(actor_id)
        return actor is not None and actor.scheduled and actor.urgent and not actor.entry_head

    def _lineage(self, actor: Actor) -> list[Actor]:
        """The actors whose batches go to disk together, ancestors first; empty if one is to be waited for."""
        group = [actor]
        while not group[0].on_disk:
            parent_id = group[0].planner.parent(group[0].state)
            parent = self._actors.get(parent_id)
            if (
                not group[0].ahead
                and parent_id not in self._interrupted
                and (parent is None or parent.on_disk)
            ):
                break
            if parent is not None and parent.underway is not None:
                parent.followers.append(actor)
                return []
            if parent is None or parent.batch is None or parent.broken is not None:
                asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self._schedule, actor)
                return []
            group.insert(0, parent)
        return group

    def _submit(self, group: list[Actor]) -> None:
        parts: list[tuple[Actor, Batch]] = []
        writes: list[Commit] = []
        for actor in group:
            batch = actor.underway = actor.take_batch()
            actor.submitted |= bool(batch.commit.entries)
            self._busy.add(actor)
            parts.append((actor, batch))
            writes += batch.writes()
        try:
            future = self._journal_of(group[-1].id).submit(writes)
        except Exception as failure:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(failure)
        self._writing += 1
        future.add_done_callback(partial(self._written, parts, writes))

    def _written(
        self, parts: list[tuple[Actor, Batch]], writes: list[Commit], future: asyncio.Future[Any]
    ) -> None:
        """The commit is on disk, or failed."""
        self._writing -= 1
        self._let_write()
        self._call()
        for actor, _ in parts:
            actor.underway = None
        try:
            future.result()
        except WonderError as failure:
            self._unwritten(parts, failure)
            return
        except Exception:
            self._unwritten(parts, WonderError(unexpected("commit_failed", actor=parts[-1][0].id)))
            return
        for written in writes:
            if written.events:
                self._publish(written.actor_id, written.events)
        for actor, batch in parts:
            actor.on_disk |= bool(batch.commit.entries)
            self._catch_up(batch)
            # Before the replies, so that what they hear of is under way when they hear of it.
            self._schedule(actor)
            self._complete(actor, batch)
            self._poke_followers(actor)

    def _let_write(self) -> None:
        """Write the batches of bulk work that there is room for again."""
        while self._unwritable and self._writing < MOST_BULK:
            actor = self._unwritable.popleft()
            actor.queued = False
            self._write(actor)
            self._settle(actor)

    def _catch_up(self, batch: Batch) -> None:
        """What the batch has begun is not ahead of the disk any more, nor what that has."""
        for command in batch.begun:
            child = self._actors.get(command.run_id) if isinstance(command, RunWorkflow) else None
            if child is not None and child.ahead:
                child.ahead = False
                if child.batch is not None:
                    self._catch_up(child.batch)

    def _unwritten(self, parts: list[tuple[Actor, Batch]], problem: WonderError) -> None:
        alone = len(parts) == 1 and len(parts[0][1].taken) == 1
        for actor, batch in parts:
            if self._actors.get(actor.id) is not actor:
                # It went with its parent.
                for envelope in batch.taken:
                    envelope.tell(problem)
                self._take_back(actor, batch.begun, problem)
                continue
            culprit = batch.taken[0] if alone and not problem.fault.transient else None
            self._give_up(actor, batch, problem, culprit)
