"""`ActionError`: the failure of a worker's action."""

from __future__ import annotations

from collections.abc import Mapping

from wonder_sdk._proto.wonder import v1


class ActionError(Exception):
    """Failure of an action, with a ``message`` for the caller of the action.

    ``retriable`` means that the action had no effect and may succeed later. The server retries it by the
    retry policy of the action's definition, ``retry_after_ms`` later at the earliest.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: v1.ErrorReason = v1.ErrorReason.TASK_FAILED,
        retriable: bool = False,
        retry_after_ms: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.fault = v1.Fault(
            reason=reason,
            message=message,
            retriable=retriable,
            retry_after_ms=retry_after_ms,
            metadata=dict(metadata or {}),
        )
