"""Messages to workers, and the values of registrations and jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKind:
    """An action kind that a worker executes.

    An empty schema accepts any value. ``idempotent``: after the loss of this worker, another may execute the
    job. ``max_concurrency`` limits concurrent jobs of this kind; 0 means the worker's own maximum."""

    name: str
    description: str = ""
    input_schema: JsonDict = field(default_factory=dict)
    output_schema: JsonDict = field(default_factory=dict)
    idempotent: bool = False
    max_concurrency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The action kinds of a worker. ``projects`` are the ids of the projects that it serves; empty means
    all."""

    name: str
    kinds: tuple[WorkerKind, ...]
    max_concurrency: int = 1
    projects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteKind:
    """An action kind of connected workers: its declaration and the number of workers."""

    kind: WorkerKind
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of an assignment. ``fraction`` is from 0 to 1, None if unknown. ``output`` is added output of
    the job."""

    message: str = ""
    fraction: float | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job for a worker.

    ``operation_id`` is the same in every attempt and assignment, so that a worker can recognize the job.
    ``timeout_ms`` limits everything: the wait for a worker, and every attempt after a lost worker.
    ``idempotent`` is the action definition's statement; None leaves it to the kind's declaration."""

    kind: str
    input: JsonObject
    operation_id: str
    context: Scope
    timeout_ms: int
    idempotent: bool | None = None
    on_progress: Callable[[Progress], None] | None = None


# --- messages to a worker --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentMessage:
    """A job assigned to the worker. ``attempt`` counts from 1. ``deadline_ms`` is in milliseconds since
    1970."""

    lease_id: str
    attempt: int
    job: Job
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The request to stop a job. Its lease has ended."""

    lease_id: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The reply to a result. ``fault`` is the reason for which the server rejected it."""

    lease_id: str
    fault: Fault | None = None

    @property
    def accepted(self) -> bool:
        return self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """The notice that the server stops in ``grace_ms``. It assigns no more jobs and still accepts results."""

    grace_ms: int


WorkerMessage = AssignmentMessage | Cancelled | Settled | Draining
