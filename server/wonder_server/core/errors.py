"""Errors that a user can cause, as values.

Two shapes, one content::

    Fault         a frozen value: what planners return, what the journal and events record
    WonderError   the exception that carries a Fault through services and rpc

``rpc/server/status.py`` holds the one table from `Reason` to gRPC status; `Reason` mirrors the enum
``ErrorReason`` of the contract name for name (a test asserts it).
"""

from __future__ import annotations

import dataclasses
import errno
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Every reason Wonder ever gives; documented with examples in ``errors.proto``."""

    # The request itself is wrong (INVALID_ARGUMENT).
    MALFORMED_REQUEST = "MALFORMED_REQUEST"
    FIELD_INVALID = "FIELD_INVALID"
    FIELD_MASK_UNSUPPORTED = "FIELD_MASK_UNSUPPORTED"
    PAGE_TOKEN_INVALID = "PAGE_TOKEN_INVALID"
    PAYLOAD_TOO_DEEP = "PAYLOAD_TOO_DEEP"
    NUMBER_OUT_OF_RANGE = "NUMBER_OUT_OF_RANGE"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    DEFINITION_INVALID = "DEFINITION_INVALID"
    INPUT_INVALID = "INPUT_INVALID"
    # Something named does not exist (NOT_FOUND).
    CONVERSATION_NOT_FOUND = "CONVERSATION_NOT_FOUND"
    TURN_NOT_FOUND = "TURN_NOT_FOUND"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    PROJECT_NOT_FOUND = "PROJECT_NOT_FOUND"
    LIBRARY_NOT_FOUND = "LIBRARY_NOT_FOUND"
    DEFINITION_NOT_FOUND = "DEFINITION_NOT_FOUND"
    MEMORY_NOT_FOUND = "MEMORY_NOT_FOUND"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    GATE_NOT_FOUND = "GATE_NOT_FOUND"
    ARTIFACT_NOT_FOUND = "ARTIFACT_NOT_FOUND"
    # The name is taken (ALREADY_EXISTS).
    ALREADY_EXISTS = "ALREADY_EXISTS"
    # Someone else changed it first (ABORTED).
    ETAG_MISMATCH = "ETAG_MISMATCH"
    MERGE_CONFLICT = "MERGE_CONFLICT"
    # The state forbids it (FAILED_PRECONDITION).
    CONVERSATION_NOT_ACTIVE = "CONVERSATION_NOT_ACTIVE"
    TURN_NOT_ACTIVE = "TURN_NOT_ACTIVE"
    RUN_NOT_ACTIVE = "RUN_NOT_ACTIVE"
    NOT_ATTACHED = "NOT_ATTACHED"
    NO_AGENT = "NO_AGENT"
    RESOURCE_IN_USE = "RESOURCE_IN_USE"
    GATE_RESOLVED = "GATE_RESOLVED"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    # A limit was reached (RESOURCE_EXHAUSTED).
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    SLOW_READER = "SLOW_READER"
    MAX_MOVES_REACHED = "MAX_MOVES_REACHED"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    # Who is calling (UNAUTHENTICATED, PERMISSION_DENIED).
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    # A cursor lies beyond the record (OUT_OF_RANGE).
    CURSOR_OUT_OF_RANGE = "CURSOR_OUT_OF_RANGE"
    # It was stopped (CANCELLED).
    CANCELLED = "CANCELLED"
    # It took too long (DEADLINE_EXCEEDED).
    TIMEOUT = "TIMEOUT"
    # Work failed inside (turns, runs and tasks carry these; as a status: FAILED_PRECONDITION/ABORTED).
    CONTEXT_ASSEMBLY_FAILED = "CONTEXT_ASSEMBLY_FAILED"
    MEMORY_EXTRACTION_FAILED = "MEMORY_EXTRACTION_FAILED"
    MODEL_FAILED = "MODEL_FAILED"
    TASK_FAILED = "TASK_FAILED"
    RUN_FAILED = "RUN_FAILED"
    ASSERTION_FAILED = "ASSERTION_FAILED"
    EXPRESSION_FAILED = "EXPRESSION_FAILED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    # The server cannot do it now (UNAVAILABLE).
    SERVER_DRAINING = "SERVER_DRAINING"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    # Its turn has not come (UNIMPLEMENTED).
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    # Our fault (INTERNAL).
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One error, as data.

    ``message`` is a plain sentence for people: what is wrong and what to do; never a class name,
    a stack trace or a secret. ``field`` is the path of the offending request field
    (``content``, ``spec.nodes[2].condition``). ``transient`` marks infrastructure errors, which the
    platform retries unseen (feature I1); everything else is a business error.
    ``retry_after_ms`` becomes ``RetryInfo``.
    """

    reason: Reason
    message: str
    field: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    transient: bool = False
    retry_after_ms: int | None = None


class WonderError(Exception):
    """Carries a `Fault` out of services and adapters to whoever must answer."""

    def __init__(self, fault: Fault, *, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(f"{fault.reason}: {fault.message}")
        self.fault = fault
        self.faults = faults or (fault,)
        """Every violation found, when one request has several (``BadRequest`` lists them all)."""


def error(
    reason: Reason,
    message: str,
    *,
    field: str = "",
    transient: bool = False,
    retry_after_ms: int | None = None,
    **metadata: str,
) -> WonderError:
    """Short form for ``raise error(Reason.X, "sentence", field="a.b", id=…)``."""
    return WonderError(
        Fault(
            reason=reason,
            message=message,
            field=field,
            metadata=metadata,
            transient=transient,
            retry_after_ms=retry_after_ms,
        )
    )


def system_fault(problem: BaseException) -> Fault | None:
    """The fault for an error that is the machine's want of something: descriptors, or room on the disk."""
    seen: set[int] = set()
    left: list[BaseException] = [problem]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, OSError) and each.errno in _WANTS:
            reason, message = _WANTS[each.errno]
            return Fault(reason=reason, message=message, transient=True)
        left += [more for more in (each.__cause__, each.__context__) if more is not None]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
    return None


_DESCRIPTORS = (
    Reason.LIMIT_EXCEEDED,
    "The server has no file descriptors left; try again later. Its operator can raise the limit (ulimit -n).",
)
_FULL = (
    Reason.STORAGE_UNAVAILABLE,
    "The server's disk is full; try again when there is room. Its operator has to free some.",
)
_WANTS = {
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
}
