"""Remote workers: processes outside the server that execute action kinds of their own (feature H4)."""

from __future__ import annotations

from wonder_server.services.workers.messages import (
    AssignmentMessage,
    Cancelled,
    Draining,
    Job,
    Progress,
    Registration,
    RemoteKind,
    Settled,
    WorkerKind,
    WorkerMessage,
)
from wonder_server.services.workers.pool import WorkerPool
from wonder_server.services.workers.pools import WorkerPools
from wonder_server.services.workers.registration import check_registration
from wonder_server.services.workers.session import WorkerSession

__all__ = [
    "AssignmentMessage",
    "Cancelled",
    "Draining",
    "Job",
    "Progress",
    "Registration",
    "RemoteKind",
    "Settled",
    "WorkerKind",
    "WorkerMessage",
    "WorkerPool",
    "WorkerPools",
    "WorkerSession",
    "check_registration",
]
