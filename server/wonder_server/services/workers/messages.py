"""What workers say and are told, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKind:
    """A kind of action that a worker carries out.

    Empty schemas take anything. ``idempotent``: it may be given to another worker after this one was
    lost. ``max_concurrency`` is how many of it the worker takes at once, 0 for as many as of all kinds.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=dict)
    output_schema: dict[str, Any] = field(default_factory=dict)
    idempotent: bool = False
    max_concurrency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a worker can do. ``projects`` are the ids of those for whose work it is; none: all."""

    name: str
    kinds: tuple[WorkerKind, ...]
    max_concurrency: int = 1
    projects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteKind:
    """A kind of action that connected workers carry out: what they declare, and how many they are."""

    kind: WorkerKind
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an assignment is. ``fraction`` is from 0 to 1, None where nobody knows; ``output`` is more of
    what it prints."""

    message: str = ""
    fraction: float | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing that a worker is to do.

    ``operation_id`` stays the same however often it is tried or given out, so that a worker can tell.
    ``timeout_ms`` is for everything: waiting for a worker, and every worker that is lost with it.
    ``idempotent`` is what its definition says; None leaves it to what the kind declares.
    """

    kind: str
    input: Mapping[str, Any]
    operation_id: str
    context: Scope
    timeout_ms: int
    idempotent: bool | None = None
    on_progress: Callable[[Progress], None] | None = None


# --- what a worker is told --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentMessage:
    """Something to do. ``attempt`` counts from 1; ``deadline_ms`` is in milliseconds since 1970."""

    lease_id: str
    attempt: int
    job: Job
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Stop working on something; the lease is over."""

    lease_id: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of a result; ``fault`` says why it was not taken."""

    lease_id: str
    fault: Fault | None = None

    @property
    def accepted(self) -> bool:
        return self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """The server stops in ``grace_ms``: nothing new is assigned, results are still taken."""

    grace_ms: int


WorkerMessage = AssignmentMessage | Cancelled | Settled | Draining
