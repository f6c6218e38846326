"""Which workers are connected, and which of them carry out what."""

from __future__ import annotations

from collections.abc import Iterator

from wonder_server.core.errors import Fault, Reason
from wonder_server.services.workers.registration import conflict
from wonder_server.services.workers.seat import Seat
from wonder_server.services.workers.words import Job, Registration, RemoteKind, WorkerKind


class Directory:
    """Seats by id and by kind. All workers of a kind agree on its declaration."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}
        self._of_kind: dict[str, dict[str, Seat]] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def add(self, seat: Seat) -> None:
        self._seats[seat.id] = seat
        for name in seat.kinds:
            self._of_kind.setdefault(name, {})[seat.id] = seat

    def remove(self, seat: Seat) -> None:
        """A kind whose last worker goes is forgotten, and may come back with another declaration."""
        del self._seats[seat.id]
        for name in seat.kinds:
            del self._of_kind[name][seat.id]
            if not self._of_kind[name]:
                del self._of_kind[name]

    def of(self, kind: str) -> Iterator[Seat]:
        """The workers of a kind."""
        return iter(self._of_kind.get(kind, {}).values())

    def declared(self, kind: str) -> WorkerKind | None:
        """What the workers of a kind say of it; None if there is none."""
        return next((seat.kinds[kind] for seat in self.of(kind)), None)

    def kinds(self) -> list[RemoteKind]:
        """All kinds, by name."""
        return [
            RemoteKind(kind=next(iter(seats.values())).kinds[name], workers=len(seats))
            for name, seats in sorted(self._of_kind.items())
        ]

    def conflicts(self, registration: Registration) -> tuple[Fault, ...]:
        """DEFINITION_INVALID for each kind that connected workers declare differently."""
        faults = []
        for index, kind in enumerate(registration.kinds):
            other = next(self.of(kind.name), None)
            field = conflict(kind, other.kinds[kind.name]) if other is not None else ""
            if other is not None and field:
                message = (
                    f"The worker '{other.name}', which is connected, declares '{kind.name}' with another "
                    f"{field}. Stop the workers with the old declaration first, or choose another name."
                )
                place = f"register.kinds[{index}].{field}"
                faults.append(Fault(reason=Reason.DEFINITION_INVALID, message=message, field=place))
        return tuple(faults)

    def why_waiting(self, job: Job) -> str:
        """Why nobody has taken a job in all its time, as a sentence."""
        waited = f"{job.timeout_ms} ms were waited for one."
        missing = self._missing(job)
        return f"{missing}: {waited}" if missing else f"All workers for '{job.kind}' were busy: {waited}"

    def why_not_yet(self, job: Job) -> str:
        """Why nobody has taken a job yet, for those who watch."""
        missing = self._missing(job) or "All are busy"
        return f"waits for a worker of '{job.kind}': {missing[0].lower()}{missing[1:]}"

    def _missing(self, job: Job) -> str:
        """That there is nobody to take a job, as a clause; empty if somebody will."""
        seats, project = list(self.of(job.kind)), job.context.project_id
        if not seats:
            return f"No worker for '{job.kind}' is connected"
        if not any(seat.works_for(project) for seat in seats):
            return f"No worker for '{job.kind}' is connected that works for this project"
        return ""
