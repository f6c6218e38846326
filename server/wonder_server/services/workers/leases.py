"""Jobs on their way to a worker, and the leases under which workers hold them.

A lease names its worker by the id of its session. The session itself knows what it holds, so that neither
module imports the other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from wonder_server.core.errors import Fault
from wonder_server.services.workers.messages import Job, WorkerKind


@dataclass(slots=True, eq=False)
class QueuedJob:
    """A job between its request and its result. ``number`` is its place in the queue.

    ``lost_by`` holds the ids of the sessions that were lost with it; ``losses`` counts those that may have
    started it. ``checked`` is the declaration that its input was found to fit.
    """

    job: Job
    number: int
    deadline_ms: int
    result: asyncio.Future[dict[str, Any] | Fault]
    lost_workers: set[str] = field(default_factory=set)
    loss_count: int = 0
    checked_kind: WorkerKind | None = None
    assignment: Assignment | None = None

    def finish(self, result: dict[str, Any] | Fault) -> None:
        """Report the result. A second result is ignored."""
        if not self.result.done():
            self.result.set_result(result)


@dataclass(slots=True, eq=False)
class Assignment:
    """A job leased to one worker. ``expires`` is on the event loop's clock, in seconds."""

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
