"""Work that waits for a worker: first come, first served, within each kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from wonder_server.services.workers.leases import QueuedJob


class WorkQueue:
    """The lines, one for each kind and project, so that nobody searches in those they cannot serve."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, OrderedDict[int, QueuedJob]]] = {}

    def __len__(self) -> int:
        return sum(len(line) for lines in self._queues.values() for line in lines.values())

    def add(self, queued: QueuedJob, *, at_front: bool = False) -> None:
        """At the end of its line; ``first``: in front, since it has been in line before."""
        queues = self._queues.setdefault(queued.job.kind, {})
        queue = queues.setdefault(queued.job.context.project_id, OrderedDict())
        queue[queued.number] = queued
        queue.move_to_end(queued.number, last=not at_front)

    def remove(self, queued: QueuedJob) -> None:
        """Out of line, if it stands there."""
        queues = self._queues.get(queued.job.kind, {})
        queue = queues.get(queued.job.context.project_id, OrderedDict())
        if queue.pop(queued.number, None) is not None and not queue:
            del queues[queued.job.context.project_id]
            if not queues:
                del self._queues[queued.job.kind]

    def first_for(self, kind: str, projects: Collection[str], worker_id: str) -> QueuedJob | None:
        """Who has waited longest for a worker of this kind and these projects (none: all)."""
        heads = [
            _first_for(line, worker_id)
            for project, line in self._queues.get(kind, {}).items()
            if not projects or project in projects
        ]
        return min((head for head in heads if head), key=lambda ticket: ticket.number, default=None)

    def of_kind(self, kind: str) -> Iterator[QueuedJob]:
        """All that wait for a kind."""
        for line in list(self._queues.get(kind, {}).values()):
            yield from list(line.values())


def _first_for(line: OrderedDict[int, QueuedJob], worker_id: str) -> QueuedJob | None:
    # Passed over is only what this very worker was lost with, so this ends soon.
    return next((ticket for ticket in line.values() if worker_id not in ticket.lost_workers), None)
