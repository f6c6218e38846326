"""The connected workers, by id and by action kind."""

from __future__ import annotations

from collections.abc import Iterator

from wonder_server.core.errors import Fault, Reason
from wonder_server.services.workers.messages import Job, Registration, RemoteKind, WorkerKind
from wonder_server.services.workers.registration import conflict
from wonder_server.services.workers.session import WorkerSession


class Directory:
    """Sessions by id and by kind. All workers of a kind have the same declaration."""

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
        """Remove a session. After the removal of its last worker, a kind may be declared differently."""
        del self._sessions[session.id]
        for name in session.kinds:
            del self._by_kind[name][session.id]
            if not self._by_kind[name]:
                del self._by_kind[name]

    def of_kind(self, kind: str) -> Iterator[WorkerSession]:
        """Return the workers of a kind."""
        return iter(self._by_kind.get(kind, {}).values())

    def declaration(self, kind: str) -> WorkerKind | None:
        """Return the declaration of a kind; None if no worker has it."""
        return next((session.kinds[kind] for session in self.of_kind(kind)), None)

    def kinds(self) -> list[RemoteKind]:
        """Return all kinds, by name."""
        return [
            RemoteKind(kind=next(iter(sessions.values())).kinds[name], workers=len(sessions))
            for name, sessions in sorted(self._by_kind.items())
        ]

    def conflicts(self, registration: Registration) -> tuple[Fault, ...]:
        """Return DEFINITION_INVALID for each kind that connected workers declare differently."""
        faults = []
        for index, kind in enumerate(registration.kinds):
            other = next(self.of_kind(kind.name), None)
            field = conflict(kind, other.kinds[kind.name]) if other is not None else ""
            if other is not None and field:
                message = (
                    f"The connected worker '{other.name}' declares '{kind.name}' with another {field}. Stop "
                    "the workers with the old declaration, or choose another name."
                )
                place = f"register.kinds[{index}].{field}"
                faults.append(Fault(reason=Reason.DEFINITION_INVALID, message=message, field=place))
        return tuple(faults)

    def timeout_message(self, job: Job) -> str:
        """Return the reason for which no worker accepted a job within its timeout, as a sentence."""
        waited = f"the job waited {job.timeout_ms} ms."
        missing = self._unavailable(job)
        return f"{missing}: {waited}" if missing else f"All workers for '{job.kind}' were busy: {waited}"

    def waiting_message(self, job: Job) -> str:
        """Return the reason for which a job still waits, as progress for clients."""
        missing = self._unavailable(job) or "All are busy"
        return f"waits for a worker of '{job.kind}': {missing[0].lower()}{missing[1:]}"

    def _unavailable(self, job: Job) -> str:
        """Return the reason for which no connected worker can execute a job, as a clause; empty if one
        can."""
        sessions, project = list(self.of_kind(job.kind)), job.context.project_id
        if not sessions:
            return f"No worker for '{job.kind}' is connected"
        if not any(session.serves_project(project) for session in sessions):
            return f"No worker for '{job.kind}' is connected that works for this project"
        return ""
