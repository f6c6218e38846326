"""Assignment of jobs to workers, leases, and lost jobs (features H4, I4).

`enqueue` assigns a job to the worker with the least load, or queues it. `assign_waiting` assigns queued jobs
to a worker. So no job waits while a worker has capacity for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import random_id
from wonder_server.core.schema import schemas
from wonder_server.core.task.outcome_errors import outcome_unknown
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.directory import Directory
from wonder_server.services.workers.jobs import Assignment, QueuedJob
from wonder_server.services.workers.messages import AssignmentMessage, Cancelled, Progress, WorkerKind
from wonder_server.services.workers.queue import WorkQueue
from wonder_server.services.workers.session import WorkerSession

_log = logger("workers")

MAX_LOSSES: Final = 5
"""Number of lost workers after which a job is not assigned again: the job itself may crash them."""

MAX_TRACKED_OPERATIONS: Final = 10_000
"""Number of operations whose attempts are counted."""


class AssignmentScheduler:
    """Assigns jobs to workers. ``is_closed``: no job is assigned, and jobs stay queued. ``idle`` is set while
    no worker has an assignment."""

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
        """Number of queued jobs."""
        return len(self._queue)

    def enqueue(self, queued: QueuedJob, *, at_front: bool = False) -> None:
        """Assign a job to a worker, or queue it, at the front after a loss. A job with an invalid input
        fails."""
        kind = self.sessions.declaration(queued.job.kind)
        if kind is not None and not _check_input(queued, kind):
            return
        able = [
            session
            for session in self.sessions.of_kind(queued.job.kind)
            if session.accepts(queued) and self._can_assign(session, queued.job.kind)
        ]
        if able:
            self._assign(queued, min(able, key=lambda session: (session.load, session.last_assigned)))
        else:
            self._queue.add(queued, at_front=at_front)
            if queued.job.on_progress is not None:
                queued.job.on_progress(Progress(message=self.sessions.waiting_message(queued.job)))

    def assign_waiting(self, session: WorkerSession) -> None:
        """Assign queued jobs to a worker while it has capacity."""
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
        """Fail the queued jobs whose input is invalid for a newly declared kind."""
        for queued in self._queue.of_kind(kind.name):
            if not _check_input(queued, kind):
                self._queue.remove(queued)

    def is_responsive(self, session: WorkerSession) -> bool:
        """Return True if the worker sent a message within two thirds of a lease. Others receive no
        assignments."""
        silent_s = asyncio.get_running_loop().time() - session.last_seen
        return silent_s * 1000 <= self._lease_ms * 2 / 3

    # --- ending -----------------------------------------------------------------------------------

    def release(self, assignment: Assignment, fault: Fault | None = None) -> WorkerSession:
        """End a lease and return its worker. A late result is answered with ``fault``."""
        if assignment.timer is not None:
            assignment.timer.cancel()
        session = self._holders.pop(assignment.lease_id)
        session.release(assignment, fault)
        assignment.queued.assignment = None
        if not self._holders:
            self.idle.set()
        return session

    def withdraw(self, queued: QueuedJob, fault: Fault) -> WorkerSession | None:
        """Cancel a job. Return the worker that held it, if any."""
        assignment = queued.assignment
        if assignment is None:
            self._queue.remove(queued)
            return None
        session = self.release(assignment, fault)
        if not self._recall_unsent(session, assignment):
            session.send(Cancelled(lease_id=assignment.lease_id, fault=fault))
        return session

    def mark_lost(self, assignment: Assignment, cause: str) -> bool:
        """Handle the loss of an assignment: assign the job to another worker, or fail it with
        OUTCOME_UNKNOWN. Return True if the assignment had been sent."""
        queued = assignment.queued
        operation_id = queued.job.operation_id
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The worker '{assignment.worker}' {cause} before it sent a result.",
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
        """Handle the loss of all assignments of a worker."""
        for assignment in _newest_first(session):
            self.mark_lost(assignment, cause)

    def recall(self, session: WorkerSession) -> None:
        """Queue the unsent assignments of a worker that is closed."""
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
        """Handle the loss of an assignment if its lease has expired; otherwise wait for the rest of the
        lease, which was extended."""
        loop = asyncio.get_running_loop()
        remaining_s = assignment.expires - loop.time()
        if remaining_s > 0:
            assignment.timer = loop.call_later(remaining_s, self._on_lease_timer, assignment)
            return
        session = self._holders[assignment.lease_id]
        if self.mark_lost(assignment, "let its lease expire"):
            message = f"The lease expired: no heartbeat named it for {self._lease_ms} ms."
            fault = Fault(reason=Reason.TIMEOUT, message=message)
            session.send(Cancelled(lease_id=assignment.lease_id, fault=fault))
        self.assign_waiting(session)
        session.end_if_idle()

    def _can_assign(self, session: WorkerSession, kind: str) -> bool:
        """Return True if a worker may receive another job of a kind that it registered."""
        return (
            not (self.is_closed or session.is_closed)
            and session.has_capacity_for(kind)
            and self.is_responsive(session)
        )

    def _recall_unsent(self, session: WorkerSession, assignment: Assignment) -> bool:
        """Remove an assignment from the messages if it is unsent, and do not count it as an attempt."""
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
    """Return the OUTCOME_UNKNOWN fault of a job that a worker held, with advice for the author of the
    action."""
    result = outcome_unknown(fault)
    remedy = "If it is safe to repeat, set `idempotent: true` in the action or in the worker's declaration."
    return replace(result, message=f"{result.message} {remedy}")


def _check_input(queued: QueuedJob, kind: WorkerKind) -> bool:
    """Return True if the input is valid for the kind's schema; otherwise fail the job."""
    known = queued.checked_kind
    if known is None or (known is not kind and known.input_schema != kind.input_schema):
        problems = schemas.validate(kind.input_schema, queued.job.input, name="input")
        if problems:
            message = f"The input is not valid for the kind '{kind.name}': {'; '.join(problems[:5])}"
            queued.finish(Fault(reason=Reason.INPUT_INVALID, message=message, field="input"))
            return False
    queued.checked_kind = kind
    return True


def _newest_first(session: WorkerSession) -> list[Assignment]:
    """Return the assignments of a worker, newest first: each is queued at the front, so the oldest ends
    first."""
    return sorted(session.assignments.values(), key=lambda each: each.queued.number, reverse=True)
