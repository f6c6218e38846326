"""The pool of remote workers (features H4, I4): who is there, who does what, and what of lost work.

A job waits in line until a worker that registered its kind has room; then that worker has it under a
lease::

    perform ─▶ in line ─▶ held by a worker ─▶ completed / failed    the worker said so
                 ▲              │
                 │              ├─▶ cancelled           nobody waits for it, or it took too long
                 └── lost ◀─────┘                       its stream broke, or its lease ran out

A lost job goes back to the front of the line and to another worker if it is idempotent, or if it had not
gone out; else it ends with OUTCOME_UNKNOWN. It is idempotent if its kind or the action's definition says so.

Nothing of this is on disk: the pool is as old as the process. Everything happens on the event loop, without
waiting, so there is nothing to lock; leases and timeouts are its timers, which a clock that jumps does not
touch.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from wonder_server.core import payloads, schemas
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.ids import random_id
from wonder_server.core.task.effects import NotBegunError, outcome_unknown
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.directory import Directory
from wonder_server.services.workers.seat import Assignment, Seat
from wonder_server.services.workers.waiting import Ticket, Waiting
from wonder_server.services.workers.words import (
    Assigned,
    Cancelled,
    Draining,
    Job,
    Progress,
    Registration,
    RemoteKind,
    Settled,
    WorkerKind,
)

_log = structlog.get_logger(__name__)

DEFAULT_LEASE_MS: Final = 30_000

MAX_LOSSES: Final = 5
"""A job that so many workers were lost with is given to no other: it may be what kills them."""

REMEMBERED_OPERATIONS: Final = 10_000
"""Of so many operations the number of attempts is known."""

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
        self._seats = Directory()
        self._waiting = Waiting()
        self._tickets = 0
        self._turns = 0
        self._in_hand = 0
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    # --- for actions ------------------------------------------------------------------------------

    async def perform(self, job: Job) -> dict[str, Any]:
        """Have ``job`` done: its output, which fits the kind's schema. Cancelling reaches the worker.

        Raises `WonderError`: INPUT_INVALID; TIMEOUT, which says so if there was no worker; OUTCOME_UNKNOWN;
        TASK_FAILED for an output that does not fit; and what the worker says. `NotBegunError` is what may
        be tried again.
        """
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
            self._offer(ticket)
            result = await ticket.result
        finally:
            timer.cancel()
            if not ticket.result.done() or ticket.result.cancelled():
                self._withdraw(
                    ticket, Fault(reason=Reason.CANCELLED, message="Nobody waits for this any more.")
                )
        if isinstance(result, Fault):
            raise _retriable(result) if result.transient else WonderError(result)
        return result

    def kinds(self) -> list[RemoteKind]:
        """The kinds of connected workers, by name."""
        return self._seats.kinds()

    # --- a worker comes and goes ------------------------------------------------------------------

    def join(self, registration: Registration) -> Seat:
        """A seat for a worker whose registration was checked. Whoever gets it says `gone` in the end.

        SERVER_DRAINING; DEFINITION_INVALID for a kind that another worker declares differently.
        """
        if self._draining:
            raise _stopping()
        faults = self._seats.conflicts(registration)
        if faults:
            raise WonderError(faults[0], faults=faults)
        loop = asyncio.get_running_loop()
        seat = Seat(random_id("wkr", self._clock.now_ms()), registration, loop.time())
        self._seats.add(seat)
        seat.timer = loop.call_later(self.lease_ms / 1000, self._look_after, seat)
        _log.info("worker joined", worker=seat.name, id=seat.id, kinds=sorted(seat.kinds))
        for kind in seat.kinds.values():
            self._check_waiting(kind)
        self._fill(seat)
        return seat

    def gone(self, seat: Seat) -> None:
        """Its stream is over, however it ended: what it has in hand is lost."""
        if seat.gone:
            return
        seat.gone = True
        if seat.timer is not None:
            seat.timer.cancel()
        self._seats.remove(seat)
        seat.end()
        _log.info("worker gone", worker=seat.name, id=seat.id, lost=len(seat.held))
        for assignment in _newest_first(seat):
            self._lose(assignment, "went away")

    def leave(self, seat: Seat) -> None:
        """It takes nothing new. Its stream ends when it has nothing in hand."""
        seat.leaving = True
        self._recall(seat)
        self._look_if_done(seat)

    # --- what a worker says -----------------------------------------------------------------------

    def heard(self, seat: Seat) -> None:
        """The worker said something, so it is there."""
        was_silent = not self._is_fresh(seat)
        seat.heard = asyncio.get_running_loop().time()
        if was_silent:
            self._fill(seat)

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
        self._draining = True
        for seat in self._seats:
            seat.say(Draining(grace_ms=grace_ms))
            self._recall(seat)
            self._look_if_done(seat)

    async def wait_until_idle(self) -> None:
        """Until no worker has anything in hand."""
        await self._idle.wait()

    def close(self) -> None:
        """End all streams."""
        self._draining = True
        for seat in self._seats:
            self._dismiss(seat, _stopping())

    # --- handing out ------------------------------------------------------------------------------

    def _offer(self, ticket: Ticket, *, first: bool = False) -> None:
        """To the worker with the least to do, or into line."""
        kind = self._seats.declared(ticket.job.kind)
        if kind is not None and not self._fits(ticket, kind):
            return
        able = [
            seat
            for seat in self._seats.of(ticket.job.kind)
            if seat.may_take(ticket) and self._is_open(seat, ticket.job.kind)
        ]
        if able:
            self._give(ticket, min(able, key=lambda seat: (seat.load, seat.turn)))
        else:
            self._waiting.add(ticket, first=first)

    def _fill(self, seat: Seat) -> None:
        """Give a worker what waits for it, as long as it has room."""
        while True:
            heads = [
                self._waiting.next(kind, seat.projects, seat.id)
                for kind in seat.kinds
                if self._is_open(seat, kind)
            ]
            ticket = min((head for head in heads if head), key=lambda each: each.number, default=None)
            if ticket is None:
                return
            self._waiting.remove(ticket)
            self._give(ticket, seat)

    def _give(self, ticket: Ticket, seat: Seat) -> None:
        loop = asyncio.get_running_loop()
        job, lease_s = ticket.job, self.lease_ms / 1000
        self._turns += 1
        seat.turn = self._turns
        attempt = self._attempts.get(job.operation_id, 0) + 1
        self._count(job.operation_id, attempt)
        assignment = Assignment(
            lease_id=random_id("lease", self._clock.now_ms()),
            ticket=ticket,
            seat=seat,
            kind=seat.kinds[job.kind],
            expires=loop.time() + lease_s,
        )
        assignment.timer = loop.call_later(lease_s, self._look_at_lease, assignment)
        ticket.assignment = assignment
        seat.give(assignment)
        self._in_hand += 1
        self._idle.clear()
        seat.say(
            Assigned(lease_id=assignment.lease_id, attempt=attempt, job=job, deadline_ms=ticket.deadline_ms)
        )

    def _is_open(self, seat: Seat, kind: str) -> bool:
        """Whether a worker takes one more of a kind that it registered."""
        return (
            not (self._draining or seat.leaving or seat.gone)
            and seat.has_room_for(kind)
            and self._is_fresh(seat)
        )

    def _is_fresh(self, seat: Seat) -> bool:
        """Whether it was heard of lately: one that misses its heartbeats gets nothing more."""
        silent_s = asyncio.get_running_loop().time() - seat.heard
        return silent_s * 1000 <= self.heartbeat_interval_ms * 2

    def _check_waiting(self, kind: WorkerKind) -> None:
        """Now that a kind is declared, send away what does not fit it."""
        for ticket in self._waiting.of(kind.name):
            if not self._fits(ticket, kind):
                self._waiting.remove(ticket)

    def _fits(self, ticket: Ticket, kind: WorkerKind) -> bool:
        """Whether the input fits the kind's schema; if not, that is its end."""
        known = ticket.checked
        if known is None or (known is not kind and known.input_schema != kind.input_schema):
            problems = schemas.validate(kind.input_schema, ticket.job.input, name="input")
            if problems:
                message = f"The input does not fit the kind '{kind.name}': {'; '.join(problems[:5])}"
                ticket.finish(Fault(reason=Reason.INPUT_INVALID, message=message, field="input"))
                return False
        ticket.checked = kind
        return True

    def _count(self, operation_id: str, attempt: int) -> None:
        self._attempts[operation_id] = attempt
        self._attempts.move_to_end(operation_id)
        if len(self._attempts) > REMEMBERED_OPERATIONS:
            self._attempts.popitem(last=False)

    # --- taking back ------------------------------------------------------------------------------

    def _settle(
        self, seat: Seat, lease_id: str, result: dict[str, Any] | Fault, refusal: Fault | None = None
    ) -> None:
        assignment = seat.held.get(lease_id)
        if assignment is None:
            seat.say(Settled(lease_id=lease_id, fault=seat.why_over(lease_id)))
            return
        seat.say(Settled(lease_id=lease_id, fault=refusal))
        self._release(assignment)
        assignment.ticket.finish(result)
        self._after(seat)

    def _withdraw(self, ticket: Ticket, why: Fault) -> None:
        """Nobody wants the result any more."""
        assignment = ticket.assignment
        if assignment is None:
            self._waiting.remove(ticket)
            return
        seat = assignment.seat
        self._release(assignment, why)
        if not self._unsaid(assignment):
            seat.say(Cancelled(lease_id=assignment.lease_id, fault=why))
        self._after(seat)

    def _lose(self, assignment: Assignment, how: str) -> bool:
        """The worker is lost with this: to another, or OUTCOME_UNKNOWN. Whether it had gone out at all."""
        ticket, seat = assignment.ticket, assignment.seat
        operation_id = ticket.job.operation_id
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The worker '{seat.name}' {how} before it answered.",
            metadata={"operation_id": operation_id, "worker": seat.name},
        )
        self._release(assignment, fault)
        ticket.lost_by.add(seat.id)
        if self._unsaid(assignment):
            self._offer(ticket, first=True)
            return False
        ticket.losses += 1
        again = assignment.is_idempotent and ticket.losses < MAX_LOSSES
        _log.warning(
            "assignment lost", worker=seat.name, kind=ticket.job.kind, operation=operation_id, again=again
        )
        if again:
            self._offer(ticket, first=True)
        else:
            ticket.finish(outcome_unknown(fault))
        return True

    def _recall(self, seat: Seat) -> None:
        """Take back what has not gone out to a worker that takes nothing new."""
        for assignment in _newest_first(seat):
            if self._unsaid(assignment):
                self._release(assignment)
                self._offer(assignment.ticket, first=True)

    def _unsaid(self, assignment: Assignment) -> bool:
        """Keep an assignment from going out, if it has not: then it was no attempt."""
        if not assignment.seat.unsay(assignment.lease_id):
            return False
        operation_id = assignment.ticket.job.operation_id
        self._count(operation_id, self._attempts.get(operation_id, 1) - 1)
        return True

    def _release(self, assignment: Assignment, why: Fault | None = None) -> None:
        if assignment.timer is not None:
            assignment.timer.cancel()
        assignment.seat.release(assignment, why)
        assignment.ticket.assignment = None
        self._in_hand -= 1
        if not self._in_hand:
            self._idle.set()

    def _after(self, seat: Seat) -> None:
        """A worker has room again."""
        self._fill(seat)
        self._look_if_done(seat)

    def _look_if_done(self, seat: Seat) -> None:
        if seat.held:
            return
        if seat.leaving:
            seat.end()
        elif self._draining:
            seat.end(_stopping())

    # --- time -------------------------------------------------------------------------------------

    def _overdue(self, ticket: Ticket) -> None:
        """The action's time is up."""
        if ticket.result.done():
            return
        job, assignment = ticket.job, ticket.assignment
        if assignment is None:
            fault = Fault(
                reason=Reason.TIMEOUT,
                message=self._seats.why_waiting(job),
                metadata={"kind": job.kind, "timeout_ms": str(job.timeout_ms)},
            )
        else:
            fault = Fault(
                reason=Reason.TIMEOUT,
                message=f"The worker '{assignment.seat.name}' took longer than {job.timeout_ms} ms.",
                metadata={"operation_id": job.operation_id, "timeout_ms": str(job.timeout_ms)},
                transient=True,
            )
            if not assignment.is_idempotent:
                self._withdraw(ticket, replace(fault, transient=False))
                ticket.finish(outcome_unknown(fault))
                return
        self._withdraw(ticket, fault)
        ticket.finish(fault)

    def _look_at_lease(self, assignment: Assignment) -> None:
        """A lease may have run out, or been extended since this timer was set."""
        loop = asyncio.get_running_loop()
        left = assignment.expires - loop.time()
        if left > 0:
            assignment.timer = loop.call_later(left, self._look_at_lease, assignment)
            return
        seat = assignment.seat
        if self._lose(assignment, "let its lease run out"):
            message = f"The lease ran out: no heartbeat named it for {self.lease_ms} ms."
            fault = Fault(reason=Reason.TIMEOUT, message=message)
            seat.say(Cancelled(lease_id=assignment.lease_id, fault=fault))
        self._after(seat)

    def _look_after(self, seat: Seat) -> None:
        """A worker may have been silent for too long."""
        loop = asyncio.get_running_loop()
        left = seat.heard + self.lease_ms / 1000 - loop.time()
        if left > 0:
            seat.timer = loop.call_later(left, self._look_after, seat)
            return
        self._dismiss(
            seat,
            error(
                Reason.TIMEOUT,
                f"Nothing was heard of this worker for {self.lease_ms} ms. Send a heartbeat every "
                f"{self.heartbeat_interval_ms} ms, and connect again.",
                timeout_ms=str(self.lease_ms),
            ),
        )

    def _dismiss(self, seat: Seat, problem: WonderError) -> None:
        seat.end(problem)
        self.gone(seat)


def _newest_first(seat: Seat) -> list[Assignment]:
    """What a worker has in hand; put in front of the line one by one, they stand there in order."""
    return sorted(seat.held.values(), key=lambda each: each.ticket.number, reverse=True)


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
        f"The output of the worker '{assignment.seat.name}' does not fit the kind '{kind.name}': "
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
