"""Who gets what: the line, the leases, and what becomes of work that is lost (features H4, I4).

`offer` gives a ticket to the worker with the least to do, or puts it in line; `fill` gives a worker what
waits for it. So at any time nobody waits in line whom a worker could serve.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from wonder_server.core import schemas
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import random_id
from wonder_server.core.task.effects import outcome_unknown
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.workers.directory import Directory
from wonder_server.services.workers.leases import Assignment, Ticket
from wonder_server.services.workers.seat import Seat
from wonder_server.services.workers.waiting import Waiting
from wonder_server.services.workers.words import Assigned, Cancelled, Progress, WorkerKind

_log = logger("workers")

MAX_LOSSES: Final = 5
"""A job that so many workers were lost with is given to no other: it may be what kills them."""

REMEMBERED_OPERATIONS: Final = 10_000
"""Of so many operations the number of attempts is known."""


class Handout:
    """``is_closed``: nothing is handed out any more, and tickets stay in line. ``idle`` is set while nobody
    has anything in hand."""

    def __init__(self, clock: Clock, lease_ms: int) -> None:
        self.seats = Directory()
        self.is_closed = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._clock = clock
        self._lease_ms = lease_ms
        self._waiting = Waiting()
        self._holders: dict[str, Seat] = {}
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._turns = 0

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._waiting)

    def offer(self, ticket: Ticket, *, first: bool = False) -> None:
        """To a worker, or into line; ``first``: in front. Input that does not fit its kind ends it."""
        kind = self.seats.declared(ticket.job.kind)
        if kind is not None and not _fits(ticket, kind):
            return
        able = [
            seat
            for seat in self.seats.of(ticket.job.kind)
            if seat.may_take(ticket) and self._is_open(seat, ticket.job.kind)
        ]
        if able:
            self._give(ticket, min(able, key=lambda seat: (seat.load, seat.turn)))
        else:
            self._waiting.add(ticket, first=first)
            if ticket.job.on_progress is not None:
                ticket.job.on_progress(Progress(message=self.seats.why_not_yet(ticket.job)))

    def fill(self, seat: Seat) -> None:
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

    def check_waiting(self, kind: WorkerKind) -> None:
        """Now that a kind is declared, send away what does not fit it."""
        for ticket in self._waiting.of(kind.name):
            if not _fits(ticket, kind):
                self._waiting.remove(ticket)

    def is_fresh(self, seat: Seat) -> bool:
        """Whether it was heard of lately: one that misses its heartbeats gets nothing more."""
        silent_s = asyncio.get_running_loop().time() - seat.heard
        return silent_s * 1000 <= self._lease_ms * 2 / 3

    # --- taking back ------------------------------------------------------------------------------

    def release(self, assignment: Assignment, why: Fault | None = None) -> Seat:
        """End a lease and return the worker that had it. ``why`` answers a result that comes late."""
        if assignment.timer is not None:
            assignment.timer.cancel()
        seat = self._holders.pop(assignment.lease_id)
        seat.release(assignment, why)
        assignment.ticket.assignment = None
        if not self._holders:
            self.idle.set()
        return seat

    def withdraw(self, ticket: Ticket, why: Fault) -> Seat | None:
        """Nobody wants the result any more. The worker that had it, if one did."""
        assignment = ticket.assignment
        if assignment is None:
            self._waiting.remove(ticket)
            return None
        seat = self.release(assignment, why)
        if not self._unsaid(seat, assignment):
            seat.say(Cancelled(lease_id=assignment.lease_id, fault=why))
        return seat

    def lose(self, assignment: Assignment, how: str) -> bool:
        """The worker is lost with this: to another, or OUTCOME_UNKNOWN. Whether it had gone out at all."""
        ticket = assignment.ticket
        operation_id = ticket.job.operation_id
        fault = Fault(
            reason=Reason.TIMEOUT,
            message=f"The worker '{assignment.worker}' {how} before it answered.",
            metadata={"operation_id": operation_id, "worker": assignment.worker},
        )
        seat = self.release(assignment, fault)
        ticket.lost_by.add(assignment.session_id)
        if self._unsaid(seat, assignment):
            self.offer(ticket, first=True)
            return False
        ticket.losses += 1
        again = assignment.is_idempotent and ticket.losses < MAX_LOSSES
        _log.warning(
            "assignment_lost", worker=seat.name, kind=ticket.job.kind, operation=operation_id, again=again
        )
        if again:
            self.offer(ticket, first=True)
        else:
            ticket.finish(unknown(fault))
        return True

    def lose_all(self, seat: Seat, how: str) -> None:
        """All that a worker has in hand."""
        for assignment in _newest_first(seat):
            self.lose(assignment, how)

    def recall(self, seat: Seat) -> None:
        """Take back what has not gone out to a worker that takes nothing new."""
        for assignment in _newest_first(seat):
            if self._unsaid(seat, assignment):
                self.release(assignment)
                self.offer(assignment.ticket, first=True)

    # --- pieces -----------------------------------------------------------------------------------

    def _give(self, ticket: Ticket, seat: Seat) -> None:
        loop = asyncio.get_running_loop()
        job, lease_s = ticket.job, self._lease_ms / 1000
        self._turns += 1
        seat.turn = self._turns
        attempt = self._attempts.get(job.operation_id, 0) + 1
        self._count(job.operation_id, attempt)
        assignment = Assignment(
            lease_id=random_id("lease", self._clock.now_ms()),
            ticket=ticket,
            session_id=seat.id,
            worker=seat.name,
            kind=seat.kinds[job.kind],
            expires=loop.time() + lease_s,
        )
        assignment.timer = loop.call_later(lease_s, self._look_at_lease, assignment)
        ticket.assignment = assignment
        seat.give(assignment)
        self._holders[assignment.lease_id] = seat
        self.idle.clear()
        seat.say(
            Assigned(lease_id=assignment.lease_id, attempt=attempt, job=job, deadline_ms=ticket.deadline_ms)
        )

    def _look_at_lease(self, assignment: Assignment) -> None:
        """A lease may have run out, or been extended since this timer was set."""
        loop = asyncio.get_running_loop()
        left = assignment.expires - loop.time()
        if left > 0:
            assignment.timer = loop.call_later(left, self._look_at_lease, assignment)
            return
        seat = self._holders[assignment.lease_id]
        if self.lose(assignment, "let its lease run out"):
            message = f"The lease ran out: no heartbeat named it for {self._lease_ms} ms."
            fault = Fault(reason=Reason.TIMEOUT, message=message)
            seat.say(Cancelled(lease_id=assignment.lease_id, fault=fault))
        self.fill(seat)
        seat.end_if_done()

    def _is_open(self, seat: Seat, kind: str) -> bool:
        """Whether a worker takes one more of a kind that it registered."""
        return not (self.is_closed or seat.is_closed) and seat.has_room_for(kind) and self.is_fresh(seat)

    def _unsaid(self, seat: Seat, assignment: Assignment) -> bool:
        """Keep an assignment from going out, if it has not: then it was no attempt."""
        if not seat.unsay(assignment.lease_id):
            return False
        operation_id = assignment.ticket.job.operation_id
        self._count(operation_id, self._attempts.get(operation_id, 1) - 1)
        return True

    def _count(self, operation_id: str, attempt: int) -> None:
        self._attempts[operation_id] = attempt
        self._attempts.move_to_end(operation_id)
        if len(self._attempts) > REMEMBERED_OPERATIONS:
            self._attempts.popitem(last=False)


def unknown(fault: Fault) -> Fault:
    """OUTCOME_UNKNOWN of something that a worker had in hand, with what its author can do about it."""
    said = outcome_unknown(fault)
    remedy = "If it may be, say so: `idempotent: true` in the action, or where the worker declares the kind."
    return replace(said, message=f"{said.message} {remedy}")


def _fits(ticket: Ticket, kind: WorkerKind) -> bool:
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


def _newest_first(seat: Seat) -> list[Assignment]:
    """What a worker has in hand; put in front of the line one by one, they stand there in order."""
    return sorted(seat.held.values(), key=lambda each: each.ticket.number, reverse=True)
