"""Unexpected errors: a number that the log and the client both have, and nothing else for the client."""

from __future__ import annotations

import secrets

from wonder_server.core.errors import Fault, Reason
from wonder_server.logs import logger

_log = logger("actors")


def unexpected(event: str, **where: str) -> Fault:
    """Log the exception being handled under a fresh incident number; the fault to answer with."""
    incident = secrets.token_hex(4)
    _log.exception(event, incident=incident, **where)
    return Fault(
        reason=Reason.INTERNAL,
        message=f"Something went wrong inside the server. Its log knows more, under incident {incident}.",
        metadata={"incident": incident},
    )
