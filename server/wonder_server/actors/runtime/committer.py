"""Commits of actors: which batches are written together, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wonder_server.actors.runtime.actor import Actor, Batch
from wonder_server.actors.runtime.commits import CommitsInFlight, OwnedJournal
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.recovery import Recovery
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.core import ids
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import Commit, Event, StaleEpochError
from wonder_server.ports.placement import owner_moved


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPorts:
    """The effects of a committer."""

    journal: OwnedJournal
    in_flight: CommitsInFlight
    publish: Callable[[str, list[Event]], None]
    """Shows committed events of an actor to its readers."""
    on_committed: Callable[[Actor, Batch], None]
    """Does what waited for the commit."""
    on_stale: Callable[[], None]
    """Receives the news that the store refused a commit, since the shard has another owner."""


class Committer:
    """Writes the batches of a shard's actors: one commit at a time for each actor, parents before their
    children.

    A commit whose parent is not loaded is tried again after ``retry_after_s``. See the laws at the head of
    `wonder_server.actors.runtime.loop`.
    """

    def __init__(
        self, scheduler: Scheduler, recovery: Recovery, ports: CommitPorts, *, retry_after_s: float
    ) -> None:
        self._scheduler = scheduler
        self._actors = scheduler.actors
        self._recovery = recovery
        self._journal = ports.journal
        self._in_flight = ports.in_flight
        self._publish = ports.publish
        self._on_committed = ports.on_committed
        self._on_stale = ports.on_stale
        self._retry_after_s = retry_after_s
        self._closed = False

    def leave(self) -> None:
        """Submit nothing from now on. Callers of commits in flight still learn of their end."""
        self._closed = True

    def submit_if_due(self, actor: Actor) -> None:
        """Submit the actor's batch if it is due and no commit of the actor is in flight."""
        batch = actor.batch
        if actor.inflight is not None:
            return
        if actor.failure is not None:
            problem, culprit = actor.failure
            self._recovery.reset(actor, None, problem, culprit)
        elif batch is None or not batch.due:
            return
        elif not batch.all_commits():
            actor.batch = None
            self._on_committed(actor, batch)
        else:
            group = self._commit_group(actor)
            if not group:
                return
            if actor.lane.is_bulk and self._in_flight.is_full_for_bulk:
                self._in_flight.defer(actor)
                return
            self._submit(group)

    def should_wait_for_children(self, actor: Actor) -> bool:
        """Return True if children that the actor's batch started should run before it is written.

        True at most once for each batch. Most children end in that slice, and one commit then holds their
        answers too.
        """
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
            type(command) is RunWorkflow and self._is_about_to_start(command.run_id)
            for command in batch.early_commands
        )
        return batch.yielded_to_children

    def _is_about_to_start(self, actor_id: str) -> bool:
        actor = self._actors.get(actor_id)
        return actor is not None and actor.scheduled and actor.high_priority and not actor.entry_head

    def _commit_group(self, actor: Actor) -> list[Actor]:
        """Return the actors whose batches form one commit, ancestors first. Return an empty list if the
        commit has to wait for an ancestor."""
        group = [actor]
        while not group[0].committed:
            parent_id = group[0].planner.parent(group[0].state)
            parent = self._actors.get(parent_id)
            if (
                not group[0].parent_uncommitted
                and not self._recovery.is_pending(parent_id)
                and (parent is None or parent.committed)
            ):
                break
            if parent is not None and parent.inflight is not None:
                parent.commit_waiters.append(actor)
                return []
            if parent is None or parent.batch is None or parent.failure is not None:
                asyncio.get_running_loop().call_later(self._retry_after_s, self._scheduler.schedule, actor)
                return []
            group.insert(0, parent)
        return group

    def _submit(self, group: list[Actor]) -> None:
        parts: list[tuple[Actor, Batch]] = []
        commits: list[Commit] = []
        for actor in group:
            batch = actor.inflight = actor.seal_batch()
            actor.submitted |= bool(batch.commit.entries)
            self._scheduler.mark_busy(actor)
            parts.append((actor, batch))
            commits += batch.all_commits()
        try:
            future = self._journal.submit(commits)
        except Exception as failure:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(failure)
        self._in_flight.count += 1
        future.add_done_callback(partial(self._on_submitted, parts))

    def _on_submitted(self, parts: list[tuple[Actor, Batch]], future: asyncio.Future[object]) -> None:
        """Publish and complete the batches after their commit, or recover the actors if it failed."""
        self._in_flight.count -= 1
        self._submit_deferred_bulk()
        self._scheduler.start_slice()
        for actor, _ in parts:
            actor.inflight = None
        try:
            future.result()
        except WonderError as failure:
            self._on_commit_failed(parts, failure)
            if isinstance(failure, StaleEpochError) and not self._closed:
                self._on_stale()
            return
        except Exception:
            incident = report_incident("commit_failed", actor=parts[-1][0].id)
            self._on_commit_failed(parts, WonderError(incident))
            return
        if self._closed:
            self._reply(parts)
            return
        for _, batch in parts:
            self._publish_events(batch)
        for actor, batch in parts:
            actor.committed |= bool(batch.commit.entries)
            self._mark_committed(batch)
            # Schedule before replying: a caller may query the work that its reply mentions.
            self._scheduler.schedule(actor)
            self._on_committed(actor, batch)
            self._scheduler.notify_commit_waiters(actor)

    def _publish_events(self, batch: Batch) -> None:
        """Show the events of a committed batch to their readers.

        Of a compact run only the last events are derived, for callers that wait for its end. A reader
        attaches to a run that is on disk, and so finds all events of this one there.
        """
        for commit in batch.all_commits():
            if commit.events:
                self._publish(commit.actor_id, commit.events)
        if batch.commit.compact:
            self._publish(batch.commit.actor_id, batch.last_events())

    def _reply(self, parts: list[tuple[Actor, Batch]]) -> None:
        """Answer the callers of a commit that succeeded before another owner took the shard. The new owner
        does everything else that follows the commit."""
        for _, batch in parts:
            for envelope, outcome in batch.replies:
                envelope.resolve(outcome)

    def _submit_deferred_bulk(self) -> None:
        """Submit deferred batches of bulk actors as far as commits in flight allow."""
        while (actor := self._in_flight.next_deferred()) is not None:
            actor.home.submit_if_due(actor)
            self._scheduler.release_if_idle(actor)

    def _mark_committed(self, batch: Batch) -> None:
        """Clear `Actor.parent_uncommitted` of the runs that the batch started, and of their descendants."""
        for command in batch.early_commands:
            child = self._actors.get(command.run_id) if type(command) is RunWorkflow else None
            if child is not None and child.parent_uncommitted:
                child.parent_uncommitted = False
                if child.batch is not None:
                    self._mark_committed(child.batch)

    def _on_commit_failed(self, parts: list[tuple[Actor, Batch]], problem: WonderError) -> None:
        if isinstance(problem, StaleEpochError):
            # The loop leaves the shard, which stops early commands and drops the actors.
            for actor, batch in parts:
                for envelope in batch.inputs:
                    envelope.resolve(owner_moved(ids.shard_of(actor.id)))
            return
        single_input = len(parts) == 1 and len(parts[0][1].inputs) == 1
        for actor, batch in parts:
            if self._actors.get(actor.id) is not actor:
                # The reset of its parent removed it, or the shard has another owner.
                for envelope in batch.inputs:
                    envelope.resolve(problem)
                self._recovery.abort_early(actor, batch.early_commands, problem)
                continue
            culprit = batch.inputs[0] if single_input and not problem.fault.transient else None
            self._recovery.reset(actor, batch, problem, culprit)
