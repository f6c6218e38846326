"""The pool of remote workers: connections, jobs, and the recovery of lost jobs (features H4, I4).

A job waits in the queue until a worker that registered its kind has capacity. Then it is leased to that
worker:

::

    perform ─▶ queued ─▶ assigned to a worker ─▶ completed / failed    the worker sent a result
                 ▲              │
                 │              ├─▶ cancelled           the caller was cancelled, or the timeout has passed
                 └── lost ◀─────┘                       its stream broke, or its lease expired

A lost job returns to the front of the queue if it is idempotent or was not sent yet. Otherwise it ends with
OUTCOME_UNKNOWN. The action's definition states whether the job is idempotent; if it does not, the kind's
declaration applies.

Nothing is stored: the pool ends with the process. All methods run on the event loop without waiting, so no
lock is needed. Leases and timeouts are the loop's timers, which are independent of the wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonDict, JsonObject
from wonder_server.core.schema import payloads, schemas
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.jobs import Assignment, QueuedJob
from wonder_server.services.workers.leases import AssignmentScheduler, worker_outcome_unknown
from wonder_server.services.workers.messages import Draining, Job, Progress, Registration, RemoteKind, Settled
from wonder_server.services.workers.session import WorkerSession

_log = logger("workers")

DEFAULT_LEASE_MS: Final = 30_000
RECONNECT_AFTER_MS: Final = 1_000


class WorkerPool:
    """All connected workers. Actions call `perform`; the owner of a worker's stream calls the other
    methods."""

    def __init__(
        self, clock: Clock, *, lease_ms: int = DEFAULT_LEASE_MS, reserved: Collection[str] = ()
    ) -> None:
        """``reserved`` are names that workers may not register: the server's own kinds."""
        self._clock = clock
        self.lease_ms = lease_ms
        self.heartbeat_interval_ms = lease_ms // 3
        self.reserved = frozenset(reserved)
        self._scheduler = AssignmentScheduler(clock, lease_ms)
        self._job_count = 0

    # --- for actions ------------------------------------------------------------------------------

    async def perform(self, job: Job) -> JsonDict:
        """Execute ``job`` on a worker and return its output, which is valid for the kind's schema. A cancel
        reaches the worker.

        Raises `WonderError`: INPUT_INVALID, and PAYLOAD_TOO_DEEP and similar for an input that cannot be
        sent; TIMEOUT, with the reason if no worker was available; OUTCOME_UNKNOWN; TASK_FAILED for an invalid
        output; and the worker's own faults. Raises `NotStartedError` if the job may be repeated."""
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
                cancellation = Fault(reason=Reason.CANCELLED, message="The caller has cancelled the job.")
                self._withdraw(queued, cancellation)
        if isinstance(result, Fault):
            raise _retriable(result) if result.transient else WonderError(result)
        return result

    def kinds(self) -> list[RemoteKind]:
        """Return the kinds of the connected workers, by name."""
        return self._scheduler.sessions.kinds()

    @property
    def sessions(self) -> list[WorkerSession]:
        """The connected workers."""
        return list(self._scheduler.sessions)

    @property
    def waiting_count(self) -> int:
        """Number of jobs that wait for a worker."""
        return self._scheduler.waiting_count

    # --- connections ----------------------------------------------------------------------------

    def join(self, registration: Registration) -> WorkerSession:
        """Connect a worker with a checked registration. The caller calls `disconnected` at the end of the
        stream.

        Raises SERVER_DRAINING, and DEFINITION_INVALID for a kind that another worker declares differently."""
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
        """Remove a worker whose stream ended. Its assignments are lost."""
        if session.is_disconnected:
            return
        session.is_disconnected = session.is_closed = True
        if session.timer is not None:
            session.timer.cancel()
        self._scheduler.sessions.remove(session)
        session.end()
        _log.info("worker_disconnected", worker=session.name, id=session.id, lost=len(session.assignments))
        self._scheduler.mark_all_lost(session, "disconnected")

    def drain_worker(self, session: WorkerSession) -> None:
        """Assign nothing more to a worker. Its stream ends after its last assignment."""
        session.close()
        self._scheduler.recall(session)
        session.end_if_idle()

    def dismiss(self, session: WorkerSession, problem: WonderError) -> None:
        """End a worker's stream with ``problem``. Its assignments are lost."""
        session.end(problem)
        self.disconnected(session)

    # --- messages of a worker ---------------------------------------------------------------------

    def record_heartbeat(self, session: WorkerSession) -> None:
        """Record a message from a worker: it is responsive."""
        was_silent = not self._scheduler.is_responsive(session)
        session.last_seen = asyncio.get_running_loop().time()
        if was_silent:
            self._scheduler.assign_waiting(session)

    def extend(self, session: WorkerSession, lease_ids: Sequence[str]) -> None:
        """Extend the named leases that the worker holds. Ignore others."""
        expires = asyncio.get_running_loop().time() + self.lease_ms / 1000
        for lease_id in lease_ids:
            assignment = session.assignments.get(lease_id)
            if assignment is not None:
                assignment.expires = expires

    def progress(self, session: WorkerSession, lease_id: str, progress: Progress) -> None:
        """Report the progress of an assignment that the worker holds. Ignore others."""
        assignment = session.assignments.get(lease_id)
        if assignment is not None and assignment.queued.job.on_progress is not None:
            assignment.queued.job.on_progress(progress)

    def completed(self, session: WorkerSession, lease_id: str, output: JsonObject) -> None:
        """Accept the output of an assignment if it is valid for the kind's schema."""
        assignment = session.assignments.get(lease_id)
        fault = _output_fault(assignment, output) if assignment is not None else None
        self._settle(session, lease_id, dict(output) if fault is None else fault, fault)

    def failed(self, session: WorkerSession, lease_id: str, fault: Fault) -> None:
        """Fail an assignment with the worker's own fault."""
        self._settle(session, lease_id, fault)

    def unreadable(self, session: WorkerSession, lease_id: str, fault: Fault) -> None:
        """Fail an assignment whose result is unreadable."""
        fault = replace(fault, transient=False)
        self._settle(session, lease_id, fault, fault)

    # --- shutdown --------------------------------------------------------------------------------

    def drain(self, grace_ms: int) -> None:
        """Assign nothing more and notify every worker. A worker's stream ends after its last assignment."""
        self._scheduler.is_closed = True
        for session in self._scheduler.sessions:
            session.send(Draining(grace_ms=grace_ms))
            session.close(_draining_error())
            self._scheduler.recall(session)
            session.end_if_idle()

    async def wait_until_idle(self) -> None:
        """Wait until no worker has an assignment."""
        await self._scheduler.idle.wait()

    def close(self) -> None:
        """End the streams of all workers."""
        self._scheduler.is_closed = True
        for session in self._scheduler.sessions:
            self.dismiss(session, _draining_error())

    # --- pieces -----------------------------------------------------------------------------------

    def _settle(
        self,
        session: WorkerSession,
        lease_id: str,
        result: JsonDict | Fault,
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
        """End a job whose timeout has passed."""
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
        """Disconnect a worker that sent nothing for the length of a lease."""
        loop = asyncio.get_running_loop()
        remaining_s = session.last_seen + self.lease_ms / 1000 - loop.time()
        if remaining_s > 0:
            session.timer = loop.call_later(remaining_s, self._watch_heartbeat, session)
            return
        message = (
            f"The worker sent nothing for {self.lease_ms} ms. Connect again, and send a heartbeat every "
            f"{self.heartbeat_interval_ms} ms."
        )
        self.dismiss(session, error(Reason.TIMEOUT, message, timeout_ms=str(self.lease_ms)))


def _output_fault(assignment: Assignment, output: JsonObject) -> Fault | None:
    """Return the fault of an invalid output, or None."""
    fault = payloads.check(output, field="output")
    if fault is not None:
        return fault
    kind = assignment.kind
    problems = schemas.validate(kind.output_schema, output, name="output")
    if not problems:
        return None
    message = (
        f"The output of the worker '{assignment.worker}' is not valid for the kind '{kind.name}': "
        f"{'; '.join(problems[:5])}"
    )
    return Fault(reason=Reason.TASK_FAILED, message=message, field="output")


def _retriable(fault: Fault) -> NotStartedError:
    """Return the error of a job that may be repeated: the worker's fault says so, or the job is
    idempotent."""
    problem = NotStartedError(fault.reason, fault.message, retry_after_ms=fault.retry_after_ms)
    problem.fault = fault
    return problem


def _draining_error() -> WonderError:
    return error(
        Reason.SERVER_DRAINING,
        "The server is shutting down. Connect again after it restarts.",
        retry_after_ms=RECONNECT_AFTER_MS,
    )
