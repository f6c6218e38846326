"""Remote workers: processes of others that carry out kinds of action of their own (feature H4)."""

from __future__ import annotations

from wonder_server.services.workers.pool import Workers
from wonder_server.services.workers.registration import check_registration
from wonder_server.services.workers.seat import Seat
from wonder_server.services.workers.words import (
    Assigned,
    Cancelled,
    Draining,
    Job,
    Progress,
    Registration,
    RemoteKind,
    Settled,
    Word,
    WorkerKind,
)

__all__ = [
    "Assigned",
    "Cancelled",
    "Draining",
    "Job",
    "Progress",
    "Registration",
    "RemoteKind",
    "Seat",
    "Settled",
    "Word",
    "WorkerKind",
    "Workers",
    "check_registration",
]
