"""Work that waits for a worker: first come, first served, within each kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from wonder_server.services.workers.leases import Ticket


class Waiting:
    """The lines, one for each kind and project, so that nobody searches in those they cannot serve."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, OrderedDict[int, Ticket]]] = {}

    def __len__(self) -> int:
        return sum(len(line) for lines in self._lines.values() for line in lines.values())

    def add(self, ticket: Ticket, *, first: bool = False) -> None:
        """At the end of its line; ``first``: in front, since it has been in line before."""
        lines = self._lines.setdefault(ticket.job.kind, {})
        line = lines.setdefault(ticket.job.context.project_id, OrderedDict())
        line[ticket.number] = ticket
        line.move_to_end(ticket.number, last=not first)

    def remove(self, ticket: Ticket) -> None:
        """Out of line, if it stands there."""
        lines = self._lines.get(ticket.job.kind, {})
        line = lines.get(ticket.job.context.project_id, OrderedDict())
        if line.pop(ticket.number, None) is not None and not line:
            del lines[ticket.job.context.project_id]
            if not lines:
                del self._lines[ticket.job.kind]

    def next(self, kind: str, projects: Collection[str], worker_id: str) -> Ticket | None:
        """Who has waited longest for a worker of this kind and these projects (none: all)."""
        heads = [
            _head(line, worker_id)
            for project, line in self._lines.get(kind, {}).items()
            if not projects or project in projects
        ]
        return min((head for head in heads if head), key=lambda ticket: ticket.number, default=None)

    def of(self, kind: str) -> Iterator[Ticket]:
        """All that wait for a kind."""
        for line in list(self._lines.get(kind, {}).values()):
            yield from list(line.values())


def _head(line: OrderedDict[int, Ticket], worker_id: str) -> Ticket | None:
    # Passed over is only what this very worker was lost with, so this ends soon.
    return next((ticket for ticket in line.values() if worker_id not in ticket.lost_by), None)
