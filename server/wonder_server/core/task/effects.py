"""Faults that say whether an effect took place (feature I4).

An action that may not simply be repeated leaves three cases when it fails for want of infrastructure:

====================  =================================================================================
it raises             means, and what the executor does
====================  =================================================================================
`NotBegunError`       surely nothing happened (nobody listens, too busy to begin): try it again
a transient fault     it may have happened: OUTCOME_UNKNOWN, at once
any other fault       the other side said what happened: the step fails with it
====================  =================================================================================

Of a repeatable action the first two are the same.
"""

from __future__ import annotations

from dataclasses import replace

from wonder_server.core.errors import Fault, Reason, WonderError


class NotStartedError(WonderError):
    """What was asked for surely had no effect; its fault is transient."""

    def __init__(self, reason: Reason, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(Fault(reason=reason, message=message, transient=True, retry_after_ms=retry_after_ms))


def outcome_unknown(fault: Fault) -> Fault:
    """What to say when ``fault`` befell something that must not be done twice."""
    message = f"{fault.message} Whether it was done is not known, and it must not be done twice."
    return replace(
        fault, reason=Reason.OUTCOME_UNKNOWN, message=message, transient=False, retry_after_ms=None
    )
