"""Incident numbers for unexpected errors: the log holds the details, the client receives the number only."""

from __future__ import annotations

import sys

from wonder_server.core import ids
from wonder_server.core.errors import Fault, Reason, system_fault
from wonder_server.logs import logger

_log = logger("actors")


def report_incident(event: str, **where: str) -> Fault:
    """Log the current exception under a new incident id and return the fault to answer with.

    If the machine has no file descriptors or disk space left, the fault says that instead.
    """
    problem = sys.exception()
    system = system_fault(problem) if problem is not None else None
    if system is not None:
        _log.error(event, reason=system.reason, problem=str(problem), **where)
        return system
    incident_id = ids.random_hex(4)
    _log.exception(event, incident_id=incident_id, **where)
    return Fault(
        reason=Reason.INTERNAL,
        message=f"Internal error. See the server log, incident {incident_id}.",
        metadata={"incident_id": incident_id},
    )
