"""The pool of remote workers (features H4, I4): who is there, who does what, and what of lost work.

A job waits in line until a worker that registered its kind has room; then that worker has it under a
lease::

    perform ─▶ in line ─▶ held by a worker ─▶ completed / failed    the worker said so
                 ▲              │
                 │              ├─▶ cancelled           nobody waits for it, or it took too long
                 └── lost ◀─────┘                       its stream broke, or its lease ran out

A lost job goes back to the front of the line and to another worker if it is idempotent, or if it had not
gone out; else it ends with OUTCOME_UNKNOWN. Whether it is idempotent says the action's definition, or, if
that says nothing, the kind.

Nothing of this is on disk: the pool is as old as the process. Everything happens on the event loop, without
waiting, so there is nothing to lock; leases and timeouts are its timers, which a clock that jumps does not
touch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.ids import random_id
from wonder_server.core.schema import payloads, schemas
from wonder_server.core.task.effects import NotStartedError
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.assignment import AssignmentScheduler, worker_outcome_unknown
from wonder_server.services.workers.leases import Assignment, QueuedJob
from wonder_server.services.workers.messages import Draining, Job, Progress, Registration, RemoteKind, Settled
from wonder_server.services.workers.session import WorkerSession

_log = logger("workers")

DEFAULT_LEASE_MS: Final = 30_000
RECONNECT_AFTER_MS: Final = 1_000


class WorkerPool:
    """All connected workers. `perform` is for actions; the rest is for who holds a worker's stream."""

    def __init__(
        self, clock: Clock, *, lease_ms: int = DEFAULT_LEASE_MS, reserved: Collection[str] = ()
    ) -> None:
        """``reserved`` are names that no worker may register: the server's own kinds."""
        self._clock = clock
        self.lease_ms = lease_ms
        self.heartbeat_interval_ms = lease_ms // 3
        self.reserved = frozenset(reserved)
        self._scheduler = AssignmentScheduler(clock, lease_ms)
        self._job_count = 0

    # --- for actions ------------------------------------------------------------------------------

    async def perform(self, job: Job) -> dict[str, Any]:
        """Have ``job`` done: its output, which fits the kind's schema. Cancelling reaches the worker.

        Raises `WonderError`: INPUT_INVALID, and PAYLOAD_TOO_DEEP and its like for an input that cannot be
        sent as it is; TIMEOUT, which says so if there was no worker; OUTCOME_UNKNOWN; TASK_FAILED for an
        output that does not fit; and what the worker says. `NotBegunError` is what may be tried again.
        """
        fault = payloads.check(job.input, field="input")
        if fault is not None:
            raise WonderError(fault)
        loop = asyncio.get_running_loop()
        self._job_count += 1
        queued = QueuedJob(
            job=job,
            number=self._job_count,
            deadline_ms=self._clock.now_ms() + job.timeout_ms,
            result=loop.create_future(),
        )
        timer = loop.call_later(job.timeout_ms / 1000, self._on_timeout, queued)
        try:
            self._scheduler.enqueue(queued)
            result = await queued.result
        finally:
            timer.cancel()
            if not queued.result.done() or queued.result.cancelled():
                cancellation = Fault(reason=Reason.CANCELLED, message="Nobody waits for this any more.")
                self._withdraw(queued, cancellation)
        if isinstance(result, Fault):
            raise _retriable(result) if result.transient else WonderError(result)
        return result

    def kinds(self) -> list[RemoteKind]:
        """The kinds of connected workers, by name."""
        return self._scheduler.sessions.kinds()

    @property
    def sessions(self) -> list[WorkerSession]:
        """Who is there."""
        return list(self._scheduler.sessions)

    @property
    def waiting_count(self) -> int:
        """How many jobs wait for a worker."""
        return self._scheduler.waiting_count

    # --- a worker comes and goes ------------------------------------------------------------------

    def join(self, registration: Registration) -> WorkerSession:
        """A seat for a worker whose registration was checked. Whoever gets it says `gone` in the end.

        SERVER_DRAINING; DEFINITION_INVALID for a kind that another worker declares differently.
        """
        if self._scheduler.is_closed:
            raise _draining_error()
        faults = self._scheduler.sessions.conflicts(registration)
        if faults:
            raise WonderError(faults[0], faults=faults)
        loop = asyncio.get_running_loop()
        session = WorkerSession(random_id("wkr", self._clock.now_ms()), registration, loop.time())
        session.timer = loop.call_later(self.lease_ms / 1000, self._watch_heartbeat, session)
        self._scheduler.sessions.add(session)
        _log.info("worker_connected", worker=session.name, id=session.id, kinds=sorted(session.kinds))
        for kind in session.kinds.values():
            self._scheduler.validate_waiting(kind)
        self._scheduler.assign_waiting(session)
        return session

    def disconnected(self, session: WorkerSession) -> None:
        """Its stream is over, however it ended: what it has in hand is lost."""
        if session.is_disconnected:
            return
        session.is_disconnected = session.is_closed = True
        if session.timer is not None:
            session.timer.cancel()
        self._scheduler.sessions.remove(session)
        session.end()
        _log.info("worker_disconnected", worker=session.name, id=session.id, lost=len(session.assignments))
        self._scheduler.mark_all_lost(session, "went away")

    def drain_worker(self, session: WorkerSession) -> None:
        """It takes nothing new. Its stream ends when it has nothing in hand."""
        session.close()
        self._scheduler.recall(session)
        session.end_if_idle()

    def dismiss(self, session: WorkerSession, problem: WonderError) -> None:
        """End its stream with ``problem``; what it has in hand is lost."""
        session.end(problem)
        self.disconnected(session)

    # --- what a worker says -----------------------------------------------------------------------

    def record_heartbeat(self, session: WorkerSession) -> None:
        """The worker said something, so it is there."""
        was_silent = not self._scheduler.is_responsive(session)
        session.last_seen = asyncio.get_running_loop().time()
        if was_silent:
            self._scheduler.assign_waiting(session)

    def extend(self, session: WorkerSession, lease_ids: Sequence[str]) -> None:
        """Extend the leases that it names; others, and those that it does not have, are left alone."""
        expires = asyncio.get_running_loop().time() + self.lease_ms / 1000
        for lease_id in lease_ids:
            assignment = session.assignments.get(lease_id)
            if assignment is not None:
                assignment.expires = expires

    def progress(self, session: WorkerSession, lease_id: str, progress: Progress) -> None:
        """How far an assignment is; of one that it does not have, nothing."""
        assignment = session.assignments.get(lease_id)
        if assignment is not None and assignment.queued.job.on_progress is not None:
            assignment.queued.job.on_progress(progress)

    def completed(self, session: WorkerSession, lease_id: str, output: Mapping[str, Any]) -> None:
        """An assignment is done; its output is checked against the kind's schema."""
        assignment = session.assignments.get(lease_id)
        fault = _output_fault(assignment, output) if assignment is not None else None
        self._settle(session, lease_id, dict(output) if fault is None else fault, fault)

    def failed(self, session: WorkerSession, lease_id: str, fault: Fault) -> None:
        """An assignment failed, by the worker's own word."""
        self._settle(session, lease_id, fault)

    def unreadable(self, session: WorkerSession, lease_id: str, fault: Fault) -> None:
        """The worker's answer for an assignment cannot be read: it has failed, with ``fault``."""
        fault = replace(fault, transient=False)
        self._settle(session, lease_id, fault, fault)

    # --- the server stops -------------------------------------------------------------------------

    def drain(self, grace_ms: int) -> None:
        """Assign nothing new and tell every worker. A worker's stream ends when it has nothing in hand."""
        self._scheduler.is_closed = True
        for seat in self._scheduler.sessions:
            seat.send(Draining(grace_ms=grace_ms))
            seat.close(_draining_error())
            self._scheduler.recall(seat)
            seat.end_if_idle()

    async def wait_until_idle(self) -> None:
        """Until no worker has anything in hand."""
        await self._scheduler.idle.wait()

    def close(self) -> None:
        """End all streams."""
        self._scheduler.is_closed = True
        for seat in self._scheduler.sessions:
            self.dismiss(seat, _draining_error())

    # --- pieces -----------------------------------------------------------------------------------

    def _settle(
        self,
        session: WorkerSession,
        lease_id: str,
        result: dict[str, Any] | Fault,
        refusal: Fault | None = None,
    ) -> None:
        assignment = session.assignments.get(lease_id)
        if assignment is None:
            session.send(Settled(lease_id=lease_id, fault=session.lease_end_fault(lease_id)))
            return
        session.send(Settled(lease_id=lease_id, fault=refusal))
        queued = assignment.queued
        self._scheduler.release(assignment)
        queued.finish(result)
        self._scheduler.assign_waiting(session)
        session.end_if_idle()

    def _withdraw(self, queued: QueuedJob, fault: Fault) -> None:
        session = self._scheduler.withdraw(queued, fault)
        if session is not None:
            self._scheduler.assign_waiting(session)
            session.end_if_idle()

    def _on_timeout(self, queued: QueuedJob) -> None:
        """The action's time is up."""
        if queued.result.done():
            return
        job, assignment = queued.job, queued.assignment
        if assignment is None:
            fault = Fault(
                reason=Reason.TIMEOUT,
                message=self._scheduler.sessions.timeout_message(job),
                metadata={"kind": job.kind, "timeout_ms": str(job.timeout_ms)},
            )
            self._withdraw(queued, fault)
            queued.finish(fault)
            return
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The worker '{assignment.worker}' took longer than {job.timeout_ms} ms.",
            metadata={"operation_id": job.operation_id, "timeout_ms": str(job.timeout_ms)},
        )
        self._withdraw(queued, fault)
        queued.finish(
            replace(fault, transient=True) if assignment.is_idempotent else worker_outcome_unknown(fault)
        )

    def _watch_heartbeat(self, session: WorkerSession) -> None:
        """A worker may have been silent for too long."""
        loop = asyncio.get_running_loop()
        remaining_s = session.last_seen + self.lease_ms / 1000 - loop.time()
        if remaining_s > 0:
            session.timer = loop.call_later(remaining_s, self._watch_heartbeat, session)
            return
        message = (
            f"Nothing was heard of this worker for {self.lease_ms} ms. Send a heartbeat every "
            f"{self.heartbeat_interval_ms} ms, and connect again."
        )
        self.dismiss(session, error(Reason.TIMEOUT, message, timeout_ms=str(self.lease_ms)))


def _output_fault(assignment: Assignment, output: Mapping[str, Any]) -> Fault | None:
    """What is wrong with an output."""
    fault = payloads.check(output, field="output")
    if fault is not None:
        return fault
    kind = assignment.kind
    problems = schemas.validate(kind.output_schema, output, name="output")
    if not problems:
        return None
    message = (
        f"The output of the worker '{assignment.worker}' does not fit the kind '{kind.name}': "
        f"{'; '.join(problems[:5])}"
    )
    return Fault(reason=Reason.TASK_FAILED, message=message, field="output")


def _retriable(fault: Fault) -> NotStartedError:
    """What may be tried again: the worker says so, or doing it twice does no harm."""
    problem = NotStartedError(fault.reason, fault.message, retry_after_ms=fault.retry_after_ms)
    problem.fault = fault
    return problem


def _draining_error() -> WonderError:
    return error(
        Reason.SERVER_DRAINING,
        "The server is shutting down; connect again.",
        retry_after_ms=RECONNECT_AFTER_MS,
    )
