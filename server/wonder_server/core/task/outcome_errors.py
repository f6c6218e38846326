"""Errors that tell whether an effect took place (feature I4).

An action that is not repeatable ends an infrastructure failure in one of three ways:

====================  =================================================================================
it raises             meaning, and reaction of the executor
====================  =================================================================================
`NotStartedError`     nothing happened (no listener, too busy to start): the executor retries
a transient fault     the effect may have taken place: OUTCOME_UNKNOWN, at once
any other fault       the other side reported the outcome: the step fails with it
====================  =================================================================================

For a repeatable action the executor treats the first two alike.
"""

from __future__ import annotations

from dataclasses import replace

from wonder_server.core.errors import Fault, Reason, WonderError


class NotStartedError(WonderError):
    """Raised if a request certainly had no effect. The fault is transient."""

    def __init__(self, reason: Reason, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(Fault(reason=reason, message=message, transient=True, retry_after_ms=retry_after_ms))


def outcome_unknown(fault: Fault) -> Fault:
    """Return the OUTCOME_UNKNOWN fault for a transient ``fault`` of work that is not repeatable."""
    message = f"{fault.message} The outcome is unknown, and the action is not repeatable."
    return replace(
        fault, reason=Reason.OUTCOME_UNKNOWN, message=message, transient=False, retry_after_ms=None
    )
