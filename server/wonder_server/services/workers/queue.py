"""Jobs that wait for a worker: first in, first out, within each kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from wonder_server.services.workers.jobs import QueuedJob


class WorkQueue:
    """The queues, one for each kind and project, so that a worker searches only in those that it serves."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, OrderedDict[int, QueuedJob]]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queues in self._queues.values() for queue in queues.values())

    def add(self, queued: QueuedJob, *, at_front: bool = False) -> None:
        """Add a job at the end of its queue, or at the front after it was lost."""
        queues = self._queues.setdefault(queued.job.kind, {})
        queue = queues.setdefault(queued.job.context.project_id, OrderedDict())
        queue[queued.number] = queued
        queue.move_to_end(queued.number, last=not at_front)

    def remove(self, queued: QueuedJob) -> None:
        """Remove a job from its queue, if it is there."""
        queues = self._queues.get(queued.job.kind, {})
        queue = queues.get(queued.job.context.project_id, OrderedDict())
        if queue.pop(queued.number, None) is not None and not queue:
            del queues[queued.job.context.project_id]
            if not queues:
                del self._queues[queued.job.kind]

    def first_for(self, kind: str, projects: Collection[str], worker_id: str) -> QueuedJob | None:
        """Return the first job for a worker of this kind and these projects (empty: all)."""
        heads = [
            _first_for(queue, worker_id)
            for project, queue in self._queues.get(kind, {}).items()
            if not projects or project in projects
        ]
        return min((head for head in heads if head), key=lambda queued: queued.number, default=None)

    def of_kind(self, kind: str) -> Iterator[QueuedJob]:
        """Yield all waiting jobs of a kind."""
        for queue in list(self._queues.get(kind, {}).values()):
            yield from list(queue.values())


def _first_for(queue: OrderedDict[int, QueuedJob], worker_id: str) -> QueuedJob | None:
    # Skips only jobs with which this worker was lost before, which are few.
    return next((queued for queued in queue.values() if worker_id not in queued.lost_workers), None)
