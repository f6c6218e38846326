"""Which workers are connected, and which of them carry out what."""

from __future__ import annotations

from collections.abc import Iterator

from wonder_server.core.errors import Fault, Reason
from wonder_server.services.workers.messages import Job, Registration, RemoteKind, WorkerKind
from wonder_server.services.workers.registration import conflict
from wonder_server.services.workers.session import WorkerSession


class Directory:
    """Seats by id and by kind. All workers of a kind agree on its declaration."""

    def __init__(self) -> None:
        self._sessions: dict[str, WorkerSession] = {}
        self._by_kind: dict[str, dict[str, WorkerSession]] = {}

    def __iter__(self) -> Iterator[WorkerSession]:
        return iter(list(self._sessions.values()))

    def add(self, session: WorkerSession) -> None:
        self._sessions[session.id] = session
        for name in session.kinds:
            self._by_kind.setdefault(name, {})[session.id] = session

    def remove(self, session: WorkerSession) -> None:
        """A kind whose last worker goes is forgotten, and may come back with another declaration."""
        del self._sessions[session.id]
        for name in session.kinds:
            del self._by_kind[name][session.id]
            if not self._by_kind[name]:
                del self._by_kind[name]

    def of_kind(self, kind: str) -> Iterator[WorkerSession]:
        """The workers of a kind."""
        return iter(self._by_kind.get(kind, {}).values())

    def declaration(self, kind: str) -> WorkerKind | None:
        """What the workers of a kind say of it; None if there is none."""
        return next((seat.kinds[kind] for seat in self.of_kind(kind)), None)

    def kinds(self) -> list[RemoteKind]:
        """All kinds, by name."""
        return [
            RemoteKind(kind=next(iter(seats.values())).kinds[name], workers=len(seats))
            for name, seats in sorted(self._by_kind.items())
        ]

    def conflicts(self, registration: Registration) -> tuple[Fault, ...]:
        """DEFINITION_INVALID for each kind that connected workers declare differently."""
        faults = []
        for index, kind in enumerate(registration.kinds):
            other = next(self.of_kind(kind.name), None)
            field = conflict(kind, other.kinds[kind.name]) if other is not None else ""
            if other is not None and field:
                message = (
                    f"The worker '{other.name}', which is connected, declares '{kind.name}' with another "
                    f"{field}. Stop the workers with the old declaration first, or choose another name."
                )
                place = f"register.kinds[{index}].{field}"
                faults.append(Fault(reason=Reason.DEFINITION_INVALID, message=message, field=place))
        return tuple(faults)

    def timeout_message(self, job: Job) -> str:
        """Why nobody has taken a job in all its time, as a sentence."""
        waited = f"{job.timeout_ms} ms were waited for one."
        missing = self._unavailable(job)
        return f"{missing}: {waited}" if missing else f"All workers for '{job.kind}' were busy: {waited}"

    def waiting_message(self, job: Job) -> str:
        """Why nobody has taken a job yet, for those who watch."""
        missing = self._unavailable(job) or "All are busy"
        return f"waits for a worker of '{job.kind}': {missing[0].lower()}{missing[1:]}"

    def _unavailable(self, job: Job) -> str:
        """That there is nobody to take a job, as a clause; empty if somebody will."""
        sessions, project = list(self.of_kind(job.kind)), job.context.project_id
        if not sessions:
            return f"No worker for '{job.kind}' is connected"
        if not any(seat.serves_project(project) for seat in sessions):
            return f"No worker for '{job.kind}' is connected that works for this project"
        return ""
