"""What goes to disk together, and what follows when it is there, or is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from wonder_server.actors.runtime.actor import Actor, Batch, Envelope
from wonder_server.actors.runtime.fair_queue import FairQueue
from wonder_server.actors.runtime.idle_cache import IdleCache
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.recovery import PendingRecovery
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.core.actor.commands import Command, RunWorkflow
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import Commit, Event, Journal

RELOAD_AFTER_S = 1.0
"""How long an actor waits after a failure before it is loaded again, unless somebody asks sooner."""

MAX_BULK_COMMITS = 8
"""Commits under way, above which those of bulk work wait. The store writes in the order of the calls, so a
turn's commit waits for no more than these. The writer still has enough to group: the CPU of ten nodes
rises from 2.2 to 2.4 ms."""


class Committer(Scheduler):
    """Writes what the crew has planned: one commit at a time for each actor, ancestors before those that they
    have begun. The laws are at the head of `wonder_server.actors.runtime.loop`."""

    def __init__(
        self,
        planners: Iterable[Planner],
        idle_cache: IdleCache,
        journal_of: Callable[[str], Journal],
        publish: Callable[[str, list[Event]], None],
    ) -> None:
        super().__init__(planners, idle_cache)
        self._journal_of = journal_of
        self._publish = publish
        self._pending_recoveries: dict[str, PendingRecovery] = {}
        """Actors whose working set was thrown away, and what they are to be told when they are loaded."""
        self._commits_in_flight = 0
        """Commits under way."""
        self._deferred_bulk = FairQueue[Actor]()
        """Actors of bulk work whose batches are due, while many commits are under way."""

    def _complete(self, actor: Actor, batch: Batch) -> None:
        """Do what waited for the batch, which is on disk."""
        raise NotImplementedError

    def _reset(
        self, actor: Actor, failed: Batch | None, problem: WonderError, culprit: Envelope | None
    ) -> None:
        """Throw the working set away; load it again later, and tell it again what is left."""
        raise NotImplementedError

    def _abort_early(self, actor: Actor, early_commands: list[Command], problem: WonderError) -> None:
        """Stop what was begun too early."""
        raise NotImplementedError

    def _submit_if_due(self, actor: Actor) -> None:
        """Submit the actor's batch if it is due and nothing is under way."""
        batch = actor.batch
        if actor.inflight is not None:
            return
        if actor.failure is not None:
            problem, culprit = actor.failure
            self._reset(actor, None, problem, culprit)
        elif batch is None or not batch.due:
            return
        elif not batch.all_commits():
            actor.batch = None
            self._complete(actor, batch)
        else:
            group = self._commit_group(actor)
            if not group:
                return
            if actor.lane.is_bulk and self._commits_in_flight >= MAX_BULK_COMMITS:
                if not actor.waits_for_commit:
                    actor.waits_for_commit = True
                    self._deferred_bulk.append(actor, actor.lane)
                return
            self._submit(group)

    def _should_wait_for_children(self, actor: Actor) -> bool:
        """Whether children that the actor's batch has begun have their turn before it is written, once: most
        are at their end then, and one commit holds their answers too."""
        batch = actor.batch
        if (
            batch is None
            or not batch.due
            or batch.yielded_to_children
            or not batch.early_commands
            or actor.inflight is not None
        ):
            return False
        batch.yielded_to_children = any(
            isinstance(command, RunWorkflow) and self._is_about_to_start(command.run_id)
            for command in batch.early_commands
        )
        return batch.yielded_to_children

    def _is_about_to_start(self, actor_id: str) -> bool:
        actor = self._actors.get(actor_id)
        return actor is not None and actor.scheduled and actor.high_priority and not actor.entry_head

    def _commit_group(self, actor: Actor) -> list[Actor]:
        """The actors whose batches go to disk together, ancestors first; empty if one is to be waited for."""
        group = [actor]
        while not group[0].committed:
            parent_id = group[0].planner.parent(group[0].state)
            parent = self._actors.get(parent_id)
            if (
                not group[0].parent_uncommitted
                and parent_id not in self._pending_recoveries
                and (parent is None or parent.committed)
            ):
                break
            if parent is not None and parent.inflight is not None:
                parent.commit_waiters.append(actor)
                return []
            if parent is None or parent.batch is None or parent.failure is not None:
                asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self._schedule, actor)
                return []
            group.insert(0, parent)
        return group

    def _submit(self, group: list[Actor]) -> None:
        parts: list[tuple[Actor, Batch]] = []
        commits: list[Commit] = []
        for actor in group:
            batch = actor.inflight = actor.seal_batch()
            actor.submitted |= bool(batch.commit.entries)
            self._busy.add(actor)
            parts.append((actor, batch))
            commits += batch.all_commits()
        try:
            future = self._journal_of(group[-1].id).submit(commits)
        except Exception as failure:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(failure)
        self._commits_in_flight += 1
        future.add_done_callback(partial(self._on_committed, parts, commits))

    def _on_committed(
        self, parts: list[tuple[Actor, Batch]], commits: list[Commit], future: asyncio.Future[Any]
    ) -> None:
        """The commit is on disk, or failed."""
        self._commits_in_flight -= 1
        self._submit_deferred_bulk()
        self._schedule_slice()
        for actor, _ in parts:
            actor.inflight = None
        try:
            future.result()
        except WonderError as failure:
            self._on_commit_failed(parts, failure)
            return
        except Exception:
            self._on_commit_failed(
                parts, WonderError(report_incident("commit_failed", actor=parts[-1][0].id))
            )
            return
        for commit in commits:
            if commit.events:
                self._publish(commit.actor_id, commit.events)
        for actor, batch in parts:
            actor.committed |= bool(batch.commit.entries)
            self._mark_committed(batch)
            # Before the replies, so that what they hear of is under way when they hear of it.
            self._schedule(actor)
            self._complete(actor, batch)
            self._notify_commit_waiters(actor)

    def _submit_deferred_bulk(self) -> None:
        """Write the batches of bulk work that there is room for again."""
        while self._deferred_bulk and self._commits_in_flight < MAX_BULK_COMMITS:
            actor = self._deferred_bulk.popleft()
            actor.waits_for_commit = False
            self._submit_if_due(actor)
            self._release_if_idle(actor)

    def _mark_committed(self, batch: Batch) -> None:
        """What the batch has begun is not ahead of the disk any more, nor what that has."""
        for command in batch.early_commands:
            child = self._actors.get(command.run_id) if isinstance(command, RunWorkflow) else None
            if child is not None and child.parent_uncommitted:
                child.parent_uncommitted = False
                if child.batch is not None:
                    self._mark_committed(child.batch)

    def _on_commit_failed(self, parts: list[tuple[Actor, Batch]], problem: WonderError) -> None:
        single_input = len(parts) == 1 and len(parts[0][1].inputs) == 1
        for actor, batch in parts:
            if self._actors.get(actor.id) is not actor:
                # It went with its parent.
                for envelope in batch.inputs:
                    envelope.resolve(problem)
                self._abort_early(actor, batch.early_commands, problem)
                continue
            culprit = batch.inputs[0] if single_input and not problem.fault.transient else None
            self._reset(actor, batch, problem, culprit)
