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

from wonder_server.core import payloads, schemas
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.ids import random_id
from wonder_server.core.task.effects import NotBegunError
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.handout import Handout, unknown
from wonder_server.services.workers.leases import Assignment, Ticket
from wonder_server.services.workers.seat import Seat
from wonder_server.services.workers.words import (
    Draining,
    Job,
    Progress,
    Registration,
    RemoteKind,
    Settled,
)

_log = logger("workers")

DEFAULT_LEASE_MS: Final = 30_000
RECONNECT_AFTER_MS: Final = 1_000


class Workers:
    """All connected workers. `perform` is for actions; the rest is for who holds a worker's stream."""

    def __init__(
        self, clock: Clock, *, lease_ms: int = DEFAULT_LEASE_MS, reserved: Collection[str] = ()
    ) -> None:
        """``reserved`` are names that no worker may register: the server's own kinds."""
        self._clock = clock
        self.lease_ms = lease_ms
        self.heartbeat_interval_ms = lease_ms // 3
        self.reserved = frozenset(reserved)
        self._handout = Handout(clock, lease_ms)
        self._tickets = 0

    # --- for actions ------------------------------------------------------------------------------

    async def perform(self, job: Job) -> dict[str, Any]:
        """Have ``job`` done: its output, which fits the kind's schema. Cancelling reaches the worker.

        Raises `WonderError`: INPUT_INVALID, and PAYLOAD_TOO_DEEP and its like for an input that cannot be
        sent as it is; TIMEOUT, which says so if there was no worker; OUTCOME_UNKNOWN; TASK_FAILED for an
        output that does not fit; and what the worker says. `NotBegunError` is what may be tried again.
        """
        wrong = payloads.check(job.input, field="input")
        if wrong is not None:
            raise WonderError(wrong)
        loop = asyncio.get_running_loop()
        self._tickets += 1
        ticket = Ticket(
            job=job,
            number=self._tickets,
            deadline_ms=self._clock.now_ms() + job.timeout_ms,
            result=loop.create_future(),
        )
        timer = loop.call_later(job.timeout_ms / 1000, self._overdue, ticket)
        try:
            self._handout.offer(ticket)
            result = await ticket.result
        finally:
            timer.cancel()
            if not ticket.result.done() or ticket.result.cancelled():
                why = Fault(reason=Reason.CANCELLED, message="Nobody waits for this any more.")
                self._withdraw(ticket, why)
        if isinstance(result, Fault):
            raise _retriable(result) if result.transient else WonderError(result)
        return result

    def kinds(self) -> list[RemoteKind]:
        """The kinds of connected workers, by name."""
        return self._handout.seats.kinds()

    @property
    def seats(self) -> list[Seat]:
        """Who is there."""
        return list(self._handout.seats)

    @property
    def waiting(self) -> int:
        """How many jobs wait for a worker."""
        return self._handout.waiting

    # --- a worker comes and goes ------------------------------------------------------------------

    def join(self, registration: Registration) -> Seat:
        """A seat for a worker whose registration was checked. Whoever gets it says `gone` in the end.

        SERVER_DRAINING; DEFINITION_INVALID for a kind that another worker declares differently.
        """
        if self._handout.is_closed:
            raise _stopping()
        faults = self._handout.seats.conflicts(registration)
        if faults:
            raise WonderError(faults[0], faults=faults)
        loop = asyncio.get_running_loop()
        seat = Seat(random_id("wkr", self._clock.now_ms()), registration, loop.time())
        seat.timer = loop.call_later(self.lease_ms / 1000, self._look_after, seat)
        self._handout.seats.add(seat)
        _log.info("worker_connected", worker=seat.name, id=seat.id, kinds=sorted(seat.kinds))
        for kind in seat.kinds.values():
            self._handout.check_waiting(kind)
        self._handout.fill(seat)
        return seat

    def gone(self, seat: Seat) -> None:
        """Its stream is over, however it ended: what it has in hand is lost."""
        if seat.gone:
            return
        seat.gone = seat.is_closed = True
        if seat.timer is not None:
            seat.timer.cancel()
        self._handout.seats.remove(seat)
        seat.end()
        _log.info("worker_disconnected", worker=seat.name, id=seat.id, lost=len(seat.held))
        self._handout.lose_all(seat, "went away")

    def leave(self, seat: Seat) -> None:
        """It takes nothing new. Its stream ends when it has nothing in hand."""
        seat.close()
        self._handout.recall(seat)
        seat.end_if_done()

    def dismiss(self, seat: Seat, problem: WonderError) -> None:
        """End its stream with ``problem``; what it has in hand is lost."""
        seat.end(problem)
        self.gone(seat)

    # --- what a worker says -----------------------------------------------------------------------

    def heard(self, seat: Seat) -> None:
        """The worker said something, so it is there."""
        was_silent = not self._handout.is_fresh(seat)
        seat.heard = asyncio.get_running_loop().time()
        if was_silent:
            self._handout.fill(seat)

    def extend(self, seat: Seat, lease_ids: Sequence[str]) -> None:
        """Extend the leases that it names; others, and those that it does not have, are left alone."""
        expires = asyncio.get_running_loop().time() + self.lease_ms / 1000
        for lease_id in lease_ids:
            assignment = seat.held.get(lease_id)
            if assignment is not None:
                assignment.expires = expires

    def progress(self, seat: Seat, lease_id: str, progress: Progress) -> None:
        """How far an assignment is; of one that it does not have, nothing."""
        assignment = seat.held.get(lease_id)
        if assignment is not None and assignment.ticket.job.on_progress is not None:
            assignment.ticket.job.on_progress(progress)

    def completed(self, seat: Seat, lease_id: str, output: Mapping[str, Any]) -> None:
        """An assignment is done; its output is checked against the kind's schema."""
        assignment = seat.held.get(lease_id)
        fault = _misfit(assignment, output) if assignment is not None else None
        self._settle(seat, lease_id, dict(output) if fault is None else fault, fault)

    def failed(self, seat: Seat, lease_id: str, fault: Fault) -> None:
        """An assignment failed, by the worker's own word."""
        self._settle(seat, lease_id, fault)

    def refused(self, seat: Seat, lease_id: str, fault: Fault) -> None:
        """The worker's answer for an assignment cannot be read: it has failed, with ``fault``."""
        fault = replace(fault, transient=False)
        self._settle(seat, lease_id, fault, fault)

    # --- the server stops -------------------------------------------------------------------------

    def drain(self, grace_ms: int) -> None:
        """Assign nothing new and tell every worker. A worker's stream ends when it has nothing in hand."""
        self._handout.is_closed = True
        for seat in self._handout.seats:
            seat.say(Draining(grace_ms=grace_ms))
            seat.close(_stopping())
            self._handout.recall(seat)
            seat.end_if_done()

    async def wait_until_idle(self) -> None:
        """Until no worker has anything in hand."""
        await self._handout.idle.wait()

    def close(self) -> None:
        """End all streams."""
        self._handout.is_closed = True
        for seat in self._handout.seats:
            self.dismiss(seat, _stopping())

    # --- pieces -----------------------------------------------------------------------------------

    def _settle(
        self, seat: Seat, lease_id: str, result: dict[str, Any] | Fault, refusal: Fault | None = None
    ) -> None:
        assignment = seat.held.get(lease_id)
        if assignment is None:
            seat.say(Settled(lease_id=lease_id, fault=seat.why_over(lease_id)))
            return
        seat.say(Settled(lease_id=lease_id, fault=refusal))
        ticket = assignment.ticket
        self._handout.release(assignment)
        ticket.finish(result)
        self._handout.fill(seat)
        seat.end_if_done()

    def _withdraw(self, ticket: Ticket, why: Fault) -> None:
        seat = self._handout.withdraw(ticket, why)
        if seat is not None:
            self._handout.fill(seat)
            seat.end_if_done()

    def _overdue(self, ticket: Ticket) -> None:
        """The action's time is up."""
        if ticket.result.done():
            return
        job, assignment = ticket.job, ticket.assignment
        if assignment is None:
            fault = Fault(
                reason=Reason.TIMEOUT,
                message=self._handout.seats.why_waiting(job),
                metadata={"kind": job.kind, "timeout_ms": str(job.timeout_ms)},
            )
            self._withdraw(ticket, fault)
            ticket.finish(fault)
            return
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The worker '{assignment.worker}' took longer than {job.timeout_ms} ms.",
            metadata={"operation_id": job.operation_id, "timeout_ms": str(job.timeout_ms)},
        )
        self._withdraw(ticket, fault)
        ticket.finish(replace(fault, transient=True) if assignment.is_idempotent else unknown(fault))

    def _look_after(self, seat: Seat) -> None:
        """A worker may have been silent for too long."""
        loop = asyncio.get_running_loop()
        left = seat.heard + self.lease_ms / 1000 - loop.time()
        if left > 0:
            seat.timer = loop.call_later(left, self._look_after, seat)
            return
        message = (
            f"Nothing was heard of this worker for {self.lease_ms} ms. Send a heartbeat every "
            f"{self.heartbeat_interval_ms} ms, and connect again."
        )
        self.dismiss(seat, error(Reason.TIMEOUT, message, timeout_ms=str(self.lease_ms)))


def _misfit(assignment: Assignment, output: Mapping[str, Any]) -> Fault | None:
    """What is wrong with an output."""
    wrong = payloads.check(output, field="output")
    if wrong is not None:
        return wrong
    kind = assignment.kind
    problems = schemas.validate(kind.output_schema, output, name="output")
    if not problems:
        return None
    message = (
        f"The output of the worker '{assignment.worker}' does not fit the kind '{kind.name}': "
        f"{'; '.join(problems[:5])}"
    )
    return Fault(reason=Reason.TASK_FAILED, message=message, field="output")


def _retriable(fault: Fault) -> NotBegunError:
    """What may be tried again: the worker says so, or doing it twice does no harm."""
    problem = NotBegunError(fault.reason, fault.message, retry_after_ms=fault.retry_after_ms)
    problem.fault = fault
    return problem


def _stopping() -> WonderError:
    return error(
        Reason.SERVER_DRAINING,
        "The server is shutting down; connect again.",
        retry_after_ms=RECONNECT_AFTER_MS,
    )
