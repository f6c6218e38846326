"""Queued jobs and the leases under which workers execute them.

A lease names its worker by the id of the session. The session has the leases, so neither module imports the
other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict
from wonder_server.services.workers.messages import Job, WorkerKind


@dataclass(slots=True, eq=False)
class QueuedJob:
    """A job between its request and its result. ``number`` is its place in the queue.

    ``lost_workers`` has the ids of the sessions that were lost while they held the job. ``loss_count`` counts
    those that may have started it. ``checked_kind`` is the declaration that its input was validated
    against."""

    job: Job
    number: int
    deadline_ms: int
    result: asyncio.Future[JsonDict | Fault]
    lost_workers: set[str] = field(default_factory=set)
    loss_count: int = 0
    checked_kind: WorkerKind | None = None
    assignment: Assignment | None = None

    def finish(self, result: JsonDict | Fault) -> None:
        """Report the result. A second result is ignored."""
        if not self.result.done():
            self.result.set_result(result)


@dataclass(slots=True, eq=False)
class Assignment:
    """A job leased to one worker. ``expires`` is in seconds on the event loop's clock."""

    lease_id: str
    queued: QueuedJob
    session_id: str
    worker: str
    """The worker's name, for messages."""
    kind: WorkerKind
    expires: float
    timer: asyncio.TimerHandle | None = None

    @property
    def is_idempotent(self) -> bool:
        """Return True if another worker may execute the job after this one was lost with it."""
        defined = self.queued.job.idempotent
        return self.kind.idempotent if defined is None else defined
