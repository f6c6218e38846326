"""A connected worker, as the server sees it: what it has in hand, and what it is to be told."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import Final

from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.services.workers.leases import Assignment, QueuedJob
from wonder_server.services.workers.messages import AssignmentMessage, Registration, WorkerMessage

MAX_BACKLOG: Final = 1_000
"""A worker that has so many words unread is not listened to until it has read some."""

MAX_ENDED_LEASES: Final = 256
"""Of so many leases that ended too early the reason is kept, for results that come late."""


class WorkerSession:
    """One worker while its stream is open. Words go out in order; `take` is for who writes the stream."""

    def __init__(self, id: str, registration: Registration, last_seen: float) -> None:
        self.id = id
        self.name = registration.name
        self.kinds = {kind.name: kind for kind in registration.kinds}
        self.projects = registration.projects
        self.max_concurrency = registration.max_concurrency
        self.assignments: dict[str, Assignment] = {}
        self.last_seen = last_seen
        """When it last said something, on the event loop's clock."""
        self.last_assigned = 0
        """The number of its last assignment: among workers with as much to do, who waited longest is next."""
        self.is_closed = False
        """Whether it is given nothing new."""
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

    # --- what it has in hand ----------------------------------------------------------------------

    @property
    def load(self) -> float:
        """From 0 to 1."""
        return len(self.assignments) / self.max_concurrency

    def has_capacity_for(self, kind: str) -> bool:
        """Whether it takes one more of a kind that it registered."""
        limit = self.kinds[kind].max_concurrency or self.max_concurrency
        return len(self.assignments) < self.max_concurrency and self._count_by_kind[kind] < limit

    def accepts(self, queued: QueuedJob) -> bool:
        """Whether the work is for it, room aside."""
        return self.serves_project(queued.job.context.project_id) and self.id not in queued.lost_workers

    def serves_project(self, project_id: str) -> bool:
        return not self.projects or project_id in self.projects

    def assign(self, assignment: Assignment) -> None:
        self.assignments[assignment.lease_id] = assignment
        self._count_by_kind[assignment.kind.name] += 1

    def release(self, assignment: Assignment, fault: Fault | None = None) -> None:
        """It has this no more; ``why`` is what a result that comes late is answered."""
        del self.assignments[assignment.lease_id]
        self._count_by_kind[assignment.kind.name] -= 1
        if fault is not None:
            self._ended_leases[assignment.lease_id] = fault
            if len(self._ended_leases) > MAX_ENDED_LEASES:
                self._ended_leases.popitem(last=False)

    def lease_end_fault(self, lease_id: str) -> Fault:
        """Why a lease that it names is not among those it holds."""
        return self._ended_leases.get(lease_id) or Fault(
            reason=Reason.FIELD_INVALID,
            message="This worker has no such lease, or it is settled already.",
            field="lease_id",
        )

    # --- what it is told --------------------------------------------------------------------------

    def send(self, message: WorkerMessage) -> None:
        if self._ended:
            return
        self._messages.append(message)
        self._changed.set()
        if len(self._messages) >= MAX_BACKLOG:
            self._has_capacity.clear()

    def recall(self, lease_id: str) -> bool:
        """Take back an assignment that has not gone out; whether there was one."""
        for index, message in enumerate(self._messages):
            if isinstance(message, AssignmentMessage) and message.lease_id == lease_id:
                del self._messages[index]
                return True
        return False

    def end(self, problem: WonderError | None = None) -> None:
        """Nothing is said after what has been. The stream ends well, or with ``problem``."""
        if not self._ended:
            self._ended, self._end = True, problem
            self._changed.set()
            self._has_capacity.set()

    def close(self, close_fault: WonderError | None = None) -> None:
        """Give it nothing new; its stream ends with ``farewell`` when it has nothing in hand."""
        if not self.is_closed:
            self.is_closed, self._close_fault = True, close_fault

    def end_if_idle(self) -> None:
        """After `close`, when nothing is in hand any more."""
        if self.is_closed and not self.assignments:
            self.end(self._close_fault)

    async def next_message(self) -> WorkerMessage | None:
        """The next word to write, None after the last. Raises what the stream ends with."""
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
        """Until the worker has read enough of what it was told."""
        await self._has_capacity.wait()
