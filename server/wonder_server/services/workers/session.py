"""A connected worker: its assignments and its outgoing messages."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import Final

from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.services.workers.jobs import Assignment, QueuedJob
from wonder_server.services.workers.messages import AssignmentMessage, Registration, WorkerMessage

MAX_BACKLOG: Final = 1_000
"""Number of unread messages above which the server stops reading from a worker."""

MAX_ENDED_LEASES: Final = 256
"""Number of ended leases whose faults are kept, for late results."""


class WorkerSession:
    """One worker while its stream is open. Messages are sent in order; the stream's writer calls
    `next_message`."""

    def __init__(self, id: str, registration: Registration, last_seen: float) -> None:
        self.id = id
        self.name = registration.name
        self.kinds = {kind.name: kind for kind in registration.kinds}
        self.projects = registration.projects
        self.max_concurrency = registration.max_concurrency
        self.assignments: dict[str, Assignment] = {}
        self.last_seen = last_seen
        """Time of the last message from the worker, in seconds on the event loop's clock."""
        self.last_assigned = 0
        """Number of its last assignment. Among workers with equal load, the one with the lowest number is
        next."""
        self.is_closed = False
        """True if the worker receives no more assignments."""
        self.is_disconnected = False
        self.timer: asyncio.TimerHandle | None = None
        self._count_by_kind = Counter[str]()
        self._ended_leases: OrderedDict[str, Fault] = OrderedDict()
        self._messages: deque[WorkerMessage] = deque()
        self._changed = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._end: WonderError | None = None
        self._ended = False
        self._close_fault: WonderError | None = None

    # --- assignments -------------------------------------------------------------------------------

    @property
    def load(self) -> float:
        """Share of the worker's capacity in use, from 0 to 1."""
        return len(self.assignments) / self.max_concurrency

    def has_capacity_for(self, kind: str) -> bool:
        """Return True if the worker has capacity for another job of a kind that it registered."""
        limit = self.kinds[kind].max_concurrency or self.max_concurrency
        return len(self.assignments) < self.max_concurrency and self._count_by_kind[kind] < limit

    def accepts(self, queued: QueuedJob) -> bool:
        """Return True if the worker may execute the job, regardless of its capacity."""
        return self.serves_project(queued.job.context.project_id) and self.id not in queued.lost_workers

    def serves_project(self, project_id: str) -> bool:
        return not self.projects or project_id in self.projects

    def assign(self, assignment: Assignment) -> None:
        self.assignments[assignment.lease_id] = assignment
        self._count_by_kind[assignment.kind.name] += 1

    def release(self, assignment: Assignment, fault: Fault | None = None) -> None:
        """End an assignment. A late result is answered with ``fault``."""
        del self.assignments[assignment.lease_id]
        self._count_by_kind[assignment.kind.name] -= 1
        if fault is not None:
            self._ended_leases[assignment.lease_id] = fault
            if len(self._ended_leases) > MAX_ENDED_LEASES:
                self._ended_leases.popitem(last=False)

    def lease_end_fault(self, lease_id: str) -> Fault:
        """Return the fault for a lease that the worker names and does not hold."""
        return self._ended_leases.get(lease_id) or Fault(
            reason=Reason.FIELD_INVALID,
            message=f"This worker does not hold lease '{lease_id[:100]}', or its result was accepted.",
            field="lease_id",
        )

    # --- messages ---------------------------------------------------------------------------------

    def send(self, message: WorkerMessage) -> None:
        if self._ended:
            return
        self._messages.append(message)
        self._changed.set()
        if len(self._messages) >= MAX_BACKLOG:
            self._has_capacity.clear()

    def recall(self, lease_id: str) -> bool:
        """Remove an unsent assignment from the messages. Return True if there was one."""
        for index, message in enumerate(self._messages):
            if isinstance(message, AssignmentMessage) and message.lease_id == lease_id:
                del self._messages[index]
                return True
        return False

    def end(self, problem: WonderError | None = None) -> None:
        """End the stream after the queued messages, normally or with ``problem``."""
        if not self._ended:
            self._ended, self._end = True, problem
            self._changed.set()
            self._has_capacity.set()

    def close(self, close_fault: WonderError | None = None) -> None:
        """Assign nothing more. The stream ends with ``close_fault`` after the last assignment."""
        if not self.is_closed:
            self.is_closed, self._close_fault = True, close_fault

    def end_if_idle(self) -> None:
        """End the stream if the session is closed and has no assignments."""
        if self.is_closed and not self.assignments:
            self.end(self._close_fault)

    async def next_message(self) -> WorkerMessage | None:
        """Wait for the next message to send. Return None after the last; raise the problem with which the
        stream ends."""
        while not self._messages:
            if self._end is not None:
                raise self._end
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        if len(self._messages) < MAX_BACKLOG:
            self._has_capacity.set()
        return message

    async def wait_for_capacity(self) -> None:
        """Wait until the worker has read enough of its messages."""
        await self._has_capacity.wait()
