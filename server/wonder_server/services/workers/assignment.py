"""Who gets what: the line, the leases, and what becomes of work that is lost (features H4, I4).

`offer` gives a ticket to the worker with the least to do, or puts it in line; `fill` gives a worker what
waits for it. So at any time nobody waits in line whom a worker could serve.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import random_id
from wonder_server.core.schema import schemas
from wonder_server.core.task.effects import outcome_unknown
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.directory import Directory
from wonder_server.services.workers.leases import Assignment, QueuedJob
from wonder_server.services.workers.messages import AssignmentMessage, Cancelled, Progress, WorkerKind
from wonder_server.services.workers.queue import WorkQueue
from wonder_server.services.workers.session import WorkerSession

_log = logger("workers")

MAX_LOSSES: Final = 5
"""A job that so many workers were lost with is given to no other: it may be what kills them."""

MAX_TRACKED_OPERATIONS: Final = 10_000
"""Of so many operations the number of attempts is known."""


class AssignmentScheduler:
    """``is_closed``: nothing is handed out any more, and tickets stay in line. ``idle`` is set while nobody
    has anything in hand."""

    def __init__(self, clock: Clock, lease_ms: int) -> None:
        self.sessions = Directory()
        self.is_closed = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._clock = clock
        self._lease_ms = lease_ms
        self._queue = WorkQueue()
        self._holders: dict[str, WorkerSession] = {}
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._assignment_count = 0

    @property
    def waiting_count(self) -> int:
        """How many stand in line."""
        return len(self._queue)

    def enqueue(self, queued: QueuedJob, *, at_front: bool = False) -> None:
        """To a worker, or into line; ``first``: in front. Input that does not fit its kind ends it."""
        kind = self.sessions.declaration(queued.job.kind)
        if kind is not None and not _check_input(queued, kind):
            return
        able = [
            seat
            for seat in self.sessions.of_kind(queued.job.kind)
            if seat.accepts(queued) and self._can_assign(seat, queued.job.kind)
        ]
        if able:
            self._assign(queued, min(able, key=lambda seat: (seat.load, seat.last_assigned)))
        else:
            self._queue.add(queued, at_front=at_front)
            if queued.job.on_progress is not None:
                queued.job.on_progress(Progress(message=self.sessions.waiting_message(queued.job)))

    def assign_waiting(self, session: WorkerSession) -> None:
        """Give a worker what waits for it, as long as it has room."""
        while True:
            heads = [
                self._queue.first_for(kind, session.projects, session.id)
                for kind in session.kinds
                if self._can_assign(session, kind)
            ]
            queued = min((head for head in heads if head), key=lambda each: each.number, default=None)
            if queued is None:
                return
            self._queue.remove(queued)
            self._assign(queued, session)

    def validate_waiting(self, kind: WorkerKind) -> None:
        """Now that a kind is declared, send away what does not fit it."""
        for queued in self._queue.of_kind(kind.name):
            if not _check_input(queued, kind):
                self._queue.remove(queued)

    def is_responsive(self, session: WorkerSession) -> bool:
        """Whether it was heard of lately: one that misses its heartbeats gets nothing more."""
        silent_s = asyncio.get_running_loop().time() - session.last_seen
        return silent_s * 1000 <= self._lease_ms * 2 / 3

    # --- taking back ------------------------------------------------------------------------------

    def release(self, assignment: Assignment, fault: Fault | None = None) -> WorkerSession:
        """End a lease and return the worker that had it. ``why`` answers a result that comes late."""
        if assignment.timer is not None:
            assignment.timer.cancel()
        session = self._holders.pop(assignment.lease_id)
        session.release(assignment, fault)
        assignment.queued.assignment = None
        if not self._holders:
            self.idle.set()
        return session

    def withdraw(self, queued: QueuedJob, fault: Fault) -> WorkerSession | None:
        """Nobody wants the result any more. The worker that had it, if one did."""
        assignment = queued.assignment
        if assignment is None:
            self._queue.remove(queued)
            return None
        session = self.release(assignment, fault)
        if not self._recall_unsent(session, assignment):
            session.send(Cancelled(lease_id=assignment.lease_id, fault=fault))
        return session

    def mark_lost(self, assignment: Assignment, cause: str) -> bool:
        """The worker is lost with this: to another, or OUTCOME_UNKNOWN. Whether it had gone out at all."""
        queued = assignment.queued
        operation_id = queued.job.operation_id
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The worker '{assignment.worker}' {cause} before it answered.",
            metadata={"operation_id": operation_id, "worker": assignment.worker},
        )
        session = self.release(assignment, fault)
        queued.lost_workers.add(assignment.session_id)
        if self._recall_unsent(session, assignment):
            self.enqueue(queued, at_front=True)
            return False
        queued.loss_count += 1
        retry = assignment.is_idempotent and queued.loss_count < MAX_LOSSES
        _log.warning(
            "assignment_lost", worker=session.name, kind=queued.job.kind, operation=operation_id, again=retry
        )
        if retry:
            self.enqueue(queued, at_front=True)
        else:
            queued.finish(worker_outcome_unknown(fault))
        return True

    def mark_all_lost(self, session: WorkerSession, cause: str) -> None:
        """All that a worker has in hand."""
        for assignment in _newest_first(session):
            self.mark_lost(assignment, cause)

    def recall(self, session: WorkerSession) -> None:
        """Take back what has not gone out to a worker that takes nothing new."""
        for assignment in _newest_first(session):
            if self._recall_unsent(session, assignment):
                self.release(assignment)
                self.enqueue(assignment.queued, at_front=True)

    # --- pieces -----------------------------------------------------------------------------------

    def _assign(self, queued: QueuedJob, session: WorkerSession) -> None:
        loop = asyncio.get_running_loop()
        job, lease_s = queued.job, self._lease_ms / 1000
        self._assignment_count += 1
        session.last_assigned = self._assignment_count
        attempt = self._attempts.get(job.operation_id, 0) + 1
        self._record_attempt(job.operation_id, attempt)
        assignment = Assignment(
            lease_id=random_id("lease", self._clock.now_ms()),
            queued=queued,
            session_id=session.id,
            worker=session.name,
            kind=session.kinds[job.kind],
            expires=loop.time() + lease_s,
        )
        assignment.timer = loop.call_later(lease_s, self._on_lease_timer, assignment)
        queued.assignment = assignment
        session.assign(assignment)
        self._holders[assignment.lease_id] = session
        self.idle.clear()
        session.send(
            AssignmentMessage(
                lease_id=assignment.lease_id, attempt=attempt, job=job, deadline_ms=queued.deadline_ms
            )
        )

    def _on_lease_timer(self, assignment: Assignment) -> None:
        """A lease may have run out, or been extended since this timer was set."""
        loop = asyncio.get_running_loop()
        remaining_s = assignment.expires - loop.time()
        if remaining_s > 0:
            assignment.timer = loop.call_later(remaining_s, self._on_lease_timer, assignment)
            return
        session = self._holders[assignment.lease_id]
        if self.mark_lost(assignment, "let its lease run out"):
            message = f"The lease ran out: no heartbeat named it for {self._lease_ms} ms."
            fault = Fault(reason=Reason.TIMEOUT, message=message)
            session.send(Cancelled(lease_id=assignment.lease_id, fault=fault))
        self.assign_waiting(session)
        session.end_if_idle()

    def _can_assign(self, session: WorkerSession, kind: str) -> bool:
        """Whether a worker takes one more of a kind that it registered."""
        return (
            not (self.is_closed or session.is_closed)
            and session.has_capacity_for(kind)
            and self.is_responsive(session)
        )

    def _recall_unsent(self, session: WorkerSession, assignment: Assignment) -> bool:
        """Keep an assignment from going out, if it has not: then it was no attempt."""
        if not session.recall(assignment.lease_id):
            return False
        operation_id = assignment.queued.job.operation_id
        self._record_attempt(operation_id, self._attempts.get(operation_id, 1) - 1)
        return True

    def _record_attempt(self, operation_id: str, attempt: int) -> None:
        self._attempts[operation_id] = attempt
        self._attempts.move_to_end(operation_id)
        if len(self._attempts) > MAX_TRACKED_OPERATIONS:
            self._attempts.popitem(last=False)


def worker_outcome_unknown(fault: Fault) -> Fault:
    """OUTCOME_UNKNOWN of something that a worker had in hand, with what its author can do about it."""
    result = outcome_unknown(fault)
    remedy = "If it may be, say so: `idempotent: true` in the action, or where the worker declares the kind."
    return replace(result, message=f"{result.message} {remedy}")


def _check_input(queued: QueuedJob, kind: WorkerKind) -> bool:
    """Whether the input fits the kind's schema; if not, that is its end."""
    known = queued.checked_kind
    if known is None or (known is not kind and known.input_schema != kind.input_schema):
        problems = schemas.validate(kind.input_schema, queued.job.input, name="input")
        if problems:
            message = f"The input does not fit the kind '{kind.name}': {'; '.join(problems[:5])}"
            queued.finish(Fault(reason=Reason.INPUT_INVALID, message=message, field="input"))
            return False
    queued.checked_kind = kind
    return True


def _newest_first(session: WorkerSession) -> list[Assignment]:
    """What a worker has in hand; put in front of the line one by one, they stand there in order."""
    return sorted(session.assignments.values(), key=lambda each: each.queued.number, reverse=True)
